"""`rllib-shared compare` in processes of its own: its options, and what survives Ctrl-C and a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from rllib_shared.cli import app
from rllib_shared.comparison.schema import read_results, read_study
from rllib_shared.launching.many_values import one_value_each
from tests.comparison.experiments import TINY_BATTLE, TINY_SPREAD, check_complete, write

COMMAND = [str(Path(sys.executable).with_name("rllib-shared")), "compare"]
LIMIT_S = 240


def start(*arguments: object) -> subprocess.Popen[str]:
    """The command, in a process group of its own."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[str], study: Path, trial: str, point: int) -> None:
    """Until a trial has reported a point."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        results = study / "results.csv"
        if results.exists() and re.search(rf",{trial},{point},", results.read_text()):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{trial} did not get to point {point}")


def iterations(study: Path, trial: str) -> list[int]:
    """The iterations that a trial reported, in order."""
    lines = (study / "trials" / trial / "result.json").read_text().splitlines()
    return [json.loads(line)["training_iteration"] for line in lines]


def test_a_study_goes_on_after_ctrl_c_and_after_a_kill_and_has_every_point_once(tmp_path: Path) -> None:
    # A folder with a space, and an arm whose name has a slash.
    folder = tmp_path / "my studies"
    folder.mkdir()
    file, out = write(folder, TINY_BATTLE), folder / "study"
    ways = ("--sharing", "team", "agent", "--critic-sharing", "team")
    sizes = ("--stop", "env_steps=800", "--points", "4", "--seeds", "1", "--episodes", "2")
    # One after the other, so that a trial waits when the first one is interrupted.
    one_at_a_time = ("--concurrent", "1", "--set", "num_cpus_for_main_process=1")
    process = start(file, *ways, *sizes, *one_at_a_time, "--out", out)
    try:
        wait_for(process, out, "team_seed0", 1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, stdout) == (130, f"{out}\n")
        assert "go on with: rllib-shared compare" in stderr and "Traceback" not in stderr

        process = start(file, "--resume", "--out", out)
        wait_for(process, out, "agent_critic_team_seed0", 2)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        before = read_results(out, read_study(out))

        process = start(file, *ways, "--resume", "--out", out)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert (process.returncode, stdout) == (0, f"{out}\n"), stderr
    rows = check_complete(out, ["team", "agent / critic team"], 200, "env_steps")
    # What had been reported before the kill is still there as it was.
    key, kept = ["trial", "point", "opponent"], ["env_steps", "agent_steps", "return_per_agent"]
    after = rows.set_index(key).loc[before.set_index(key).index]
    pd.testing.assert_frame_equal(after[kept], before.set_index(key)[kept])
    # The trial that Ctrl-C ended went on from its checkpoint.
    assert iterations(out, "team_seed0").count(1) == 1
    command = f"rllib-shared compare '{file}' --sharing team agent --critic-sharing team --stop env_steps=800"
    assert read_study(out).command.startswith(command)


def refused(*arguments: object) -> str:
    """The one sentence that the command ends with."""
    outcome = CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "120"})
    assert (outcome.exit_code, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1), outcome.output
    return outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--sharing", "team", "agnt"], "arm 'agnt': unknown sharing 'agnt'; did you mean 'agent'?"),
        (["--critic-sharing", "tem"], "arm 'team / critic tem': unknown critic_sharing 'tem'"),
        (["--critic-observation", "state", "stat"], "arm 'team / stat': unknown critic_observation 'stat'"),
        (["--sharing", "team", '{"a": ["red_9*"], "b": ["*"]}'], "pattern 'red_9*' of sharing group 'a' matches no"),
        (["--sharing", '{"a": ['], '--sharing {"a": [: groups must be JSON, but'),
        (["--sharing", "team", "role"], "the arms 'team', 'role' are the same in battle_v4"),
        (["--stop", "hours=1"], "stop hours: a study trains every arm for the same number of steps"),
        (["--stop", "agent_steps=1e4", "env_steps=1e3"], "give exactly one of agent_steps and env_steps"),
        (["--stop", "agent_steps=-1"], "expected a number above 0"),
        (["--seeds", "0"], "seeds must be at least 1 and different, got 0"),
        (["--episodes", "0"], "episodes must be at least 1, got 0"),
        (["--points", "0"], "points must be at least 1, got 0"),
        (["--points", "26"], "every 38.4615 env steps, but an iteration takes up to 40 of them; give at most 25"),
        (["--opponent", "random", "gredy"], "'gredy' is neither one of 'random', 'noop', 'greedy' nor the path of a"),
        (["--concurrent", "1000"], "--concurrent 1000: a trial needs 1 of the"),
        (["--set", "lrr=1"], "unknown config key 'lrr'; did you mean 'lr'?"),
        (["--set", "env_config.mapsize=1"], "unknown env_config key 'mapsize'; did you mean 'map_size'?"),
        (["--resume"], "holds no study to go on with; leave --resume out"),
    ],
)
def test_bad_input_is_one_sentence_before_any_trial(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    file, out = write(tmp_path, TINY_BATTLE), tmp_path / "study"
    stop = [] if "--stop" in arguments else ["--stop", "env_steps=1000"]
    assert sentence in refused(file, *stop, *arguments, "--out", out)
    assert not out.exists()


def test_opponents_need_two_teams(tmp_path: Path) -> None:
    file = write(tmp_path, TINY_SPREAD)
    sentence = "opponents 'random' need an environment with two teams, but simple_spread_v3 has 1: 'agent'"
    assert sentence in refused(file, "--opponent", "random", "--out", tmp_path / "study")


def test_a_study_without_a_stop_rule_is_refused(tmp_path: Path) -> None:
    assert "nothing says when to stop" in refused(write(tmp_path, TINY_BATTLE), "--out", tmp_path / "study")


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, TINY_BATTLE)
    assert "exists and is no study; give --out a new folder" in refused(
        file, "--stop", "env_steps=100", "--out", tmp_path
    )


@pytest.mark.parametrize(
    ("given", "spread"),
    [
        ("f --sharing team agent --seeds 5", "f --sharing team --sharing agent --seeds 5"),
        ("f --sharing team --sharing agent", "f --sharing team --sharing agent"),
        ("--sharing a b -- f", "--sharing a --sharing b -- f"),
        ("f --resume --sharing a", "f --resume --sharing a"),
        ("f --sharing=a --seeds 1", "f --sharing=a --seeds 1"),
    ],
)
def test_values_of_repeatable_options_may_follow_one_another(given: str, spread: str) -> None:
    assert one_value_each(given.split(), {"--sharing"}) == spread.split()


def test_help_shows_the_example() -> None:
    outcome = CliRunner().invoke(app, ["compare", "--help"], env={"COLUMNS": "200"})
    assert outcome.exit_code == 0 and "--sharing team agent" in outcome.stdout
