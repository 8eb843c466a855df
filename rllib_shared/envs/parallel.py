"""Any PettingZoo `ParallelEnv` as a `TeamEnv`.

This is the general path: it pays PettingZoo's dict per agent once, at this border, and hands on arrays. MAgent2 has a
faster one in `gridworld.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_shared.envs.critic_observation import CriticObservationChoice
from rllib_shared.envs.game import Game
from rllib_shared.envs.team_env import (
    ACTION_MASK,
    OBSERVATION,
    ModuleStep,
    StepBuffers,
    TeamEnv,
    TeamStep,
    num_actions,
)
from rllib_shared.sharing import SharingChoice
from rllib_shared.teams import Teams, TeamsChoice


class ParallelTeamEnv(TeamEnv):
    """A PettingZoo `ParallelEnv`, stepped with arrays.

    Action masks are taken from `observation["action_mask"]` or `info["action_mask"]`, PettingZoo's two styles.

    Args:
        env: the environment; it is reset once here, to look at its agents and its state.
        teams: see `Teams.build`.
        sharing: see `Teams.build`.
        critic_observation: see `make_observer`.
        game: what is known about the environment beyond PettingZoo's interface.
        critic_sharing: see `Teams.build`.

    Raises:
        ValueError: spaces that are not arrays, teams that do not fit, no usable `state()`, or weights per agent for
            agents without bound.
    """

    def __init__(
        self,
        env: Any,
        teams: TeamsChoice = None,
        sharing: SharingChoice = "team",
        critic_observation: CriticObservationChoice = "state",
        game: Game | None = None,
        critic_sharing: SharingChoice | None = None,
    ) -> None:
        self.env = env
        self.name = str(env.metadata.get("name", type(env.unwrapped).__name__))
        observations, infos = env.reset()
        self._check_agents(observations)
        agents = list(getattr(env, "possible_agents", None) or env.agents)
        if "agent" in (sharing, critic_sharing) and not getattr(env, "possible_agents", None):
            raise ValueError(
                f"{self.name} does not say in possible_agents which agents there can be, so weights per agent would "
                'have no bound; share by "team", or list all agents in possible_agents'
            )
        self._mask_in_observation = isinstance(env.observation_space(agents[0]), gym.spaces.Dict)
        self.masked = self._mask_in_observation or any(ACTION_MASK in info for info in infos.values())
        self.teams = Teams.build(
            {agent: self._observation_space(agent) for agent in agents},
            {agent: self._action_space(agent) for agent in agents},
            teams,
            sharing,
            critic_sharing,
        )
        self._slots = {
            agent: (module_id, row)
            for module_id, slots in self.teams.modules.items()
            for row, agent in enumerate(slots.agents)
        }
        self._game = game or Game(env)
        self._observer = self._game.make_observer(critic_observation, self.teams, self.name)
        self.critic_spaces = dict(self._observer.spaces)
        self.noop_action = self._game.noop_action(self.teams)
        self._living: list[str] = []

    def render(self) -> np.ndarray | None:
        """The environment's own frame."""
        return self._game.render()

    def close(self) -> None:
        """Close the environment."""
        self._game.close()

    def _reset(self, seed: int | None, out: StepBuffers) -> TeamStep:
        observations, infos = self.env.reset(seed=seed)
        self._game.after_reset()
        self._check_agents(observations)
        self._observer.start_episode()
        self._living = list(self.env.agents)
        modules = self._empty_modules(out)
        self._fill(modules, observations, infos)
        self._observer.write(modules, out.critic_observation, terminal=False)
        return TeamStep(modules, dict(out.critic_observation))

    def _step(self, actions: Mapping[str, np.ndarray], out: StepBuffers) -> TeamStep:
        chosen = {agent: actions[module_id][row] for agent, (module_id, row) in self._rows(self._living)}
        observations, rewards, terminations, truncations, infos = self.env.step(chosen)
        acted, self._living = self._living, list(self.env.agents)
        self._check_agents(observations)
        # Read before the caller's buffers are cleared, which may be those of the step before.
        last_seen = {
            agent: self._last_observation[module_id][row].copy()
            for agent, (module_id, row) in self._rows(acted)
            if agent not in observations
        }
        modules = self._empty_modules(out)
        for agent, (module_id, row) in self._rows(acted):
            part = modules[module_id]
            part.reward[row] = rewards.get(agent, 0.0)
            part.terminated[row] = terminations.get(agent, False)
            # An agent that is gone without a flag was cut off: its last observation is all there is to bootstrap from.
            part.truncated[row] = truncations.get(agent, agent not in self._living and agent not in terminations)
            if agent in last_seen:
                part.observation[row] = last_seen[agent]
        self._fill(modules, observations, infos)
        over = not self._living
        terminal = over and not any((part.truncated & ~part.terminated).any() for part in modules.values())
        self._observer.write(modules, out.critic_observation, terminal)
        assert self._alive is not None
        outcome = self._game.outcome(self.teams, modules, self._alive) if over else None
        return TeamStep(modules, dict(out.critic_observation), over, outcome)

    def _rows(self, agents: list[str]) -> list[tuple[str, tuple[str, int]]]:
        return [(agent, self._slots[agent]) for agent in agents]

    def _empty_modules(self, out: StepBuffers) -> dict[str, ModuleStep]:
        modules = {}
        for module_id, slots in self.teams.modules.items():
            n = slots.num_slots
            out.observation[module_id].fill(0.0)
            mask = np.ones((n, num_actions(slots.action_space)), bool) if self.masked else None
            modules[module_id] = ModuleStep(
                observation=out.observation[module_id],
                alive=np.zeros(n, bool),
                reward=np.zeros(n, np.float32),
                terminated=np.zeros(n, bool),
                truncated=np.zeros(n, bool),
                action_mask=mask,
            )
        return modules

    def _fill(self, modules: dict[str, ModuleStep], observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Write observations, masks and who is alive."""
        for agent, observation in observations.items():
            module_id, row = self._slots[agent]
            part = modules[module_id]
            value = observation[OBSERVATION] if self._mask_in_observation else observation
            part.observation[row] = value
            if part.action_mask is not None:
                mask = observation[ACTION_MASK] if self._mask_in_observation else infos[agent].get(ACTION_MASK)
                if mask is not None:
                    part.action_mask[row] = np.asarray(mask, bool)
        for _agent, (module_id, row) in self._rows(self._living):
            modules[module_id].alive[row] = True
        self._last_observation = {module_id: part.observation for module_id, part in modules.items()}

    def _observation_space(self, agent: str) -> gym.Space:
        space = self.env.observation_space(agent)
        if isinstance(space, gym.spaces.Dict):
            if set(space.spaces) != {OBSERVATION, ACTION_MASK}:
                raise ValueError(
                    f"{self.name}: agent {agent!r} has a Dict observation with keys {sorted(space.spaces)}; only "
                    f"Dict({OBSERVATION}, {ACTION_MASK}) is supported, so flatten the others into one array"
                )
            space = space[OBSERVATION]
        if not isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
            raise ValueError(f"{self.name}: observation space {space} of agent {agent!r} is not supported; use a Box")
        return space

    def _action_space(self, agent: str) -> gym.Space:
        space = self.env.action_space(agent)
        if not isinstance(space, gym.spaces.Box | gym.spaces.Discrete):
            raise ValueError(
                f"{self.name}: action space {space} of agent {agent!r} is not supported; use Discrete or Box"
            )
        if isinstance(space, gym.spaces.Discrete) and int(space.start) != 0:
            raise ValueError(f"{self.name}: action space {space} of agent {agent!r} must start at 0")
        return space

    def _check_agents(self, observations: Mapping[str, Any]) -> None:
        if getattr(self, "_slots", None) is None:
            return
        new = [agent for agent in observations if agent not in self._slots]
        if new:
            raise ValueError(
                f"{self.name}: agents {new} were not in possible_agents; a slot is needed for every agent, so the "
                "environment must list all agents that can ever appear"
            )
