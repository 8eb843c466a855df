"""Encoders and the two networks, actor and critic. No RLlib here, only tensors of rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rllib_shared.modules.model_config import ACTIVATIONS, ModelConfig


class Features(nn.Module):
    """One observation array as a flat feature vector: `[R, ...] -> [R, size]`.

    Args:
        space: space of the array.
        encoder: `mlp` (flatten), `cnn` (convolve `[H, W, C]`) or `auto`.
        config: for the convolutions and the nonlinearity.
    """

    def __init__(self, space: gym.Space, encoder: str, config: ModelConfig) -> None:
        super().__init__()
        shape = space.shape
        assert shape is not None
        if encoder == "cnn" and len(shape) != 3:
            raise ValueError(f"a cnn needs grids [H, W, C], but the observation has shape {shape}; use encoder='mlp'")
        # Pixels are the one kind of input whose scale is known without statistics.
        self._scale = 1.0 / 255.0 if space.dtype == np.uint8 else None
        self._convolutions: nn.Sequential | None = None
        self.size = math.prod(shape)
        if encoder == "cnn" or (encoder == "auto" and len(shape) == 3):
            height, width, channels = shape
            layers: list[nn.Module] = []
            for out_channels, kernel, stride in config.conv_filters or default_filters(height, width):
                layers += [
                    nn.Conv2d(channels, out_channels, kernel, stride, padding=kernel // 2),
                    ACTIVATIONS[config.activation](),
                ]
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
            x = self._convolutions(x.permute(0, 3, 1, 2))
        return x.flatten(1)


def default_filters(height: int, width: int) -> list[tuple[int, int, int]]:
    """Convolutions that halve a grid until it has at most 8 cells a side; see `ModelConfig.conv_filters`."""
    filters = [(16, 3, 1 if max(height, width) <= 16 else 2)]
    side = -(-max(height, width) // filters[0][2])
    while side > 8:
        filters.append((32, 3, 2))
        side = -(-side // 2)
    return filters


class Actor(nn.Module):
    """`observation [R, ...] -> distribution inputs [R, out]`, an MLP over features.

    Args:
        space: space of one agent's observation.
        out: number of distribution inputs.
        config: sizes.
    """

    def __init__(self, space: gym.Space, out: int, config: ModelConfig) -> None:
        super().__init__()
        self.features = Features(space, config.encoder, config)
        # A small last layer starts with a nearly uniform policy (Andrychowicz et al., arXiv 2006.05990).
        self.mlp = mlp([self.features.size, *config.hidden, out], config.activation, last_gain=0.01)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Distribution inputs."""
        return self.mlp(self.features(observation))


class Critic(nn.Module):
    """A value from what the team sees (once per env step), what the agent sees, and which agent it is.

    The first layer is a sum of one linear map per input, which is the same as one map of their concatenation; so the
    big critic observation is multiplied once per env step and not once per agent.

    Args:
        space: space of one agent's observation.
        critic_space: space of the critic observation; None if the critic sees what the actor sees.
        config: sizes.
    """

    def __init__(self, space: gym.Space, critic_space: gym.Space | None, config: ModelConfig) -> None:
        super().__init__()
        hidden = list(config.critic_hidden or config.hidden)
        width = hidden[0]
        self.team: nn.Module | None = None
        self.own: nn.Module | None = None
        self.agent_id: nn.Embedding | None = None
        if critic_space is not None:
            features = Features(critic_space, config.critic_encoder, config)
            self.team = nn.Sequential(features, _linear(features.size, width))
        if critic_space is None or config.critic_own_observation:
            features = Features(space, config.encoder, config)
            self.own = nn.Sequential(features, _linear(features.size, width))
        if config.critic_agent_id:
            if config.num_slots < 1:
                raise ValueError("critic_agent_id needs num_slots in model_config")
            self.agent_id = nn.Embedding(config.num_slots, width)
        self.rest = nn.Sequential(ACTIVATIONS[config.activation](), mlp([*hidden, 1], config.activation, last_gain=1.0))

    def forward(
        self,
        observation: torch.Tensor,
        critic_observation: torch.Tensor | None,
        critic_row: torch.Tensor | None,
        slot: torch.Tensor | None,
    ) -> torch.Tensor:
        """Values `[R]`.

        Args:
            observation: `[R, ...]`.
            critic_observation: `[S, ...]`, S = env steps x teams, or None.
            critic_row: int64 `[R]`, the critic observation of each row; None means row by row.
            slot: int64 `[R]`, needed with `critic_agent_id`.
        """
        team = self.team(critic_observation) if self.team is not None else None
        if team is not None and self.own is None and self.agent_id is None:
            value = self.rest(team).squeeze(-1)
            return value if critic_row is None else value.index_select(0, critic_row)
        hidden = self.own(observation) if self.own is not None else None
        if team is not None:
            # Many rows read one env step; index_select's backward adds them up faster than that of team[critic_row].
            spread = team if critic_row is None else team.index_select(0, critic_row)
            hidden = spread if hidden is None else hidden + spread
        if self.agent_id is not None:
            if slot is None:
                raise ValueError("critic_agent_id is on, but the batch has no 'slot' column")
            assert hidden is not None
            hidden = hidden + self.agent_id(slot)
        return self.rest(hidden).squeeze(-1)


def mlp(sizes: Sequence[int], activation: str, last_gain: float) -> nn.Sequential:
    """Linear layers of these sizes with nonlinearities between them."""
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        last = i == len(sizes) - 2
        layers.append(_linear(n_in, n_out, last_gain if last else math.sqrt(2)))
        if not last:
            layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)


def _linear(n_in: int, n_out: int, gain: float = math.sqrt(2)) -> nn.Linear:
    layer = nn.Linear(n_in, n_out)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
