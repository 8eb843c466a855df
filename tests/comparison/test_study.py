"""Studies from Python: arms, the plan, evaluation points, failures."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.tune.result import TIME_TOTAL_S

import rllib_shared
from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.comparison import evaluation_points
from rllib_shared.comparison.arms import make_arms, same_arms
from rllib_shared.comparison.collect import read_rows
from rllib_shared.comparison.evaluation_points import EVALUATIONS, EvaluationPoints, policies_of
from rllib_shared.comparison.plan import Wishes, difference, make_plan
from rllib_shared.comparison.schema import read_failures, read_study
from rllib_shared.evaluation.match import play
from rllib_shared.evaluation.policies import load_policies
from rllib_shared.evaluation.result import MatchResult
from rllib_shared.launching.errors import UsageError
from tests.comparison.experiments import TINY_BATTLE, TINY_SPREAD, check_complete, write


def tiny_battle() -> TeamPPOConfig:
    return (
        TeamPPOConfig()
        .environment("battle_v4", env_config={"map_size": 12, "max_cycles": 20})
        .training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=1)
        .rl_module(model_config={"hidden": [16], "encoder": "mlp", "critic_encoder": "mlp"})
        .debugging(seed=5)
    )


def labels(config: TeamPPOConfig | None = None, **axes: list[Any]) -> list[str]:
    return [arm.label for arm in make_arms(config or TeamPPOConfig(), axes).arms]


def test_arms_are_named_by_what_tells_them_apart() -> None:
    assert labels() == ["team"]
    assert labels(sharing=["team", "agent", "team"]) == ["team", "agent"]
    assert labels(sharing=["team", "agent"], critic_sharing=["team"], critic_observation=["state", "own"]) == [
        "team / state",
        "team / own",
        "agent / critic team / state",
        "agent / critic team / own",
    ]
    assert labels(sharing=["all"], agent_id=[False, True, "binary"]) == ["all / no id", "all / id", "all / binary id"]


def test_groups_of_equal_names_are_numbered() -> None:
    ways = [{"a": ["red_*"], "b": ["blue_*"]}, {"a": ["blue_*"], "b": ["red_*"]}]
    assert labels(sharing=ways) == ["groups a+b", "groups a+b 2"]


def test_critics_share_as_actors_unless_told_otherwise() -> None:
    def critics(config: TeamPPOConfig, **axes: list[Any]) -> list[Any]:
        return [arm.critic_sharing for arm in make_arms(config, axes).arms]

    both = {"sharing": ["team", "agent"]}
    assert critics(TeamPPOConfig(), **both) == ["team", "agent"]
    assert critics(TeamPPOConfig().teams(sharing="team", critic_sharing="team"), **both) == ["team", "agent"]
    assert critics(TeamPPOConfig().teams(critic_sharing="all"), **both) == ["all", "all"]


def test_a_config_belongs_to_its_arm_and_arms_can_be_read_back() -> None:
    def sees_all(env: Any, team: str) -> np.ndarray:
        return np.zeros(1, np.float32)

    config = TeamPPOConfig().teams(critic_observation=sees_all)
    axes = {"sharing": ["team", {"a": ["red_*"], "b": ["blue_*"]}], "critic_observation": ["own", sees_all]}
    arms = make_arms(config, axes)
    assert [arm.critic_observation for arm in arms.arms] == ["own", "sees_all"] * 2
    configs = arms.configs(config)
    assert [arms.of(configs[arm.label]) for arm in arms.arms] == list(arms.arms)
    assert configs["groups a+b / sees_all"].critic_observation is sees_all
    assert same_arms(config, arms.arms) == arms


def test_points_are_ten_or_as_many_as_iterations_allow() -> None:
    def points(stop: dict[str, float]) -> int:
        return make_plan(tiny_battle(), Wishes({}, stop=stop)).study.points

    assert points({"env_steps": 4000}) == 10
    assert points({"env_steps": 120}) == 3
    # Four agents.
    assert points({"agent_steps": 4 * 120}) == 3
    assert points({"env_steps": 10}) == 1


def test_a_resumed_study_takes_what_is_not_said_from_before_and_tells_what_differs() -> None:
    axes = {"sharing": ["agent", "team"]}
    before = make_plan(
        tiny_battle(),
        Wishes(axes, 2, {"env_steps": 800.0}, ["random"], 3, 4, {"lr": 1e-4, "env_config.max_cycles": 10}),
    ).study
    again = make_plan(tiny_battle(), Wishes({}), before).study
    assert difference(before, again) == ""
    assert again.config["lr"] == 1e-4 and again.env_config["max_cycles"] == 10
    changes = [
        (Wishes({}, seeds=3), "seeds: [0, 1] there, [0, 1, 2] here"),
        (Wishes({}, stop={"env_steps": 900}), "stop: {'env_steps': 800.0} there, {'env_steps': 900.0} here"),
        (Wishes({}, opponents=["noop"]), "opponents: ['random'] there, ['noop'] here"),
        (
            Wishes({}, overrides={"lr": 1e-3, "env_config.max_cycles": 10}),
            "config: {'lr': 0.0001} there, {'lr': 0.001}",
        ),
        (Wishes({"sharing": ["team"]}), "arms: ['agent', 'team'] there, ['team'] here"),
    ]
    for changed, said in changes:
        assert said in difference(before, make_plan(tiny_battle(), changed, before).study)


def test_evaluations_change_nothing_of_the_training_and_take_none_of_its_time(
    ray_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, elapsed = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: clock() + elapsed[0])

    def long_match(*args: Any, **kwargs: Any) -> MatchResult:
        elapsed[0] += 1000
        return play(*args, **kwargs)

    monkeypatch.setattr(evaluation_points, "play", long_match)

    def trained(config: TeamPPOConfig) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
        algo = config.training(lr=0.01).build_algo()
        results = [algo.train() for _ in range(3)]
        weights = algo.learner_group.get_weights()
        algo.stop()
        return results, [array for module in weights.values() for array in module.values()]

    class Twice(EvaluationPoints):
        def __init__(self) -> None:
            super().__init__("env_steps", 120, 2, ["random"], 2)

    plain, weights = trained(tiny_battle())
    results, evaluated_weights = trained(tiny_battle().callbacks(Twice))
    for before, after in zip(weights, evaluated_weights, strict=True):
        np.testing.assert_array_equal(before, after)
    assert [result["agent_steps"] for result in results] == [result["agent_steps"] for result in plain]
    evaluations = {result["env_steps"]: [e["point"] for e in result.get(EVALUATIONS, [])] for result in results}
    assert evaluations == {40: [0], 80: [1], 120: [2]}
    assert results[-1][TIME_TOTAL_S] < 1000 < elapsed[0]
    assert results[-1][EVALUATIONS][0]["train_seconds"] == results[-1][TIME_TOTAL_S]


def test_the_first_point_is_played_by_policies_that_were_never_trained(ray_session: None) -> None:
    algo = tiny_battle().training(lr=0.1, num_epochs=5).build_algo()
    points = EvaluationPoints("env_steps", 40, 1, ["random"], 4)
    points.on_algorithm_init(algorithm=algo)
    untrained = play(policies_of(algo), opponent="random", episodes=4, seed=5)
    result = algo.train()
    points.on_train_result(algorithm=algo, result=result)
    algo.stop()
    returns = [evaluation["return_per_agent"] for evaluation in result[EVALUATIONS]]
    expected = [value for value in untrained.evaluated.return_per_agent.values() if value is not None]
    assert returns[0] == pytest.approx(np.mean(expected))
    assert returns[1] != returns[0]


def test_a_failed_trial_is_listed_the_others_go_on_and_it_is_tried_again(
    ray_session: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = write(tmp_path, TINY_BATTLE), tmp_path / "study"
    trap = tmp_path / "trap"
    trap.touch()
    limits: dict[str, Any] = {"stop": {"env_steps": 240}, "points": 3, "seeds": [7], "episodes": 2}
    result = rllib_shared.compare(file, out, sharing=["team", "agent"], opponents=["random"], **limits)
    assert result.exit_code == 1
    (failure,) = result.failures
    assert (failure.arm, failure.seed, failure.trial) == ("agent", 7, "agent_seed7")
    assert failure.error == "RuntimeError: the bridge fell down"
    assert "the bridge fell down" in Path(failure.log).read_text()
    assert f"agent_seed7 failed: {failure.error}" in capfd.readouterr().err
    assert result.rows[result.rows["arm"] == "team"]["point"].tolist() == [0, 1, 2, 3]
    assert "the bridge fell down" in (out / "summary.md").read_text()
    with pytest.raises(UsageError, match="holds a study already; go on with it by --resume"):
        rllib_shared.compare(file, out, **limits)

    trap.unlink()
    result = rllib_shared.compare(file, out, resume=True)
    assert (result.exit_code, result.failures, read_failures(out)) == (0, (), [])
    rows = check_complete(out, ["team", "agent"], 80, "env_steps")
    assert result.rows.equals(rows)
    parameters = rows.groupby("arm")["parameters"].unique()
    assert parameters["agent"].tolist() == [2 * parameters["team"][0]]
    for name in ("summary.md", "report.html", "study.json"):
        assert (out / name).is_file()
    # The last evaluation is what the trial's checkpoint plays.
    last = rows[(rows["arm"] == "agent") & (rows["point"] == 3)].iloc[0]
    policies = load_policies(out / "trials" / "agent_seed7")
    match = play(policies, opponent="random", episodes=2, seed=7)
    assert match.win_rate == last["win_rate"] and match.episode_length == last["episode_length"]
    returns = [value for value in match.evaluated.return_per_agent.values() if value is not None]
    assert np.mean(returns) == pytest.approx(last["return_per_agent"])


def test_an_environment_without_two_teams_is_played_without_opponents(ray_session: None, tmp_path: Path) -> None:
    file, out = write(tmp_path, TINY_SPREAD), tmp_path / "study"
    axes: dict[str, Any] = {"critic_observation": ["joint", "own"], "agent_id": ["binary"]}
    result = rllib_shared.compare(file, out, **axes, seeds=1, episodes=2, points=4)
    assert result.exit_code == 0
    rows = check_complete(out, ["team / joint", "team / own"], 180, "agent_steps")
    assert rows["win_rate"].isna().all() and rows["survivors"].isna().all()
    assert (rows["return_per_agent"] < 0).all() and (rows["episode_length"] == 25).all()
    assert read_study(out).arms[0].agent_id == "binary"


def test_rows_of_a_trial_that_began_anew_replace_those_from_before(tmp_path: Path) -> None:
    evaluation = {
        "point": 0,
        "env_steps": 0,
        "agent_steps": 0,
        "train_seconds": 0.0,
        "opponent": "",
        "episodes": 1,
        "return_per_agent": 0.0,
        "win_rate": None,
        "survivors": None,
        "episode_length": 1.0,
        "parameters": 1,
        "memory_mib": 1.0,
        "agent_steps_per_s": 0.0,
    }

    def line(*points: int, score: float) -> str:
        return json.dumps({EVALUATIONS: [{**evaluation, "point": p, "return_per_agent": score} for p in points]})

    trial = tmp_path / "team_seed0"
    trial.mkdir()
    lines = [line(0, score=1.0), line(1, score=1.0), line(2, score=1.0), line(1, score=2.0), line(3, score=0.0)[:-9]]
    (trial / "result.json").write_text("\n".join(lines))
    rows = read_rows(trial, "team", 0)
    assert [(row.point, row.return_per_agent) for row in rows] == [(0, 1.0), (1, 2.0)]
    assert read_rows(tmp_path / "nothing", "team", 0) == []
