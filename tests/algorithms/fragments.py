"""Hand-made fragments for tests: arrays with the content that a test is about, and plausible ones elsewhere."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rllib_shared.sampling.fragment import ModuleFragment, TeamFragment
from rllib_shared.teams import Teams

NUM_ACTIONS = 3


def make_teams(sizes: dict[str, int], sharing: str = "team") -> Teams:
    """Teams of these sizes with observations of 2 numbers and 3 actions."""
    agents = [f"{team}_{i}" for team, size in sizes.items() for i in range(size)]
    box, discrete = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), gym.spaces.Discrete(NUM_ACTIONS)
    return Teams.build(dict.fromkeys(agents, box), dict.fromkeys(agents, discrete), sharing=sharing)


def module_fragment(
    alive: np.ndarray,
    reward: np.ndarray | None = None,
    terminated: np.ndarray | None = None,
    truncated: np.ndarray | None = None,
    alive_after: np.ndarray | None = None,
    observation: np.ndarray | None = None,
    seed: int = 0,
) -> ModuleFragment:
    """One module's part for `alive` `[T, N]`; what is not given is 0, and nobody is alive afterwards."""
    rng = np.random.default_rng(seed)
    alive = np.asarray(alive, bool)
    steps, slots = alive.shape
    none = np.zeros((steps, slots), bool)
    if observation is None:
        observation = rng.normal(size=(steps + 1, slots, 2)).astype(np.float32)
    dist_inputs = rng.normal(size=(steps, slots, NUM_ACTIONS)).astype(np.float32)
    return ModuleFragment(
        observation=observation[:-1],
        last_observation=observation[-1],
        action_mask=None,
        alive=alive,
        alive_after=np.zeros(slots, bool) if alive_after is None else np.asarray(alive_after, bool),
        action=rng.integers(NUM_ACTIONS, size=(steps, slots)),
        dist_inputs=dist_inputs,
        logp=np.full((steps, slots), -np.log(NUM_ACTIONS), np.float32),
        reward=np.zeros((steps, slots), np.float32) if reward is None else np.asarray(reward, np.float32),
        terminated=none if terminated is None else np.asarray(terminated, bool),
        truncated=none if truncated is None else np.asarray(truncated, bool),
    )


def team_fragment(modules: dict[str, ModuleFragment], critic: dict[str, np.ndarray] | None = None) -> TeamFragment:
    """A fragment; `critic` holds `[T + 1, ...]` per team."""
    critic = critic or {}
    return TeamFragment(
        modules,
        {team: array[:-1] for team, array in critic.items()},
        {team: array[-1] for team, array in critic.items()},
    )
