"""The options of the networks: `config.rl_module(model_config={...})`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from rllib_shared.messages import unknown

ACTIVATIONS: dict[str, type[torch.nn.Module]] = {
    "relu": torch.nn.ReLU,
    "tanh": torch.nn.Tanh,
    "silu": torch.nn.SiLU,
    "gelu": torch.nn.GELU,
    "elu": torch.nn.ELU,
}
ENCODERS = ("auto", "mlp", "cnn")
BINARY = "binary"
# PPOConfig adds this key for its default module; actor and critic never share layers here.
_RLLIB_KEYS = {"vf_share_layers"}


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of actor and critic."""

    hidden: Sequence[int] = (256, 256)
    """Widths of the actor's hidden layers. Wider learns finer behaviour and costs time in proportion."""

    critic_hidden: Sequence[int] | None = None
    """Widths of the critic's hidden layers; None takes the actor's."""

    activation: str = "relu"
    """Nonlinearity: relu, tanh, silu, gelu or elu."""

    encoder: str = "auto"
    """What reads the actor's observation: `mlp` flattens it, `cnn` convolves a grid `[H, W, C]`, `auto` takes the cnn
    for grids. On a CPU the mlp is several times faster."""

    critic_encoder: str = "auto"
    """The same for the critic observation."""

    conv_filters: Sequence[Sequence[int]] | None = None
    """Convolutions of a cnn: (channels, kernel size, stride) each, padded, so that grids of any size fit. None halves
    the grid until it has at most 8 cells a side, so that a large map does not need a huge dense layer behind it."""

    critic_own_observation: bool = True
    """Whether the critic also reads the agent's own observation. False gives one value per team and step."""

    critic_agent_id: bool = False
    """Whether the critic also knows which slot (agent) it judges."""

    agent_id: bool | str = False
    """Append which slot (agent) it is to the inputs of actor and critic: True as one-hot, `binary` as bits. Filled in
    by `.teams(agent_id=...)`."""

    num_slots: int = 0
    """Slots of the module; filled in by the algorithm's config."""

    team_index: Sequence[int] = ()
    """Team of each slot, for a module that several teams share; filled in by the algorithm's config."""

    weight_index: Sequence[int] = ()
    """Weight set of each slot's actor; empty for one set. Filled in by `.teams(sharing=...)`."""

    critic_weight_index: Sequence[int] = ()
    """Weight set of each slot's critic; empty for one set. Filled in by `.teams(critic_sharing=...)`."""

    @classmethod
    def from_dict(cls, model_config: Mapping[str, Any]) -> ModelConfig:
        """Check and build.

        Raises:
            ValueError: unknown key or value, with the nearest known ones.
        """
        known = [field.name for field in fields(cls)]
        for key in model_config:
            if key not in known and key not in _RLLIB_KEYS:
                raise ValueError(unknown("model_config key", key, known))
        config = cls(**{key: value for key, value in model_config.items() if key in known})
        if config.activation not in ACTIVATIONS:
            raise ValueError(unknown("model_config activation", config.activation, ACTIVATIONS))
        if not isinstance(config.agent_id, bool) and config.agent_id != BINARY:
            raise ValueError(f"agent_id must be True, False or {BINARY!r}, got {config.agent_id!r}")
        for encoder in (config.encoder, config.critic_encoder):
            if encoder not in ENCODERS:
                raise ValueError(unknown("model_config encoder", encoder, ENCODERS))
        for name in ("hidden", "critic_hidden"):
            widths = getattr(config, name)
            if widths is None:
                continue
            if not isinstance(widths, Sequence) or not widths or any(not isinstance(w, int) or w < 1 for w in widths):
                raise ValueError(f"model_config {name} must be a list of positive whole numbers, got {widths!r}")
        return config
