"""Encoders and the two networks, actor and critic. No RLlib here, only tensors of rows.

Each network exists once for all slots, or in G weight sets (`stacked.py`) of which every slot uses one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rllib_shared.modules.model_config import ACTIVATIONS, BINARY, ModelConfig
from rllib_shared.modules.stacked import RowGroups, RowsBySet, StackedConv2d, StackedLinear


class Features(nn.Module):
    """One observation array as a flat feature vector: `[R, ...] -> [R, size]`, or `[G, M, ...] -> [G, M, size]`.

    Args:
        space: space of the array.
        encoder: `mlp` (flatten), `cnn` (convolve `[H, W, C]`) or `auto`.
        config: for the convolutions and the nonlinearity.
        sets: G, of the convolutions.
    """

    def __init__(self, space: gym.Space, encoder: str, config: ModelConfig, sets: int = 1) -> None:
        super().__init__()
        shape = space.shape
        assert shape is not None
        if encoder == "cnn" and len(shape) != 3:
            raise ValueError(f"a cnn needs grids [H, W, C], but the observation has shape {shape}; use encoder='mlp'")
        # Pixels are the one kind of input whose scale is known without statistics.
        self._scale = 1.0 / 255.0 if space.dtype == np.uint8 else None
        self._rank = len(shape)
        self._convolutions: nn.Sequential | None = None
        self.size = math.prod(shape)
        if encoder == "cnn" or (encoder == "auto" and len(shape) == 3):
            height, width, channels = shape
            layers: list[nn.Module] = []
            for out_channels, kernel, stride in config.conv_filters or default_filters(height, width):
                convolution = (
                    nn.Conv2d(channels, out_channels, kernel, stride, padding=kernel // 2)
                    if sets == 1
                    else StackedConv2d(channels, out_channels, kernel, stride, sets)
                )
                layers += [convolution, ACTIVATIONS[config.activation]()]
                height, width = ((n + 2 * (kernel // 2) - kernel) // stride + 1 for n in (height, width))
                channels = out_channels
            self._convolutions = nn.Sequential(*layers)
            self.size = height * width * channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Flat features."""
        x = x.float()
        if self._scale is not None:
            x = x * self._scale
        if self._convolutions is not None:
            x = self._convolutions(x.movedim(-1, -3))
        return x.flatten(-self._rank) if self._rank else x.unsqueeze(-1)


def default_filters(height: int, width: int) -> list[tuple[int, int, int]]:
    """Convolutions that halve a grid until it has at most 8 cells a side; see `ModelConfig.conv_filters`."""
    filters = [(16, 3, 1 if max(height, width) <= 16 else 2)]
    side = -(-max(height, width) // filters[0][2])
    while side > 8:
        filters.append((32, 3, 2))
        side = -(-side // 2)
    return filters


class AgentId(nn.Module):
    """Which agent it is: slot number int64 `[...] -> [..., size]`, one-hot or in binary.

    Args:
        num_slots: N.
        binary: bits, lowest first, instead of one-hot.
    """

    _code: torch.Tensor

    def __init__(self, num_slots: int, binary: bool) -> None:
        super().__init__()
        if num_slots < 1:
            raise ValueError("agent_id and critic_agent_id need num_slots in model_config")
        self.size = max(1, math.ceil(math.log2(num_slots))) if binary else num_slots
        bits = torch.arange(num_slots).unsqueeze(1) >> torch.arange(self.size) & 1
        self.register_buffer("_code", bits.float() if binary else torch.eye(num_slots), persistent=False)

    def forward(self, slot: torch.Tensor) -> torch.Tensor:
        """The code of each row's agent."""
        return self._code[slot]


class Actor(nn.Module):
    """`observation [R, ...] -> distribution inputs [R, out]`, an MLP over features and, if asked for, the agent's id.

    Args:
        space: space of one agent's observation.
        out: number of distribution inputs.
        config: sizes and weight sets.
    """

    def __init__(self, space: gym.Space, out: int, config: ModelConfig) -> None:
        super().__init__()
        self.sets = _WeightSets(config.weight_index)
        self.features = Features(space, config.encoder, config, self.sets.number)
        self.agent_id = AgentId(config.num_slots, config.agent_id == BINARY) if config.agent_id else None
        size = self.features.size + (self.agent_id.size if self.agent_id is not None else 0)
        # A small last layer starts with a nearly uniform policy (Andrychowicz et al., arXiv 2006.05990).
        self.mlp = mlp([size, *config.hidden, out], config.activation, 0.01, self.sets.number)

    @property
    def needs_slot(self) -> bool:
        """Whether it asks who a row is."""
        return self.agent_id is not None or self.sets.number > 1

    def forward(
        self, observation: torch.Tensor, slot: torch.Tensor | None = None, by_set: RowsBySet | None = None
    ) -> torch.Tensor:
        """Distribution inputs `[R, out]`.

        Args:
            observation: `[R, ...]`.
            slot: int64 `[R]`, read if `needs_slot`.
            by_set: `sets.sort(observation, slot)`, if it is there already.
        """
        by_set = by_set or self.sets.sort(observation, slot)
        features = self.features(by_set.observation if by_set else observation)
        if self.agent_id is not None:
            code = self.agent_id(by_set.slot if by_set else _known(slot))
            features = torch.cat([features, code], dim=-1)
        inputs = self.mlp(features)
        return by_set.groups.collect(inputs) if by_set else inputs


class Critic(nn.Module):
    """A value from what the team sees (once per env step), what the agent sees, and which agent it is.

    The first layer is a sum of one linear map per input, which is the same as one map of their concatenation; so the
    big critic observation is multiplied once per env step and weight set and not once per agent.

    Args:
        space: space of one agent's observation.
        critic_space: space of the critic observation; None if the critic sees what the actor sees.
        config: sizes and weight sets.
    """

    def __init__(self, space: gym.Space, critic_space: gym.Space | None, config: ModelConfig) -> None:
        super().__init__()
        hidden = list(config.critic_hidden or config.hidden)
        width = hidden[0]
        self.sets = _WeightSets(config.critic_weight_index)
        number = self.sets.number
        self.team: nn.Module | None = None
        self.own: nn.Module | None = None
        self.agent_id: nn.Module | None = None
        if critic_space is not None:
            features = Features(critic_space, config.critic_encoder, config, number)
            self.team = nn.Sequential(features, linear(features.size, width, sets=number))
        if critic_space is None or config.critic_own_observation:
            features = Features(space, config.encoder, config, number)
            self.own = nn.Sequential(features, linear(features.size, width, sets=number))
        if config.critic_agent_id or config.agent_id:
            code = AgentId(config.num_slots, config.agent_id == BINARY)
            self.agent_id = nn.Sequential(code, linear(code.size, width, sets=number))
        self.rest = nn.Sequential(ACTIVATIONS[config.activation](), mlp([*hidden, 1], config.activation, 1.0, number))

    def forward(
        self,
        observation: torch.Tensor,
        critic_observation: torch.Tensor | None,
        critic_row: torch.Tensor | None,
        slot: torch.Tensor | None,
        by_set: RowsBySet | None = None,
    ) -> torch.Tensor:
        """Values `[R]`.

        Args:
            observation: `[R, ...]`.
            critic_observation: `[S, ...]`, S = env steps x teams, or None.
            critic_row: int64 `[R]`, the critic observation of each row; None means row by row.
            slot: int64 `[R]`, read if there are agent ids or several weight sets.
            by_set: `sets.sort(observation, slot)`, if it is there already.
        """
        team = self.team(critic_observation) if self.team is not None else None
        if team is not None and self.own is None and self.agent_id is None:
            return self._pick(self.rest(team).squeeze(-1), critic_row, slot)
        by_set = by_set or self.sets.sort(observation, slot)
        hidden = self.own(by_set.observation if by_set else observation) if self.own is not None else None
        if team is not None:
            # Many rows read one env step; index_select's backward adds them up faster than that of team[critic_row].
            picked = self._pick(team, critic_row, slot)
            picked = by_set.groups.spread(picked) if by_set else picked
            hidden = picked if hidden is None else hidden + picked
        if self.agent_id is not None:
            shift = self.agent_id(by_set.slot if by_set else _known(slot))
            hidden = shift if hidden is None else hidden + shift
        value = self.rest(hidden).squeeze(-1)
        return by_set.groups.collect(value) if by_set else value

    def _pick(self, team: torch.Tensor, critic_row: torch.Tensor | None, slot: torch.Tensor | None) -> torch.Tensor:
        """Each row its own of what was computed once per critic observation: `[(G,) S, ...]` to `[R, ...]`."""
        if self.sets.number == 1:
            return team if critic_row is None else team.index_select(0, critic_row)
        slot = _known(slot)
        row = torch.arange(len(slot), device=slot.device) if critic_row is None else critic_row
        return team.flatten(0, 1).index_select(0, self.sets.of(slot) * team.shape[1] + row)


class _WeightSets(nn.Module):
    """Which of a network's weight sets a slot uses.

    Args:
        weight_index: of each slot; empty for one set.

    Attributes:
        number: G.
    """

    _index: torch.Tensor

    def __init__(self, weight_index: Sequence[int]) -> None:
        super().__init__()
        self.number = max(weight_index, default=0) + 1
        self.register_buffer("_index", torch.as_tensor(weight_index, dtype=torch.int64), persistent=False)

    def of(self, slot: torch.Tensor) -> torch.Tensor:
        """The set of each row, int64 `[R]`, of slots int64 `[R]`."""
        return self._index.index_select(0, slot)

    def sort(self, observation: torch.Tensor, slot: torch.Tensor | None) -> RowsBySet | None:
        """Rows `[R, ...]` by set; None for one set."""
        if self.number == 1:
            return None
        slot = _known(slot)
        return RowsBySet(observation, slot, RowGroups(self.of(slot), self.number))


def _known(slot: torch.Tensor | None) -> torch.Tensor:
    """The slots of the rows.

    Raises:
        ValueError: there are none.
    """
    if slot is None:
        raise ValueError(
            "weights per agent or agent ids are on, but the batch has no 'slot' column [R]; "
            "act through TeamEnvRunner or load_policies, or export one agent's policy"
        )
    return slot


def mlp(sizes: Sequence[int], activation: str, last_gain: float, sets: int = 1) -> nn.Sequential:
    """Linear layers of these sizes with nonlinearities between them."""
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        last = i == len(sizes) - 2
        layers.append(linear(n_in, n_out, last_gain if last else math.sqrt(2), sets))
        if not last:
            layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)


def linear(n_in: int, n_out: int, gain: float = math.sqrt(2), sets: int = 1) -> nn.Module:
    """A linear layer, or G of them, with orthogonal weights."""
    if sets > 1:
        return StackedLinear(n_in, n_out, sets, gain)
    layer = nn.Linear(n_in, n_out)
    if not layer.weight.is_meta:
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return layer
