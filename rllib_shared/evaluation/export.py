"""From a checkpoint to one agent's policy as files, for programs that know nothing of teams, nor of this package."""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from torch import nn

from rllib_shared.envs.team_env import ACTION_MASK, OBSERVATION
from rllib_shared.evaluation.policies import TeamPolicies, load_policies
from rllib_shared.messages import unknown
from rllib_shared.modules.centralized_critic import CentralizedCriticModule
from rllib_shared.modules.distributions import LOG_STD_RANGE, MASKED_LOGIT
from rllib_shared.modules.single_agent import single_agent_module
from rllib_shared.sampling.acting import ActionScaling
from rllib_shared.teams import ModuleSlots

DESCRIPTION, TORCHSCRIPT = "policy.json", "policy.pt"
UNSCALED = "x"
_PACKAGES = ("rllib_shared", "ray", "torch", "numpy")


def export_policy(
    checkpoint: str | Path | TeamPolicies,
    *,
    agent: str | None = None,
    policy: str | None = None,
    out: str | Path,
) -> Path:
    """Write one agent's policy, which then acts on that agent's observations alone.

    The folder holds:

    - an RLModule checkpoint (`class_and_ctor_args.pkl`, `module_state.pkl`, `metadata.json`): an inference-only
      `CentralizedCriticModule` of one weight set, without slots and ids. `RLModule.from_checkpoint(folder)` loads it
      without starting Ray, and its `forward_inference({"obs": obs})["action_dist_inputs"]` are the action logits.
      `obs` is the observation `[B, ...]`, or `{"observation": [B, ...], "action_mask": bool [B, A]}` where the
      training masked actions;
    - `policy.pt`: the same as TorchScript, `torch.jit.load(file)(observation[, action_mask]) -> [B, D]`, which needs
      torch only;
    - `policy.json`: whose policy it is, shapes and dtypes, what the D numbers mean, how actions are scaled, versions.

    The most probable action is `argmax` of the logits for Discrete actions, and the first half of them for a Box
    (means, in [-1, 1] if `policy.json` says that actions are normalized).

    Args:
        checkpoint: a checkpoint, trial or run folder, or loaded policies.
        agent: whose policy; with weights per agent or agent ids they are that agent's own, the id folded in.
        policy: instead of an agent, a policy id or the name of a weight set (of a group, a role, ...) whose agents all
            have the same policy.
        out: the folder; new, empty, or an earlier export, which is overwritten.

    Returns:
        The folder, absolute.

    Raises:
        FileNotFoundError: no checkpoint there.
        FileExistsError: `out` holds something else.
        ValueError: not one of agent and policy; unknown names; a policy whose agents differ; a module of another class.
    """
    if (agent is None) == (policy is None):
        raise ValueError(f"give either agent=... or policy=..., got agent={agent!r} and policy={policy!r}")
    policies = checkpoint if isinstance(checkpoint, TeamPolicies) else load_policies(checkpoint)
    modules = policies.training.teams.modules
    slots, slot = _of_agent(modules, agent) if agent is not None else _of_policy(policies, str(policy))
    module = _module(policies, slots.module_id)
    folder = _new_folder(out)
    single = single_agent_module(module, slot)
    single.save_to_path(folder.as_posix())
    _save_torchscript(single, folder / TORCHSCRIPT)
    description = {
        "agent": agent,
        "policy": slots.module_id,
        "weight_set": slots.weight_sets[slots.weight_index[slot]],
        "checkpoint": str(policies.path),
        **_description(single, policies.training.scaling),
    }
    # Written last: a folder that has it is complete.
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2))
    return folder


def usage(folder: Path) -> str:
    """Three lines of Python that act with an exported policy."""
    description = json.loads((folder / DESCRIPTION).read_text())
    arrays = {key: description[key] for key in (OBSERVATION, ACTION_MASK) if description[key] is not None}
    shapes = ", ".join(f"{array['dtype']} [{', '.join(map(str, ['B', *array['shape']]))}]" for array in arrays.values())
    action = "logits.argmax(-1)" if description["scaling"] is None else "logits.chunk(2, -1)[0]"
    then = "" if description["scaling"] in (None, UNSCALED) else f"  # x; then {description['scaling']}"
    return (
        f"policy = torch.jit.load({str(folder / TORCHSCRIPT)!r})\n"
        f"logits = policy({', '.join(arrays)})  # {shapes}\n"
        f"action = {action}{then}"
    )


def _of_agent(modules: Mapping[str, ModuleSlots], agent: str) -> tuple[ModuleSlots, int]:
    """An agent's module and its slot there."""
    for slots in modules.values():
        if agent in slots.agents:
            return slots, slots.agents.index(agent)
    raise ValueError(unknown("agent", agent, [agent for slots in modules.values() for agent in slots.agents]))


def _of_policy(policies: TeamPolicies, name: str) -> tuple[ModuleSlots, int]:
    """The module and one slot of agents who all act alike, by the name of their weight set or policy."""
    modules = policies.training.teams.modules
    sets = {weight_set: slots for slots in modules.values() for weight_set in slots.weight_sets}
    slots = sets.get(name) or modules.get(name)
    if slots is None:
        raise ValueError(unknown("policy", name, dict.fromkeys([*modules, *sets])))
    if name not in sets and len(slots.weight_sets) > 1:
        raise ValueError(f"policy {name!r} has {len(slots.weight_sets)} weight sets; give agent=...{_or_set(slots)}")
    weight_set = slots.weight_sets.index(name) if name in sets else 0
    members = np.flatnonzero(slots.weight_index == weight_set)
    if len(members) > 1 and _module(policies, slots.module_id).actor.agent_id is not None:
        raise ValueError(f"policy {name!r} tells its {len(members)} agents apart by their ids; give agent=...")
    return slots, int(members[0])


def _or_set(slots: ModuleSlots) -> str:
    """A hint at weight sets of several agents, where there are some."""
    several = [name for i, name in enumerate(slots.weight_sets) if (slots.weight_index == i).sum() > 1]
    return f" or policy={several[0]!r}" if several else ""


def _module(policies: TeamPolicies, module_id: str) -> CentralizedCriticModule:
    module = policies.modules.get(module_id)
    if module is None:
        raise ValueError(
            f"policy {module_id!r} of {policies.path} was not loaded; give load_policies() its name too, or "
            "export_policy() the checkpoint's path"
        )
    if type(module) is not CentralizedCriticModule:
        raise ValueError(
            f"policy {module_id!r} of {policies.path} is a {type(module).__name__}; only a CentralizedCriticModule "
            "can be exported, as others may compute their actions in another way"
        )
    return module


def _new_folder(out: str | Path) -> Path:
    folder = Path(out).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; give a folder to export into")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / DESCRIPTION).is_file():
        raise FileExistsError(f"{folder} is not empty and no earlier export; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DESCRIPTION).unlink(missing_ok=True)
    return folder


class _ArraysOnly(nn.Module):
    """A module as TorchScript wants it: arrays in, an array out."""

    def __init__(self, module: CentralizedCriticModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, observation: torch.Tensor, action_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Distribution inputs `[B, D]`."""
        obs = {OBSERVATION: observation}
        if action_mask is not None:
            obs[ACTION_MASK] = action_mask
        return self.module._forward_inference({Columns.OBS: obs})[Columns.ACTION_DIST_INPUTS]


def _save_torchscript(single: CentralizedCriticModule, file: Path) -> None:
    example = tuple(
        torch.zeros((2, *(space.shape or ())), dtype=torch.bool if key == ACTION_MASK else torch.float32)
        for key, space in _parts(single.observation_space).items()
    )
    with warnings.catch_warnings(), torch.no_grad():
        # Torch now prefers torch.export, whose files run in Python only; TorchScript also runs in C++.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(_ArraysOnly(single), example).save(str(file))


def _parts(space: gym.Space) -> dict[str, gym.Space]:
    """Spaces of the arrays that a policy takes, in their order."""
    if not isinstance(space, gym.spaces.Dict):
        return {OBSERVATION: space}
    return {key: space[key] for key in (OBSERVATION, ACTION_MASK)}


def _description(single: CentralizedCriticModule, scaling: ActionScaling) -> dict[str, Any]:
    """What `policy.json` says of the module itself."""
    parts = _parts(single.observation_space)
    return {
        "observation": {"shape": list(parts[OBSERVATION].shape or ()), "dtype": "float32"},
        "action_mask": {"shape": list(parts[ACTION_MASK].shape or ()), "dtype": "bool"} if len(parts) > 1 else None,
        **_action(single.action_space, scaling),
        "model_config": single.model_config,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    }


def _action(space: gym.Space, scaling: ActionScaling) -> dict[str, Any]:
    """The action space, what the policy's numbers mean, and how they become an action."""
    if isinstance(space, gym.spaces.Discrete):
        return {
            "action": {"type": "discrete", "n": int(space.n), "dtype": "int64"},
            "distribution": {"type": "categorical", "inputs": int(space.n), "masked_logit": MASKED_LOGIT},
            "scaling": None,
        }
    assert isinstance(space, gym.spaces.Box)
    low, high = (_numbers(bound) for bound in (space.low, space.high))
    return {
        "action": {"type": "box", "shape": list(space.shape), "dtype": "float32", "low": low, "high": high},
        "distribution": {
            "type": "gaussian",
            "inputs": 2 * int(np.prod(space.shape)),
            "order": ["mean", "log_std"],
            "log_std_clamped_to": list(LOG_STD_RANGE),
        },
        "scaling": _formula(space, scaling),
    }


def _numbers(bound: np.ndarray) -> Any:
    """Nested lists with None for infinity, which JSON does not have."""
    numbers = bound.astype(object)
    numbers[~np.isfinite(bound)] = None
    return numbers.tolist()


def _formula(space: gym.spaces.Box, scaling: ActionScaling) -> str:
    """`ActionScaling` in words, from the policy's x to the environment's action."""
    if scaling.normalize and space.is_bounded():
        return "clip(low + (x + 1) / 2 * (high - low), low, high)"
    return "clip(x, low, high)" if scaling.clip else UNSCALED
