"""What the critic must look at besides the rows of a train batch: what follows steps that no row follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from ray.rllib.core.columns import Columns

from rllib_shared.envs.team_env import CRITIC_OBSERVATION, OBSERVATION
from rllib_shared.modules.centralized_critic import CRITIC_ROW, SLOT
from rllib_shared.sampling.fragment import ModuleFragment, TeamFragment
from rllib_shared.teams import ModuleSlots


class Cells(NamedTuple):
    """Places in arrays `[T, N]`: env steps and slots, int64 `[B]` each."""

    step: np.ndarray
    slot: np.ndarray


def without_next_row(part: ModuleFragment) -> Cells:
    """Where an agent goes on (or is cut off) and the next row is not that of the same life.

    That is at the end of the fragment, at a truncation, and before the slot starts another life.
    """
    acts_after = np.concatenate([part.alive[1:], part.alive_after[None]])
    goes_on = part.alive & ~part.terminated & (acts_after | part.truncated)
    missing = goes_on & ~acts_after
    missing[:-1] |= goes_on[:-1] & part.truncated[:-1]
    missing[-1] |= goes_on[-1]
    return Cells(*np.nonzero(missing))


def batch_after(
    fragments: Sequence[TeamFragment], cells: Sequence[Cells], slots: ModuleSlots, device: torch.device | str
) -> dict[str, Any]:
    """What these slots see after these steps, packed as `CentralizedCriticModule` wants it, rows of all fragments.

    Args:
        fragments: F of them.
        cells: F of them, each of one fragment.
        slots: of the module.
        device: where to.
    """
    observations, critics, critic_rows = [], [], []
    teams, first = len(slots.teams), 0
    for fragment, (step, slot) in zip(fragments, cells, strict=True):
        part = fragment.modules[slots.module_id]
        at_end = len(part.alive) - 1
        observation = part.observation[np.where(step == at_end, 0, step + 1), slot]
        observation[step == at_end] = part.last_observation[slot[step == at_end]]
        observations.append(observation)
        if fragment.critic_observation:
            # Each step that is needed once, whatever the number of agents: [steps * teams, ...].
            needed, position = np.unique(step, return_inverse=True)
            critics += [
                fragment.last_critic_observation[team] if s == at_end else fragment.critic_observation[team][s + 1]
                for s in needed
                for team in slots.teams
            ]
            critic_rows.append(first + position * teams + slots.team_index[slot])
            first += len(needed) * teams
    obs = {OBSERVATION: torch.from_numpy(np.concatenate(observations)).to(device)}
    batch = {
        Columns.OBS: obs,
        SLOT: torch.from_numpy(np.concatenate([slot for _, slot in cells])).to(device),
    }
    if critics:
        obs[CRITIC_OBSERVATION] = torch.from_numpy(np.asarray(critics, np.float32)).to(device)
        batch[CRITIC_ROW] = torch.from_numpy(np.concatenate(critic_rows)).to(device)
    return batch
