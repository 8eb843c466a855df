"""Small games with known answers, for tests and documentation. All are PettingZoo `ParallelEnv`s.

`matrix_game` and `two_step_game` have a known best return; `coin_game` shows whether a critic reads the state;
`cartpole_team` learns in seconds and loses agents on the way. Each follows from its seed alone. One more, for
masks, deaths and ends, is in `masked_teams.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from pettingzoo import ParallelEnv

from rllib_shared.messages import unknown

_PLAYERS = ("player_0", "player_1")
_CLIMBING = ((11.0, -30.0, 0.0), (-30.0, 7.0, 0.0), (0.0, 6.0, 5.0))
PAYOFFS = ("climbing", "penalty")

Step = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class SmallGame(ParallelEnv[str, Any, int]):
    """What small games have in common: spaces per agent, a step counter, random numbers."""

    def __init__(
        self, name: str, observation_spaces: Mapping[str, gym.Space], action_spaces: Mapping[str, gym.Space]
    ) -> None:
        self.metadata = {"name": name, "render_modes": []}
        self.render_mode = None
        self.possible_agents = list(observation_spaces)
        self.agents: list[str] = []
        self.observation_spaces = dict(observation_spaces)
        self.action_spaces = dict(action_spaces)
        self.frame = 0
        self.random = np.random.default_rng()

    def observation_space(self, agent: str) -> gym.Space:
        """Space of one agent's observation."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.Space:
        """Space of one agent's action."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode; `seed=None` continues the random numbers, `options` are ignored."""
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.frame = 0
        self.agents = self.possible_agents[:]
        self._start()
        return {agent: self._observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def _start(self) -> None:
        """Set up what a game has beyond the counter."""

    def _observe(self, agent: str) -> Any:
        raise NotImplementedError

    def _same_for_all(self, reward: float, terminated: bool = False, truncated: bool = False) -> Step:
        """The result of a step in which all agents share reward and fate."""
        acted = self.agents
        if terminated or truncated:
            self.agents = []
        return (
            {agent: self._observe(agent) for agent in acted},
            dict.fromkeys(acted, float(reward)),
            dict.fromkeys(acted, terminated),
            dict.fromkeys(acted, truncated),
            {agent: {} for agent in acted},
        )


class MatrixGame(SmallGame):
    """A repeated one-shot game: two players choose at once, and both get the payoff of their pair of actions.

    Args:
        payoff: `"climbing"` (best 11, trap 7, safe 5; Claus and Boutilier 1998), `"penalty"` (best 10, safe 2), or the
            table itself, `[actions of player_0][actions of player_1]`.
        k: what the penalty game takes for missing each other.
        max_cycles: truncated after so many steps.

    Raises:
        ValueError: unknown payoff, a list that is no table, or `k` for another game than penalty.
    """

    def __init__(
        self, payoff: str | Sequence[Sequence[float]] = "climbing", k: float = 0, max_cycles: int = 25
    ) -> None:
        if k and payoff != "penalty":
            raise ValueError(f"k={k} is the penalty of payoff='penalty'; with payoff={payoff!r} leave it out")
        if isinstance(payoff, str) and payoff not in PAYOFFS:
            raise ValueError(unknown("payoff", payoff, PAYOFFS))
        named = {"climbing": _CLIMBING, "penalty": ((-k, 0, 10), (0, 2, 0), (10, 0, -k))}
        self.payoff = np.array(named[payoff] if isinstance(payoff, str) else payoff, np.float64)
        if self.payoff.ndim != 2:
            raise ValueError(f"payoff must be a table [actions of player_0][actions of player_1], got {payoff!r}")
        self.max_cycles = max_cycles
        observation = gym.spaces.Box(0, 1, (1,), np.float32)
        super().__init__(
            "matrix_game",
            dict.fromkeys(_PLAYERS, observation),
            {agent: gym.spaces.Discrete(int(n)) for agent, n in zip(_PLAYERS, self.payoff.shape, strict=True)},
        )

    def step(self, actions: dict[str, int]) -> Step:
        """Pay both players."""
        self.frame += 1
        reward = self.payoff[tuple(int(actions[agent]) for agent in _PLAYERS)]
        return self._same_for_all(reward, truncated=self.frame >= self.max_cycles)

    def state(self) -> np.ndarray:
        """Constant, float32 `[1]`: there is nothing to know."""
        return np.ones(1, np.float32)

    def _observe(self, agent: str) -> np.ndarray:
        return np.ones(1, np.float32)


class TwoStepGame(SmallGame):
    """QMIX's two-step game (Rashid et al., arXiv 1803.11485): player_0 chooses a table, then both play it.

    The first table pays 7 whatever they do (the trap); the second 8 if both choose action 1, 0 if both choose 0, else
    1. Both players get the team's reward.
    """

    def __init__(self) -> None:
        box = gym.spaces.Box(0, 1, (3,), np.float32)
        super().__init__(
            "two_step_game", dict.fromkeys(_PLAYERS, box), {agent: gym.spaces.Discrete(2) for agent in _PLAYERS}
        )
        self._place = 0

    def step(self, actions: dict[str, int]) -> Step:
        """Choose the table, or play it and end."""
        if self._place == 0:
            self._place = 1 + int(actions["player_0"])
            return self._same_for_all(0.0)
        reward = 7 if self._place == 1 else (0, 1, 8)[sum(int(actions[agent]) for agent in _PLAYERS)]
        return self._same_for_all(reward, terminated=True)

    def state(self) -> np.ndarray:
        """One-hot of start, first table, second table; float32 `[3]`."""
        return np.eye(3, dtype=np.float32)[self._place]

    def _start(self) -> None:
        self._place = 0

    def _observe(self, agent: str) -> np.ndarray:
        return self.state()


class CoinGame(SmallGame):
    """Both players get +1 or -1 by a coin tossed at the start of each step, whatever they do.

    Only `state()` shows the coin. So a critic that reads the state explains all of the value (at gamma=0), and one that
    reads the actors' constant observation explains nothing.

    Args:
        max_cycles: truncated after so many steps.
    """

    def __init__(self, max_cycles: int = 20) -> None:
        box = gym.spaces.Box(0, 1, (1,), np.float32)
        super().__init__(
            "coin_game", dict.fromkeys(_PLAYERS, box), {agent: gym.spaces.Discrete(2) for agent in _PLAYERS}
        )
        self.max_cycles = max_cycles
        self._start()

    def step(self, actions: dict[str, int]) -> Step:
        """Pay by the coin on the table, then toss the next."""
        self.frame += 1
        reward = self._coin
        self._start()
        return self._same_for_all(reward, truncated=self.frame >= self.max_cycles)

    def state(self) -> np.ndarray:
        """The coin of the step that is about to be played, float32 `[1]`."""
        return np.array([self._coin], np.float32)

    def _start(self) -> None:
        self._coin = float(self.random.choice((-1.0, 1.0)))

    def _observe(self, agent: str) -> np.ndarray:
        return np.ones(1, np.float32)


class CartPoleTeam(SmallGame):
    """One CartPole per agent, reward 1 per step; an agent whose pole falls leaves, the others go on.

    Args:
        num_agents: number of poles; agents are `cart_0`, `cart_1`, ...
        max_cycles: the rest is truncated after so many steps.
    """

    def __init__(self, num_agents: int = 2, max_cycles: int = 200) -> None:
        self._poles = {f"cart_{i}": CartPoleEnv() for i in range(num_agents)}
        super().__init__(
            "cartpole_team",
            {agent: pole.observation_space for agent, pole in self._poles.items()},
            {agent: pole.action_space for agent, pole in self._poles.items()},
        )
        self.max_cycles = max_cycles
        self._seen = {agent: np.zeros(4, np.float32) for agent in self._poles}
        self._standing = dict.fromkeys(self._poles, False)

    def step(self, actions: dict[str, int]) -> Step:
        """Push each cart that is still there."""
        self.frame += 1
        acted, truncated = self.agents, self.frame >= self.max_cycles
        for agent in acted:
            self._seen[agent], _, fallen, _, _ = self._poles[agent].step(int(actions[agent]))
            self._standing[agent] = not fallen
        self.agents = [] if truncated else [agent for agent in acted if self._standing[agent]]
        return (
            {agent: self._observe(agent) for agent in acted},
            dict.fromkeys(acted, 1.0),
            {agent: not self._standing[agent] for agent in acted},
            dict.fromkeys(acted, truncated),
            {agent: {} for agent in acted},
        )

    def state(self) -> np.ndarray:
        """All observations side by side, zeros for the fallen; float32 `[4 * num_agents]`."""
        zeros = np.zeros(4, np.float32)
        return np.concatenate([self._seen[a] if self._standing[a] else zeros for a in self.possible_agents])

    def _start(self) -> None:
        for agent, pole in self._poles.items():
            self._seen[agent], _ = pole.reset(seed=int(self.random.integers(2**31)))
            self._standing[agent] = True

    def _observe(self, agent: str) -> np.ndarray:
        return self._seen[agent]


# Their names in registry.py.
matrix_game, two_step_game, coin_game, cartpole_team = MatrixGame, TwoStepGame, CoinGame, CartPoleTeam
