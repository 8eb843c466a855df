"""`TeamFragment`: consecutive env steps of one episode of one env copy, as arrays. What runners send to learners.

It stands where RLlib expects an episode: `len`, slices, `env_steps()` and `agent_steps()`. A plain class, because RLlib
flattens what `sample()` returns and would take tuples and dicts apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np


@dataclass
class ModuleFragment:
    """One module's part. T env steps, N slots.

    Attributes:
        observation: float32 `[T, N, ...]`, before each step.
        last_observation: float32 `[N, ...]`, after the last step.
        action_mask: bool `[T, N, A]` or None.
        alive: bool `[T, N]`, acted in that step. All other arrays mean nothing where it is False.
        alive_after: bool `[N]`, acts after the last step: bootstrap from `last_observation`.
        action: int64 `[T, N]` or float32 `[T, N, ...]`.
        dist_inputs: float32 `[T, N, D]`.
        logp: float32 `[T, N]`.
        reward: float32 `[T, N]`.
        terminated: bool `[T, N]`, ended in that step: no bootstrap.
        truncated: bool `[T, N]`, cut off in that step: bootstrap from the observation after it.
    """

    observation: np.ndarray
    last_observation: np.ndarray
    action_mask: np.ndarray | None
    alive: np.ndarray
    alive_after: np.ndarray
    action: np.ndarray
    dist_inputs: np.ndarray
    logp: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def cut(self, start: int, stop: int) -> ModuleFragment:
        """Steps `start` to `stop`, with the observation after the last of them."""
        inner = stop < len(self.alive)
        steps = {
            field.name: getattr(self, field.name)[start:stop]
            for field in fields(self)
            if field.name not in ("last_observation", "alive_after") and getattr(self, field.name) is not None
        }
        if inner:
            steps["last_observation"] = self.observation[stop]
            steps["alive_after"] = self.alive[stop]
        return replace(self, **steps)


@dataclass(eq=False)
class TeamFragment:
    """Consecutive env steps of one episode of one env copy.

    Attributes:
        modules: each module's part.
        critic_observation: per team, float32 `[T, ...]`, before each step; empty for `"own"`.
        last_critic_observation: per team, float32 `[...]`, after the last step.
    """

    modules: Mapping[str, ModuleFragment]
    critic_observation: Mapping[str, np.ndarray]
    last_critic_observation: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        """Number of env steps T."""
        return len(next(iter(self.modules.values())).alive)

    def env_steps(self) -> int:
        """Number of env steps T."""
        return len(self)

    def agent_steps(self) -> int:
        """Number of living agents, summed over the steps."""
        return int(sum(part.alive.sum() for part in self.modules.values()))

    def __getitem__(self, index: slice) -> TeamFragment:
        """A shorter fragment; the step is always 1."""
        if not isinstance(index, slice) or index.step not in (None, 1):
            raise TypeError(f"a fragment is cut with a plain slice, got {index!r}")
        start, stop, _ = index.indices(len(self))
        inner = stop < len(self)
        return TeamFragment(
            modules={module_id: part.cut(start, stop) for module_id, part in self.modules.items()},
            critic_observation={team: array[start:stop] for team, array in self.critic_observation.items()},
            last_critic_observation=(
                {team: array[stop] for team, array in self.critic_observation.items()}
                if inner
                else self.last_critic_observation
            ),
        )

    def slice(self, slice_: slice, **kwargs: Any) -> TeamFragment:
        """RLlib's name for the same; a fragment needs no lookback buffer."""
        return self[slice_]
