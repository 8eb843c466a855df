"""`rllib-shared bench`: real rows in processes of their own, and what the user is told."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from rllib_shared.benchmark import run as run_file
from rllib_shared.benchmark.load import LoadWatch, peak_memory_mib
from rllib_shared.benchmark.run import choose_rows, measure_in_subprocess, run
from rllib_shared.benchmark.table import show
from rllib_shared.benchmark.work import Work
from rllib_shared.cli import app

WORK = Work(env="battle_v4", env_config={"map_size": 12}, agents=4, policies=2)
TINY = ("--map-size", "12", "--hidden", "16", "--env-steps", "40", "--iterations", "1")
NUMBERS = {
    "sample": 4.0,
    "learn": 2.0,
    "total": 1.0,
    "peak_mb": 500.0,
    "parameters": 1_000_000,
    "iterations": 5,
    "other_load": 0.0,
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What a tiny benchmark prints, and its JSON."""
    file = tmp_path_factory.mktemp("bench") / "a new folder" / "bench.json"
    outcome = CliRunner().invoke(app, ["bench", *TINY, "--json", str(file)], env={"COLUMNS": "120"})
    assert outcome.exit_code == 0, outcome.output
    return outcome.output, json.loads(file.read_text())


def test_bench_writes_rates_ratios_and_peak_memory(bench: tuple[str, dict[str, Any]]) -> None:
    _, result = bench
    assert (result["agents"], result["hidden"]) == (4, 16)
    for row in ("team", "team_state", "stock"):
        assert all(result[row][part] > 0 for part in ("sample", "learn", "total", "peak_mb", "parameters"))
        assert result[row]["total"] < min(result[row]["sample"], result[row]["learn"])
    for part in ("sample", "learn", "total"):
        assert result["ratio"][part] == pytest.approx(result["team"][part] / result["stock"][part])
        assert result["state_cost"][part] == pytest.approx(result["team"][part] / result["team_state"][part])
    assert isinstance(result["busy"], bool)
    assert (result["sharing_ratio"], result["sharing_cost"]) == (None, None), "nothing but `team` was asked for"


def test_all_rows_do_the_same_work_and_only_living_agents_count(bench: tuple[str, dict[str, Any]]) -> None:
    _, result = bench
    for row in ("team", "team_state", "stock"):
        measured = result[row]
        assert measured["env_steps"] == 40
        assert 0 < measured["agent_steps"] <= 40 * 4
    for row in ("team", "team_state"):
        assert result[row]["rows_trained"] == 2 * result[row]["agent_steps"], "two epochs, each row once"
    assert result["stock"]["rows_trained"] >= 2 * result["stock"]["agent_steps"]


def test_the_table_shows_every_row_both_ratios_and_the_load(bench: tuple[str, dict[str, Any]]) -> None:
    output, result = bench
    for text in ("team", "team_state", "stock", "team / stock", "team / team_state", "Load average before"):
        assert text in output
    assert ("not good" in output) == result["busy"]


def test_help_has_an_example() -> None:
    outcome = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "120"})
    assert "rllib-shared bench --env battle_v4 --map-size 45 --hidden 256" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--env", "batle_v4"], "unknown env 'batle_v4'; did you mean 'battle_v4'"),
        (["--map-size", "3"], "size of map must be at least 12"),
        (["--only", "stok"], "unknown row 'stok'; did you mean 'stock'"),
        (["--sharing", "agnet"], "unknown sharing 'agnet'; did you mean 'agent'"),
        (["--sharing", "agent", "--critic-sharing", "teams"], "unknown critic_sharing 'teams'; did you mean 'team'"),
        (["--critic-sharing", "agent"], "critic_sharing='agent' needs sharing to be one of ['all', 'role', 'agent']"),
        (["--only", "agent", *TINY], "the row 'agent' needs --sharing agent, got --sharing team"),
    ],
)
def test_wrong_arguments_exit_with_2_and_a_sentence(arguments: list[str], sentence: str) -> None:
    outcome = CliRunner().invoke(app, ["bench", *arguments])
    assert outcome.exit_code == 2
    assert sentence in outcome.output
    assert "Traceback" not in outcome.output


def test_a_row_that_fails_shows_its_own_error() -> None:
    work = Work(env="battle_v4", env_config={"map_size": 3}, agents=4, policies=2)
    with pytest.raises(RuntimeError, match=r"(?s)row 'team' failed with exit status 1.*must be at least 12"):
        measure_in_subprocess("team", work)


def test_peak_memory_is_not_inherited_from_the_process_that_started_the_row() -> None:
    ballast = np.ones(60_000_000)  # 458 MiB
    code = "from rllib_shared.benchmark.load import peak_memory_mib; print(peak_memory_mib())"
    assert peak_memory_mib() > ballast.nbytes / 2**20
    alone = float(subprocess.check_output([sys.executable, "-c", code]))
    assert alone < 200


def test_only_the_rows_asked_for_are_measured() -> None:
    assert choose_rows(None, stock_central=False) == ["team", "team_state", "stock"]
    assert choose_rows(None, stock_central=True) == ["team", "team_state", "stock", "stock_central"]
    assert choose_rows(["team_state"], stock_central=False) == ["team_state"]
    assert choose_rows(["stock_agent", "agent"], stock_central=False, sharing="agent") == ["agent", "stock_agent"]


@pytest.mark.parametrize(
    ("sharing", "more"), [("all", ["all"]), ("role", ["role"]), ("agent", ["agent", "stock_agent"])]
)
def test_another_sharing_is_measured_beside_the_usual_rows(sharing: str, more: list[str]) -> None:
    assert choose_rows(None, stock_central=False, sharing=sharing) == ["team", "team_state", "stock", *more]


@pytest.mark.parametrize(("before", "during", "busy"), [(0.02, 0.03, False), (0.5, 0.0, True), (0.0, 0.5, True)])
def test_numbers_from_a_busy_machine_are_not_called_good(
    monkeypatch: pytest.MonkeyPatch, before: float, during: float, busy: bool
) -> None:
    numbers = {**NUMBERS, "other_load": during}
    monkeypatch.setattr(run_file, "others_now", lambda: before)
    monkeypatch.setattr(run_file, "measure_in_subprocess", lambda row, work: numbers)
    result = run(WORK, ["team", "team_state"])
    console = Console(record=True, width=200)
    show(result, console)
    assert result["busy"] is busy
    assert ("these numbers are not good" in console.export_text()) is busy
    assert result["ratio"] is None, "stock was not measured"
    assert result["state_cost"] == {"sample": 1.0, "learn": 1.0, "total": 1.0}


def test_the_load_of_other_processes_is_seen() -> None:
    watch = LoadWatch()
    subprocess.run([sys.executable, "-c", "n = 0\nfor i in range(10**7): n += i"], check=True)
    assert watch.others() > 0.1


def test_own_work_is_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([100.0, 101.0])
    monkeypatch.setattr("rllib_shared.benchmark.load._busy_seconds", lambda: next(seconds))
    monkeypatch.setattr(LoadWatch, "_own_seconds", lambda self: next(own))
    own = iter([5.0, 6.0])
    assert LoadWatch().others() == 0.0
