"""MAgent2 as a `TeamEnv`, straight from the engine's arrays.

The engine writes a group's observations into the caller's buffers, and no Python object per agent is made. Rows of the
engine are compact (the living, by id); slots are fixed. Content is equal, bit for bit, to `ParallelTeamEnv` over the
same environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_shared.envs.attack_mask import AttackMask, MaskEmptyAttacks
from rllib_shared.envs.critic_observation import CriticObservationChoice
from rllib_shared.envs.gridworld_engine import EngineGroup
from rllib_shared.envs.gridworld_game import GridWorldGame, Group
from rllib_shared.envs.gridworld_state import GridWorldState, GroupRows, group_rows
from rllib_shared.envs.team_env import ModuleStep, StepBuffers, TeamEnv, TeamStep
from rllib_shared.sharing import SharingChoice
from rllib_shared.teams import Teams, TeamsChoice


class GridWorldTeamEnv(TeamEnv):
    """A MAgent2 environment, stepped with arrays.

    Args:
        env: a MAgent2 `parallel_env`, maybe in a `MaskEmptyAttacks`.
        teams: see `Teams.build`. Agents of one engine group must have neighbouring slots of one module.
        sharing: see `Teams.build`.
        critic_observation: see `make_observer`; functions get `env`, and see the engine after the step.
        critic_sharing: see `Teams.build`.

    Raises:
        ValueError: as `Teams.build`, and for teams that split an engine group.
    """

    def __init__(
        self,
        env: Any,
        teams: TeamsChoice = None,
        sharing: SharingChoice = "team",
        critic_observation: CriticObservationChoice = "state",
        critic_sharing: SharingChoice | None = None,
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
            critic_sharing,
        )
        self._plain = not (self._raw.minimap_mode or self._raw.extra_features)
        self._groups = [self._engine_group(group) for group in self.game.groups]
        self._observer = self.game.make_observer(critic_observation, self.teams, self.name)
        self.critic_spaces = dict(self._observer.spaces)
        # With all groups at hand the state is drawn from them; other observers do their own reading.
        everything = len(self._groups) == len(self._engine.get_handles())
        self._state = self._observer if isinstance(self._observer, GridWorldState) and everything else None
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
            if self._state is not None:
                drawn.append(group_rows(group.position(group.size), view, features))
        self._mask_attacks(modules)
        self._write_critic(modules, drawn, out, terminal=False)
        return TeamStep(modules, dict(out.critic_observation))

    def _step(self, actions: Mapping[str, np.ndarray], out: StepBuffers) -> TeamStep:
        assert self._alive is not None
        acted = [np.flatnonzero(self._alive[group.module_id][group.slots]) for group in self._groups]
        for group, rows in zip(self._groups, acted, strict=True):
            group.set_action(actions[group.module_id][group.slots][rows])
        over = bool(self._engine.step())
        self._frames += 1
        self._raw.frames = self._frames
        at_limit = self._frames >= self._raw.max_cycles

        modules = self._empty_modules(out)
        drawn: list[GroupRows] = []
        for group, rows in zip(self._groups, acted, strict=True):
            part, slots = modules[group.module_id], group.slots.start + rows
            # Rewards, deaths and last observations are the engine's between step() and clear_dead().
            reward, lives = group.reward(rows.size), group.alive(rows.size)
            part.reward[slots] = reward
            part.terminated[slots] = ~lives | over
            part.truncated[slots] = at_limit
            part.alive[slots] = lives & (not over) & (not at_limit)
            view, features = self._observe(group, rows, out)
            if self._state is not None:
                if self._raw.extra_features:
                    # clear_dead() would move this step's reward into the features; the state shows it there.
                    features[:, -1 - (2 if self._raw.minimap_mode else 0)] = reward
                drawn.append(group_rows(group.position(rows.size), view, features, lives))
        self._engine.clear_dead()
        self._mask_attacks(modules)
        self._write_critic(modules, drawn, out, terminal=over)
        outcome = self.game.outcome(self.teams, modules, self._alive) if over or at_limit else None
        return TeamStep(modules, dict(out.critic_observation), over or at_limit, outcome)

    def _observe(self, group: EngineGroup, rows: np.ndarray, out: StepBuffers) -> tuple[np.ndarray, np.ndarray]:
        """Write the observations of `rows`; returns their views `[n, H, W, C]` and features `[n, F]`."""
        target = out.observation[group.module_id][group.slots]
        if self._plain and rows.size == group.size and target.flags.c_contiguous:
            return group.observe(rows.size, into=target)
        target.fill(0.0)
        if not rows.size:
            return group.view[:0], group.features[:0]
        view, features = group.observe(rows.size)
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
        if self._state is not None:
            self._state.draw(drawn, out.critic_observation)
        else:
            self._observer.write(modules, out.critic_observation, terminal)

    def _engine_group(self, group: Group) -> EngineGroup:
        agents = self.game.agents_of(group)
        for module_id, slots in self.teams.modules.items():
            if agents[0] in slots.agents:
                first = slots.agents.index(agents[0])
                where = slice(first, first + group.size)
                if list(slots.agents[where]) == agents:
                    return EngineGroup(self._engine, group, module_id, where)
        raise ValueError(f"{self.name}: the teams split the engine group of {agents[0]!r}; a group must be in one team")


def is_gridworld(env: Any) -> bool:
    """Whether `env` is a MAgent2 environment; does not import MAgent2 for others."""
    return any(cls.__name__ == "magent_parallel_env" for cls in type(env.unwrapped).__mro__)
