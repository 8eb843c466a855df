"""What the config refuses, before any Ray actor starts."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import ray

from rllib_shared.algorithms.config import TeamPPOConfig


def config(**env_config: Any) -> TeamPPOConfig:
    return TeamPPOConfig().environment("battle_v4", env_config={"map_size": 12, **env_config})


def test_validate_maps_every_agent_of_a_team_to_one_policy() -> None:
    valid = config()
    valid.validate()
    assert valid.is_multi_agent and set(valid.policies) == {"red", "blue"}
    mapping = pickle.loads(pickle.dumps(valid.policy_mapping_fn))
    assert {mapping(f"red_{i}", None) for i in range(2)} == {"red"}


def test_sharing_all_is_one_policy() -> None:
    valid = config().teams(sharing="all")
    valid.validate()
    assert set(valid.policies) == {"shared"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.teams(sharing="teams"), "unknown sharing 'teams'; did you mean 'team'"),
        (lambda c: c.teams(critic_observation="sate"), "unknown critic_observation 'sate'; did you mean 'state'"),
        (lambda c: c.teams({"red": ["red_*"]}), "agents in no team: 'blue_0'"),
        (lambda c: c.teams({"red": ["red_*", "blue_*"], "blue": ["blue_*"]}), "agents in more than one team"),
        (lambda c: c.environment("batle_v4"), "unknown env 'batle_v4'; did you mean 'battle_v4'"),
        (
            lambda c: c.environment(env_config={"map_sise": 12}),
            "unknown env_config key 'map_sise'; did you mean 'map_size'",
        ),
        (lambda c: c.rl_module(model_config={"hiden": [8]}), "unknown model_config key 'hiden'"),
        (
            lambda c: c.rl_module(model_config={"critic_encoder": "cnn"}).teams(critic_observation="joint"),
            "a cnn needs",
        ),
        (lambda c: c.training(minibatch_size=500), "minibatch_size"),
        (lambda c: c.training(train_batch_size_per_learner=10**9), "lower train_batch_size_per_learner"),
        (lambda c: c.multi_agent(count_steps_by="agent_steps"), "must be 'env_steps'"),
        (lambda c: c.env_runners(batch_mode="complete_episodes"), "must be 'truncate_episodes'"),
        (lambda c: c.env_runners(env_to_module_connector=lambda *args: []), "env_to_module_connector"),
        (lambda c: c.training(use_gae=False), "use_gae"),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(change: Any, message: str) -> None:
    bad = config()
    change(bad)
    with pytest.raises(ValueError, match=message):
        bad.validate()


def test_an_environment_without_a_state_is_refused_with_the_alternatives() -> None:
    bad = TeamPPOConfig().environment("masked_teams", env_config={"state": False})
    with pytest.raises(ValueError, match=r'state\(\).*use critic_observation="joint", "own" or a function'):
        bad.validate()


def test_nothing_is_started_to_find_a_mistake() -> None:
    running = ray.is_initialized()
    with pytest.raises(ValueError, match="unknown env"):
        TeamPPOConfig().environment("nothing").env_runners(num_env_runners=2).build_algo()
    assert ray.is_initialized() == running


def test_a_factory_can_be_the_environment() -> None:
    from mpe2 import simple_spread_v3

    valid = TeamPPOConfig().environment(simple_spread_v3.parallel_env, env_config={"max_cycles": 10})
    valid.validate()
    assert set(valid.policies) == {"agent"}
