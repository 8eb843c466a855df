"""Bad input of `rllib-shared train`: one sentence on stderr, exit code 2, nothing on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rllib_shared.cli import app
from tests.launching.experiments import TINY_BATTLE, write_experiment


def refusal(folder: Path, *arguments: str) -> str:
    """What `train` says on stderr about arguments that it must refuse."""
    result = CliRunner().invoke(app, ["train", *arguments, *([] if "--resume" in arguments else _storage(folder))])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert not (folder / "runs").exists()
    return result.stderr


def _storage(folder: Path) -> list[str]:
    return ["--storage", str(folder / "runs")]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = 1\n", "has no function config()"),
        ("def config():\n    return 3\n", "must return an algorithm's config such as TeamPPOConfig, got int"),
        ("STOP = 3\n" + TINY_BATTLE.replace("STOP", "LIMITS"), "STOP of"),
        ("def config(:\n", "line 1: SyntaxError"),
        (TINY_BATTLE.replace("STOP", "LIMITS"), "nothing says when to stop"),
        (TINY_BATTLE.replace('"battle_v4"', '"batle_v4"'), "unknown env 'batle_v4'; did you mean 'battle_v4'"),
    ],
)
def test_files_that_are_no_experiments_are_refused(tmp_path: Path, source: str, sentence: str) -> None:
    message = refusal(tmp_path, str(write_experiment(tmp_path, source)))
    assert sentence in message
    assert "Traceback" not in message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert f"no experiment file {tmp_path / 'none.py'}" in refusal(tmp_path, str(tmp_path / "none.py"))


def test_errors_of_the_users_own_code_come_with_its_line(tmp_path: Path) -> None:
    file = write_experiment(tmp_path, "import no_such_package\n")
    message = refusal(tmp_path, str(file))
    assert f'File "{file}", line 1' in message
    assert "No module named 'no_such_package'" in message


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--set lrr=1", "unknown config key 'lrr'; did you mean 'lr'?"),
        ("--set env_config.mapsize=16", "unknown env_config key 'mapsize'; did you mean 'map_size'?"),
        ("--set model_config.hiden=[8]", "unknown model_config key 'hiden'; did you mean 'hidden'"),
        ("--set model_config.hidden=8", "model_config hidden must be a list of positive whole numbers, got 8"),
        ("--set lr=fast", "expected a number"),
        ("--set sharing=some", "unknown sharing 'some'"),
        ("--set num_epochs=0", "num_epochs=0 must be at least 1"),
        ("--set minibatch_size=100", "`minibatch_size` (100) must be <= `train_batch_size_per_learner` (40)"),
        ("--set env_config.map_size=3", "refused env_config"),
        ("--num-env-runners -1", "num_env_runners=-1 must be at least 0"),
        ("--num-samples 0", "--num-samples 0: expected at least 1"),
        ("--name a/b", "expected a folder name without slashes"),
        ("--stop agent_steps", "--stop takes KEY=VALUE"),
        ("--stop agent_steps=lots", "stop agent_steps='lots': expected a number"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: str, sentence: str) -> None:
    message = refusal(tmp_path, str(write_experiment(tmp_path)), *options.split())
    assert sentence in message
    assert "Traceback" not in message


def test_an_unknown_stop_key_is_refused_with_the_nearest(tmp_path: Path, ray_session: None) -> None:
    message = refusal(tmp_path, str(write_experiment(tmp_path)), "--stop", "agent_stps=10")
    assert "unknown stop key 'agent_stps'; did you mean 'agent_steps'" in message


def test_resuming_what_is_no_run_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, str(write_experiment(tmp_path)), "--resume", str(tmp_path))
    assert f"{tmp_path} is no run to resume" in message


def test_resuming_with_other_settings_is_refused(tmp_path: Path) -> None:
    given = ["--resume", str(tmp_path), "--set", "lr=1", "--num-samples", "2"]
    assert "leave out --set, --num-samples" in refusal(tmp_path, str(write_experiment(tmp_path)), *given)
