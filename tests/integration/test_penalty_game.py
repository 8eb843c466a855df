"""Two players must choose differently: what a shared policy cannot do, and what ids or weights of one's own are for.

The payoff is [[-k, 0, 10], [0, 2, 0], [10, 0, -k]] for both. Players with one policy and nothing that tells them apart
mix alike, which gives at most 5 per step at k = 0 (half and half) and 2 at k = 25 (the safe middle).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.algorithms.ppo import TeamPPO

STEPS = 25  # per episode


def game(k: float, **teams: Any) -> TeamPPOConfig:
    """The returns of steps do not depend on each other, so gamma is 0."""
    config = TeamPPOConfig().environment("matrix_game", env_config={"payoff": "penalty", "k": k, "max_cycles": STEPS})
    config.teams(critic_observation="own", **teams).env_runners(num_envs_per_env_runner=8).debugging(seed=0)
    config.training(train_batch_size_per_learner=400, minibatch_size=400, num_epochs=8, lr=5e-3, gamma=0.0, lambda_=0.0)
    config.training(entropy_coeff=0.0, vf_clip_param=1e6, grad_clip=10.0)
    return config.rl_module(model_config={"hidden": [16]})


def reward_per_step(config: TeamPPOConfig, checkpoint: Path, start: Path | None = None) -> float:
    """Train, from `start` on if given, and save; what a player got per step in the last episodes."""
    algo: TeamPPO = config.build_algo()
    try:
        if start is not None:
            algo.restore_from_path(str(start))
        for _ in range(40):
            result = algo.train()
        algo.save_to_path(str(checkpoint))
        return result["return_per_agent"] / STEPS
    finally:
        algo.stop()


@pytest.mark.parametrize(
    ("teams", "coordinated"),
    [
        ({"sharing": "team"}, False),
        ({"sharing": "team", "agent_id": True}, True),
        ({"sharing": "team", "agent_id": "binary"}, True),
        ({"sharing": "agent"}, True),
        ({"sharing": "agent", "critic_sharing": "team"}, True),
    ],
    ids=str,
)
def test_only_players_who_can_differ_reach_the_optimum(
    ray_session: None, tmp_path: Path, teams: dict[str, Any], coordinated: bool
) -> None:
    """At k = 25 from where k = 0 led to: without an entropy bonus a uniform start ends at the safe 2 there."""
    mild = reward_per_step(game(0, **teams), tmp_path / "mild")
    harsh = reward_per_step(game(25, **teams), tmp_path / "harsh", start=tmp_path / "mild")
    if coordinated:
        assert mild > 9.5 and harsh > 9.5
    else:
        assert 4.0 < mild < 5.7
        assert 0.5 < harsh <= 2.0
