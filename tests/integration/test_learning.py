"""That it learns: thresholds with fixed seeds, small enough for every run of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rllib_shared import TeamPPOConfig, load_policies, play

pytestmark = pytest.mark.usefixtures("ray_session")


def train(config: TeamPPOConfig, iterations: int, enough: Any = None) -> dict[str, Any]:
    """The last result, after `iterations` or once `enough(result)`."""
    algo = config.build_algo()
    try:
        for _ in range(iterations):
            result = algo.train()
            if enough is not None and enough(result):
                break
        return result
    finally:
        algo.stop()


def explained_variance(critic_observation: str) -> float:
    config = TeamPPOConfig().environment("coin_game").teams(critic_observation=critic_observation)
    config.env_runners(num_envs_per_env_runner=4).debugging(seed=0).rl_module(model_config={"hidden": [32]})
    config.training(train_batch_size_per_learner=400, minibatch_size=100, lr=3e-3, gamma=0.0, num_epochs=4)
    return train(config, 12)["learners"]["player"]["vf_explained_var"]


def test_only_a_critic_that_reads_the_state_explains_a_reward_that_only_the_state_shows() -> None:
    assert explained_variance("state") > 0.9
    assert abs(explained_variance("own")) < 0.1


def test_a_team_of_two_learns_to_balance_two_poles() -> None:
    config = TeamPPOConfig().environment("cartpole_team", env_config={"num_agents": 2, "max_cycles": 200})
    config.env_runners(num_envs_per_env_runner=8).debugging(seed=0).rl_module(model_config={"hidden": [64, 64]})
    config.training(
        train_batch_size_per_learner=1600, minibatch_size=200, lr=1e-3, num_epochs=8, vf_clip_param=1e4, grad_clip=10.0
    )
    result = train(config, 30, enough=lambda result: result["return_per_agent"] > 150)
    assert result["return_per_agent"] > 150, f"return per agent {result['return_per_agent']:.0f} of 200"


def test_battle_beats_random_in_nine_games_of_ten(tmp_path: Path) -> None:
    """A few minutes of self-play on a small map, with the mask that keeps self-play from "never attack"."""
    config = TeamPPOConfig().environment(
        "battle_v4", env_config={"map_size": 16, "max_cycles": 200, "mask_attacks": True}
    )
    config.env_runners(num_envs_per_env_runner=8).debugging(seed=0)
    config.training(train_batch_size_per_learner=800, minibatch_size=100, lr=5e-4)
    config.rl_module(model_config={"hidden": [128, 128], "encoder": "mlp", "critic_encoder": "mlp"})
    algo = config.build_algo()
    try:
        for _ in range(40):
            algo.train()
        algo.save_to_path(str(tmp_path / "battle"))
    finally:
        algo.stop()
    result = play(load_policies(tmp_path / "battle"), opponent="random", episodes=100, seed=1).to_dict()
    assert result["win_rate"] >= 0.9, result
