"""Env copies stepped together, so that one forward pass of a module acts in all of them; and the players' seats.

Arrays have the layout `[E, N, ...]`: E env copies, N slots of a module. What is counted is in `match.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from rllib_shared.envs.team_env import StepBuffers, TeamEnv, TeamStep, num_actions
from rllib_shared.modules.opponents import ModuleView, Player
from rllib_shared.teams import ModuleSlots, Teams


class Lockstep:
    """E copies of one environment and what their agents see now.

    Args:
        envs: the copies.
    """

    def __init__(self, envs: Sequence[TeamEnv]) -> None:
        self.envs = list(envs)
        self.teams = envs[0].teams
        self._team_of_slot = {module_id: _team_of_slot(self.teams, module_id) for module_id in self.teams.modules}
        self._views: dict[str, ModuleView] = {}
        for module_id, slots in self.teams.modules.items():
            shape = (len(self.envs), slots.num_slots)
            mask = np.ones((*shape, num_actions(slots.action_space)), bool) if envs[0].masked else None
            observation = np.zeros((*shape, *(slots.observation_space.shape or ())), np.float32)
            self._views[module_id] = ModuleView(observation, np.zeros(shape, bool), mask)
        self._buffers = [
            StepBuffers(
                observation={module_id: view.observation[copy] for module_id, view in self._views.items()},
                critic_observation=env.make_buffers().critic_observation if env.critic_spaces else {},
            )
            for copy, env in enumerate(self.envs)
        ]

    def reset(self, copy: int, seed: int) -> None:
        """Start an episode in one copy."""
        self._see(copy, self.envs[copy].reset(seed, self._buffers[copy]))

    def step(self, copy: int, actions: Mapping[str, np.ndarray]) -> TeamStep:
        """Take one env step in one copy, with that copy's rows of `actions`, `[E, N, ...]` per module."""
        rows = {module_id: chosen[copy] for module_id, chosen in actions.items()}
        step = self.envs[copy].step(rows, self._buffers[copy])
        self._see(copy, step)
        return step

    def views(self, plays: np.ndarray) -> dict[str, ModuleView]:
        """What the agents of some teams see.

        Args:
            plays: bool `[E, T]`, whose turn it is, teams in `Teams.names` order.
        """
        return {
            module_id: view._replace(acting=view.acting & plays[:, self._team_of_slot[module_id]])
            for module_id, view in self._views.items()
        }

    def _see(self, copy: int, step: TeamStep) -> None:
        for module_id, part in step.modules.items():
            view = self._views[module_id]
            view.acting[copy] = part.alive
            if view.action_mask is not None and part.action_mask is not None:
                view.action_mask[copy] = part.action_mask


class Seat:
    """A player who sees and acts in the environment's arrays, whatever modules its own are.

    Two checkpoints may share weights differently: one has a module per team, the other one module for all.

    Args:
        player: who sits here.
        teams: the environment's, with the same agents.
    """

    def __init__(self, player: Player, teams: Teams) -> None:
        self._player = player
        own, env = player.teams.modules, teams.modules
        self._to_player = {module_id: _Route(slots, env) for module_id, slots in own.items()}
        self._to_env = {module_id: _Route(slots, own) for module_id, slots in env.items()}

    def act(
        self, views: Mapping[str, ModuleView], deterministic: bool, generator: torch.Generator
    ) -> dict[str, np.ndarray]:
        """As `Player.act`, in the environment's arrays."""
        own = {}
        for module_id, route in self._to_player.items():
            observation, acting, mask = zip(*(views[source] for source in route.modules), strict=True)
            own[module_id] = ModuleView(route(observation), route(acting), None if mask[0] is None else route(mask))
        chosen = self._player.act(own, deterministic=deterministic, generator=generator)
        return {
            module_id: route([chosen[source] for source in route.modules]) for module_id, route in self._to_env.items()
        }


class _Route:
    """Where the rows `[E, N, ...]` of one module come from.

    Args:
        target: the module to fill.
        sources: modules that have its agents.
    """

    def __init__(self, target: ModuleSlots, sources: Mapping[str, ModuleSlots]) -> None:
        where = {agent: (mid, row) for mid, slots in sources.items() for row, agent in enumerate(slots.agents)}
        found = [where[agent] for agent in target.agents]
        self.modules = list(dict.fromkeys(module_id for module_id, _ in found))
        self._rows = [np.array([row for mid, row in found if mid == module_id]) for module_id in self.modules]
        came = [i for module_id in self.modules for i, (mid, _) in enumerate(found) if mid == module_id]
        self._order = np.argsort(came)
        self._same = len(self.modules) == 1 and sources[self.modules[0]].agents == target.agents

    def __call__(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The target's array from those of `self.modules`."""
        if self._same:
            return arrays[0]
        pieces = [array[:, rows] for array, rows in zip(arrays, self._rows, strict=True)]
        return np.concatenate(pieces, axis=1)[:, self._order]


def _team_of_slot(teams: Teams, module_id: str) -> np.ndarray:
    """Position in `teams.names` of each slot's team, int64 `[N]`."""
    slots = teams.modules[module_id]
    return np.array([teams.names.index(team) for team in slots.teams])[slots.team_index]
