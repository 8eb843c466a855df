"""The work as this package does it: the rows `team`, `team_state` and those named for another sharing."""

from __future__ import annotations

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.benchmark.work import TEAM, TRAINING, Work


def team_config(
    work: Work, critic_observation: str, sharing: str = TEAM, critic_sharing: str | None = None
) -> TeamPPOConfig:
    """`TeamPPO` with MLPs.

    Args:
        work: what to do.
        critic_observation: `"own"` or `"state"`.
        sharing: see `TeamPPOConfig.teams`.
        critic_sharing: see `TeamPPOConfig.teams`.
    """
    config = TeamPPOConfig()
    config.environment(work.env, env_config=dict(work.env_config))
    config.teams(sharing=sharing, critic_sharing=critic_sharing, critic_observation=critic_observation)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=work.num_envs)
    config.learners(num_learners=0)
    config.training(
        **TRAINING,
        train_batch_size_per_learner=work.env_steps,
        minibatch_size=work.minibatch_env_steps,
        num_epochs=work.epochs,
    )
    config.rl_module(model_config={"hidden": [work.hidden] * 2, "encoder": "mlp", "critic_encoder": "cnn"})
    config.debugging(seed=work.seed, log_level="ERROR")
    return config
