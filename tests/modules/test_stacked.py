"""Stacked layers do for each weight set what a layer of its own does."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rllib_shared.modules import stacked
from rllib_shared.modules.model_config import ModelConfig
from rllib_shared.modules.networks import Actor, AgentId, Critic
from rllib_shared.modules.stacked import GradientFactors, RowGroups, StackedConv2d, StackedLinear

GRID = gym.spaces.Box(0, 1, (7, 6, 3), np.float32)
FLAT = gym.spaces.Box(-1, 1, (5,), np.float32)
SETS = [2, 0, 1, 1, 0]  # of five slots


def slice_of(module: torch.nn.Module, state: dict[str, torch.Tensor], g: int) -> None:
    """Give a module of one set the weights of set `g`."""
    module.load_state_dict({key: value[g].T if value.dim() == 3 else value[g] for key, value in state.items()})


def test_rows_come_back_in_their_order() -> None:
    index = torch.tensor([2, 0, 2, 2, 1, 0])
    groups = RowGroups(index, 4)
    rows = torch.arange(12.0).view(6, 2)
    grouped = groups.spread(rows)
    assert grouped.shape == (4, 3, 2)
    assert grouped[0, :2].tolist() == rows[[1, 5]].tolist()
    assert grouped[2].tolist() == rows[[0, 2, 3]].tolist()
    torch.testing.assert_close(groups.collect(grouped), rows)


def test_no_rows_are_fine() -> None:
    groups = RowGroups(torch.zeros(0, dtype=torch.int64), 3)
    assert groups.collect(groups.spread(torch.zeros(0, 2))).shape == (0, 2)


def test_every_set_starts_orthogonal_and_different() -> None:
    layer = StackedLinear(4, 4, 3, gain=2.0)
    for matrix in layer.weight.detach():
        torch.testing.assert_close(matrix @ matrix.T, 4 * torch.eye(4), atol=1e-5, rtol=0)
    assert not torch.equal(layer.weight[0], layer.weight[1])


def test_one_input_for_all_sets_is_the_same_input_for_each() -> None:
    linear, convolution = StackedLinear(5, 4, 3), StackedConv2d(3, 4, 3, 2, sets=3)
    flat, images = torch.randn(6, 5), torch.randn(6, 3, 7, 8)
    torch.testing.assert_close(linear(flat), linear(flat.expand(3, 6, 5)))
    torch.testing.assert_close(convolution(images), convolution(images.expand(3, 6, 3, 7, 8)))


@pytest.mark.parametrize("agent_id", [False, True, "binary"])
@pytest.mark.parametrize("space", [FLAT, GRID], ids=["mlp", "cnn"])
def test_an_actor_of_several_sets_is_several_actors(space: gym.Space, agent_id: Any) -> None:
    options = {"hidden": (8, 6), "agent_id": agent_id, "num_slots": 5}
    stacked = Actor(space, 4, ModelConfig(**options, weight_index=SETS))
    observation, slot = torch.randn(20, *space.shape), torch.randint(5, (20,))
    inputs = stacked(observation, slot)
    one = Actor(space, 4, ModelConfig(**options))
    for row in range(20):
        slice_of(one, stacked.state_dict(), SETS[slot[row]])
        expected = one(observation[row : row + 1], slot[row : row + 1])
        torch.testing.assert_close(inputs[row : row + 1], expected)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("agent_id", [False, True])
@pytest.mark.parametrize("space", [FLAT, GRID], ids=["mlp", "cnn"])
@pytest.mark.parametrize("with_rows", [True, False])
def test_a_critic_of_several_sets_is_several_critics(space: Any, agent_id: bool, own: bool, with_rows: bool) -> None:
    options: dict[str, Any] = {"hidden": (8,), "agent_id": agent_id, "num_slots": 5, "critic_own_observation": own}
    stacked = Critic(FLAT, space, ModelConfig(**options, critic_weight_index=SETS))
    observation, slot = torch.randn(20, 5), torch.randint(5, (20,))
    critic_observation = torch.randn(7 if with_rows else 20, *space.shape)
    row = torch.randint(7, (20,)) if with_rows else None
    values = stacked(observation, critic_observation, row, slot)
    one = Critic(FLAT, space, ModelConfig(**options))
    for i in range(20):
        slice_of(one, stacked.state_dict(), SETS[slot[i]])
        seen = critic_observation[i if row is None else row[i]].unsqueeze(0)
        torch.testing.assert_close(values[i : i + 1], one(observation[i : i + 1], seen, None, slot[i : i + 1]))


def test_agent_ids_are_different_codes() -> None:
    everyone = torch.arange(6)
    assert torch.equal(AgentId(6, binary=False)(everyone), torch.eye(6))
    assert AgentId(6, binary=True)(everyone).tolist() == [
        [0, 0, 0],
        [1, 0, 0],
        [0, 1, 0],
        [1, 1, 0],
        [0, 0, 1],
        [1, 0, 1],
    ]


def test_who_a_row_is_must_be_said() -> None:
    actor = Actor(FLAT, 2, ModelConfig(hidden=(4,), num_slots=5, weight_index=SETS))
    with pytest.raises(ValueError, match="the batch has no 'slot' column"):
        actor(torch.zeros(3, 5))


def test_kept_factors_are_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "BLOCK_BYTES", 1)
    layer, x = StackedLinear(36, 30, 4), torch.randn(4, 3, 36)

    def loss() -> torch.Tensor:
        # Used twice: both uses count.
        return layer(x).square().sum() + layer(x[0, :1]).sin().sum()

    loss().backward()
    expected, bias = layer.weight.grad, layer.bias.grad
    assert expected is not None and layer.factors is None
    layer.zero_grad()
    layer.keeps_factors = True
    loss().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(layer.bias.grad, bias)
    factors = layer.factors
    assert factors is not None
    torch.testing.assert_close(factors.norms(), expected.flatten(1).norm(dim=1))
    for sets_at_once in (1, 3, 9):
        seen = 0
        for sets, block in factors.blocks(torch.empty(sets_at_once * 36 * 30)):
            torch.testing.assert_close(block, expected[sets])
            seen += len(block)
        assert seen == 4


@pytest.mark.parametrize(("rows", "block_bytes"), [(3, 10**6), (9, 1)], ids=["small gradient", "many rows"])
def test_other_gradients_are_made_in_the_spare_memory(
    monkeypatch: pytest.MonkeyPatch, rows: int, block_bytes: int
) -> None:
    monkeypatch.setattr(stacked, "BLOCK_BYTES", block_bytes)
    layer, x = StackedLinear(36, 30, 4), torch.randn(4, rows, 36)
    layer(x).square().sum().backward()
    first = layer.weight.grad
    assert first is not None
    expected, memory = first.clone(), first.data_ptr()
    layer.keeps_factors = True
    layer.spare = first
    layer.zero_grad()
    del first
    layer(x).square().sum().backward()
    assert layer.factors is None and layer.spare is None
    assert layer.weight.grad is not None and layer.weight.grad.data_ptr() == memory
    torch.testing.assert_close(layer.weight.grad, expected, rtol=0, atol=0)


def test_factors_are_scaled_by_set_and_0_removes_nan() -> None:
    rows, of_output = torch.randn(3, 2, 5), torch.randn(3, 2, 4)
    factors = GradientFactors(rows, of_output)
    expected = rows.transpose(1, 2) @ of_output
    rows[1, 0, 0] = torch.nan
    of_output[1, 1, 2] = torch.inf
    assert factors.norms().isfinite().tolist() == [True, False, True]
    factors.scale(torch.tensor([2.0, 0.0, 1.0]))
    ((_, product),) = factors.blocks(torch.empty(60))
    torch.testing.assert_close(product[0], 2 * expected[0])
    assert not product[1].any()
    torch.testing.assert_close(product[2], expected[2])


def test_the_norm_of_gradients_that_cancel_out_is_0() -> None:
    row = torch.randn(1, 1, 50)
    factors = GradientFactors(
        row.repeat(20, 2, 1), torch.randn(20, 1, 3).repeat(1, 2, 1) * torch.tensor([[1.0], [-1.0]])
    )
    torch.testing.assert_close(factors.norms(), torch.zeros(20), atol=1e-2, rtol=0)
