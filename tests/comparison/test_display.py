"""What is shown while a study runs."""

from __future__ import annotations

import io
import time
from pathlib import Path

from rich.console import Console

from rllib_shared.comparison.collect import StudyFiles
from rllib_shared.comparison.display import StudyDisplay
from rllib_shared.comparison.schema import Failure
from rllib_shared.launching.progress import TrialProgress
from rllib_shared.launching.stopping import StopRule
from tests.comparison.studies import POINTS, row, write


def test_the_table_has_every_trial_also_those_of_an_earlier_session(tmp_path: Path) -> None:
    study = write(tmp_path, {"team": [1.0, 1.0], "agent": [2.0, 2.0]})
    files = StudyFiles(tmp_path, study)
    files.rows["team_seed0"] = [row("team", 0, POINTS, "greedy", 1.25)]
    files.rows["team_seed1"] = [row("team", 1, 1, "greedy", 4.0)]
    files.failures["agent_seed0"] = Failure("agent", 0, "agent_seed0", "OSError: disk full")
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(StudyDisplay(StopRule(study.stop), study, files)._table())
    lines = {line.split()[0]: line for line in console.export_text().splitlines() if line.strip()}
    assert lines["team_seed0"].split()[2:] == ["100", "%", "-", f"{POINTS}/{POINTS}", "1.25", "50", "%", "done"]
    assert "25 %" in lines["team_seed1"] and lines["team_seed1"].split()[-1] == "waiting"
    assert lines["agent_seed0"].split()[-1] == "failed"
    assert lines["1"].startswith("1 of 4 trials done, 1 failed")


def test_the_study_takes_at_least_as_long_as_the_trial_that_still_runs(tmp_path: Path) -> None:
    study = write(tmp_path, {"team": [1.0, 1.0], "agent": [2.0, 2.0]})
    files = StudyFiles(tmp_path, study)
    done = ("team_seed0", "team_seed1", "agent_seed0")
    files.rows |= {name: [row(*split(name), POINTS, "greedy", 1.0)] for name in done}
    display = StudyDisplay(StopRule(study.stop), study, files)
    display._started = time.monotonic() - 10
    assert 3 < display._seconds_left() < 4  # a quarter of the study, at the speed of the rest
    slow = TrialProgress("agent_seed1")
    display._trials = {"agent": slow}
    steps = study.stop["agent_steps"] / 100
    sampled = {"num_agent_steps_sampled": {"red": steps}}
    slow.add({"env_runners": sampled, "agent_steps": steps, "time_this_iter_s": 2.0})
    assert 190 < display._seconds_left() < 200


def split(name: str) -> tuple[str, int]:
    """Arm and seed of a trial."""
    arm, seed = name.split("_seed")
    return arm, int(seed)
