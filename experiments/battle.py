"""81 against 81 agents in MAgent2's battle: one shared policy per team, one critic that reads the whole battlefield.

What this shows
---------------
Both teams learn at once, each with one network for all of its agents. An agent acts on its own 13x13 view; the critic
also reads the 45x45 map, in training only. Self-play PPO on this game usually learns "never attack", because an
untrained policy mostly hits nothing and pays 0.1 for it. Here attacks on empty cells are masked
(`mask_attacks=True`, see `rllib_shared/envs/attack_mask.py`): the mask is read off the agent's own view, and opponents
in evaluation play under the same mask.

How to run
----------
    rllib-shared train experiments/battle.py
    rllib-shared train experiments/battle.py --set env_config.map_size=16 --stop agent_steps=3e5
    rllib-shared evaluate RUN --opponent random --episodes 100 --video battle.mp4

Results to expect
-----------------
Seen with --seed 0 on 2 cores, without a GPU (about 6 000 living agent steps per second; fewer as agents die):

    agent steps   minutes   return per agent (red / blue)   note
          0         0        -0.4 / -0.4                     walks about; doing nothing gives -1.0
      460 000       1         4.0 /  3.0
      880 000       3         4.2 /  4.3
    3 576 000      10         4.2 /  4.1                     a scripted fighter against itself has 4.6

Evaluated after 3 576 000 agent steps, policies sampled, sides swapped: 100 wins of 100 against `random` (95 % interval
[96 %, 100 %]), 24 wins and 26 losses against `greedy`. Teams take turns in the lead, so both columns go up and down.
"""

from __future__ import annotations

import sys

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.cli import main as cli

STOP = {"agent_steps": 3_000_000}


def config() -> TeamPPOConfig:
    """The run."""
    return (
        TeamPPOConfig()
        .environment("battle_v4", env_config={"map_size": 45, "max_cycles": 200, "mask_attacks": True})
        .teams(sharing="team", critic_observation="state")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=200, minibatch_size=20, num_epochs=3, lr=5e-4)
        .rl_module(model_config={"hidden": [128, 128], "encoder": "mlp", "critic_encoder": "mlp"})
    )


def main() -> None:
    """Launch Tune, as `rllib-shared train experiments/battle.py` does."""
    cli(["train", __file__, *sys.argv[1:]])


if __name__ == "__main__":
    main()
