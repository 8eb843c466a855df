"""Two players must choose differently: what a shared policy cannot do, and what ids or weights of one's own are for.

The payoff is [[-k, 0, 10], [0, 2, 0], [10, 0, -k]] for both. Players with one policy and nothing that tells them apart
mix alike, which gives at most 5 per step at k = 0 (half and half) and 2 at k = 25 (the safe middle).

At k = 25 everybody ends in the safe middle if the policies may become sure early. The entropy bonus keeps them mixed,
where the smallest difference between the players grows, and fades then. (Of seeds 0 to 2, one-hot ids and own weights
reach 10 with all; the one bit of `binary` for two players with two of them.)
"""

from __future__ import annotations

from typing import Any

import pytest

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.algorithms.ppo import TeamPPO

STEPS = 25  # per episode
ENTROPY = [[0, 0.4], [16_000, 0.4], [24_000, 0.0]]


def game(k: float, **teams: Any) -> TeamPPOConfig:
    """The returns of steps do not depend on each other, so gamma is 0."""
    config = TeamPPOConfig().environment("matrix_game", env_config={"payoff": "penalty", "k": k, "max_cycles": STEPS})
    config.teams(critic_observation="own", **teams).env_runners(num_envs_per_env_runner=8).debugging(seed=1)
    config.training(train_batch_size_per_learner=400, minibatch_size=400, num_epochs=8, lr=1e-2, gamma=0.0, lambda_=0.0)
    config.training(entropy_coeff=ENTROPY, vf_clip_param=1e6, grad_clip=10.0)
    return config.rl_module(model_config={"hidden": [16]})


def reward_per_step(config: TeamPPOConfig) -> float:
    """Train; what a player got per step in the last episodes."""
    algo: TeamPPO = config.build_algo()
    try:
        for _ in range(70):
            result = algo.train()
        return result["return_per_agent"] / STEPS
    finally:
        algo.stop()


@pytest.mark.parametrize("k", [0, 25])
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
    ray_session: None, teams: dict[str, Any], coordinated: bool, k: float
) -> None:
    reward = reward_per_step(game(k, **teams))
    if coordinated:
        assert reward > 9.5
    elif k == 0:
        assert 4.0 < reward < 5.7
    else:
        assert 0.5 < reward <= 2.0
