"""Fragments -> train batch -> minibatches.

A train batch holds the living rows of all fragments, sorted by env step, so that a minibatch is a choice of env steps:
all agents of a step travel together, every row is used exactly once per epoch, and the critic observations of a step
are there once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from rllib_shared.envs.team_env import ACTION_MASK, CRITIC_OBSERVATION, OBSERVATION
from rllib_shared.modules.centralized_critic import CRITIC_ROW, SLOT
from rllib_shared.sampling.fragment import TeamFragment


@dataclass
class ModuleBatch:
    """The living rows of one module, R of them, from S env steps; K teams.

    Attributes:
        columns: RLlib's column name -> `[R, ...]` (actions, action_logp, action_dist_inputs, advantages, ...).
        observation: float32 `[R, ...]`.
        action_mask: bool `[R, A]` or None.
        slot: int64 `[R]`.
        team: int64 `[R]`, position of the row's team among the module's.
        first_row: int64 `[S + 1]`, rows of step s are `first_row[s]` to `first_row[s + 1]`.
        critic_observation: float32 `[S, K, ...]`, or None for `"own"`.
    """

    observation: torch.Tensor
    action_mask: torch.Tensor | None
    slot: torch.Tensor
    team: torch.Tensor
    first_row: np.ndarray
    critic_observation: torch.Tensor | None
    columns: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def num_teams(self) -> int:
        """K."""
        return 1 if self.critic_observation is None else self.critic_observation.shape[1]

    def rows_of(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers `[R']` of these env steps, and for each row the position of its step in `steps`."""
        counts = self.first_row[steps + 1] - self.first_row[steps]
        position = np.repeat(np.arange(len(steps)), counts)
        # Consecutive numbers within each step, starting at the step's first row.
        within = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.first_row[steps][position] + within, position

    def select(self, steps: np.ndarray, device: torch.device | str) -> SampleBatch:
        """The packed team layout of these env steps, on `device`; see `CentralizedCriticModule`."""
        rows, position = self.rows_of(steps)
        # Consecutive rows (the value pass, a minibatch of everything) are views; others are gathered.
        consecutive = len(rows) > 0 and int(rows[-1] - rows[0]) == len(rows) - 1
        index: Any = slice(int(rows[0]), int(rows[-1]) + 1) if consecutive else torch.from_numpy(rows)
        team = self.team[index]
        obs = {OBSERVATION: self.observation[index]}
        if self.action_mask is not None:
            obs[ACTION_MASK] = self.action_mask[index]
        if self.critic_observation is not None:
            obs[CRITIC_OBSERVATION] = self.critic_observation[torch.from_numpy(steps)].flatten(0, 1)
        columns = {name: column[index] for name, column in self.columns.items()}
        columns[CRITIC_ROW] = torch.from_numpy(position) * self.num_teams + team
        columns[SLOT] = self.slot[index]
        batch = {name: column.to(device) for name, column in columns.items()}
        batch[Columns.OBS] = {name: column.to(device) for name, column in obs.items()}  # type: ignore[assignment]
        return SampleBatch(batch)


def pack(
    fragments: Sequence[TeamFragment], module_id: str, teams: Sequence[str], team_index: np.ndarray
) -> ModuleBatch:
    """Living rows of one module from all fragments.

    Args:
        fragments: from any number of copies and runners.
        module_id: which module.
        teams: the module's teams.
        team_index: int64 `[N]`, position of each slot's team in `teams`.
    """
    parts = [fragment.modules[module_id] for fragment in fragments]
    alive = np.concatenate([part.alive for part in parts])
    _, slot = np.nonzero(alive)

    counts = [int(part.alive.sum()) for part in parts]

    def rows(name: str) -> torch.Tensor:
        arrays = [getattr(part, name) for part in parts]
        packed = np.empty((sum(counts), *arrays[0].shape[2:]), arrays[0].dtype)
        first = 0
        for array, part, count in zip(arrays, parts, counts, strict=True):
            target = packed[first : first + count]
            if count == part.alive.size:
                # Fragments of several copies are not contiguous, so reshaping the source would copy it once more.
                target.reshape(array.shape)[...] = array
            else:
                target[...] = array[part.alive]
            first += count
        return torch.from_numpy(packed)

    critic = None
    if fragments[0].critic_observation:
        per_team = [np.concatenate([fragment.critic_observation[team] for fragment in fragments]) for team in teams]
        critic = torch.from_numpy(per_team[0][:, None] if len(per_team) == 1 else np.stack(per_team, axis=1))
    return ModuleBatch(
        observation=rows("observation"),
        action_mask=rows("action_mask") if parts[0].action_mask is not None else None,
        slot=torch.from_numpy(slot),
        team=torch.from_numpy(team_index[slot]),
        first_row=np.concatenate([[0], np.cumsum(alive.sum(axis=1))]).astype(np.int64),
        critic_observation=critic,
        columns={
            Columns.ACTIONS: rows("action"),
            Columns.ACTION_LOGP: rows("logp"),
            Columns.ACTION_DIST_INPUTS: rows("dist_inputs"),
        },
    )


class MinibatchIterator:
    """All minibatches of all epochs: shuffled env steps, cut into equal pieces.

    Every module has a part in every minibatch (maybe of 0 rows), and each row is used exactly `num_epochs` times.

    Args:
        modules: train batch of each module; all from the same env steps.
        num_epochs: passes over the batch.
        minibatch_size: env steps per minibatch; None takes all.
        shuffle: shuffle the env steps in each epoch, the first included.
        minibatches_per_epoch: fixed by the caller so that all learners take the same number; None: as many as needed.
        device: where minibatches go; one at a time, so that the batch itself may be larger than the GPU.
    """

    def __init__(
        self,
        modules: Mapping[str, ModuleBatch],
        num_epochs: int,
        minibatch_size: int | None,
        shuffle: bool,
        device: torch.device | str,
        minibatches_per_epoch: int | None = None,
    ) -> None:
        self._modules = dict(sorted(modules.items()))
        self._steps = len(next(iter(modules.values())).first_row) - 1
        self._num_epochs = num_epochs
        self._shuffle = shuffle
        self._device = device
        self._pieces = minibatches_per_epoch or max(1, -(-self._steps // (minibatch_size or self._steps)))

    def __iter__(self) -> Iterator[MultiAgentBatch]:
        """Minibatches in RLlib's container."""
        for _ in range(self._num_epochs):
            order = np.random.permutation(self._steps) if self._shuffle else np.arange(self._steps)
            for chosen in np.array_split(order, self._pieces):
                # Sorted steps are read forwards through memory; their order within a minibatch means nothing.
                steps = np.sort(chosen)
                yield MultiAgentBatch(
                    {module_id: batch.select(steps, self._device) for module_id, batch in self._modules.items()},
                    env_steps=len(steps),
                )


ADVANTAGES = Postprocessing.ADVANTAGES
VALUE_TARGETS = Postprocessing.VALUE_TARGETS
