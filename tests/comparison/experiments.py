"""Tiny experiment files for studies, and what a complete study must hold."""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd

from rllib_shared.comparison.schema import read_results, read_study

TINY_BATTLE = '''"""Battle on the smallest map; the trials of one arm fail while a file is there."""

from pathlib import Path

from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_shared.algorithms.config import TeamPPOConfig

TRAP = Path(__file__).with_name("trap")


class Trapped(RLlibCallback):
    def on_train_result(self, *, algorithm, result, **kwargs):
        if TRAP.exists() and algorithm.config.sharing == "agent" and result["training_iteration"] == 3:
            raise RuntimeError("the bridge fell down")


def config():
    return (
        TeamPPOConfig()
        .environment("battle_v4", env_config={"map_size": 12, "max_cycles": 20})
        .callbacks(Trapped)
        .training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=1)
        .rl_module(model_config={"hidden": [16], "encoder": "mlp", "critic_encoder": "mlp"})
    )
'''

TINY_SPREAD = '''"""simple_spread, with a stop rule of its own."""

from rllib_shared.algorithms.config import TeamPPOConfig

STOP = {"agent_steps": 720}


def config():
    return (
        TeamPPOConfig()
        .environment("simple_spread_v3")
        .training(train_batch_size_per_learner=20, minibatch_size=20, num_epochs=1)
        .rl_module(model_config={"hidden": [16]})
    )
'''


def write(folder: Path, source: str, name: str = "tiny.py") -> Path:
    """Write an experiment file and return its path."""
    path = folder / name
    path.write_text(source)
    return path


def check_complete(study: Path, arms: list[str], step: int, counter: str) -> pd.DataFrame:
    """The rows of a study in which every trial has every point against every opponent once, at its promised step."""
    content = read_study(study)
    rows = read_results(study, content)
    expected = itertools.product(arms, content.seeds, range(content.points + 1), content.opponents or [""])
    keys = zip(rows["arm"], rows["seed"], rows["point"], rows["opponent"], strict=True)
    assert sorted(keys) == sorted(expected)
    assert (rows[counter] == step * rows["point"]).all()
    assert all(trial["train_seconds"].is_monotonic_increasing for _, trial in rows.groupby("trial"))
    return rows
