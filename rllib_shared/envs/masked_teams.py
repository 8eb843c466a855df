"""`masked_teams`: two teams of different sizes whose masks, deaths, births and end follow a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_shared.envs.games import SmallGame, Step
from rllib_shared.envs.team_env import ACTION_MASK, OBSERVATION
from rllib_shared.messages import unknown

ENDS = ("truncate", "terminate", "mixed")


class MaskedTeams(SmallGame):
    """Teams `red` and `blue` whose masks, deaths, births and end follow a script; reward 1 per agent and step.

    Steps are counted from 1. Agents have four actions, of which action 0 is always allowed and the others change with
    agent and step. An observation is `[agent's number, steps so far]`, float32.

    Args:
        deaths: the step in which an agent terminates.
        born: the step after which an agent, so far absent, is there.
        end: what becomes of the living in the last step: `"truncate"`, `"terminate"` or `"mixed"` (red terminated, blue
            truncated).
        max_cycles: the last step.
        mask_in: where the mask is: `"observation"` (then a Dict) or `"info"`.
        state: whether there is a usable `state()`; `"raises"` has one that fails after the first death.
        num_red: size of the red team.
        num_blue: size of the blue team.

    Raises:
        ValueError: unknown choice or agent.
    """

    def __init__(
        self,
        deaths: Mapping[str, int] | None = None,
        end: str = "truncate",
        max_cycles: int = 8,
        mask_in: str = "observation",
        state: bool | str = True,
        num_red: int = 3,
        num_blue: int = 2,
        born: Mapping[str, int] | None = None,
    ) -> None:
        self._red = [f"red_{i}" for i in range(num_red)]
        agents = self._red + [f"blue_{i}" for i in range(num_blue)]
        choices = (
            ("end", end, ENDS),
            ("mask_in", mask_in, (OBSERVATION, "info")),
            ("state", state, (True, False, "raises")),
        )
        for what, given, known in choices:
            if given not in known:
                raise ValueError(unknown(what, given, known))
        for agent in (*(deaths or {}), *(born or {})):
            if agent not in agents:
                raise ValueError(unknown("agent", agent, agents))
        self._deaths, self._born = dict(deaths or {}), dict(born or {})
        self._end, self._state, self.max_cycles = end, state, max_cycles
        self._mask_in_observation = mask_in == OBSERVATION
        space: gym.Space = gym.spaces.Box(0, np.inf, (2,), np.float32)
        if self._mask_in_observation:
            space = gym.spaces.Dict({OBSERVATION: space, ACTION_MASK: gym.spaces.Box(0, 1, (4,), np.int8)})
        super().__init__(
            "masked_teams", dict.fromkeys(agents, space), {agent: gym.spaces.Discrete(4) for agent in agents}
        )

    def step(self, actions: dict[str, int]) -> Step:
        """Follow the script; raises ValueError for a masked action."""
        for agent, action in actions.items():
            if not self.mask(agent)[action]:
                raise ValueError(f"action {action} of {agent} is masked in step {self.frame + 1}")
        self.frame += 1
        acted, last = self.agents, self.frame >= self.max_cycles
        newborn = [agent for agent, step in self._born.items() if step == self.frame and not last]
        ends = {
            agent: last and (self._end == "terminate" or (self._end == "mixed" and agent in self._red))
            for agent in acted
        }
        terminated = {agent: ends[agent] or self._deaths.get(agent) == self.frame for agent in acted}
        truncated = {agent: last and not ends[agent] for agent in acted}
        self.agents = [a for a in acted if not (terminated[a] or truncated[a])] + newborn
        shown = [*acted, *newborn]
        no = dict.fromkeys(newborn, False)
        rewards = {**dict.fromkeys(acted, 1.0), **dict.fromkeys(newborn, 0.0)}
        return {a: self._observe(a) for a in shown}, rewards, terminated | no, truncated | no, self._infos(shown)

    def state(self) -> np.ndarray:
        """`[steps so far, 1 or 0 for each possible agent that is there or not]`, float32."""
        if self._state == "raises" and any(step <= self.frame for step in self._deaths.values()):
            raise AttributeError("an agent is gone and this environment's state() cannot do without it")
        if not self._state:
            return super().state()
        return np.array([self.frame, *(agent in self.agents for agent in self.possible_agents)], np.float32)

    def mask(self, agent: str) -> np.ndarray:
        """Allowed actions of the next step, int8 `[4]`."""
        number = self.possible_agents.index(agent)
        return np.array([1, *((number + self.frame + action) % 3 > 0 for action in (1, 2, 3))], np.int8)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start the script anew."""
        observations, _ = super().reset(seed, options)
        return observations, self._infos(self.agents)

    def _start(self) -> None:
        self.agents = [agent for agent in self.agents if agent not in self._born]

    def _observe(self, agent: str) -> Any:
        value = np.array([self.possible_agents.index(agent), self.frame], np.float32)
        return {OBSERVATION: value, ACTION_MASK: self.mask(agent)} if self._mask_in_observation else value

    def _infos(self, agents: Sequence[str]) -> dict[str, dict[str, Any]]:
        return {agent: {} if self._mask_in_observation else {ACTION_MASK: self.mask(agent)} for agent in agents}


masked_teams = MaskedTeams  # its name in registry.py
