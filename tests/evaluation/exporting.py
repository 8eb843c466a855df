"""Policies with random weights, episodes that they see, and what an exported policy answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.core.rl_module.rl_module import RLModule

from rllib_shared import TeamPPOConfig
from rllib_shared.envs.team_env import ModuleStep
from rllib_shared.evaluation.policies import TeamPolicies, Training
from rllib_shared.modules.opponents import ModuleView, make_opponent
from rllib_shared.sampling.acting import ActionScaling

Game = tuple[str, dict[str, Any], dict[str, Any]]  # environment, env_config, model_config
BATTLE = ("battle_v4", {"map_size": 16, "max_cycles": 30, "mask_attacks": True}, {"encoder": "mlp"})
BATTLE_CNN = ("battle_v4", {"map_size": 16, "max_cycles": 15}, {"encoder": "cnn", "conv_filters": [[4, 3, 2]]})
SPREAD = ("simple_spread_v3", {"continuous_actions": True, "max_cycles": 10}, {})
DEATHS = {"deaths": {"red_1": 2, "blue_0": 4}, "max_cycles": 8}
MASK_IN_INFO = ("masked_teams", {**DEATHS, "mask_in": "info"}, {})
MASK_IN_OBSERVATION = ("masked_teams", {**DEATHS, "mask_in": "observation"}, {})
GROUPS = {"scouts": ["red_0", "blue_[01]"], "rest": ["red_[!0]*", "blue_[!01]*"]}


def config_of(game: Game, sharing: Any, agent_id: bool | str) -> TeamPPOConfig:
    env, env_config, model_config = game
    config = TeamPPOConfig().environment(env, env_config=env_config).teams(sharing=sharing, agent_id=agent_id)
    config.training(train_batch_size_per_learner=30, minibatch_size=15, num_epochs=1).debugging(seed=3)
    return config.rl_module(model_config={"hidden": [16, 8], "critic_encoder": "mlp", **model_config})


def random_policies(config: TeamPPOConfig) -> TeamPolicies:
    """As `load_policies` gives them, with random weights: all of them, as biases begin at 0 and would hide mistakes."""
    config.validate()
    env = config.make_team_env()
    modules = dict(config.get_multi_rl_module_spec(spaces=env.module_spaces(), inference_only=True).build().items())
    env.close()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in (parameter for module in modules.values() for parameter in module.parameters()):
            parameter.normal_(0, 0.5, generator=generator)
    training = Training(
        env=config.env,
        env_config=config.env_config,
        team_choice=None,
        sharing=config.sharing,
        critic_sharing=None,
        scaling=ActionScaling(),
        teams=config.team_layout,
    )
    return TeamPolicies(modules, training, Path("checkpoint"))


@dataclass
class Played:
    """What a module's agents saw, `[T, N, ...]`, and what the team module made of it."""

    observation: np.ndarray
    action_mask: np.ndarray | None
    alive: np.ndarray
    inputs: np.ndarray
    greedy: np.ndarray

    def rows(self, of: tuple[Any, ...]) -> tuple[list[torch.Tensor], np.ndarray, np.ndarray]:
        """The arrays that an exported policy takes, distribution inputs and greedy actions of steps and slots."""
        arrays = [array[of] for array in (self.observation, self.action_mask) if array is not None]
        return [torch.from_numpy(array) for array in arrays], self.inputs[of], self.greedy[of]


def play(policies: TeamPolicies) -> dict[str, Played]:
    """One episode, per module; the moves of a battle are those of the greedy opponent, so that agents die."""
    env = policies.make_team_env()
    mover = make_opponent("greedy", env) if env.name == "battle_v4" else policies
    generator = torch.Generator().manual_seed(1)
    step = env.reset(seed=5)
    seen: dict[str, list[tuple[Any, ...]]] = {module_id: [] for module_id in policies.modules}
    while not step.over:
        greedy = policies.act(step, deterministic=True)
        views = {module_id: view_of(part) for module_id, part in step.modules.items()}
        for module_id, view in views.items():
            inputs = team_inputs(policies.modules[module_id], view)
            part = step.modules[module_id]
            seen[module_id].append((part.observation, part.action_mask, part.alive, inputs, greedy[module_id]))
        moves = mover.act(views, generator=generator)
        step = env.step({module_id: actions[0] for module_id, actions in moves.items()})
    env.close()
    return {module_id: Played(*map(stacked, zip(*steps, strict=True))) for module_id, steps in seen.items()}


def stacked(column: Sequence[Any]) -> Any:
    """Steps as one array; None for masks that are not there."""
    return None if column[0] is None else np.stack(column)


def view_of(part: ModuleStep) -> ModuleView:
    """What the agents of a module see, as of one env copy."""
    mask = None if part.action_mask is None else part.action_mask[None]
    return ModuleView(part.observation[None], part.alive[None], mask)


def team_inputs(module: Any, view: ModuleView) -> np.ndarray:
    """Distribution inputs `[N, D]` of the team module."""
    obs = {"observation": view.observation, "action_mask": view.action_mask}
    batch = {key: torch.from_numpy(array) for key, array in obs.items() if array is not None}
    with torch.no_grad():
        inputs = module.forward_inference({"obs": batch, "alive": torch.from_numpy(view.acting)})
    return inputs["action_dist_inputs"][0].numpy()


def greedy_action(folder: Path, inputs: np.ndarray) -> np.ndarray:
    """By what policy.json says."""
    said = json.loads((folder / "policy.json").read_text())
    if said["distribution"]["type"] == "categorical":
        return inputs.argmax(-1)
    bounds = {name: np.array(said["action"][name], np.float32) for name in ("low", "high")}
    return eval(said["scaling"], {"clip": np.clip, "x": np.split(inputs, 2, axis=-1)[0], **bounds})


def exported(folder: Path) -> list[Callable[[list[torch.Tensor]], np.ndarray]]:
    """The RLModule and the TorchScript: functions from arrays to distribution inputs."""
    module, script = RLModule.from_checkpoint(folder), torch.jit.load(str(folder / "policy.pt"))

    def by_module(arrays: list[torch.Tensor]) -> np.ndarray:
        obs = arrays[0] if len(arrays) == 1 else {"observation": arrays[0], "action_mask": arrays[1]}
        return module.forward_inference({"obs": obs})["action_dist_inputs"].detach().numpy()

    return [by_module, lambda arrays: script(*arrays).detach().numpy()]
