"""Three agents cover three landmarks in MPE's simple_spread, and must not collide: a cooperative task.

What this shows
---------------
A task in which agents are alike, so one policy can serve all of them. The critic sees what all three see side by side
(`joint`). The reward is PettingZoo's with local_ratio 0.5: half of it is the agent's own collisions, half the team's
distance to the landmarks. Returns here are the mean over agents of an episode of 25 steps.

How to run
----------
    pip install mpe2
    rllib-shared train experiments/spread.py
    rllib-shared compare experiments/spread.py --sharing team agent --seeds 5 --episodes 40 --points 6 \\
        --out studies/spread

Results to expect
-----------------
Seen with 5 seeds after 60 000 env steps: -19.6 [-20.3, -18.6] with one policy and critic for all three agents, -19.5
[-20.5, -18.5] with one each (IQM and 95 % interval); before training about -26. No difference can be told.
"""

from __future__ import annotations

import sys

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.cli import main as cli

STOP = {"env_steps": 60_000}


def config() -> TeamPPOConfig:
    """The run."""
    return (
        TeamPPOConfig()
        .environment("simple_spread_v3", env_config={"N": 3, "max_cycles": 25, "local_ratio": 0.5})
        .teams(sharing="team", critic_observation="joint")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=20)
        .training(train_batch_size_per_learner=2000, minibatch_size=500, num_epochs=8, lr=1e-3, vf_clip_param=1e4)
        .rl_module(model_config={"hidden": [64, 64]})
    )


def main() -> None:
    """Launch Tune, as `rllib-shared train experiments/spread.py` does."""
    cli(["train", __file__, *sys.argv[1:]])


if __name__ == "__main__":
    main()
