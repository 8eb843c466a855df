"""Does one policy per team beat one policy per agent? 20 against 20 in MAgent2's battle.

What this shows
---------------
Four ways to train the same game on the same data per update: actor and critic each shared by a team or one per agent.
The critic reads the whole map in all of them. Both teams learn by self-play; at fixed points of training each arm plays
the same games against opponents that never change (random, and a greedy fighter), sides swapped.

How to run
----------
    python experiments/sharing_vs_per_agent.py --out studies/battle

which is

    rllib-shared compare experiments/sharing_vs_per_agent.py --sharing team agent --critic-sharing team agent \\
        --seeds 5 --episodes 10 --points 8 --out studies/battle

The file is also an experiment by itself: `rllib-shared train experiments/sharing_vs_per_agent.py --set sharing=agent`.

Results to expect
-----------------
Seen with 5 seeds, return per agent against the greedy fighter after 32 000 env steps (IQM and 95 % interval; 22 minutes
on two cores):

    actor   critic   score               mean over training
    team    team     2.86 [2.14, 3.26]   2.30 [1.93, 2.64]
    team    agent    2.60 [2.28, 3.10]   2.30 [2.08, 2.48]
    agent   team     1.46 [1.30, 1.66]   0.86 [0.72, 1.00]
    agent   agent    1.04 [0.90, 1.36]   0.64 [0.59, 0.69]

All arms win every game against random play; the first wins a few against the greedy fighter.
"""

from __future__ import annotations

import sys

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.cli import main as cli

STOP = {"env_steps": 32_000}


def config() -> TeamPPOConfig:
    """One arm; `compare` sets who shares."""
    return (
        TeamPPOConfig()
        .environment("battle_v4", env_config={"map_size": 25, "max_cycles": 200, "mask_attacks": True})
        .teams(sharing="team", critic_observation="state")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=200, minibatch_size=50, num_epochs=4, lr=5e-4)
        .rl_module(model_config={"hidden": [64, 64], "encoder": "mlp", "critic_encoder": "mlp"})
    )


def main() -> None:
    """Launch the study, as `rllib-shared compare` does."""
    arms = ["--sharing", "team", "agent", "--critic-sharing", "team", "agent"]
    cli(["compare", __file__, *arms, "--episodes", "10", "--points", "8", *sys.argv[1:]])


if __name__ == "__main__":
    main()
