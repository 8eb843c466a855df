"""The real command line in processes of its own: train, evaluate, resume, Ctrl-C, failures."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.launching.experiments import FAILING_ENV, write_experiment

COMMAND = str(Path(sys.executable).with_name("rllib-shared"))
LIMIT_S = 240


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)


def results_of(run_folder: Path) -> list[dict[str, Any]]:
    """What the run's only trial reported, oldest first."""
    (file,) = run_folder.glob("*/result.json")
    return [json.loads(line) for line in file.read_text().splitlines()]


def checkpoints_of(run_folder: Path) -> list[Path]:
    return sorted(run_folder.glob("*/checkpoint_*"))


@dataclass(frozen=True)
class Trained:
    """A finished run: its experiment file, its folder, and what the command printed."""

    file: Path
    folder: Path
    printed: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run of two iterations with one remote runner, in a folder with a space."""
    folder = tmp_path_factory.mktemp("command line")
    file = write_experiment(folder)
    storage = folder / "my runs"
    printed = run("train", str(file), "--num-env-runners", "1", "--storage", str(storage), "--name", "first run")
    assert printed.returncode == 0, printed.stderr
    return Trained(file, storage / "first run", printed)


def test_training_prints_progress_a_table_and_the_next_command_and_the_path_alone_on_stdout(trained: Trained) -> None:
    assert trained.printed.stdout == f"{trained.folder}\n"
    stderr = trained.printed.stderr
    assert "iterations 2 of 2 (100 %)" in stderr
    assert "agent steps/s" in stderr
    assert "episode length" in stderr
    (checkpoint,) = checkpoints_of(trained.folder)
    assert f"checkpoint: {checkpoint}\n" in stderr
    assert f"rllib-shared evaluate {shlex.quote(str(checkpoint))} --opponent random --episodes 100\n" in stderr


def test_training_logs_for_tensorboard_and_as_csv_and_json(trained: Trained) -> None:
    (trial,) = (path.parent for path in trained.folder.glob("*/progress.csv"))
    assert list(trial.glob("events.out.tfevents.*"))
    assert "env_runners/teams/red/win_rate" in (trial / "progress.csv").read_text().splitlines()[0]
    assert [result["training_iteration"] for result in results_of(trained.folder)] == [1, 2]


def test_the_printed_command_evaluates_the_checkpoint(trained: Trained) -> None:
    (command,) = (line for line in trained.printed.stderr.splitlines() if line.startswith("evaluate: "))
    arguments = shlex.split(command.removeprefix("evaluate: rllib-shared "))
    file = trained.folder.parent / "evaluation.json"
    printed = run(*arguments[:-1], "2", "--json", str(file))
    assert printed.returncode == 0, printed.stderr
    assert json.loads(file.read_text())["episodes"] == 2


def test_a_finished_run_goes_on_where_it_was_with_a_larger_stop(trained: Trained) -> None:
    before = results_of(trained.folder)[-1]
    refused = run("train", str(trained.file), "--resume", str(trained.folder))
    assert refused.returncode == 2
    assert "has already reached iterations=2; give a larger --stop" in refused.stderr
    printed = run("train", str(trained.file), "--resume", str(trained.folder), "--stop", "iterations=4")
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == f"{trained.folder}\n"
    after = results_of(trained.folder)
    assert [result["training_iteration"] for result in after] == [1, 2, 3, 4]
    steps = [result["agent_steps"] for result in after]
    assert steps[:2][-1] == before["agent_steps"]
    assert steps[1] < steps[2] < steps[3]
    assert [result["env_steps"] for result in after] == [40, 80, 120, 160]


def test_ctrl_c_saves_a_checkpoint_and_prints_the_results(tmp_path: Path) -> None:
    # By running the experiment file itself, which is the same command.
    file = write_experiment(tmp_path)
    arguments = ["--num-env-runners", "1", "--storage", str(tmp_path), "--name", "long", "--stop", "agent_steps=1e12"]
    process = subprocess.Popen(
        [sys.executable, str(file), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        # The first progress line follows the first result.
        first = next(line for line in process.stderr if "agent steps/s" in line)
        assert " of 1,000,000,000,000 (0 %)" in first
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert stdout == f"{tmp_path / 'long'}\n"
    assert "Interrupted: finishing this iteration and saving." in stderr
    assert "Traceback" not in stderr
    last = checkpoints_of(tmp_path / "long")[-1]
    assert f"checkpoint: {last}\n" in stderr
    assert (last / "rllib_checkpoint.json").is_file()


def test_a_failed_trial_shows_the_environments_own_traceback(tmp_path: Path) -> None:
    file = write_experiment(tmp_path, FAILING_ENV)
    printed = run("train", str(file), "--num-env-runners", "1", "--storage", str(tmp_path), "--name", "broken")
    assert printed.returncode == 1
    assert printed.stdout == f"{tmp_path / 'broken'}\n"
    assert f'File "{file}"' in printed.stderr
    assert printed.stderr.count("RuntimeError: the bridge fell down") >= 1
