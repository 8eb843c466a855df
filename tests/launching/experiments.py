"""A tiny experiment file for tests."""

from __future__ import annotations

from pathlib import Path

TINY_BATTLE = '''"""Battle on the smallest map."""

import sys

from rllib_shared.algorithms.config import TeamPPOConfig

STOP = {"iterations": 2}


def config():
    return (
        TeamPPOConfig()
        .environment("battle_v4", env_config={"map_size": 12, "max_cycles": 20})
        .training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=1)
        .rl_module(model_config={"hidden": [32]})
    )


def main():
    from rllib_shared.cli import main as cli

    cli(["train", __file__, *sys.argv[1:]])


if __name__ == "__main__":
    main()
'''

FAILING_ENV = '''"""An environment of the user's that raises after some steps."""

from mpe2 import simple_spread_v3
from pettingzoo.utils.wrappers import BaseParallelWrapper

from rllib_shared.algorithms.config import TeamPPOConfig

STOP = {"iterations": 5}


class Breaks(BaseParallelWrapper):
    steps = 0

    def step(self, actions):
        self.steps += 1
        if self.steps == 60:
            raise RuntimeError("the bridge fell down")
        return super().step(actions)


def make():
    return Breaks(simple_spread_v3.parallel_env())


def config():
    return (
        TeamPPOConfig()
        .environment(make)
        .teams(critic_observation="own")
        .training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=1)
        .rl_module(model_config={"hidden": [32]})
    )
'''


def write_experiment(folder: Path, source: str = TINY_BATTLE, name: str = "tiny.py") -> Path:
    """Write an experiment file and return its path."""
    path = folder / name
    path.write_text(source)
    return path
