"""One agent's module out of one that acts for many: one weight set, no slots, no agent id, no critic."""

from __future__ import annotations

import gymnasium as gym
import torch
from ray.util import log_once

from rllib_shared.envs.team_env import ACTION_MASK, OBSERVATION
from rllib_shared.modules.centralized_critic import CentralizedCriticModule
from rllib_shared.modules.networks import Actor
from rllib_shared.modules.stacked import StackedConv2d, StackedLinear

# What model_config says about the agents of a module; without it the networks are those of one agent.
_OF_MANY = {"agent_id", "critic_agent_id", "num_slots", "team_index", "weight_index", "critic_weight_index"}


def single_agent_module(module: CentralizedCriticModule, slot: int) -> CentralizedCriticModule:
    """What `module` does for one of its agents, as an inference-only module on the CPU.

    It takes RLlib's layout without a `slot`: `obs` is the observation `[B, ...]`, or, where the training masked
    actions, `{"observation": [B, ...], "action_mask": [B, A]}`. Its action logits are those of `module`: bit for bit
    where the agents share one weight set and have no ids, otherwise up to the order in which numbers are added.

    Args:
        module: with or without its critic.
        slot: of the agent.
    """
    # RLlib warns that its RLModule uses its own deprecated config class, which concerns nobody here.
    log_once("RLModule(config=[RLModuleConfig object])")
    single = CentralizedCriticModule(
        observation_space=_space_of_one(module.observation_space),
        action_space=module.action_space,
        inference_only=True,
        model_config={key: value for key, value in (module.model_config or {}).items() if key not in _OF_MANY},
    )
    single.set_state({f"actor.{name}": tensor for name, tensor in _weights_of(module.actor, slot).items()})
    return single.eval()


def _space_of_one(space: gym.Space) -> gym.Space:
    """What the actor reads: the observation, with the action mask if there is one."""
    if not isinstance(space, gym.spaces.Dict):
        return space
    parts = {key: space[key] for key in (OBSERVATION, ACTION_MASK) if key in space.spaces}
    return gym.spaces.Dict(parts) if ACTION_MASK in parts else parts[OBSERVATION]


def _weights_of(actor: Actor, slot: int) -> dict[str, torch.Tensor]:
    """The state of an `Actor` of one weight set that does for everybody what `actor` does for `slot`."""
    who = torch.tensor(slot, device=next(actor.parameters()).device)
    own = int(actor.sets.of(who.unsqueeze(0))) if actor.sets.number > 1 else 0
    weights: dict[str, torch.Tensor] = {}
    for name, layer in actor.named_modules():
        if isinstance(layer, StackedLinear):
            layer_weights = {"weight": layer.weight[own].T, "bias": layer.bias[own]}
        elif isinstance(layer, StackedConv2d):
            layer_weights = {"weight": layer.weight[own], "bias": layer.bias[own]}
        else:
            layer_weights = dict(layer.named_parameters(recurse=False))
        weights |= {f"{name}.{key}": tensor.detach().cpu() for key, tensor in layer_weights.items()}
    if actor.agent_id is not None:
        # The id is constant for one agent, so its part of the first layer is a part of the bias.
        first, size = weights["mlp.0.weight"], actor.features.size
        weights["mlp.0.weight"] = first[:, :size]
        weights["mlp.0.bias"] = weights["mlp.0.bias"] + first[:, size:] @ actor.agent_id(who).cpu()
    return weights
