"""Evaluations at fixed points of training, made inside a trial by an RLlib callback.

Each result that ends with an evaluation carries its numbers, so that Tune's `result.json` keeps them. What becomes of
them is in `collect.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_AGENT_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED
from ray.tune.result import SHOULD_CHECKPOINT, TIME_TOTAL_S, TRAINING_ITERATION

from rllib_shared.algorithms.footprint import learned_parameters
from rllib_shared.algorithms.ppo import AGENT_STEPS, ENV_STEPS
from rllib_shared.benchmark.load import peak_memory_mib
from rllib_shared.evaluation.match import play
from rllib_shared.evaluation.policies import TeamPolicies, training_of
from rllib_shared.evaluation.result import MatchResult

EVALUATIONS = "evaluations"


class EvaluationPoints(RLlibCallback):
    """Plays fixed opponents before training and at evenly spaced points of it; the last point is the end.

    The games of a trial are the same at every point, and in all arms for the same seed. Results are made after RLlib
    has stopped its clock, so `time_total_s` is the time of training alone. Nothing is remembered between results: a
    trial that goes on from a checkpoint makes the points that it has not made yet.

    Args:
        counter: `agent_steps` or `env_steps`.
        limit: where the counter ends training.
        points: how many, the one before training not counted.
        opponents: who is played; none lets the policies play all teams.
        episodes: games per point and opponent.
    """

    def __init__(self, counter: str, limit: float, points: int, opponents: Sequence[str], episodes: int) -> None:
        super().__init__()
        self._counter = counter
        self._limit = limit
        self._points = points
        self._opponents: Sequence[str | None] = opponents or [None]
        self._episodes = episodes
        self._untrained: TeamPolicies | None = None
        self._parameters = 0

    def on_algorithm_init(self, *, algorithm: Algorithm, **kwargs: Any) -> None:
        """Keep the policies as they are before training; a checkpoint may be loaded only afterwards."""
        self._untrained = policies_of(algorithm, as_now=True)
        self._parameters = learned_parameters(algorithm)

    def on_train_result(self, *, algorithm: Algorithm, result: dict, **kwargs: Any) -> None:
        """Evaluate if this iteration reached a point, and have it saved."""
        evaluations = []
        if result[TRAINING_ITERATION] == 1 and self._untrained is not None:
            evaluations += self._evaluated(self._untrained, 0, {}, algorithm.config.seed)
        self._untrained = None
        now = result[self._counter]
        if self._point(now) > self._point(now - _sampled(result)[self._counter]):
            evaluations += self._evaluated(policies_of(algorithm), self._point(now), result, algorithm.config.seed)
        if evaluations:
            result[EVALUATIONS] = evaluations
            result[SHOULD_CHECKPOINT] = True

    def _point(self, steps: float) -> int:
        """The last point that is reached after so many steps."""
        return min(self._points, int(steps * self._points // self._limit))

    def _evaluated(
        self, policies: TeamPolicies, point: int, result: Mapping[str, Any], seed: int
    ) -> list[dict[str, Any]]:
        """What `schema.Row` says of a point, without arm, seed and trial."""
        agent_steps, seconds = result.get(AGENT_STEPS, 0), result.get(TIME_TOTAL_S, 0.0)
        return [
            {
                "point": point,
                "env_steps": result.get(ENV_STEPS, 0),
                "agent_steps": agent_steps,
                "train_seconds": seconds,
                "opponent": opponent or "",
                "episodes": self._episodes,
                **_scores(play(policies, opponent=opponent, episodes=self._episodes, seed=seed)),
                "parameters": self._parameters,
                "memory_mib": peak_memory_mib(),
                "agent_steps_per_s": agent_steps / seconds if seconds else 0.0,
            }
            for opponent in self._opponents
        ]


def policies_of(algorithm: Algorithm, *, as_now: bool = False) -> TeamPolicies:
    """The policies of an algorithm that is being trained.

    Args:
        algorithm: a `TeamPPO`.
        as_now: keep them as they are now; otherwise they change with the training.
    """
    modules = {module_id: algorithm.get_module(module_id) for module_id in algorithm.config.team_layout.modules}
    return TeamPolicies(
        copy.deepcopy(modules) if as_now else modules, training_of(vars(algorithm.config)), Path(algorithm.logdir)
    )


def _sampled(result: Mapping[str, Any]) -> dict[str, float]:
    """What this iteration added to each counter."""
    runners = result[ENV_RUNNER_RESULTS]
    return {
        AGENT_STEPS: sum(runners[NUM_AGENT_STEPS_SAMPLED].values()),
        ENV_STEPS: runners[NUM_ENV_STEPS_SAMPLED],
    }


def _scores(match: MatchResult) -> dict[str, float | None]:
    """Means over the teams that the evaluated side played."""
    survivors = _mean(match.evaluated.survivors) if match.has_opponent else None
    return {
        "return_per_agent": _mean(match.evaluated.return_per_agent),
        "win_rate": match.win_rate,
        "survivors": survivors,
        "episode_length": match.episode_length,
    }


def _mean(by_team: Mapping[str, float | None]) -> float:
    return float(np.mean([value for value in by_team.values() if value is not None]))
