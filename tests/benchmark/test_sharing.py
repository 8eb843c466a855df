"""`rllib-shared bench --sharing`: other sharings beside the shared run, and stock RLlib with one policy per agent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.benchmark import run as run_file
from rllib_shared.benchmark.measure import config_of
from rllib_shared.benchmark.run import run
from rllib_shared.benchmark.stock import FlatObservationEnv, stock_agent_config
from rllib_shared.benchmark.table import show
from rllib_shared.benchmark.work import ROWS, Work, plan
from rllib_shared.cli import app

# An 845-H-H MLP: policy and value of H = 8.
ACTOR = (845 * 8 + 8) + (8 * 8 + 8) + (8 * 21 + 21)
CRITIC = (845 * 8 + 8) + (8 * 8 + 8) + (8 + 1)

# Made up, to tell the rows apart without measuring.
RATES = {row: 10.0 + number for number, row in enumerate(ROWS)}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What a tiny benchmark of one network per agent prints, and its JSON."""
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    size = ["--map-size", "12", "--hidden", "8", "--env-steps", "40", "--iterations", "1"]
    rows = [part for row in ("team", "agent", "stock_agent") for part in ("--only", row)]
    arguments = ["bench", *size, "--sharing", "agent", *rows, "--json", str(file)]
    outcome = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
    assert outcome.exit_code == 0, outcome.output
    return outcome.output, json.loads(file.read_text())


@pytest.fixture(scope="module")
def work() -> Work:
    """Battle, 2 against 2, compared with one network per agent."""
    env_config = {"map_size": 12, "max_cycles": 15}
    return plan("battle_v4", env_config, sharing="agent", hidden=8, env_steps=20, num_envs=2)


def made(work: Work, row: str) -> TeamPPOConfig:
    config = config_of(row, work)
    assert isinstance(config, TeamPPOConfig)
    config.validate()
    return config


def parameters(config: TeamPPOConfig) -> int:
    modules = config.get_multi_rl_module_spec(spaces=config.make_team_env().module_spaces()).build()
    return sum(parameter.numel() for module in modules.values() for parameter in module.parameters())


def test_per_agent_rows_are_measured_in_the_same_units_and_compared(bench: tuple[str, dict[str, Any]]) -> None:
    _, result = bench
    for row in ("team", "agent", "stock_agent"):
        assert all(result[row][part] > 0 for part in ("sample", "learn", "total", "peak_mb"))
    for part in ("sample", "learn", "total"):
        assert result["sharing_ratio"][part] == pytest.approx(result["agent"][part] / result["stock_agent"][part])
        assert result["sharing_cost"][part] == pytest.approx(result["team"][part] / result["agent"][part])
    assert result["ratio"] is None, "`stock` was not measured"


def test_per_agent_rows_do_the_same_work(bench: tuple[str, dict[str, Any]]) -> None:
    _, result = bench
    for row in ("team", "agent", "stock_agent"):
        assert result[row]["env_steps"] == 40
        assert 0 < result[row]["agent_steps"] <= 40 * 4
    assert result["agent"]["rows_trained"] == 2 * result["agent"]["agent_steps"], "two epochs, each row once"


def test_stock_cycles_each_agent_s_rows_until_two_epochs_are_covered(bench: tuple[str, dict[str, Any]]) -> None:
    _, result = bench
    stock = result["stock_agent"]
    assert stock["rows_trained"] >= 2 * stock["agent_steps"]
    # RLlib adds a row to each fragment of an agent: one per copy, and one more where an episode ends within it.
    longest = 40 + 2 * 4
    assert stock["rows_trained"] <= 4 * (2 * longest + 40)
    assert stock["rows_trained"] % 40 == 0, "whole minibatches of 40 rows"


def test_one_network_per_agent_has_as_many_parameters_here_as_in_stock(bench: tuple[str, dict[str, Any]]) -> None:
    _, result = bench
    assert result["team"]["parameters"] == 2 * (ACTOR + CRITIC)
    assert result["agent"]["parameters"] == result["stock_agent"]["parameters"] == 4 * (ACTOR + CRITIC)


def test_the_table_shows_rows_ratios_and_parameters(bench: tuple[str, dict[str, Any]]) -> None:
    output, _ = bench
    for text in ("agent / stock_agent", "team / agent", "million", "weights", "0.06"):
        assert text in output
    assert "row agent: sharing=agent, critic_sharing=agent" in " ".join(output.split())


def test_the_critic_of_the_compared_row_may_be_shared_otherwise(work: Work) -> None:
    per_team = Work(**{**vars(work), "critic_sharing": "team"})
    assert parameters(made(work, "agent")) == 4 * (ACTOR + CRITIC)
    assert parameters(made(per_team, "agent")) == 4 * ACTOR + 2 * CRITIC
    assert parameters(made(per_team, "team")) == 2 * (ACTOR + CRITIC), "`team` stays the shared run"


@pytest.mark.parametrize(("sharing", "sets"), [("all", 1), ("role", 2), ("agent", 4)])
def test_a_row_has_the_sharing_that_it_is_named_for(work: Work, sharing: str, sets: int) -> None:
    assert parameters(made(work, sharing)) == sets * (ACTOR + CRITIC)


def test_stock_has_one_policy_per_agent_and_minibatches_of_the_same_env_steps() -> None:
    work = Work(env="battle_v4", env_config={"map_size": 45}, agents=162, policies=2)
    config = stock_agent_config(work)
    agents = FlatObservationEnv({"env": work.env, "env_config": work.env_config}).possible_agents
    assert set(config.policies) == set(agents)
    assert [config.policy_mapping_fn(agent, None) for agent in agents] == agents
    assert config.minibatch_size == made(work, "agent").minibatch_size == 25


def test_all_rows_learn_with_the_same_settings(work: Work) -> None:
    configs = [config_of(row, work) for row in ROWS]
    names = ("lr", "gamma", "lambda_", "clip_param", "grad_clip", "grad_clip_by", "use_kl_loss", "num_epochs")
    sizes = ("num_envs_per_env_runner", "train_batch_size_per_learner", "num_env_runners", "num_learners")
    for name in (*names, *sizes):
        assert len({getattr(config, name) for config in configs}) == 1, name


def test_the_slow_row_has_fewer_iterations_and_the_table_says_so(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    monkeypatch.setattr(run_file, "others_now", lambda: 0.0)
    monkeypatch.setattr(run_file, "measure_in_subprocess", _numbers)
    console = Console(record=True, width=200)
    show(run(work, ["team", "agent", "stock_agent"]), console)
    assert "medians of 5 iterations, stock_agent of 2" in " ".join(console.export_text().split())


@pytest.mark.parametrize(("sharing", "stock"), [("all", "stock"), ("role", "stock"), ("agent", "stock_agent")])
def test_a_sharing_is_compared_with_the_nearest_of_stock_and_with_the_shared_run(
    monkeypatch: pytest.MonkeyPatch, work: Work, sharing: str, stock: str
) -> None:
    monkeypatch.setattr(run_file, "others_now", lambda: 0.0)
    monkeypatch.setattr(run_file, "measure_in_subprocess", _numbers)
    result = run(Work(**{**vars(work), "sharing": sharing}), ROWS)
    assert result["sharing_ratio"]["total"] == RATES[sharing] / RATES[stock]
    assert result["sharing_cost"]["total"] == RATES["team"] / RATES[sharing]


def test_a_sharing_that_the_config_refuses_is_refused_before_any_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: TeamPPOConfig) -> None:
        raise ValueError(f"{self.sharing} and {self.critic_sharing} need 99 GiB")

    monkeypatch.setattr(TeamPPOConfig, "validate", refuse)
    monkeypatch.setattr(run_file, "measure_in_subprocess", _numbers)
    arguments = ["bench", "--map-size", "12", "--sharing", "agent", "--critic-sharing", "team"]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 2
    assert outcome.output.strip() == "agent and team need 99 GiB"


def _numbers(row: str, work: Work) -> dict[str, Any]:
    """Numbers that tell the rows apart, without measuring."""
    rates = dict.fromkeys(("sample", "learn", "total"), RATES[row])
    iterations = work.iterations_of(row)
    return {**rates, "peak_mb": 500.0, "parameters": 1_000_000, "iterations": iterations, "other_load": 0.0}
