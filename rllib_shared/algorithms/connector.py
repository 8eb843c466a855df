"""The learner's connector: fragments in, a train batch with advantages out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule

from rllib_shared.algorithms.advantages import advantages_and_targets, standardized
from rllib_shared.algorithms.batch import ADVANTAGES, VALUE_TARGETS, ModuleBatch, pack
from rllib_shared.envs.team_env import CRITIC_OBSERVATION, OBSERVATION
from rllib_shared.modules.centralized_critic import CRITIC_ROW, SLOT
from rllib_shared.sampling.fragment import TeamFragment
from rllib_shared.teams import ModuleSlots

# Rows per forward pass of the critic: large enough to be fast, small enough to keep the activations small.
_VALUE_CHUNK = 16384


class TeamAdvantages(ConnectorV2):
    """Packs living rows, computes values for every step and its successor, and adds GAE.

    Stands where RLlib has AddOneTsToEpisodesAndTruncate, its batching connectors and GeneralAdvantageEstimation.

    Args:
        slots: the agents of each module.
        gamma: discount of each module.
        lambda_: GAE's lambda of each module.
    """

    def __init__(
        self, slots: Mapping[str, ModuleSlots], gamma: Mapping[str, float], lambda_: Mapping[str, float]
    ) -> None:
        super().__init__()
        self._slots = slots
        self._gamma = gamma
        self._lambda = lambda_

    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: dict[str, Any],
        episodes: Sequence[TeamFragment],
        explore: bool | None = None,
        shared_data: dict | None = None,
        **kwargs: Any,
    ) -> dict[str, ModuleBatch]:
        """A `ModuleBatch` for each module."""
        fragments = [fragment for fragment in episodes if len(fragment)]
        if not fragments:
            raise ValueError("no env steps to learn from: all fragments are empty")
        return {
            module_id: self._module_batch(rl_module[module_id].unwrapped(), slots, fragments)
            for module_id, slots in self._slots.items()
        }

    def _module_batch(self, module: Any, slots: ModuleSlots, fragments: list[TeamFragment]) -> ModuleBatch:
        module_id = slots.module_id
        batch = pack(fragments, module_id, slots.teams, slots.team_index)
        values = self._values(module, batch)
        advantage, target = [], []
        first = 0
        for fragment in fragments:
            part = fragment.modules[module_id]
            count = int(part.alive.sum())
            value = np.zeros(part.alive.shape, np.float32)
            value[part.alive] = values[first : first + count]
            first += count
            advantage_of_slot, target_of_slot = advantages_and_targets(
                # What dead slots hold means nothing; zeros keep it out of the sums.
                np.where(part.alive, part.reward, 0.0),
                value,
                self._next_values(module, slots, fragment, value),
                part.terminated,
                part.truncated,
                self._gamma[module_id],
                self._lambda[module_id],
            )
            advantage.append(advantage_of_slot[part.alive])
            target.append(target_of_slot[part.alive])
        weight_index = slots.weight_index[batch.slot.numpy()]
        batch.columns[ADVANTAGES] = torch.from_numpy(
            standardized(np.concatenate(advantage), weight_index).astype(np.float32)
        )
        targets = np.concatenate(target)
        if not np.isfinite(targets).all():
            raise ValueError(
                f"the critic of module {module_id!r} gave NaN or inf; look for NaN in the critic observations of "
                f"the teams {list(slots.teams)}"
            )
        batch.columns[VALUE_TARGETS] = torch.from_numpy(targets)
        return batch

    def _values(self, module: Any, batch: ModuleBatch) -> np.ndarray:
        """Values float32 `[R]` of all living rows, some env steps at a time."""
        device = next(module.parameters()).device
        steps = len(batch.first_row) - 1
        pieces = max(1, -(-int(batch.first_row[-1]) // _VALUE_CHUNK))
        values = []
        with torch.inference_mode():
            for chunk in np.array_split(np.arange(steps), min(pieces, steps)):
                values.append(module.compute_values(batch.select(chunk, device)).cpu().numpy())
        return np.concatenate(values)

    def _next_values(self, module: Any, slots: ModuleSlots, fragment: TeamFragment, value: np.ndarray) -> np.ndarray:
        """Values float32 `[T, N]` of what each slot sees after each step: the next row's, or computed."""
        part = fragment.modules[slots.module_id]
        next_value = np.zeros_like(value)
        next_value[:-1] = value[1:]
        acts_after = np.concatenate([part.alive[1:], part.alive_after[None]])
        goes_on = part.alive & ~part.terminated & (acts_after | part.truncated)
        # The next row has a value unless it lies after the fragment, or starts another life of the slot.
        missing = goes_on & ~acts_after
        missing[:-1] |= goes_on[:-1] & part.truncated[:-1]
        missing[-1] |= goes_on[-1]
        step, slot = np.nonzero(missing)
        if len(step):
            next_value[step, slot] = self._bootstrap(module, slots, fragment, step, slot)
        return next_value

    def _bootstrap(
        self, module: Any, slots: ModuleSlots, fragment: TeamFragment, step: np.ndarray, slot: np.ndarray
    ) -> np.ndarray:
        """Values float32 `[R]` of the observations that follow `step` for `slot`."""
        part = fragment.modules[slots.module_id]
        device = next(module.parameters()).device
        last = step == len(part.alive) - 1
        after = np.where(last, 0, step + 1)
        observation = part.observation[after, slot]
        observation[last] = part.last_observation[slot[last]]
        obs = {OBSERVATION: torch.from_numpy(observation).to(device)}
        batch: dict[str, Any] = {Columns.OBS: obs, SLOT: torch.from_numpy(slot).to(device)}
        if fragment.critic_observation:
            # Each step that is needed once, whatever the number of agents: [steps * teams, ...].
            needed, position = np.unique(step, return_inverse=True)
            rows = [
                [
                    fragment.last_critic_observation[team]
                    if s == len(part.alive) - 1
                    else fragment.critic_observation[team][s + 1]
                    for team in slots.teams
                ]
                for s in needed
            ]
            critic = np.asarray(rows, np.float32)
            obs[CRITIC_OBSERVATION] = torch.from_numpy(critic.reshape(-1, *critic.shape[2:])).to(device)
            row = position * len(slots.teams) + slots.team_index[slot]
            batch[CRITIC_ROW] = torch.from_numpy(row).to(device)
        with torch.inference_mode():
            return module.compute_values(batch).cpu().numpy()
