"""What an environment knows beyond PettingZoo's interface: who survived, what does nothing, how to draw and close.

`Game` is the general answer for any `ParallelEnv`; `gridworld_game.py` has MAgent2's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_shared.envs.critic_observation import CriticObservationChoice, CriticObserver, make_observer
from rllib_shared.envs.team_env import (
    ENDED,
    TIME_LIMIT,
    WIPED_OUT,
    ModuleStep,
    Outcome,
    winner_by_survivors,
)
from rllib_shared.teams import Teams


class Game:
    """Knowledge about one `ParallelEnv`.

    An environment that ends in ways its flags do not tell can define `survivors() -> {team: count}`; it is asked
    after the last step of an episode.

    Args:
        env: the environment as its factory made it.
        noop: the discrete action that does nothing, if there is one.
    """

    def __init__(self, env: Any, noop: int | None = None) -> None:
        self.env = env
        self._noop = noop

    def make_observer(self, choice: CriticObservationChoice, teams: Teams, name: str) -> CriticObserver:
        """The observer for the user's choice of critic observation; see `critic_observation.make_observer`."""
        return make_observer(choice, self.env, teams, name)

    def after_reset(self) -> None:
        """Mend what the environment's `reset` leaves wrong."""

    def noop_action(self, teams: Teams) -> dict[str, int]:
        """The action of each module that does nothing; empty where none is known."""
        return {} if self._noop is None else dict.fromkeys(teams.modules, self._noop)

    def outcome(self, teams: Teams, modules: Mapping[str, ModuleStep], acted: Mapping[str, np.ndarray]) -> Outcome:
        """How the episode ended, asked after its last step.

        Args:
            teams: who is where.
            modules: what the agents got in that step.
            acted: bool `[N]` per module, who acted in it.
        """
        survivors = self._survivors(teams, modules, acted)
        truncated = any(part.truncated.any() for part in modules.values())
        wiped = len(survivors) > 1 and min(survivors.values()) == 0
        reason = WIPED_OUT if wiped else TIME_LIMIT if truncated else ENDED
        return Outcome(winner_by_survivors(survivors), survivors, reason)

    def _survivors(
        self, teams: Teams, modules: Mapping[str, ModuleStep], acted: Mapping[str, np.ndarray]
    ) -> dict[str, int]:
        ask = getattr(self.env.unwrapped, "survivors", None)
        if ask is not None:
            return {team: int(count) for team, count in ask().items()}
        # When everyone terminates at once the flags only say that the game is over, not who died.
        everyone = all(np.array_equal(part.terminated, acted[mid]) for mid, part in modules.items())
        return {
            team: int((acted[mid] & (everyone | ~modules[mid].terminated))[slots.team_index == index].sum())
            for mid, slots in teams.modules.items()
            for index, team in enumerate(slots.teams)
        }

    def render(self) -> np.ndarray | None:
        """The current frame, uint8 `[height, width, 3]`, or None."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
