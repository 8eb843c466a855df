"""The running account of one episode of one env copy; what callbacks get as `episode`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rllib_shared.envs.team_env import ModuleStep, Outcome
from rllib_shared.teams import Teams


@dataclass(eq=False)
class TeamEpisode:
    """Returns and length so far.

    Attributes:
        id_: unique name.
        agent_returns: float64 `[N]` per module, sum of rewards of each slot.
        length: env steps so far.
        outcome: how it ended; None while it goes on.
        custom_data: whatever callbacks keep here.
    """

    teams: Teams
    id_: str = field(default_factory=lambda: uuid.uuid4().hex)
    agent_returns: dict[str, np.ndarray] = field(default_factory=dict)
    length: int = 0
    outcome: Outcome | None = None
    custom_data: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agent_returns = {mid: np.zeros(slots.num_slots) for mid, slots in self.teams.modules.items()}

    def __len__(self) -> int:
        """Env steps so far."""
        return self.length

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended."""
        return self.outcome is not None

    def add(self, modules: Mapping[str, ModuleStep]) -> None:
        """Count one env step."""
        self.length += 1
        for module_id, part in modules.items():
            self.agent_returns[module_id] += part.reward

    def get_return(self) -> float:
        """Sum of all agents' rewards."""
        return float(sum(returns.sum() for returns in self.agent_returns.values()))

    def team_return(self) -> dict[str, float]:
        """Sum of rewards of each team's agents."""
        return {
            team: float(self.agent_returns[module_id][slots.team_index == index].sum())
            for module_id, slots in self.teams.modules.items()
            for index, team in enumerate(slots.teams)
        }

    def return_per_agent(self) -> dict[str, float]:
        """Mean over each team's agents, dead or alive, of their returns."""
        return {team: total / len(self.teams.agents[team]) for team, total in self.team_return().items()}
