"""The same work as RLlib does it, as fast as its settings allow: the rows that begin with `stock`.

RLlib's own `MultiAgentEnvRunner`, connectors and learner; one policy per team, or per agent for `stock_agent`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rllib_shared.benchmark.work import TRAINING, Work
from rllib_shared.envs.critic_observation_env import CriticObservationEnv
from rllib_shared.envs.team_env import TeamStep
from rllib_shared.modules.centralized_critic import CentralizedCriticModule
from rllib_shared.teams import PolicyMapping, Teams


class FlatObservationEnv(CriticObservationEnv):
    """Each agent observes its own observation as one flat vector, which RLlib's default MLP reads as it is.

    Args:
        config: see `CriticObservationEnv`; the critic observation is always `"own"`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__({**config, "critic_observation": "own"})
        spaces: dict[str, Any] = {
            agent: gym.spaces.Box(-np.inf, np.inf, (gym.spaces.flatdim(space["observation"]),), np.float32)
            for agent, space in self.observation_spaces.items()
        }
        self.observation_spaces = spaces

    def _observations(self, step: TeamStep, acted: Mapping[str, np.ndarray]) -> dict[str, Any]:
        observations = {}
        for module_id, slots in self.team_env.teams.modules.items():
            part = step.modules[module_id]
            flat = part.observation.reshape(slots.num_slots, -1)
            for slot in np.flatnonzero(part.alive | acted[module_id]):
                observations[slots.agents[slot]] = flat[slot]
        return observations


def stock_config(work: Work) -> PPOConfig:
    """RLlib's default PPO module, whose critic sees what the actor sees."""
    return _config(work, FlatObservationEnv, {}, _default_module(work))


def stock_agent_config(work: Work) -> PPOConfig:
    """The same with one policy per agent.

    RLlib fills `minibatch_size` rows of each policy by cycling its data until the policy with most rows is covered, so
    it trains more rows than there are: the rates count rows trained.
    """
    config = _config(work, FlatObservationEnv, {}, _default_module(work), _policy_per_agent)
    # An agent has one row per env step, so a minibatch covers the env steps that ours do.
    config.training(minibatch_size=work.minibatch_env_steps)
    # Otherwise each of the many gradients is checked for NaN twice.
    config.framework(torch_skip_nan_gradients=True)
    return config


def stock_central_config(work: Work) -> PPOConfig:
    """RLlib with our module, and the state in every agent's observation."""
    model = {"hidden": [work.hidden] * 2, "encoder": "mlp", "critic_encoder": "mlp"}
    spec = RLModuleSpec(module_class=CentralizedCriticModule, model_config=model)
    return _config(work, CriticObservationEnv, {"critic_observation": "state"}, spec)


def _default_module(work: Work) -> RLModuleSpec:
    model = DefaultModelConfig(
        fcnet_hiddens=[work.hidden] * 2, fcnet_activation="relu", head_fcnet_hiddens=[], vf_share_layers=False
    )
    return RLModuleSpec(model_config=model)


def _policy_per_team(teams: Teams) -> PolicyMapping:
    return teams.policy_mapping_fn


def _policy_per_agent(teams: Teams) -> PolicyMapping:
    return PolicyMapping({agent: agent for agents in teams.agents.values() for agent in agents})


def _config(
    work: Work,
    env: type[CriticObservationEnv],
    options: Mapping[str, Any],
    module: RLModuleSpec,
    policies: Callable[[Teams], PolicyMapping] = _policy_per_team,
) -> PPOConfig:
    env_config = {"env": work.env, "env_config": dict(work.env_config), **options}
    # Made here only to be asked who is in which team.
    made = env(env_config)
    mapping = policies(made.team_env.teams)
    made.close()
    config = PPOConfig()
    config.environment(env, env_config=env_config, disable_env_checking=True, normalize_actions=False)
    config.environment(clip_actions=False)
    config.multi_agent(policies=set(mapping.module_of.values()), policy_mapping_fn=mapping)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=work.num_envs)
    config.learners(num_learners=0)
    config.training(
        **TRAINING,
        train_batch_size_per_learner=work.env_steps,
        minibatch_size=work.minibatch_rows_per_policy,
        num_epochs=work.epochs,
    )
    config.rl_module(rl_module_spec=module)
    config.debugging(seed=work.seed, log_level="ERROR")
    # RLlib compares minibatch_size, which it counts in rows of a policy, with the train batch in env steps.
    config.experimental(_validate_config=False)
    return config
