"""The learner's connector: fragments in, a train batch with advantages out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.rl_module import RLModule

from rllib_shared.algorithms.advantages import advantages_and_targets, standardized
from rllib_shared.algorithms.batch import ADVANTAGES, VALUE_TARGETS, ModuleBatch, pack
from rllib_shared.algorithms.bootstrap import Cells, batch_after, without_next_row
from rllib_shared.modules.centralized_critic import SLOT
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
        parts = [fragment.modules[module_id] for fragment in fragments]
        cells = [without_next_row(part) for part in parts]
        values = _split(self._values(module, batch), [int(part.alive.sum()) for part in parts])
        after = _split(self._values_after(module, slots, fragments, cells), [len(step) for step, _ in cells])
        advantage, target = [], []
        for part, cell, values_of_rows, values_of_cells in zip(parts, cells, values, after, strict=True):
            value = np.zeros(part.alive.shape, np.float32)
            value[part.alive] = values_of_rows
            next_value = np.zeros_like(value)
            next_value[:-1] = value[1:]
            next_value[cell] = values_of_cells
            advantage_of_slot, target_of_slot = advantages_and_targets(
                # What dead slots hold means nothing; zeros keep it out of the sums.
                np.where(part.alive, part.reward, 0.0),
                value,
                next_value,
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
        values = []
        with torch.inference_mode():
            for chunk in _pieces(steps, int(batch.first_row[-1])):
                values.append(module.compute_values(batch.select(chunk, device)).cpu().numpy())
        return np.concatenate(values)

    def _values_after(
        self, module: Any, slots: ModuleSlots, fragments: Sequence[TeamFragment], cells: Sequence[Cells]
    ) -> np.ndarray:
        """Values float32 of what follows the cells, those of one fragment after those of the other."""
        device = next(module.parameters()).device
        values = [np.zeros(0, np.float32)]
        with torch.inference_mode():
            # Many fragments at a time: a pass reads all weights, however few rows it has.
            for chunk in _pieces(len(fragments), sum(len(step) for step, _ in cells)):
                batch = batch_after([fragments[i] for i in chunk], [cells[i] for i in chunk], slots, device)
                if len(batch[SLOT]):
                    values.append(module.compute_values(batch).cpu().numpy())
        return np.concatenate(values)


def _pieces(parts: int, rows: int) -> list[np.ndarray]:
    """The numbers of the parts, in pieces of about as many rows as a forward pass takes."""
    return np.array_split(np.arange(parts), min(parts, max(1, -(-rows // _VALUE_CHUNK))))


def _split(rows: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    return np.split(rows, np.cumsum(counts)[:-1])
