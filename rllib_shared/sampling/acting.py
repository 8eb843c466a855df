"""Modules + observations -> actions: the one acting code, for the runner and for evaluation.

Arrays have the layout `[E, N, ...]`: E env copies, N slots of a module. One forward pass per module acts for all
living agents of all copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.torch import TorchRLModule

from rllib_shared.envs.team_env import ACTION_MASK, NO_ACTION, OBSERVATION
from rllib_shared.modules.centralized_critic import SLOT
from rllib_shared.teams import ModuleSlots

EXPLORE, DETERMINISTIC, RANDOM = "explore", "deterministic", "random"


class NonFiniteLogits(ValueError):
    """A network gave NaN or infinite action logits; `row` is the first such living row `[copy, slot]`."""

    def __init__(self, module_id: str, row: tuple[int, int], from_observation: bool) -> None:
        self.module_id = module_id
        self.row = row
        self.from_observation = from_observation
        super().__init__(f"module {module_id!r} gave non-finite action logits for copy {row[0]}, slot {row[1]}")


@dataclass
class ActionArrays:
    """What acting writes, per module.

    Attributes:
        action: int64 `[E, N]` or float32 `[E, N, ...]`, as the policy chose it; `NO_ACTION` or NaN for slots that do
            not act.
        env_action: what the environment gets; the same array unless actions are scaled to a Box.
        dist_inputs: float32 `[E, N, D]`, the policy's distribution; 0 for slots that do not act.
        logp: float32 `[E, N]`, log-probability of the action; 0 for slots that do not act.
    """

    action: np.ndarray
    env_action: np.ndarray
    dist_inputs: np.ndarray
    logp: np.ndarray


@dataclass(frozen=True)
class ActionScaling:
    """How a policy's continuous action becomes the environment's, as RLlib's `normalize_actions`/`clip_actions` do.

    Attributes:
        normalize: the policy acts in [-1, 1]; stretch to the space's bounds (bounded spaces only) and clip.
        clip: clip to the bounds.
    """

    normalize: bool = True
    clip: bool = False

    def __call__(self, actions: np.ndarray, space: gym.Space) -> np.ndarray:
        """Actions `[R, ...]` for the environment."""
        if not isinstance(space, gym.spaces.Box):
            return actions
        if self.normalize and space.is_bounded():
            return np.clip(_stretch(actions, space), space.low, space.high).astype(np.float32)
        if self.clip:
            return np.clip(actions, space.low, space.high).astype(np.float32)
        return actions

    def unscaled(self, unit: np.ndarray, space: gym.Space) -> np.ndarray:
        """The policy's actions that reach all of a bounded Box, from `unit` actions in [-1, 1]."""
        assert isinstance(space, gym.spaces.Box)
        return unit if self.normalize or not space.is_bounded() else _stretch(unit, space).astype(np.float32)


def _stretch(unit: np.ndarray, space: gym.spaces.Box) -> np.ndarray:
    """[-1, 1] to the bounds of a Box."""
    return space.low + (unit + 1.0) * 0.5 * (space.high - space.low)


class ModuleActor:
    """Acts for the agents of one module.

    Args:
        module: the RLModule; may be None if only random actions are asked for.
        slots: its agents.
        scaling: see `ActionScaling`.
        trained_slot: int64 `[N]`, the slot that each agent had in training, by which a module with weights per agent
            or agent ids knows it; None: the same as here.
    """

    def __init__(
        self,
        module: TorchRLModule | None,
        slots: ModuleSlots,
        scaling: ActionScaling,
        trained_slot: np.ndarray | None = None,
    ) -> None:
        self.module = module.eval() if module is not None else None
        self.slots = slots
        self._device = next(module.parameters()).device if module is not None else torch.device("cpu")
        self._scaling = scaling
        self._slot = torch.from_numpy(np.arange(slots.num_slots) if trained_slot is None else trained_slot)
        self._discrete = isinstance(slots.action_space, gym.spaces.Discrete)

    def make_arrays(self, *leading: int) -> ActionArrays:
        """New arrays with these leading dimensions before `[N, ...]`, e.g. `[T, E]`."""
        space, shape = self.slots.action_space, (*leading, self.slots.num_slots)
        if self._discrete:
            action = np.full(shape, NO_ACTION, np.int64)
            env_action = action
            inputs = int(space.n)  # type: ignore[attr-defined]
        else:
            action = np.full((*shape, *(space.shape or ())), np.nan, np.float32)
            env_action = action.copy()
            inputs = 2 * int(np.prod(space.shape or ()))
        return ActionArrays(action, env_action, np.zeros((*shape, inputs), np.float32), np.zeros(shape, np.float32))

    def act(
        self,
        observation: np.ndarray,
        acting: np.ndarray,
        action_mask: np.ndarray | None,
        mode: str,
        out: ActionArrays,
        generator: torch.Generator | None = None,
    ) -> None:
        """Choose actions for the slots that act, and write them into `out`.

        Args:
            observation: float32 `[E, N, ...]`.
            acting: bool `[E, N]`.
            action_mask: bool `[E, N, A]` or None.
            mode: `EXPLORE` samples from the policy, `DETERMINISTIC` takes its mode, `RANDOM` ignores it.
            out: freshly made arrays `[E, N, ...]`.
            generator: random numbers; None uses torch's global ones.

        Raises:
            NonFiniteLogits: NaN or inf came out of the network.
        """
        everyone = bool(acting.all())
        rows = observation.reshape(-1, *observation.shape[2:]) if everyone else observation[acting]
        if not len(rows):
            return
        mask = None if action_mask is None else torch.from_numpy(action_mask[acting])
        with torch.inference_mode():
            if mode == RANDOM:
                action, inputs, logp = self._random(len(rows), mask, generator)
            else:
                slot = self._slot.expand(acting.shape)[torch.from_numpy(acting)]
                action, inputs, logp = self._policy(rows, mask, slot, mode, generator)
        if not np.isfinite(logp).all():
            bad = int(np.flatnonzero(~np.isfinite(logp))[0])
            copy, slot = np.argwhere(acting)[bad]
            finite = bool(np.isfinite(rows[bad]).all())
            raise NonFiniteLogits(self.slots.module_id, (int(copy), int(slot)), not finite)
        written = [(out.action, action), (out.dist_inputs, inputs), (out.logp, logp)]
        if out.env_action is not out.action:
            written.append((out.env_action, self._scaling(action, self.slots.action_space)))
        for array, values in written:
            if everyone:
                array[...] = values.reshape(array.shape)
            else:
                array[acting] = values

    def _policy(
        self,
        rows: np.ndarray,
        mask: torch.Tensor | None,
        slot: torch.Tensor,
        mode: str,
        generator: torch.Generator | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        module = self.module
        assert module is not None
        obs = {OBSERVATION: torch.from_numpy(rows).to(self._device)}
        if mask is not None:
            obs[ACTION_MASK] = mask.to(self._device)
        batch = {Columns.OBS: obs, SLOT: slot.to(self._device)}
        # forward_exploration() would walk all submodules twice per step to switch to eval mode, where they are already.
        if mode == EXPLORE:
            inputs = module._forward_exploration(batch)[Columns.ACTION_DIST_INPUTS]
            distribution = module.get_exploration_action_dist_cls().from_logits(inputs)
            action = distribution.sample(generator=generator)
        else:
            inputs = module._forward_inference(batch)[Columns.ACTION_DIST_INPUTS]
            distribution = module.get_inference_action_dist_cls().from_logits(inputs)
            action = distribution.to_deterministic().sample()
        logp = distribution.logp(action)
        return action.cpu().numpy(), inputs.cpu().numpy(), logp.cpu().numpy()

    def _random(
        self, count: int, mask: torch.Tensor | None, generator: torch.Generator | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Uniform over the allowed actions, or over the Box (over [-1, 1] where it has no bounds)."""
        space = self.slots.action_space
        if not self._discrete:
            size = int(np.prod(space.shape or ()))
            unit = torch.rand((count, *(space.shape or ())), generator=generator).numpy() * 2 - 1
            return (
                self._scaling.unscaled(unit, space),
                np.zeros((count, 2 * size), np.float32),
                np.zeros(count, np.float32),
            )
        n = int(space.n)  # type: ignore[attr-defined]
        race = torch.rand((count, n), generator=generator)
        action = (race if mask is None else race.masked_fill(~mask, -1.0)).argmax(-1)
        return action.numpy(), np.zeros((count, n), np.float32), np.zeros(count, np.float32)


def make_actors(
    modules: Mapping[str, TorchRLModule] | None,
    slots: Mapping[str, ModuleSlots],
    scaling: ActionScaling,
    trained_slots: Mapping[str, np.ndarray] | None = None,
) -> dict[str, ModuleActor]:
    """One `ModuleActor` per module; see there."""
    return {
        module_id: ModuleActor(
            None if modules is None else modules[module_id], module_slots, scaling, (trained_slots or {}).get(module_id)
        )
        for module_id, module_slots in slots.items()
    }
