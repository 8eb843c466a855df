"""What a run takes is known before it starts, and what cannot fit is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.algorithms.footprint import optimizer_seconds


def battle(hidden: int = 16, **teams: Any) -> TeamPPOConfig:
    config = TeamPPOConfig().environment("battle_v4", env_config={"map_size": 16}).teams(**teams)
    return config.rl_module(model_config={"hidden": [hidden, hidden], "encoder": "mlp", "critic_encoder": "mlp"})


@pytest.mark.parametrize("teams", [{}, {"sharing": "agent", "critic_sharing": "team"}, {"sharing": "all"}], ids=str)
def test_counts_are_those_of_the_modules_that_are_made(ray_session: None, teams: dict[str, Any]) -> None:
    config = battle(**teams)
    networks = {network.module_id: network for network in config.footprints()}
    algo = config.build_algo()
    try:
        assert set(networks) == set(algo.config.team_layout.modules)
        for module_id, network in networks.items():
            module = algo.learner_group._learner.module[module_id]
            assert network.parameters == sum(p.numel() for p in module.parameters())
            acting = algo.env_runner.module[module_id]
            assert network.actor_parameters == sum(p.numel() for p in acting.parameters())
    finally:
        algo.stop()


def test_it_is_said_in_words() -> None:
    red, _ = battle(sharing="agent", critic_sharing="team", critic_observation="own").footprints()
    assert str(red).startswith("red: 6 agents, 6 actors, 1 critic; 98,815 parameters, 1.5 MiB with gradients and Adam")


def test_more_weights_and_more_minibatches_take_the_optimizer_longer() -> None:
    shared, own = battle(hidden=64), battle(hidden=64, sharing="agent")
    assert optimizer_seconds(own, own.footprints()) > 2 * optimizer_seconds(shared, shared.footprints())


def test_networks_that_cannot_fit_are_refused_without_being_made() -> None:
    config = battle(hidden=65536, sharing="agent")
    sentence = (
        r"the networks of battle_v4 cannot be trained here: red: 6 agents, 6 actors, 6 critics; [\d,]+ parameters"
    )
    with pytest.raises(ValueError, match=sentence) as error:
        config.validate()
    assert re.search(r"about [\d.]+ GiB, but this machine has [\d.]+ GiB; share more weights", str(error.value))
