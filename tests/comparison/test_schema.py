"""The files between a study and its report, and what is refused in them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rllib_shared.comparison.report import write_report
from rllib_shared.comparison.schema import (
    RESULTS_FILE,
    STUDY_FILE,
    Failure,
    read_results,
    read_study,
    write_failures,
    write_results,
)
from tests.comparison.studies import POINTS, row, write


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no study\.json"):
        write_report(tmp_path)


def test_a_study_without_results_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"team": [1.0]})
    os.remove(tmp_path / RESULTS_FILE)
    with pytest.raises(FileNotFoundError, match=r"holds no results\.csv: no trial was evaluated yet"):
        write_report(tmp_path)


@pytest.mark.parametrize("stopped_at", [POINTS - 1, -1])
def test_a_study_without_a_finished_trial_is_refused(tmp_path: Path, stopped_at: int) -> None:
    write(tmp_path, {"team": [1.0], "agent": [2.0]}, stopped_at={("team", 0): stopped_at, ("agent", 0): stopped_at})
    with pytest.raises(ValueError, match=r"no trial in results\.csv reached the last evaluation"):
        write_report(tmp_path)


def test_rows_of_another_study_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"team": [1.0], "agent": [2.0]})
    strangers = {
        "arm 'role'": row("role", 0, 0, "random", 1.0),
        "seed 7": row("team", 7, 0, "random", 1.0),
        "opponent 'noop'": row("team", 0, 0, "noop", 1.0),
        "point 9": row("team", 0, 9, "random", 1.0),
    }
    for what, stranger in strangers.items():
        write_results(tmp_path, [row("team", 0, 0, "random", 1.0), stranger])
        with pytest.raises(ValueError, match=rf"{what}, which study\.json does not know .* are mixed"):
            write_report(tmp_path)
    write_results(tmp_path, [row("team", 0, 0, "random", 1.0)] * 2)
    with pytest.raises(ValueError, match=r"two results for arm 'team', seed 0, point 0.* are mixed"):
        write_report(tmp_path)


def test_failures_of_another_study_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"team": [1.0]})
    write_failures(tmp_path, [Failure("role", 0, "role_0", "KeyError: 1")])
    with pytest.raises(ValueError, match=r"arm 'role' with seed 0, which study\.json does not know"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        (STUDY_FILE, "{", "cannot be read as JSON"),
        (STUDY_FILE, "[]", "must be a JSON object with a list of arms"),
        (STUDY_FILE, '{"arms": [], "colour": 1}', "unexpected keyword argument 'colour'"),
        (STUDY_FILE, '{"arms": [{"name": 1}]}', "arm got an unexpected keyword argument 'name'"),
        (RESULTS_FILE, "", "cannot be read as a table"),
        (RESULTS_FILE, "arm,seed\nteam,0\n", "lacks the columns trial, point"),
        ("failures.json", "{}", "must be a JSON list"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, file: str, content: str, expected: str) -> None:
    write(tmp_path, {"team": [1.0]})
    (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=expected) as refusal:
        write_report(tmp_path)
    assert file in str(refusal.value)


def test_cells_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"team": [1.0]})
    path = tmp_path / RESULTS_FILE
    text = path.read_text()
    path.write_text(text.replace("80.0", "long"))
    with pytest.raises(ValueError, match="column episode_length must hold numbers, got 'long'"):
        write_report(tmp_path)
    path.write_text(text.replace("80.0", ""))
    with pytest.raises(ValueError, match="column episode_length"):
        write_report(tmp_path)


def test_steps_that_do_not_grow_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"team": [1.0]})
    path = tmp_path / RESULTS_FILE
    text = path.read_text()
    for steps in ("0", "3000000"):
        path.write_text(
            text.replace(",150000,", f",{steps},").replace(",300000,", f",{0 if steps == '0' else 300000},")
        )
        with pytest.raises(ValueError, match="agent_steps of trial 'team_0' must grow"):
            write_report(tmp_path)


def test_the_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    study = write(tmp_path, {"team": [1.0], "agent": [2.0]}, opponents=())
    assert read_study(tmp_path) == study
    rows = read_results(tmp_path, study)
    assert rows["opponent"].eq("").all() and rows["win_rate"].isna().all()
    assert list(rows["arm"].unique()) == ["team", "agent"]
    assert json.loads((tmp_path / STUDY_FILE).read_text())["arms"][1]["critic_sharing"] == "agent"
