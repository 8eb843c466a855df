"""Measures one row of the benchmark in this process; `run.py` starts one process per row.

The steps of an iteration are those of RLlib's `PPO.training_step`, timed one by one: sampling with its metrics, the
learner's update, and the new weights' way back to the runner.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    ENV_RUNNER_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
)

from rllib_shared.algorithms.footprint import learned_parameters
from rllib_shared.benchmark.load import LoadWatch, peak_memory_mib
from rllib_shared.benchmark.stock import stock_agent_config, stock_central_config, stock_config
from rllib_shared.benchmark.team import team_config
from rllib_shared.benchmark.work import SHARING_ROWS, STOCK, STOCK_AGENT, STOCK_CENTRAL, TEAM, TEAM_STATE, Work
from rllib_shared.launching.machine import keep_quiet
from rllib_shared.sampling.seeds import allow_unfilled_memory

CONFIGS: dict[str, Callable[[Work], AlgorithmConfig]] = {
    TEAM: lambda work: team_config(work, "own"),
    TEAM_STATE: lambda work: team_config(work, "state"),
    STOCK: stock_config,
    STOCK_CENTRAL: stock_central_config,
    STOCK_AGENT: stock_agent_config,
}


def config_of(row: str, work: Work) -> AlgorithmConfig:
    """How the row does the work."""
    if row in SHARING_ROWS:
        return team_config(work, "own", sharing=row, critic_sharing=work.critic_sharing)
    return CONFIGS[row](work)


@dataclass(frozen=True)
class Iteration:
    """One iteration, in seconds and in living agents.

    Attributes:
        env_steps: taken, of all copies.
        agent_steps: actions of living agents.
        rows_trained: rows that went through the loss, all epochs together.
        sample_s: seconds of sampling.
        learn_s: seconds of the learner's update.
        sync_s: seconds until the runner has the new weights.
    """

    env_steps: int
    agent_steps: int
    rows_trained: int
    sample_s: float
    learn_s: float
    sync_s: float

    @property
    def sample_rate(self) -> float:
        """Agent steps sampled per second."""
        return self.agent_steps / self.sample_s

    def learn_rate(self, epochs: int) -> float:
        """Agent steps that a second of learning covers at `epochs` passes.

        Counted in rows trained, because stock RLlib trains more of them than it was asked to: it fills minibatches by
        cycling the data, and adds a (masked) row for each agent and fragment.
        """
        return self.rows_trained / epochs / self.learn_s

    def total_rate(self, epochs: int) -> float:
        """Agent steps per second of whole iterations, as if exactly `epochs` passes had been trained."""
        return self.agent_steps / (self.sample_s + self.agent_steps / self.learn_rate(epochs) + self.sync_s)


def measure(row: str, work: Work) -> dict[str, Any]:
    """Build the row's algorithm and run the work; needs a running Ray.

    Args:
        row: one of `ROWS`.
        work: what to do.

    Returns:
        `sample`, `learn` and `total`: medians in agent steps per second; `peak_mb`: this process's peak memory in MiB;
        `parameters`: of all networks; and what they were computed from.
    """
    torch.set_num_threads(work.threads)
    # Every row has a seed; what RLlib's seeding costs beside must not be counted against stock RLlib.
    allow_unfilled_memory()
    algorithm = config_of(row, work).build_algo()
    try:
        _iterate(algorithm, work)
        watch = LoadWatch()
        iterations = [_iterate(algorithm, work) for _ in range(work.iterations_of(row))]
        others = watch.others()
        parameters = learned_parameters(algorithm)
    finally:
        algorithm.stop()
    return {
        "sample": median(iteration.sample_rate for iteration in iterations),
        "learn": median(iteration.learn_rate(work.epochs) for iteration in iterations),
        "total": median(iteration.total_rate(work.epochs) for iteration in iterations),
        "peak_mb": peak_memory_mib(),
        "parameters": parameters,
        "iterations": len(iterations),
        "env_steps": sum(iteration.env_steps for iteration in iterations),
        "agent_steps": sum(iteration.agent_steps for iteration in iterations),
        "rows_trained": sum(iteration.rows_trained for iteration in iterations),
        "sample_s": median(iteration.sample_s for iteration in iterations),
        "learn_s": median(iteration.learn_s for iteration in iterations),
        "sync_s": median(iteration.sync_s for iteration in iterations),
        "other_load": others,
    }


def _iterate(algorithm: Algorithm, work: Work) -> Iteration:
    """What `PPO.training_step` does, with the clock read between its parts."""
    metrics = algorithm.metrics
    start = time.perf_counter()
    episodes = algorithm.env_runner.sample()
    metrics.aggregate([algorithm.env_runner.get_metrics()], key=ENV_RUNNER_RESULTS)
    sampled = time.perf_counter()
    # Counted now: RLlib's learner connectors append to its episodes.
    env_steps = sum(episode.env_steps() for episode in episodes)
    agent_steps = sum(episode.agent_steps() for episode in episodes)
    timesteps = {
        NUM_ENV_STEPS_SAMPLED_LIFETIME: metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)),
        NUM_MODULE_STEPS_TRAINED_LIFETIME: metrics.peek(
            (LEARNER_RESULTS, ALL_MODULES, NUM_MODULE_STEPS_TRAINED_LIFETIME), default=0
        ),
    }
    counted = time.perf_counter()
    results = algorithm.learner_group.update(
        episodes=episodes,
        timesteps=timesteps,
        num_epochs=work.epochs,
        minibatch_size=algorithm.config.minibatch_size,
        shuffle_batch_per_epoch=algorithm.config.shuffle_batch_per_epoch,
    )
    metrics.aggregate(results, key=LEARNER_RESULTS)
    learned = time.perf_counter()
    algorithm.env_runner_group.sync_weights(
        from_worker_or_learner_group=algorithm.learner_group,
        policies=set(results[0]) - {ALL_MODULES},
        inference_only=True,
    )
    synced = time.perf_counter()
    rows = metrics.peek((LEARNER_RESULTS, ALL_MODULES, NUM_MODULE_STEPS_TRAINED))
    metrics.reduce()
    return Iteration(
        env_steps=env_steps,
        agent_steps=agent_steps,
        rows_trained=int(rows),
        sample_s=sampled - start,
        learn_s=learned - counted,
        sync_s=synced - learned,
    )


def main(row: str, work: str, result: str) -> None:
    """Measure and write the numbers into a file.

    Args:
        row: one of `ROWS`.
        work: a `Work` as JSON.
        result: path of the JSON file to write.
    """
    keep_quiet()
    logging.disable(logging.WARNING)
    ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="ERROR")
    try:
        numbers = measure(row, Work(**json.loads(work)))
    finally:
        ray.shutdown()
    Path(result).write_text(json.dumps(numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
