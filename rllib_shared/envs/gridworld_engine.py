"""MAgent2's C library for one group of agents, through buffers that are made once.

`magent2.GridWorld` makes an array and a pointer at every call, which costs more than the engine's own work. Arrays
returned here are overwritten by the next call: `gridworld.py` copies what it hands out.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from rllib_shared.envs.gridworld_game import Group

_FLOATS = ctypes.POINTER(ctypes.c_float)
_INTS = ctypes.POINTER(ctypes.c_int32)
_BOOLS = ctypes.POINTER(ctypes.c_bool)


class EngineGroup:
    """One engine group, the module slots of its agents, and its buffers.

    Rows are compact: the agents that are in the engine, by id. Between the engine's `step` and `clear_dead` those are
    the agents that acted, afterwards the living.

    Args:
        engine: the `magent2.GridWorld`.
        group: which group.
        module_id: the module that acts for it.
        slots: its agents' slots there.
    """

    def __init__(self, engine: Any, group: Group, module_id: str, slots: slice) -> None:
        from magent2.c_lib import _LIB

        self._library = _LIB
        self._engine = engine
        self.handle = group.handle
        self.size = group.size
        self.module_id = module_id
        self.slots = slots
        self.view = np.zeros((group.size, *engine.get_view_space(group.handle)), np.float32)
        self.features = np.zeros((group.size, *engine.get_feature_space(group.handle)), np.float32)
        self._action = np.zeros(group.size, np.int32)
        self._reward = np.zeros(group.size, np.float32)
        self._alive = np.zeros(group.size, bool)
        self._position = np.zeros((group.size, 2), np.int32)
        self._to_action = self._action.ctypes.data_as(_INTS)
        self._to_reward = self._reward.ctypes.data_as(_FLOATS)
        self._to_alive = self._alive.ctypes.data_as(_BOOLS)
        self._to_position = self._position.ctypes.data_as(_INTS)
        self._to_features = self.features.ctypes.data_as(_FLOATS)
        self._to_view = self.view.ctypes.data_as(_FLOATS)

    def set_action(self, actions: np.ndarray) -> None:
        """Give one checked action to each row, integers `[n]`."""
        self._action[: len(actions)] = actions
        self._library.env_set_action(self._engine.game, self.handle, self._to_action)

    def reward(self, n: int) -> np.ndarray:
        """Rewards of the last step, float32 `[n]`."""
        self._library.env_get_reward(self._engine.game, self.handle, self._to_reward)
        return self._reward[:n]

    def alive(self, n: int) -> np.ndarray:
        """Who lives, bool `[n]`."""
        self._library.env_get_info(self._engine.game, self.handle, b"alive", self._to_alive)
        return self._alive[:n]

    def position(self, n: int) -> np.ndarray:
        """Cells, int32 `[n, 2]`."""
        self._library.env_get_info(self._engine.game, self.handle, b"pos", self._to_position)
        return self._position[:n]

    def observe(self, n: int, into: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Views float32 `[n, H, W, C]` and features float32 `[n, F]`.

        Args:
            n: rows in the engine.
            into: C-contiguous array that gets the views instead of the group's own buffer.
        """
        to_view = self._to_view if into is None else into.ctypes.data_as(_FLOATS)
        self._library.env_get_observation(self._engine.game, self.handle, (_FLOATS * 2)(to_view, self._to_features))
        return (self.view[:n] if into is None else into), self.features[:n]
