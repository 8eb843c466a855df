"""What a runner reports: a constant number of keys per team, however many agents there are.

Team metrics are means over the last episodes (`metrics_num_episodes_for_smoothing`), NaN until one has ended: a key
that appears later would be lost in Tune's CSV files and unknown to its stop rules.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping

import numpy as np
from ray.rllib.utils.metrics import (
    EPISODE_LEN_MEAN,
    EPISODE_MODULE_RETURN_MEAN,
    EPISODE_RETURN_MEAN,
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
)
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_shared.sampling.episode import TeamEpisode
from rllib_shared.teams import Teams

TEAMS = "teams"
RETURN_PER_AGENT = "return_per_agent"
TEAM_RETURN = "team_return"
WIN_RATE = "win_rate"
SURVIVORS = "survivors"
EPISODE_LENGTH = "episode_length"
NUM_ENV_RESTARTS = "num_env_restarts"


class RunnerMetrics:
    """Counts steps and remembers the last episodes.

    Args:
        logger: the runner's.
        teams: who is where.
        window: how many episodes the means go over.
    """

    def __init__(self, logger: MetricsLogger, teams: Teams, window: int) -> None:
        # Ray reduces by nanmean, which warns where all is NaN: before the first episode has ended.
        warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
        self._logger = logger
        self._teams = teams
        self._episodes: deque[dict[tuple[str, ...], float]] = deque(maxlen=window)
        self._keys = list(_numbers(TeamEpisode(teams), teams))

    def count_steps(self, env_steps: int, agent_steps: Mapping[str, int], module_steps: Mapping[str, int]) -> None:
        """Count what one `sample()` call has done.

        Args:
            env_steps: of all copies.
            agent_steps: living agents of each team, summed over the steps.
            module_steps: the same per module.
        """
        counts: list[tuple[tuple[str, ...], tuple[str, ...], int]] = [
            ((NUM_ENV_STEPS_SAMPLED,), (NUM_ENV_STEPS_SAMPLED_LIFETIME,), env_steps)
        ]
        for team, count in agent_steps.items():
            counts.append(((NUM_AGENT_STEPS_SAMPLED, team), (NUM_AGENT_STEPS_SAMPLED_LIFETIME, team), count))
        for module_id, count in module_steps.items():
            counts.append(
                ((NUM_MODULE_STEPS_SAMPLED, module_id), (NUM_MODULE_STEPS_SAMPLED_LIFETIME, module_id), count)
            )
        for key, lifetime_key, count in counts:
            self._logger.log_value(key, count, reduce="sum")
            self._logger.log_value(
                lifetime_key,
                count,
                reduce="lifetime_sum",
                with_throughput=lifetime_key == (NUM_ENV_STEPS_SAMPLED_LIFETIME,),
            )

    def count_restart(self) -> None:
        """Count an env copy that failed and was made anew."""
        self._logger.log_value(NUM_ENV_RESTARTS, 1, reduce="sum")

    def add_episode(self, episode: TeamEpisode) -> None:
        """Remember an episode that has ended."""
        self._logger.log_value(NUM_EPISODES, 1, reduce="sum")
        self._logger.log_value(NUM_EPISODES_LIFETIME, 1, reduce="lifetime_sum")
        self._episodes.append(_numbers(episode, self._teams))

    def log_means(self, forget: bool) -> None:
        """Log the means over the remembered episodes.

        Args:
            forget: start anew afterwards; evaluation must not mix episodes of different weights.
        """
        # Logged as 0 too, so that the keys are there from the first result on.
        self._logger.log_value(NUM_EPISODES, 0, reduce="sum")
        self._logger.log_value(NUM_EPISODES_LIFETIME, 0, reduce="lifetime_sum")
        self._logger.log_value(NUM_ENV_RESTARTS, 0, reduce="sum")
        for key in self._keys:
            mean = float(np.mean([numbers[key] for numbers in self._episodes])) if self._episodes else float("nan")
            self._logger.log_value(key, mean, window=1)
        if forget:
            self._episodes.clear()


def _numbers(episode: TeamEpisode, teams: Teams) -> dict[tuple[str, ...], float]:
    """The numbers of one episode, by metric key."""
    survivors: Mapping[str, int] = episode.outcome.survivors if episode.outcome else dict.fromkeys(teams.names, 0)
    winner = episode.outcome.winner if episode.outcome else None
    team_return, return_per_agent = episode.team_return(), episode.return_per_agent()
    numbers: dict[tuple[str, ...], float] = {
        (EPISODE_RETURN_MEAN,): episode.get_return(),
        (EPISODE_LEN_MEAN,): episode.length,
    }
    for module_id, returns in episode.agent_returns.items():
        numbers[(EPISODE_MODULE_RETURN_MEAN, module_id)] = float(returns.sum())
    for team in teams.names:
        numbers[(TEAMS, team, RETURN_PER_AGENT)] = return_per_agent[team]
        numbers[(TEAMS, team, TEAM_RETURN)] = team_return[team]
        numbers[(TEAMS, team, WIN_RATE)] = float(winner == team)
        numbers[(TEAMS, team, SURVIVORS)] = survivors[team]
        numbers[(TEAMS, team, EPISODE_LENGTH)] = episode.length
    return numbers
