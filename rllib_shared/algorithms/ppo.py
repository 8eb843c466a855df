"""`TeamPPO`: RLlib's PPO over team arrays. `training_step` is RLlib's own."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.sampling.metrics import RETURN_PER_AGENT, TEAMS

AGENT_STEPS = "agent_steps"
ENV_STEPS = "env_steps"
_MAX_EMPTY_ITERATIONS = 3
_RESTART_S = 60.0  # that a runner's process may take to come back on a busy machine


class TeamPPO(PPO):
    """PPO for teams of many agents; see `TeamPPOConfig`.

    Results have, beside RLlib's own: `agent_steps` and `env_steps` (sampled so far), `return_per_agent` (mean over
    teams), and per team `env_runners/teams/<team>/{return_per_agent,team_return,win_rate,survivors,episode_length}`.
    """

    _empty_iterations = 0
    _last_samples = math.inf

    @classmethod
    def get_default_config(cls) -> TeamPPOConfig:
        """A `TeamPPOConfig`."""
        return TeamPPOConfig()

    @classmethod
    def from_checkpoint(cls, path: str | Path, *args: Any, **kwargs: Any) -> Algorithm:
        """As RLlib's, which cannot read relative paths.

        Raises:
            FileNotFoundError: no checkpoint there.
        """
        from rllib_shared.evaluation.checkpoints import checkpoint_path

        return super().from_checkpoint(str(checkpoint_path(path)), *args, **kwargs)

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """Raise what a runner raised; bring back runners that died of something else.

        Stock restarts both kinds silently, so that an environment that always fails is retried for ever.

        Raises:
            RuntimeError: with the runner's own traceback.
        """
        restored = super().restore_env_runners(env_runner_group)
        if restored:
            failures = env_runner_group.foreach_env_runner(
                lambda runner: (runner.worker_index, runner.failure),
                remote_worker_ids=restored,
                local_env_runner=False,
                timeout_seconds=self.config.env_runner_restore_timeout_s,
            )
            for index, failure in failures:
                if failure is not None:
                    raise RuntimeError(f"env runner {index} failed. Its own traceback:\n{failure}")
        return restored

    def step(self) -> dict[str, Any]:
        """One iteration.

        Raises:
            RuntimeError: a runner failed, or several iterations in a row brought no samples, for longer than a runner
                takes to come back (a minute, or `env_runner_restore_timeout_s` if that is less).
        """
        results = super().step()
        runners = results.get(ENV_RUNNER_RESULTS, {})
        sampled = runners.get(NUM_ENV_STEPS_SAMPLED, 0)
        if sampled > 0:  # False for NaN too
            self._empty_iterations = 0
            self._last_samples = time.monotonic()
        else:
            self._handle_empty_iteration()
        results[ENV_STEPS] = int(runners.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        results[AGENT_STEPS] = int(sum(runners.get(NUM_AGENT_STEPS_SAMPLED_LIFETIME, {}).values()))
        teams = runners.get(TEAMS, {}).values()
        returns = [numbers[RETURN_PER_AGENT] for numbers in teams]
        results[RETURN_PER_AGENT] = float(sum(returns) / len(returns)) if returns else float("nan")
        return results

    def _handle_empty_iteration(self) -> None:
        """Stock only logs a warning, and a run would go on for ever without learning."""
        self.restore_env_runners(self.env_runner_group)
        self._empty_iterations += 1
        self._last_samples = min(self._last_samples, time.monotonic())
        patience = min(_RESTART_S, self.config.env_runner_restore_timeout_s)
        waited = time.monotonic() - self._last_samples
        if self._empty_iterations >= _MAX_EMPTY_ITERATIONS and waited >= patience:
            raise RuntimeError(
                f"{self._empty_iterations} iterations in a row brought no samples: all env runners died or took longer "
                f"than sample_timeout_s={self.config.sample_timeout_s}; raise it, or lower "
                f"train_batch_size_per_learner={self.config.train_batch_size_per_learner} (in env steps)"
            )
