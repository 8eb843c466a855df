"""Seeds of env copies: different for every runner and copy, the same in every process; and what a seed must not cost.

MAgent2 treats seeds 0 and 1 alike, takes seeds modulo 2**32, and starts two unseeded environments identically; so every
copy gets a seed, spread by numpy's SeedSequence and mapped to where all of MAgent2's are different.
"""

from __future__ import annotations

import numpy as np
import torch

LOWEST_SEED, HIGHEST_SEED = 2, 2**31 - 2


def env_seeds(seed: int | None, worker_index: int, copies: int, evaluation: bool = False) -> list[int]:
    """One seed for each env copy of a runner.

    Args:
        seed: the run's; None takes one from the operating system.
        worker_index: RLlib's number of the runner.
        copies: env copies of the runner.
        evaluation: evaluation runners get other seeds than training runners.
    """
    entropy = np.random.SeedSequence().entropy if seed is None else seed
    sequence = np.random.SeedSequence(entropy, spawn_key=(int(evaluation), worker_index))
    states = sequence.generate_state(copies, np.uint64)
    return [int(LOWEST_SEED + state % (HIGHEST_SEED - LOWEST_SEED + 1)) for state in states]


def allow_unfilled_memory() -> None:
    """RLlib's seeding turns on deterministic algorithms, with which torch fills every new tensor with NaN first.

    That finds reads of memory that nobody wrote, and costs a pass over all gradients and activations.
    """
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
