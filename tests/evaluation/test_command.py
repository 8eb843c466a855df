"""`rllib-shared evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rllib_shared.cli import app
from tests.evaluation.test_match import KEYS


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    outcome = CliRunner().invoke(app, ["evaluate", *map(str, arguments)], env={"COLUMNS": "120"})
    return outcome.exit_code, outcome.stdout, outcome.stderr


def test_evaluate_prints_a_table_and_writes_json(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "result.json"
    code, out, err = run(checkpoint.parent.parent, "--opponent", "random", "--episodes", 4, "--json", file)
    assert (code, err) == (0, "")
    numbers = json.loads(file.read_text())
    assert list(numbers) == KEYS
    assert f"{numbers['wins']} wins / {numbers['losses']} losses / {numbers['draws']} draws in 4 episodes" in out
    assert "95 % Wilson interval" in out
    for text in ("return per agent", "survivors", "episode length", "red", "blue", "25.0"):
        assert text in out


def test_evaluate_changes_the_environment(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    settings = ["--set", "env_config.map_size=25", "--set", "env_config.max_cycles=3"]
    code, _, _ = run(checkpoint, "--episodes", 1, "--deterministic", *settings, "--json", file)
    assert code == 0
    assert json.loads(file.read_text())["survivors"] == {"red": 20.0, "blue": 20.0}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--opponent", "gredy"], "'gredy' is neither one of 'random', 'noop', 'greedy' nor the path of a checkpoint"),
        (["--set", "lr=1"], "--set lr: evaluate changes the environment only, by env_config.KEY=VALUE"),
        (["--set", "env_config.mapsize=16"], "unknown env_config key 'mapsize'; did you mean 'map_size'?"),
        (["--set", "env_config.minimap_mode=true"], "module 'red' of"),
        (["--video", "game.gif"], "a video file must end in .mp4, got 'game.gif'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(checkpoint: Path, arguments: list[str], sentence: str) -> None:
    code, out, err = run(checkpoint, "--episodes", 1, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(sentence)
    assert err.count("\n") == 1


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    code, _, err = run(tmp_path / "nothing")
    assert (code, err) == (2, f"no such checkpoint or run: {tmp_path / 'nothing'}\n")
    code, _, err = run(tmp_path)
    assert code == 2 and "is no RLlib checkpoint" in err
