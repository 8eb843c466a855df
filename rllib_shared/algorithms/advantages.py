"""Generalized advantage estimation over arrays: `[env step, slot]` in one backward pass, no loop over agents."""

from __future__ import annotations

import numpy as np


def advantages_and_targets(
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    gamma: float,
    lambda_: float,
) -> tuple[np.ndarray, np.ndarray]:
    """GAE (Schulman et al., arXiv 1506.02438) for every slot of a fragment at once.

    terminated means no bootstrap; truncated means bootstrap from `next_value`; both end the chain of lambda, so
    nothing flows from a later life of the same slot. Entries of slots that did not act are computed and mean nothing.

    Args:
        reward: float `[T, N]`.
        value: float `[T, N]`, of what was seen before each step.
        next_value: float `[T, N]`, of what was seen after each step.
        terminated: bool `[T, N]`.
        truncated: bool `[T, N]`.
        gamma: discount.
        lambda_: GAE's lambda.

    Returns:
        Advantages and value targets, float32 `[T, N]`.
    """
    delta = reward + gamma * next_value * ~terminated - value
    keep = gamma * lambda_ * ~(terminated | truncated)
    advantage = np.zeros_like(delta, dtype=np.float32)
    running = np.zeros(delta.shape[1:], np.float64)
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + keep[t] * running
        advantage[t] = running
    return advantage, (advantage + value).astype(np.float32)


def standardized(advantage: np.ndarray, weight_index: np.ndarray | None = None) -> np.ndarray:
    """Mean 0 and standard deviation 1 over real rows.

    Args:
        advantage: float `[R]`, rows of living agents only.
        weight_index: int64 `[R]`, the weight set of each row: each set is standardized by itself. None: one set.
    """
    if advantage.size == 0:
        return advantage
    if weight_index is None or not weight_index.any():
        return (advantage - advantage.mean()) / max(float(advantage.std()), 1e-4)
    sets = int(weight_index.max()) + 1
    count = np.maximum(np.bincount(weight_index, minlength=sets), 1)
    mean = np.bincount(weight_index, advantage, sets) / count
    centred = advantage - mean[weight_index]
    std = np.sqrt(np.bincount(weight_index, centred**2, sets) / count)
    return (centred / np.maximum(std, 1e-4)[weight_index]).astype(advantage.dtype)
