"""The array protocol of environments: a team is an array.

`TeamEnv` is what the runner and the evaluation step through. What is here: the contract, the data that travels
(`TeamStep`), and the checks every environment needs before it touches its engine. The environments themselves are
`parallel.py` (any PettingZoo `ParallelEnv`) and `gridworld.py` (MAgent2's arrays).
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_shared.messages import preview
from rllib_shared.teams import ModuleSlots, Teams

OBSERVATION = "observation"
CRITIC_OBSERVATION = "critic_observation"
ACTION_MASK = "action_mask"
NO_ACTION = -1  # entry of a dead slot in an array of discrete actions; NaN in an array of continuous ones

WIPED_OUT = "wiped_out"
TIME_LIMIT = "time_limit"
ENDED = "ended"


@dataclass
class ModuleStep:
    """What one module's agents got in one env step. N slots, in `ModuleSlots.agents` order.

    Attributes:
        observation: float32 `[N, ...]`; of slots that acted in this step (their last one, if they died in it) or
            act next; zeros for the others.
        alive: bool `[N]`, acts next.
        reward: float32 `[N]`, 0 for slots that did not act.
        terminated: bool `[N]`, ended in this step: no bootstrap.
        truncated: bool `[N]`, cut off in this step by a limit: bootstrap from `observation`.
        action_mask: bool `[N, A]`, allowed actions of the slots that act next; None if all are always allowed.
    """

    observation: np.ndarray
    alive: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    action_mask: np.ndarray | None = None


@dataclass(frozen=True)
class Outcome:
    """How an episode ended.

    Attributes:
        winner: the team with the most survivors; None for a draw and for environments with one team.
        survivors: number of living agents of each team after the last step.
        reason: `"wiped_out"` (a team, or one of its engine groups, has nobody left), `"time_limit"` or `"ended"`.
        detail: more about the reason, e.g. `{"group": "redranged"}`.
    """

    winner: str | None
    survivors: Mapping[str, int]
    reason: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class TeamStep:
    """The result of `reset` or `step`: arrays per module, critic observations per team, and how it ended.

    `critic_observation` is empty when critics see what actors see (`"own"`).
    """

    modules: dict[str, ModuleStep]
    critic_observation: dict[str, np.ndarray]
    over: bool = False
    outcome: Outcome | None = None


@dataclass
class StepBuffers:
    """Arrays that an environment may write its next step into, so that nothing is copied twice.

    Attributes:
        observation: per module, float32 `[N, ...]`, C-contiguous.
        critic_observation: per team, float32, C-contiguous.
    """

    observation: Mapping[str, np.ndarray]
    critic_observation: Mapping[str, np.ndarray]


class TeamEnv(abc.ABC):
    """An environment that is stepped with one action array per module.

    Nothing that `reset` and `step` hand out is overwritten later, unless the caller passes the same buffers again.

    Attributes:
        name: for messages, e.g. `battle_v4`.
        teams: who is where.
        critic_spaces: space of each team's critic observation; empty for `"own"`.
        masked: whether steps carry an action mask.
        noop_action: the action of each module that does nothing, where the environment has one.
    """

    name: str
    teams: Teams
    critic_spaces: dict[str, gym.spaces.Box]
    masked: bool = False
    noop_action: Mapping[str, int]

    _alive: dict[str, np.ndarray] | None = None
    _mask: dict[str, np.ndarray | None]
    _over: bool = False

    def reset(self, seed: int | None = None, out: StepBuffers | None = None) -> TeamStep:
        """Start an episode.

        Args:
            seed: None continues the environment's own random numbers.
            out: arrays to write into; without it new ones are made.
        """
        return self._remember(self._reset(seed, out if out is not None else self.make_buffers()))

    def step(self, actions: Mapping[str, np.ndarray], out: StepBuffers | None = None) -> TeamStep:
        """Take one action per living slot.

        Args:
            actions: per module, an integer array `[N]` (`NO_ACTION` for dead slots) or a float array `[N, ...]`
                (NaN for dead slots).
            out: arrays to write into; without it new ones are made.

        Raises:
            RuntimeError: before `reset`, or after the episode is over.
            ValueError: an action that is missing, for a dead agent, out of range or masked. Raised before the engine
                is called, which for MAgent2 would crash the process.
        """
        if self._alive is None:
            raise RuntimeError(f"{self.name}: call reset() before step()")
        if self._over:
            raise RuntimeError(f"{self.name}: the episode is over; call reset() before the next step()")
        if set(actions) != set(self.teams.modules):
            raise ValueError(
                f"{self.name}: give actions for the modules {sorted(self.teams.modules)}, got {sorted(actions)}"
            )
        for module_id, slots in self.teams.modules.items():
            check_actions(self.name, slots, actions[module_id], self._alive[module_id], self._mask[module_id])
        return self._remember(self._step(actions, out if out is not None else self.make_buffers()))

    def make_buffers(self) -> StepBuffers:
        """New arrays for one step."""
        return StepBuffers(
            observation={
                module_id: np.zeros((slots.num_slots, *_shape(slots.observation_space)), np.float32)
                for module_id, slots in self.teams.modules.items()
            },
            critic_observation={team: np.zeros(space.shape, np.float32) for team, space in self.critic_spaces.items()},
        )

    def module_spaces(self) -> dict[str, tuple[gym.spaces.Dict, gym.Space]]:
        """Observation and action space of each module, as its RLModule sees them.

        The observation space is `Dict(observation[, critic_observation][, action_mask])`.

        Raises:
            ValueError: the teams of one module have different critic observations.
        """
        spaces = {}
        for module_id, slots in self.teams.modules.items():
            parts: dict[str, gym.Space] = {OBSERVATION: slots.observation_space}
            if self.critic_spaces:
                first = self.critic_spaces[slots.teams[0]]
                for team in slots.teams[1:]:
                    if self.critic_spaces[team].shape != first.shape:
                        raise ValueError(
                            f"teams {slots.teams[0]!r} and {team!r} share module {module_id!r} but their critic "
                            f"observations have shapes {first.shape} and {self.critic_spaces[team].shape}"
                        )
                parts[CRITIC_OBSERVATION] = first
            if self.masked:
                parts[ACTION_MASK] = gym.spaces.MultiBinary(num_actions(slots.action_space))
            spaces[module_id] = (gym.spaces.Dict(parts), slots.action_space)
        return spaces

    def render(self) -> np.ndarray | None:
        """The current frame, uint8 `[height, width, 3]`; None if the environment was made without `render_mode`."""
        return None

    def close(self) -> None:
        """Free what the environment holds."""

    @abc.abstractmethod
    def _reset(self, seed: int | None, out: StepBuffers) -> TeamStep:
        """Start an episode and write its first observations into `out`."""

    @abc.abstractmethod
    def _step(self, actions: Mapping[str, np.ndarray], out: StepBuffers) -> TeamStep:
        """Take checked actions and write the next observations into `out`."""

    def _remember(self, step: TeamStep) -> TeamStep:
        """Keep what the checks of the next step need."""
        self._alive = {module_id: part.alive.copy() for module_id, part in step.modules.items()}
        self._mask = {module_id: part.action_mask for module_id, part in step.modules.items()}
        self._over = step.over
        return step


def check_actions(
    env_name: str, slots: ModuleSlots, actions: np.ndarray, alive: np.ndarray, mask: np.ndarray | None
) -> None:
    """Raise ValueError unless `actions` holds one legal action per living slot and none for the others."""
    space = slots.action_space
    discrete = isinstance(space, gym.spaces.Discrete)
    if discrete and mask is None and actions.dtype == np.int64 and actions.shape == alive.shape:
        # The common case in one pass: where alive, 0 <= action < n; elsewhere NO_ACTION.
        legal = (actions >= 0) & (actions < num_actions(space))
        if np.array_equal(legal, alive) and (actions[~alive] == NO_ACTION).all():
            return
    actions = np.asarray(actions)
    where = f"{env_name}, module {slots.module_id!r}"
    shape = (slots.num_slots, *(() if discrete else _shape(space)))
    if actions.shape != shape or not np.issubdtype(actions.dtype, np.integer if discrete else np.floating):
        raise ValueError(
            f"{where}: actions must be {'integers' if discrete else 'floats'} of shape {shape}, "
            f"got {actions.dtype} of shape {actions.shape}"
        )
    given = actions != NO_ACTION if discrete else ~np.isnan(actions).any(axis=tuple(range(1, actions.ndim)))
    if not np.array_equal(given, alive):
        late, missing = np.flatnonzero(given & ~alive), np.flatnonzero(alive & ~given)
        if late.size:
            raise ValueError(
                f"{where}: action for dead agents {preview([slots.agents[i] for i in late])}; "
                f"dead slots must hold {'NO_ACTION (-1)' if discrete else 'NaN'}"
            )
        raise ValueError(f"{where}: no action for living agents {preview([slots.agents[i] for i in missing])}")
    if discrete:
        bad = alive & ((actions < 0) | (actions >= space.n))  # type: ignore[attr-defined]
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"{where}: action {int(actions[i])} of agent {slots.agents[i]!r} is out of range; "
                f"allowed are 0 to {int(space.n) - 1}"  # type: ignore[attr-defined]
            )
        if mask is not None:
            rows = np.flatnonzero(alive)
            bad_rows = rows[~mask[rows, actions[rows]]]
            if bad_rows.size:
                i = int(bad_rows[0])
                raise ValueError(f"{where}: action {int(actions[i])} of agent {slots.agents[i]!r} is masked")
    else:
        low, high = space.low, space.high  # type: ignore[attr-defined]
        # A float32 rounding of the bound is not a wrong action.
        bad = alive & ((actions < low - 1e-5) | (actions > high + 1e-5)).any(axis=tuple(range(1, actions.ndim)))
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"{where}: action {actions[i]} of agent {slots.agents[i]!r} is out of range; "
                f"allowed are {low} to {high}"
            )


def winner_by_survivors(survivors: Mapping[str, int]) -> str | None:
    """The team with the most survivors; None for a draw or when there is one team only."""
    if len(survivors) < 2:
        return None
    best = max(survivors.values())
    leaders = [team for team, count in survivors.items() if count == best]
    return leaders[0] if len(leaders) == 1 else None


def num_actions(space: gym.Space) -> int:
    """A of a Discrete space; raises ValueError for others, which cannot be masked."""
    if not isinstance(space, gym.spaces.Discrete):
        raise ValueError(f"action masks need Discrete actions, not {space}")
    return int(space.n)


def _shape(space: gym.Space) -> tuple[int, ...]:
    if space.shape is None:
        raise ValueError(f"space {space} has no shape; observations and actions must be arrays")
    return tuple(space.shape)
