"""`--stop KEY=VALUE` and what Ctrl-C sets off."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.launching.stopping import StopRule, check_limit_keys, checked_limits

WIN_RATE = "env_runners/teams/red/win_rate"
RESULT: dict[str, Any] = {
    "agent_steps": 1000,
    "env_steps": 100,
    "training_iteration": 5,
    "time_total_s": 1800.0,
    "env_runners": {"teams": {"red": {"win_rate": 0.5}, "blue": {"win_rate": float("nan")}}},
}


@pytest.mark.parametrize(
    ("key", "value"),
    [("agent_steps", 1000), ("env_steps", 100), ("iterations", 5), ("hours", 0.5), (WIN_RATE, 0.5)],
)
@pytest.mark.parametrize("result", [RESULT, flatten_dict(RESULT)], ids=["nested", "flat"])
def test_a_limit_is_reached_at_its_value_and_not_below(key: str, value: float, result: dict[str, Any]) -> None:
    assert StopRule({key: value}).is_reached(result)
    assert not StopRule({key: value * 1.01}).is_reached(result)


def test_the_first_limit_reached_counts() -> None:
    assert StopRule({"agent_steps": 1e9, "iterations": 5}).is_reached(RESULT)


def test_nan_and_missing_numbers_never_stop() -> None:
    limits = {"env_runners/teams/blue/win_rate": -1.0, "no/such/key": -1.0}
    assert not StopRule(limits).is_reached(RESULT)


class Controller:
    """What the rule uses of Tune's: the trials, and a way to stop one."""

    def __init__(self, *states: str) -> None:
        self.trials = [SimpleNamespace(status=state, last_result={}, init_local_path=lambda: None) for state in states]

    def get_trials(self) -> list[Any]:
        return self.trials

    def stop_trial(self, trial: Any) -> None:
        trial.status = Trial.TERMINATED


def test_an_interruption_ends_waiting_trials_at_once_and_running_ones_with_their_next_result() -> None:
    rule = StopRule({"agent_steps": 1e9})
    controller = Controller(Trial.RUNNING, Trial.PENDING)
    assert rule.choose_trial_to_run(controller) is controller.trials[1]
    assert rule.on_trial_result(controller, controller.trials[0], RESULT) == StopRule.CONTINUE
    rule.interrupt()
    assert rule.choose_trial_to_run(controller) is None
    assert [trial.status for trial in controller.trials] == [Trial.RUNNING, Trial.TERMINATED]
    assert rule.on_trial_result(controller, controller.trials[0], RESULT) == StopRule.STOP


def test_a_resumed_trial_that_had_reached_its_limit_is_not_started_again() -> None:
    rule = StopRule({"iterations": 5})
    controller = Controller(Trial.PENDING, Trial.PENDING)
    controller.trials[0].last_result = RESULT
    assert rule.choose_trial_to_run(controller) is controller.trials[1]
    assert [trial.status for trial in controller.trials] == [Trial.TERMINATED, Trial.PENDING]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "nothing says when to stop"),
        ({"agent_steps": "many"}, "stop agent_steps='many': expected a number"),
        ({"agent_steps": True}, "expected a number"),
        ({WIN_RATE: float("nan")}, "expected a number"),
        ({"hours": 0}, "expected a number above 0"),
    ],
)
def test_limits_must_be_numbers(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        checked_limits(given)


@pytest.fixture
def tiny_battle(ray_session: None) -> TeamPPOConfig:
    config = TeamPPOConfig().environment("battle_v4", env_config={"map_size": 12, "max_cycles": 20})
    return config.rl_module(model_config={"hidden": [32]}).resources(num_cpus_for_main_process=1)


def test_unknown_keys_fail_with_the_nearest_known_ones(tiny_battle: TeamPPOConfig) -> None:
    check_limit_keys({WIN_RATE: 0.9, "learners/red/entropy": 1.0}, tiny_battle)
    for key, near in [
        ("agent_stps", "'agent_steps'"),
        ("env_runners/teams/red/winrate", f"{WIN_RATE!r}"),
        ("win_rate", f"{WIN_RATE!r}"),
        ("evaluation/env_runners/teams/red/win_rate", f"{WIN_RATE!r}"),
    ]:
        with pytest.raises(ValueError, match="unknown stop key") as refused:
            check_limit_keys({key: 1.0}, tiny_battle)
        assert near in str(refused.value)


def test_evaluation_keys_are_known_where_there_is_evaluation(tiny_battle: TeamPPOConfig) -> None:
    tiny_battle.evaluation(evaluation_interval=1)
    check_limit_keys({f"evaluation/{WIN_RATE}": 0.9}, tiny_battle)
