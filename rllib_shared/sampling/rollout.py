"""Preallocated arrays of one sampling chunk: `[T + 1, E, N, ...]`, cut into fragments afterwards.

Row t holds what is seen before step t. The environment writes its observations straight into row t + 1; when an
episode ends there, that row is copied aside as the fragment's last observation and the next episode starts in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rllib_shared.envs.team_env import ModuleStep, StepBuffers, TeamEnv, TeamStep, num_actions
from rllib_shared.sampling.acting import ActionArrays, ModuleActor
from rllib_shared.sampling.fragment import ModuleFragment, TeamFragment


@dataclass
class ModuleRollout:
    """One module's arrays, `[T + 1, E, N, ...]` for what is seen and `[T, E, N, ...]` for what is done.

    Attributes:
        observation: float32, before each step.
        alive: bool, acts.
        action_mask: bool `[..., A]` or None.
        actions: what acting writes.
        reward: float32.
        terminated: bool.
        truncated: bool.
    """

    observation: np.ndarray
    alive: np.ndarray
    action_mask: np.ndarray | None
    actions: ActionArrays
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def actions_at(self, t: int) -> ActionArrays:
        """Views `[E, N, ...]` of step t."""
        a = self.actions
        action = a.action[t]
        return ActionArrays(
            action, action if a.env_action is a.action else a.env_action[t], a.dist_inputs[t], a.logp[t]
        )


@dataclass
class Seen:
    """What all copies see between two chunks: per module `[E, N, ...]`, per team `[E, ...]`."""

    observation: dict[str, np.ndarray]
    alive: dict[str, np.ndarray]
    action_mask: dict[str, np.ndarray]
    critic_observation: dict[str, np.ndarray]


class Rollout:
    """The arrays of T steps of E env copies.

    Args:
        env: any of the copies, for shapes.
        actors: for the shapes of actions.
        steps: T.
        copies: E.
    """

    def __init__(self, env: TeamEnv, actors: Mapping[str, ModuleActor], steps: int, copies: int) -> None:
        self.steps = steps
        self.copies = copies
        self.modules: dict[str, ModuleRollout] = {}
        for module_id, slots in env.teams.modules.items():
            seen, done = (steps + 1, copies, slots.num_slots), (steps, copies, slots.num_slots)
            space = slots.action_space
            self.modules[module_id] = ModuleRollout(
                observation=np.empty((*seen, *(slots.observation_space.shape or ())), np.float32),
                alive=np.zeros(seen, bool),
                action_mask=np.ones((*seen, num_actions(space)), bool) if env.masked else None,
                actions=actors[module_id].make_arrays(steps, copies),
                reward=np.zeros(done, np.float32),
                terminated=np.zeros(done, bool),
                truncated=np.zeros(done, bool),
            )
        self.critic = {
            team: np.empty((steps + 1, copies, *space.shape), np.float32) for team, space in env.critic_spaces.items()
        }

    def buffers(self, row: int, copy: int) -> StepBuffers:
        """Where copy `copy` writes what is seen before step `row`."""
        return StepBuffers(
            {module_id: part.observation[row, copy] for module_id, part in self.modules.items()},
            {team: array[row, copy] for team, array in self.critic.items()},
        )

    def write_seen(self, row: int, copy: int, step: TeamStep) -> None:
        """Record who acts next, and their masks; the observations are in `buffers(row, copy)` already."""
        for module_id, part in self.modules.items():
            seen = step.modules[module_id]
            part.alive[row, copy] = seen.alive
            if part.action_mask is not None:
                part.action_mask[row, copy] = seen.action_mask

    def write_done(self, t: int, copy: int, modules: Mapping[str, ModuleStep]) -> None:
        """Record rewards and ends of step t."""
        for module_id, part in self.modules.items():
            done = modules[module_id]
            part.reward[t, copy] = done.reward
            part.terminated[t, copy] = done.terminated
            part.truncated[t, copy] = done.truncated

    def start_from(self, seen: Seen) -> None:
        """Put what is seen now into the first row."""
        for module_id, part in self.modules.items():
            part.observation[0], part.alive[0] = seen.observation[module_id], seen.alive[module_id]
            if part.action_mask is not None:
                part.action_mask[0] = seen.action_mask[module_id]
        for team, array in self.critic.items():
            array[0] = seen.critic_observation[team]

    def seen_after(self) -> Seen:
        """Copies of the last row, so that the big arrays can be freed."""
        return Seen(
            {module_id: part.observation[-1].copy() for module_id, part in self.modules.items()},
            {module_id: part.alive[-1].copy() for module_id, part in self.modules.items()},
            {
                module_id: part.action_mask[-1].copy()
                for module_id, part in self.modules.items()
                if part.action_mask is not None
            },
            {team: array[-1].copy() for team, array in self.critic.items()},
        )

    def fragment(self, copy: int, start: int, stop: int, ended: bool) -> TeamFragment:
        """Steps `start` to `stop` of one copy.

        Args:
            copy: which.
            start: first step.
            stop: the step after the last.
            ended: the episode ended with the last step. Then row `stop` is copied, because the next episode starts in
                it, and nobody is alive after.
        """

        def row(array: np.ndarray) -> np.ndarray:
            return array[stop, copy].copy() if ended else array[stop, copy]

        modules = {}
        for module_id, part in self.modules.items():
            steps = slice(start, stop)
            modules[module_id] = ModuleFragment(
                observation=part.observation[steps, copy],
                last_observation=row(part.observation),
                action_mask=None if part.action_mask is None else part.action_mask[steps, copy],
                alive=part.alive[steps, copy],
                alive_after=np.zeros_like(part.alive[stop, copy]) if ended else part.alive[stop, copy],
                action=part.actions.action[steps, copy],
                dist_inputs=part.actions.dist_inputs[steps, copy],
                logp=part.actions.logp[steps, copy],
                reward=part.reward[steps, copy],
                terminated=part.terminated[steps, copy],
                truncated=part.truncated[steps, copy],
            )
        return TeamFragment(
            modules,
            {team: array[start:stop, copy] for team, array in self.critic.items()},
            {team: row(array) for team, array in self.critic.items()},
        )
