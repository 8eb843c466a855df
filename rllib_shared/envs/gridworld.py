"""MAgent2 as a `TeamEnv`, straight from the engine's arrays.

The engine writes a group's observations into the caller's buffers, and no Python object per agent is made. Rows of the
engine are compact (the living, by id); slots are fixed. Content is equal, bit for bit, to `ParallelTeamEnv` over the
same environment.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_shared.envs.attack_mask import AttackMask, MaskEmptyAttacks
from rllib_shared.envs.critic_observation import CriticObservationChoice
from rllib_shared.envs.gridworld_game import GridWorldGame, Group
from rllib_shared.envs.gridworld_state import GridWorldState, GroupRows, group_rows
from rllib_shared.envs.team_env import ModuleStep, StepBuffers, TeamEnv, TeamStep
from rllib_shared.teams import Teams, TeamsChoice

_FloatPointer = ctypes.POINTER(ctypes.c_float)


class _GroupSlots:
    """One engine group, the slots of its agents, and the arrays its rows pass through."""

    def __init__(self, group: Group, module_id: str, slots: slice, view: tuple[int, ...], features: int) -> None:
        self.handle = group.handle
        self.number = group.number
        self.first_id = group.first_id
        self.size = group.size
        self.module_id = module_id
        self.slots = slots
        self.view = np.zeros((group.size, *view), np.float32)
        self.features = np.zeros((group.size, features), np.float32)


class GridWorldTeamEnv(TeamEnv):
    """A MAgent2 environment, stepped with arrays.

    Args:
        env: a MAgent2 `parallel_env`, maybe in a `MaskEmptyAttacks`.
        teams: see `Teams.build`. Agents of one engine group must have neighbouring slots of one module.
        sharing: see `Teams.build`.
        critic_observation: see `make_observer`; functions get `env`, and see the engine after the step.

    Raises:
        ValueError: as `Teams.build`, and for teams that split an engine group.
    """

    def __init__(
        self,
        env: Any,
        teams: TeamsChoice = None,
        sharing: str = "team",
        critic_observation: CriticObservationChoice = "state",
    ) -> None:
        self.env = env
        self.game = GridWorldGame(env)
        self._raw = self.game.raw
        self._engine = self.game.engine
        self.name = str(env.metadata["name"])
        self._attack_mask = AttackMask(self._raw) if isinstance(env, MaskEmptyAttacks) else None
        self.masked = self._attack_mask is not None
        agents = self._raw.possible_agents
        self.teams = Teams.build(
            {agent: self._raw.observation_space(agent) for agent in agents},
            {agent: self._raw.action_space(agent) for agent in agents},
            teams,
            sharing,
        )
        self._plain = not (self._raw.minimap_mode or self._raw.extra_features)
        self._groups = [self._group_slots(group) for group in self.game.groups]
        self._observer = self.game.make_observer(critic_observation, self.teams, self.name)
        self.critic_spaces = dict(self._observer.spaces)
        self.noop_action = self.game.noop_action(self.teams)
        self._frames = 0

    def render(self) -> np.ndarray | None:
        """A fresh frame, uint8 `[8 map + 16, 8 map, 3]`."""
        return self.game.render()

    def close(self) -> None:
        """Drop the renderer."""
        self.game.close()

    def _reset(self, seed: int | None, out: StepBuffers) -> TeamStep:
        if seed is not None:
            self._raw.seed(seed)
        self._engine.reset()
        self._raw.generate_map()
        self._frames = self._raw.frames = 0
        self._observer.start_episode()
        modules = self._empty_modules(out)
        drawn = []
        for group in self._groups:
            rows = np.arange(group.size)
            modules[group.module_id].alive[group.slots] = True
            view, features = self._observe(group, rows, out)
            drawn.append(group_rows(self._engine.get_pos(group.handle), view, features))
        self._mask_attacks(modules)
        self._write_critic(modules, drawn, out, terminal=False)
        return TeamStep(modules, dict(out.critic_observation))

    def _step(self, actions: Mapping[str, np.ndarray], out: StepBuffers) -> TeamStep:
        assert self._alive is not None
        engine = self._engine
        acted = [np.flatnonzero(self._alive[group.module_id][group.slots]) for group in self._groups]
        for group, rows in zip(self._groups, acted, strict=True):
            chosen = actions[group.module_id][group.slots][rows]
            engine.set_action(group.handle, np.ascontiguousarray(chosen, np.int32))
        over = bool(engine.step())
        self._frames += 1
        self._raw.frames = self._frames
        at_limit = self._frames >= self._raw.max_cycles

        modules = self._empty_modules(out)
        drawn: list[GroupRows] = []
        for group, rows in zip(self._groups, acted, strict=True):
            part = modules[group.module_id]
            base = group.slots.start
            if not rows.size:
                out.observation[group.module_id][group.slots].fill(0.0)
                drawn.append(GroupRows(np.zeros((0, 2), np.int32), np.zeros(0, np.float32), group.features[:0]))
                continue
            # Rewards, deaths and last observations are the engine's between step() and clear_dead().
            reward, lives = engine.get_reward(group.handle), engine.get_alive(group.handle)
            part.reward[base + rows] = reward
            part.terminated[base + rows] = ~lives | over
            part.truncated[base + rows] = at_limit
            part.alive[base + rows] = lives & (not over) & (not at_limit)
            view, features = self._observe(group, rows, out)
            if self._raw.extra_features:
                # clear_dead() would move this step's reward into the features; the state shows it there.
                features = features.copy()
                features[:, -1 - (2 if self._raw.minimap_mode else 0)] = reward
            drawn.append(group_rows(engine.get_pos(group.handle), view, features, lives))
        engine.clear_dead()
        self._mask_attacks(modules)
        self._write_critic(modules, drawn, out, terminal=over)
        outcome = self.game.outcome(self.teams, modules, self._alive) if over or at_limit else None
        return TeamStep(modules, dict(out.critic_observation), over or at_limit, outcome)

    def _observe(self, group: _GroupSlots, rows: np.ndarray, out: StepBuffers) -> tuple[np.ndarray, np.ndarray]:
        """Let the engine write the observations of `rows`; returns their views `[n, H, W, C]` and features `[n, F]`."""
        target = out.observation[group.module_id][group.slots]
        direct = self._plain and rows.size == group.size
        view = target if direct else group.view[: rows.size]
        features = group.features[: rows.size]
        pointers = (_FloatPointer * 2)(view.ctypes.data_as(_FloatPointer), features.ctypes.data_as(_FloatPointer))
        _engine_library().env_get_observation(self._engine.game, group.handle, pointers)
        if not direct:
            target.fill(0.0)
            channels = view.shape[-1]
            target[rows, ..., :channels] = view
            if not self._plain:
                shown = features if self._raw.extra_features else features[:, -2:]
                target[rows, ..., channels:] = shown[:, None, None, :]
        return view, features

    def _empty_modules(self, out: StepBuffers) -> dict[str, ModuleStep]:
        modules = {}
        for module_id, slots in self.teams.modules.items():
            n = slots.num_slots
            modules[module_id] = ModuleStep(
                observation=out.observation[module_id],
                alive=np.zeros(n, bool),
                reward=np.zeros(n, np.float32),
                terminated=np.zeros(n, bool),
                truncated=np.zeros(n, bool),
            )
        return modules

    def _mask_attacks(self, modules: dict[str, ModuleStep]) -> None:
        if self._attack_mask is not None:
            for part in modules.values():
                part.action_mask = self._attack_mask(part.observation)

    def _write_critic(
        self, modules: dict[str, ModuleStep], drawn: list[GroupRows], out: StepBuffers, terminal: bool
    ) -> None:
        """Draw the state from rows already at hand; other observers do their own reading."""
        if isinstance(self._observer, GridWorldState) and len(drawn) == len(self._engine.get_handles()):
            self._observer.draw(drawn, out.critic_observation)
        else:
            self._observer.write(modules, out.critic_observation, terminal)

    def _group_slots(self, group: Group) -> _GroupSlots:
        agents = self.game.agents_of(group)
        for module_id, slots in self.teams.modules.items():
            if agents[0] in slots.agents:
                first = slots.agents.index(agents[0])
                where = slice(first, first + group.size)
                if list(slots.agents[where]) == agents:
                    view = self._engine.get_view_space(group.handle)
                    features = self._engine.get_feature_space(group.handle)[0]
                    return _GroupSlots(group, module_id, where, view, features)
        raise ValueError(f"{self.name}: the teams split the engine group of {agents[0]!r}; a group must be in one team")


def _engine_library() -> Any:
    from magent2.c_lib import _LIB

    return _LIB


def is_gridworld(env: Any) -> bool:
    """Whether `env` is a MAgent2 environment; does not import MAgent2 for others."""
    return any(cls.__name__ == "magent_parallel_env" for cls in type(env.unwrapped).__mro__)
