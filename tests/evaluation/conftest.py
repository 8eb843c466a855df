"""One really trained checkpoint for all tests of evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from rllib_shared.algorithms.config import TeamPPOConfig


@pytest.fixture(scope="session")
def checkpoint(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Battle on map 16 after one iteration, where Tune would have put it: `run/trial/checkpoint_000000`."""
    config = (
        TeamPPOConfig()
        .environment("battle_v4", env_config={"map_size": 16, "max_cycles": 25})
        .teams(sharing="team", critic_observation="state")
        .rl_module(model_config={"hidden": [32], "encoder": "mlp", "critic_encoder": "mlp"})
        .training(train_batch_size_per_learner=50, minibatch_size=25, num_epochs=1)
        .debugging(seed=3)
    )
    algo = config.build_algo()
    algo.train()
    path = tmp_path_factory.mktemp("runs") / "a run" / "trial" / "checkpoint_000000"
    algo.save_to_path(path)
    algo.stop()
    return path
