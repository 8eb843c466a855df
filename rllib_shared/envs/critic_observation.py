"""What the critic sees: the four choices of `critic_observation`.

Each choice is a `CriticObserver`: it knows the space of each team's critic observation and writes it after a step.
`"state"` is the environment's own state, `"joint"` the teammates' observations side by side, `"own"` nothing beyond
the actor's observation, and a function `(env, team) -> array` whatever the user likes. MAgent2's state is in
`gridworld_state.py`, because its own `state()` is wrong in ways that matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from rllib_shared.envs.team_env import ModuleStep
from rllib_shared.messages import unknown
from rllib_shared.teams import Teams

CriticFunction = Callable[[Any, str], np.ndarray]
CriticObservationChoice = str | CriticFunction | tuple[CriticFunction, gym.spaces.Box]
CHOICES = ("state", "joint", "own")


class CriticObserver(Protocol):
    """Writes what each team's critic sees."""

    spaces: dict[str, gym.spaces.Box]

    def start_episode(self) -> None:
        """Read what is fixed for an episode; called after each reset, before the first `write`."""

    def write(self, modules: Mapping[str, ModuleStep], out: Mapping[str, np.ndarray], terminal: bool) -> None:
        """Fill `out[team]` after a step.

        Args:
            modules: what the agents got in this step.
            out: float32 array of each team.
            terminal: nobody will bootstrap from this step, because everyone who acted in it terminated.
        """


class OwnObserver:
    """`"own"`: critics read the actor's observation, so there is nothing to write."""

    def __init__(self) -> None:
        self.spaces: dict[str, gym.spaces.Box] = {}

    def start_episode(self) -> None:
        """Nothing to read."""

    def write(self, modules: Mapping[str, ModuleStep], out: Mapping[str, np.ndarray], terminal: bool) -> None:
        """Write nothing."""


class JointObserver:
    """`"joint"`: the observations of all teammates side by side, zeros for the dead; `[N_team * features]`."""

    def __init__(self, teams: Teams) -> None:
        self._rows: dict[str, tuple[str, np.ndarray]] = {}
        self.spaces = {}
        for module_id, slots in teams.modules.items():
            for index, team in enumerate(slots.teams):
                rows = np.flatnonzero(slots.team_index == index)
                self._rows[team] = (module_id, rows)
                size = rows.size * int(np.prod(slots.observation_space.shape or ()))
                self.spaces[team] = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def start_episode(self) -> None:
        """Nothing to read."""

    def write(self, modules: Mapping[str, ModuleStep], out: Mapping[str, np.ndarray], terminal: bool) -> None:
        """Copy each teammate's observation next to the others'."""
        for team, (module_id, rows) in self._rows.items():
            np.copyto(out[team], modules[module_id].observation[rows].reshape(-1))


class FunctionObserver:
    """A function `(env, team) -> array`, called once per team and step; its space is given or read off its first value.

    Args:
        function: called with the environment that the user's factory made, and a team name.
        space: None takes shape from a first call, so the environment must have been reset.
        env: that environment.
        teams: whose critics.
        env_name: for messages.
        hold_on_terminal: when the function raises on a step nobody bootstraps from, repeat the last good value.
            `state()` of several environments raises there.
    """

    def __init__(
        self,
        function: CriticFunction,
        space: gym.spaces.Box | None,
        env: Any,
        teams: Teams,
        env_name: str,
        hold_on_terminal: bool = False,
    ) -> None:
        self._function = function
        self._env = env
        self._env_name = env_name
        self._hold = hold_on_terminal
        self._last: dict[str, np.ndarray] = {}
        self.spaces = {}
        for team in teams.names:
            shape = space.shape if space is not None else np.shape(self._call(team))
            self.spaces[team] = space or gym.spaces.Box(-np.inf, np.inf, shape, np.float32)

    def start_episode(self) -> None:
        """Forget the values of the last episode."""
        self._last.clear()

    def write(self, modules: Mapping[str, ModuleStep], out: Mapping[str, np.ndarray], terminal: bool) -> None:
        """Ask the function and cast its value to float32."""
        for team, space in self.spaces.items():
            try:
                value = self._call(team)
            except Exception:
                if not (self._hold and terminal and team in self._last):
                    raise
                value = self._last[team]
            if value.shape != space.shape:
                raise ValueError(
                    f"{self._env_name}: critic observation of team {team!r} has shape {value.shape}, "
                    f"but its space says {space.shape}"
                )
            self._last[team] = value
            np.copyto(out[team], value)

    def _call(self, team: str) -> np.ndarray:
        try:
            return np.asarray(self._function(self._env, team), np.float32)
        except Exception as error:
            raise RuntimeError(
                f"{self._env_name}: the critic observation of team {team!r} could not be computed: "
                f"{type(error).__name__}: {error}"
            ) from error


def env_state(env: Any, team: str) -> np.ndarray:
    """`env.state()`, the same for every team; the function behind `critic_observation="state"`."""
    return env.state()


def make_observer(choice: CriticObservationChoice, env: Any, teams: Teams, env_name: str) -> CriticObserver:
    """The observer for a user's choice.

    Args:
        choice: `"state"`, `"joint"`, `"own"`, a function `(env, team) -> array`, or `(function, space)`.
        env: the PettingZoo environment, already reset once.
        teams: whose critics.
        env_name: for messages.

    Raises:
        ValueError: unknown choice, or an environment that has no usable `state()`.
    """
    if choice == "own":
        return OwnObserver()
    if choice == "joint":
        return JointObserver(teams)
    if choice == "state":
        if not callable(getattr(env, "state", None)):
            raise ValueError(f"{env_name} has no callable state(); {_INSTEAD}")
        try:
            return FunctionObserver(env_state, None, env, teams, env_name, hold_on_terminal=True)
        except RuntimeError as error:
            raise ValueError(f"{env_name} has no usable state(): {error.__cause__!r}; {_INSTEAD}") from error
    if isinstance(choice, str):
        raise ValueError(unknown("critic_observation", choice, CHOICES))
    function, space = choice if isinstance(choice, tuple) else (choice, None)
    if not callable(function):
        raise ValueError(f"critic_observation must be one of {CHOICES} or a function (env, team) -> array")
    return FunctionObserver(function, space, env, teams, env_name)


_INSTEAD = 'use critic_observation="joint", "own" or a function (env, team) -> array'
