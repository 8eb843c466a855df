"""`CriticObservationEnv`: the content of a `TeamEnv` for RLlib's own runners.

Each agent observes `Dict(observation[, critic_observation][, action_mask])`, so `CentralizedCriticModule` also trains
under plain `PPOConfig`. RLlib then keeps one copy of the critic observation per agent and step; `TeamPPOConfig` does
not, which is what the rest of this package is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from rllib_shared.envs.registry import make_team_env
from rllib_shared.envs.team_env import (
    ACTION_MASK,
    CRITIC_OBSERVATION,
    NO_ACTION,
    OBSERVATION,
    ModuleStep,
    TeamEnv,
    TeamStep,
)
from rllib_shared.messages import preview

_OPTIONS = ("env", "env_config", "teams", "sharing", "critic_sharing", "critic_observation")


class CriticObservationEnv(MultiAgentEnv):
    """A team environment as an RLlib `MultiAgentEnv`.

    Use `env.team_env.teams.policy_mapping_fn` as the `policy_mapping_fn`, and `module_ids` as the `policies`.

    Args:
        config: RLlib's `env_config`: `env` (see `envs.registry.make_env`) and, optionally, `env_config`, `teams`,
            `sharing`, `critic_sharing` and `critic_observation` (see `make_team_env`).

    Raises:
        ValueError: an unknown option, and what `make_team_env` raises.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        unknown_keys = sorted(set(config) - set(_OPTIONS))
        if unknown_keys or "env" not in config:
            raise ValueError(f"CriticObservationEnv takes the options {_OPTIONS} and needs 'env', got {sorted(config)}")
        self.team_env: TeamEnv = make_team_env(
            config["env"], config.get("env_config"), **{key: config[key] for key in _OPTIONS[2:] if key in config}
        )
        spaces = self.team_env.module_spaces()
        self.possible_agents = [agent for slots in self.team_env.teams.modules.values() for agent in slots.agents]
        self.agents = list(self.possible_agents)
        self.observation_spaces = {}
        self.action_spaces = {}
        for module_id, slots in self.team_env.teams.modules.items():
            for agent in slots.agents:
                self.observation_spaces[agent], self.action_spaces[agent] = spaces[module_id]
        super().__init__()
        self._alive: dict[str, np.ndarray] = {}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode; observations of all living agents."""
        step = self.team_env.reset(seed)
        observations = self._observations(step, {mid: part.alive for mid, part in step.modules.items()})
        self._remember(step)
        return observations, {}

    def step(self, action_dict: Mapping[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """One action per living agent.

        The flags avoid two traps of RLlib 2.60: with a truncated flag per agent at a time limit it would mark every
        agent terminated and not bootstrap, and with some agents terminated and the others truncated in the last step
        it would never end the episode. So a limit is `truncateds["__all__"]` alone.

        Raises:
            ValueError: an action that is missing, unknown, of a dead agent, or out of range.
        """
        acted = self._alive
        step = self.team_env.step(self._arrays(action_dict))
        self._remember(step)
        observations = self._observations(step, acted)
        rewards: dict[str, float] = {}
        terminateds: dict[str, bool] = {"__all__": False}
        truncateds: dict[str, bool] = {"__all__": False}
        cut_off = any((part.truncated & ~part.terminated).any() for part in step.modules.values())
        for module_id, slots in self.team_env.teams.modules.items():
            part = step.modules[module_id]
            for slot in np.flatnonzero(acted[module_id]):
                agent = slots.agents[slot]
                rewards[agent] = float(part.reward[slot])
                if part.terminated[slot]:
                    terminateds[agent] = True
                elif part.truncated[slot] and not step.over:
                    truncateds[agent] = True
        if step.over:
            (truncateds if cut_off else terminateds)["__all__"] = True
        return observations, rewards, terminateds, truncateds, {}

    def render(self) -> np.ndarray | None:
        """The current frame."""
        return self.team_env.render()

    def close(self) -> None:
        """Close the environment."""
        self.team_env.close()

    def _remember(self, step: TeamStep) -> None:
        self._alive = {mid: part.alive.copy() for mid, part in step.modules.items()}
        self.agents = [
            agent
            for module_id, slots in self.team_env.teams.modules.items()
            for agent, alive in zip(slots.agents, self._alive[module_id], strict=True)
            if alive
        ]

    def _observations(self, step: TeamStep, acted: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """Observations of the slots that acted or act next; one object per agent is what RLlib wants."""
        observations = {}
        for module_id, slots in self.team_env.teams.modules.items():
            part: ModuleStep = step.modules[module_id]
            for slot in np.flatnonzero(part.alive | acted[module_id]):
                seen = {OBSERVATION: part.observation[slot]}
                if step.critic_observation:
                    seen[CRITIC_OBSERVATION] = step.critic_observation[slots.teams[slots.team_index[slot]]]
                if part.action_mask is not None:
                    seen[ACTION_MASK] = part.action_mask[slot].astype(np.int8)
                observations[slots.agents[slot]] = seen
        return observations

    def _arrays(self, action_dict: Mapping[str, Any]) -> dict[str, np.ndarray]:
        strangers = [agent for agent in action_dict if agent not in self.observation_spaces]
        if strangers:
            raise ValueError(f"{self.team_env.name}: actions for unknown agents {preview(strangers)}")
        arrays = {}
        for module_id, slots in self.team_env.teams.modules.items():
            space = slots.action_space
            if isinstance(space, gym.spaces.Discrete):
                array = np.full(slots.num_slots, NO_ACTION, np.int64)
            else:
                array = np.full((slots.num_slots, *(space.shape or ())), np.nan, np.float32)
            for slot, agent in enumerate(slots.agents):
                if agent in action_dict:
                    array[slot] = action_dict[agent]
            arrays[module_id] = array
        return arrays
