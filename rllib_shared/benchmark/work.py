"""The common work: what every row of the benchmark does, whichever library does it.

A row is one way to do the work: `team`, `team_state` and the other sharings (`team.py`), those that begin with `stock`
(`stock.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rllib_shared.envs.registry import make_team_env
from rllib_shared.messages import unknown
from rllib_shared.sharing import SHARING

TEAM, TEAM_STATE, AGENT = "team", "team_state", "agent"
STOCK, STOCK_CENTRAL, STOCK_AGENT = "stock", "stock_central", "stock_agent"
# Rows named for a sharing; `team` is the shared run that they are compared with.
SHARING_ROWS = tuple(choice for choice in SHARING if choice != TEAM)
ROWS = (TEAM, TEAM_STATE, STOCK, STOCK_CENTRAL, *SHARING_ROWS, STOCK_AGENT)

_MINIBATCH_AGENT_STEPS = 4096
_SLOW_ITERATIONS = 2  # of `stock_agent`, where one takes 20 to 40 s with 162 agents

# What PPO does with the data, the same for all rows.
TRAINING: Mapping[str, Any] = {
    "lr": 3e-4,
    "gamma": 0.99,
    "lambda_": 0.95,
    "clip_param": 0.2,
    "entropy_coeff": 0.01,
    "vf_loss_coeff": 0.5,
    "grad_clip": 0.5,
    "use_kl_loss": False,
}


@dataclass(frozen=True, kw_only=True)
class Work:
    """One iteration of PPO on one machine: no remote runners or learners.

    Attributes:
        env: see `envs.registry.make_env`.
        env_config: passed to the environment; values that JSON can hold.
        agents: of all teams at the start of an episode.
        policies: one per team.
        sharing: which of `SHARING_ROWS` is compared with `team`; `"team"` for none of them.
        critic_sharing: sharing of that row's critic; None: as its actor.
        hidden: width H of the two hidden layers of the policy's and of the value's MLP.
        env_steps: T per iteration, of all copies together.
        num_envs: env copies E; each takes T / E steps per iteration.
        epochs: passes over the data.
        iterations: measured ones, after one to warm up; see `iterations_of`.
        threads: of torch.
        seed: of weights, actions and environments.
    """

    env: str
    env_config: Mapping[str, Any]
    agents: int
    policies: int
    sharing: str = TEAM
    critic_sharing: str | None = None
    hidden: int = 256
    env_steps: int = 100
    num_envs: int = 4
    epochs: int = 2
    iterations: int = 5
    threads: int = 1
    seed: int = 0

    @property
    def minibatch_agent_steps(self) -> int:
        """Rows of a minibatch, of all policies together: 4096, or all there are."""
        return min(_MINIBATCH_AGENT_STEPS, self.env_steps * self.agents)

    @property
    def minibatch_env_steps(self) -> int:
        """The same in env steps."""
        return max(1, round(self.minibatch_agent_steps / self.agents))

    @property
    def minibatch_rows_per_policy(self) -> int:
        """The same as RLlib counts it: rows of each policy."""
        return max(1, self.minibatch_agent_steps // self.policies)

    @property
    def stock_counterpart(self) -> str:
        """The row in which stock RLlib does what the row `sharing` does."""
        return STOCK_AGENT if self.sharing == AGENT else STOCK

    def iterations_of(self, row: str) -> int:
        """Measured iterations of `row`, after one to warm up."""
        return min(self.iterations, _SLOW_ITERATIONS) if row == STOCK_AGENT else self.iterations


def plan(
    env: str,
    env_config: Mapping[str, Any] | None = None,
    *,
    sharing: str = TEAM,
    critic_sharing: str | None = None,
    hidden: int = 256,
    env_steps: int = 100,
    num_envs: int = 4,
    iterations: int = 5,
) -> Work:
    """The work on this environment and this machine.

    Args:
        env: see `Work`.
        env_config: see `Work`.
        sharing: see `Work`.
        critic_sharing: see `Work`.
        hidden: see `Work`.
        env_steps: see `Work`.
        num_envs: see `Work`.
        iterations: see `Work`.

    Raises:
        ValueError: an unknown sharing, critics shared otherwise beside `sharing="team"`, a number below 1, steps that
            do not divide evenly among the copies, an environment that cannot be made, and what `make_env` raises.
    """
    for axis, choice in (("sharing", sharing), ("critic_sharing", critic_sharing)):
        if choice is not None and choice not in SHARING:
            raise ValueError(unknown(axis, choice, SHARING))
    if sharing == TEAM and critic_sharing not in {None, TEAM}:
        raise ValueError(
            f"critic_sharing={critic_sharing!r} needs sharing to be one of {list(SHARING_ROWS)}, got {sharing!r}: "
            "the row 'team' shares both, so that the others can be compared with it"
        )
    for name, value in {
        "hidden": hidden,
        "env_steps": env_steps,
        "num_envs": num_envs,
        "iterations": iterations,
    }.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if env_steps % num_envs:
        raise ValueError(
            f"env_steps={env_steps} cannot be shared out evenly over num_envs={num_envs} copies; "
            "choose a multiple, so that all rows do the same work"
        )
    made = make_team_env(env, env_config, critic_observation="own")
    try:
        agents = sum(slots.num_slots for slots in made.teams.modules.values())
        policies = len(made.teams.modules)
    finally:
        made.close()
    return Work(
        env=env,
        env_config=dict(env_config or {}),
        agents=agents,
        policies=policies,
        sharing=sharing,
        critic_sharing=critic_sharing,
        hidden=hidden,
        env_steps=env_steps,
        num_envs=num_envs,
        iterations=iterations,
        threads=available_cores(),
    )


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
