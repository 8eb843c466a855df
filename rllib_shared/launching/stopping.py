"""`--stop KEY=VALUE`: when a trial has done enough, and the clean end after Ctrl-C."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from rllib_shared.algorithms.ppo import AGENT_STEPS, ENV_STEPS
from rllib_shared.messages import unknown

ITERATIONS = "iterations"
HOURS = "hours"
COUNTERS = (AGENT_STEPS, ENV_STEPS, ITERATIONS, HOURS)

_SECONDS_PER_HOUR = 3600.0
_DRY_ENV_STEPS = 4


class StopRule(FIFOScheduler):
    """Stops a trial when any of its numbers is at or above its limit; all trials after `interrupt()`.

    A scheduler and not a `Stopper`: Tune keeps the stopper of a run in its state, so that a resumed run would stop by
    the old rule, and a stopper that ends all trials ends them without saving.

    Args:
        limits: limit of each key, one of `COUNTERS` or a result key with slashes.
    """

    def __init__(self, limits: Mapping[str, float]) -> None:
        super().__init__()
        self.limits = dict(limits)
        self.interrupted = False

    def is_reached(self, result: Mapping[str, Any]) -> bool:
        """Whether any number of a result is at its limit. NaN (no episode has ended yet) never is."""
        return any(number_in(result, key) >= limit for key, limit in self.limits.items())

    def interrupt(self) -> None:
        """End every trial with its next result, which saves it, and start no more."""
        self.interrupted = True

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Whether this trial ends with this result; Tune then saves it."""
        return self.STOP if self.interrupted or self.is_reached(result) else self.CONTINUE

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The next trial in order; none after an interruption, which ends those that wait.

        In a resumed run, trials that had reached their limits end as they are.
        """
        for trial in tune_controller.get_trials():
            if trial.status == Trial.PENDING and (self.interrupted or self.is_reached(trial.last_result)):
                # Tune's results ask for the folder also of a trial that never ran.
                trial.init_local_path()
                tune_controller.stop_trial(trial)
        return None if self.interrupted else super().choose_trial_to_run(tune_controller)


def number_in(result: Mapping[str, Any], key: str) -> float:
    """The number at `key` of a result, nested or flattened with slashes; NaN if there is none."""
    if key == ITERATIONS:
        key = "training_iteration"
    if key == HOURS:
        return number_in(result, "time_total_s") / _SECONDS_PER_HOUR
    value: Any = result.get(key, result)
    for part in key.split("/") if value is result else ():
        value = value.get(part) if isinstance(value, Mapping) else None
    return float(value) if _is_number(value) else math.nan


def checked_limits(given: Mapping[str, Any]) -> dict[str, float]:
    """Limits as numbers.

    Args:
        given: from `--stop` or an experiment's STOP.

    Raises:
        ValueError: no limit at all, or one that is no number.
    """
    if not given:
        raise ValueError(
            "nothing says when to stop; give for example --stop agent_steps=1e6, "
            'or put STOP = {"agent_steps": 1e6} into the experiment file'
        )
    for key, value in given.items():
        if not _is_number(value) or not math.isfinite(value):
            raise ValueError(f"stop {key}={value!r}: expected a number")
        if key in COUNTERS and value <= 0:
            raise ValueError(f"stop {key}={value!r}: expected a number above 0")
    return {key: float(value) for key, value in given.items()}


def check_limit_keys(limits: Mapping[str, float], config: AlgorithmConfig) -> None:
    """Refuse keys that no result will have.

    Args:
        limits: see `StopRule`.
        config: of the algorithm; for keys other than `COUNTERS`, one tiny iteration of it runs in this process.

    Raises:
        ValueError: with the nearest known keys.
    """
    if set(limits) <= set(COUNTERS):
        return
    known = {*COUNTERS, *_result_keys(config)}
    for key in limits:
        if key not in known:
            raise ValueError(unknown("stop key", key, _nearest(key, known)))


def _nearest(key: str, known: set[str]) -> list[str]:
    """Known keys to propose: for a key without a path those that end alike, otherwise all."""
    names = sorted(known)
    if "/" in key:
        return names
    ends = {name.rsplit("/", 1)[-1] for name in names}
    near = difflib.get_close_matches(key, ends, n=3, cutoff=0.7)
    return [name for name in names if name.rsplit("/", 1)[-1] in near] or list(COUNTERS)


def _result_keys(config: AlgorithmConfig) -> set[str]:
    """Keys of all numbers that a result has; they are the same from the first iteration on."""
    tiny = config.copy(copy_frozen=False)
    tiny.env_runners(num_env_runners=0, num_envs_per_env_runner=1, rollout_fragment_length="auto")
    tiny.training(train_batch_size_per_learner=_DRY_ENV_STEPS, minibatch_size=_DRY_ENV_STEPS, num_epochs=1)
    tiny.learners(num_learners=0, num_gpus_per_learner=0)
    tiny.evaluation(evaluation_interval=None)
    algorithm = tiny.build_algo()
    try:
        keys = set(_number_keys(algorithm.train()))
    finally:
        algorithm.stop()
    if config.evaluation_interval:
        keys |= {f"evaluation/{key}" for key in keys if key.startswith("env_runners/")}
    return keys


def _number_keys(result: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in result.items():
        if isinstance(value, Mapping):
            if key != "config":
                yield from _number_keys(value, f"{prefix}{key}/")
        elif _is_number(value):
            yield f"{prefix}{key}"


def _is_number(value: Any) -> bool:
    # NumPy's scalars count too.
    return not isinstance(value, bool) and hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0
