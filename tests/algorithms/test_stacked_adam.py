"""`StackedAdam` does what `torch.optim.Adam` does, from factors of gradients and in blocks."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from rllib_shared.algorithms import stacked_adam
from rllib_shared.algorithms.stacked_adam import StackedAdam
from rllib_shared.modules import stacked as modules_stacked
from rllib_shared.modules.stacked import StackedLinear


def network() -> nn.Sequential:
    """Three layers, of very different size."""
    torch.manual_seed(0)
    return nn.Sequential(
        StackedLinear(6, 20, 5), nn.Tanh(), StackedLinear(20, 20, 5), nn.Tanh(), StackedLinear(20, 1, 5)
    )


def train(layers: nn.Sequential, optimizer: torch.optim.Optimizer, steps: int, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        layers(torch.randn(5, 2, 6, generator=generator)).square().sum().backward()
        optimizer.step()


def stacked(layers: nn.Sequential) -> StackedAdam:
    return StackedAdam(
        layers.parameters(), [part for part in layers if isinstance(part, StackedLinear)], lr=1e-2, eps=1e-5
    )


def assert_alike(a: nn.Module, b: nn.Module) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("sets_at_once", [1, 2, 5])
def test_it_is_adam(monkeypatch: pytest.MonkeyPatch, sets_at_once: int) -> None:
    for module in (stacked_adam, modules_stacked):
        monkeypatch.setattr(module, "BLOCK_BYTES", sets_at_once * 20 * 20 * 4)
    plain, blocks = network(), network()
    adam, optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2, eps=1e-5, fused=True), stacked(blocks)
    train(plain, adam, 10)
    train(blocks, optimizer, 10)
    # With room for one or two sets the large layer never had a whole gradient.
    assert (blocks[2].weight.grad is None) == (sets_at_once < 5) and blocks[0].weight.grad is not None
    assert not torch.equal(blocks[2].weight, network()[2].weight)
    assert_alike(plain, blocks)
    expected, state = adam.state_dict()["state"], optimizer.state_dict()["state"]
    assert state.keys() == expected.keys()
    for number, values in expected.items():
        for key, value in values.items():
            torch.testing.assert_close(state[number][key], value)


def test_either_goes_on_from_the_other_s_state() -> None:
    plain, blocks = network(), network()
    adam, optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2, eps=1e-5, fused=True), stacked(blocks)
    train(plain, adam, 3)
    blocks.load_state_dict(plain.state_dict())
    optimizer.load_state_dict(copy.deepcopy(adam.state_dict()))
    train(plain, adam, 3, seed=2)
    train(blocks, optimizer, 3, seed=2)
    assert_alike(plain, blocks)
    adam.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(plain, adam, 1, seed=3)
    train(blocks, optimizer, 1, seed=3)
    assert_alike(plain, blocks)


def test_gradients_of_the_last_step_are_forgotten() -> None:
    layers = network()
    optimizer = stacked(layers)
    train(layers, optimizer, 1)
    optimizer.zero_grad()
    before = layers[2].weight.clone()
    optimizer.step()
    assert layers[2].factors is None and torch.equal(layers[2].weight, before)


def test_the_memory_of_whole_gradients_is_used_again() -> None:
    layers = network()
    optimizer = stacked(layers)
    memory = set()
    for seed in range(3):
        train(layers, optimizer, 1, seed)
        assert layers[2].weight.grad is not None
        memory.add(layers[2].weight.grad.data_ptr())
    assert len(memory) == 1
