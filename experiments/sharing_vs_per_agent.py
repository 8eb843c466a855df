"""Does one policy per team beat one policy per agent? 20 against 20 in MAgent2's battle.

What this shows
---------------
Three ways to train the same game on the same data per update: one network per team (actor and critic), one actor per
agent under one critic per team, and one actor and critic per agent. The critic reads the whole map in all of them. Both
teams learn by self-play; at fixed points of training each arm plays the same games against opponents that never change
(random, and a greedy fighter), sides swapped.

How to run
----------
    rllib-shared compare experiments/sharing_vs_per_agent.py --sharing team agent --critic-sharing team --seeds 5 \\
        --out studies/battle
    python experiments/sharing_vs_per_agent.py --out studies/battle

The file is also an experiment by itself: `rllib-shared train experiments/sharing_vs_per_agent.py --set sharing=agent`.
"""

from __future__ import annotations

import sys

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.cli import main as cli

STOP = {"env_steps": 10_000}


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
    cli(["compare", __file__, "--sharing", "team", "agent", *sys.argv[1:]])


if __name__ == "__main__":
    main()
