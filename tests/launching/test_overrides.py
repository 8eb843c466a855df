"""`--set KEY=VALUE`."""

from __future__ import annotations

import re

import pytest

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.launching.overrides import apply_overrides, parse_assignments


def overridden(*texts: str) -> TeamPPOConfig:
    config = TeamPPOConfig().environment("battle_v4", env_config={"map_size": 12, "max_cycles": 20})
    config.rl_module(model_config={"hidden": [32], "activation": "tanh"})
    apply_overrides(config, parse_assignments("--set", texts))
    return config


def test_values_are_json_or_else_words() -> None:
    parsed = parse_assignments("--set", ["a=1e-4", "b=true", "c=[64,64]", "d=null", "e=own", "f=x=y"])
    assert parsed == {"a": 1e-4, "b": True, "c": [64, 64], "d": None, "e": "own", "f": "x=y"}


def test_values_replace_those_of_the_experiment_and_leave_the_others() -> None:
    config = overridden(
        "lr=1e-4",
        "sharing=all",
        "critic_observation=own",
        "train_batch_size_per_learner=8e1",
        "env_config.map_size=16",
        "model_config.hidden=[64,64]",
        "grad_clip=null",
        "num_cpus_per_env_runner=0.5",
    )
    assert (config.lr, config.sharing, config.critic_observation) == (1e-4, "all", "own")
    assert config.train_batch_size_per_learner == 80
    assert isinstance(config.train_batch_size_per_learner, int)
    assert config.env_config == {"map_size": 16, "max_cycles": 20}
    assert config.model_config == {"hidden": [64, 64], "activation": "tanh"}
    assert config.grad_clip is None
    assert config.num_cpus_per_env_runner == 0.5


def test_a_dict_sets_several_nested_values() -> None:
    assert overridden('env_config={"map_size":16}').env_config == {"map_size": 16, "max_cycles": 20}


def test_env_config_keys_are_those_of_the_environment_that_is_set_with_them() -> None:
    config = overridden("env_config.local_ratio=0.3", "env=simple_spread_v3")
    assert config.env == "simple_spread_v3"
    assert config.env_config["local_ratio"] == 0.3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lrr=1", "unknown config key 'lrr'; did you mean 'lr'?"),
        ("train_batch_size=10", "or 'train_batch_size_per_learner'"),
        ("_validate_config=false", "unknown config key '_validate_config'"),
        ("build_algo=1", "unknown config key 'build_algo'"),
        ("env_config.mapsize=16", "unknown env_config key 'mapsize'; did you mean 'map_size'"),
        ("model_config.hiden=[1]", "unknown model_config key 'hiden'; did you mean 'hidden'"),
        ("model_config.num_slots=3", "unknown model_config key 'num_slots'"),
        ("evaluation_config.explor=false", "unknown evaluation_config key 'explor'; did you mean 'explore'"),
        ("lr.x=1", "'lr' has no keys below it"),
        ("env_config=3", "takes a JSON object"),
        ("lr=fast", "expected a number"),
        ("use_kl_loss=1", "expected true or false"),
        ("minibatch_size=1.5", "expected a whole number"),
        ("batch_mode=3", "expected a word"),
        ("callbacks_class=x", "set it in the experiment file"),
        ("lr", "takes KEY=VALUE, got 'lr'"),
    ],
)
def test_what_cannot_be_set_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        overridden(text)


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="--set lr is given twice"):
        parse_assignments("--set", ["lr=1", "lr=2"])
