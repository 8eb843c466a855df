"""The state of a MAgent2 grid world, right on every step and seen from one team.

MAgent2's own `state()` raises once a group is wiped out, keeps the walls of the first episode, puts extra features
over the presence of some agents, and shows both teams the same channels. This one skips empty groups, reads the walls
at each reset, and puts a team's own groups first: `[wall, (presence, hp) of each group, own first[, features]]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rllib_shared.envs.team_env import ModuleStep


class GroupRows(NamedTuple):
    """The living agents of one engine group: grid positions int32 `[n, 2]`, hp float32 `[n]`, features `[n, F]`."""

    position: np.ndarray
    hp: np.ndarray
    features: np.ndarray


class GridWorldState:
    """Draws each team's view of the whole map.

    Args:
        env: an unwrapped MAgent2 `magent_parallel_env`.
        groups_of_team: per team, the numbers of its engine groups (positions in `env.env.get_handles()`).

    Attributes:
        spaces: `Box [map, map, channels]` of each team.
    """

    def __init__(self, env: Any, groups_of_team: Mapping[str, list[int]]) -> None:
        self._env = env
        self._engine = env.env
        self._num_groups = len(self._engine.get_handles())
        self._extra = bool(env.extra_features)
        self._minimap_features = 2 if env.minimap_mode else 0
        # Presence channel of each group, per team: own groups first, in engine order.
        self._channel = {}
        for team, own in groups_of_team.items():
            order = [*own, *(g for g in range(self._num_groups) if g not in own)]
            self._channel[team] = {group: 1 + 2 * order.index(group) for group in order}
        space = env.state_space
        low, high = float(space.low.min()), float(space.high.max())
        self.spaces = {team: gym.spaces.Box(low, high, space.shape, np.float32) for team in groups_of_team}
        self.start_episode()

    def start_episode(self) -> None:
        """Read the walls, which some environments draw anew at each reset."""
        walls = np.asarray(self._engine._get_walls_info(), np.int64).reshape(-1, 2)
        self._empty = np.zeros(self._env.state_space.shape, np.float32)
        self._empty[walls[:, 0], walls[:, 1], 0] = 1

    def read_groups(self) -> list[GroupRows]:
        """Ask the engine for all living agents; call after `clear_dead`."""
        rows = []
        for handle in self._engine.get_handles():
            if self._engine.get_num(handle) == 0:
                rows.append(GroupRows(np.zeros((0, 2), np.int32), np.zeros(0, np.float32), np.zeros((0, 0))))
                continue
            view, features = self._engine.get_observation(handle)
            rows.append(group_rows(self._engine.get_pos(handle), view, features))
        return rows

    def draw(self, groups: list[GroupRows], out: Mapping[str, np.ndarray]) -> None:
        """Write each team's state, float32 `[map, map, channels]`."""
        width, channels = self._empty.shape[1:]
        # Rows of a map that is flattened to [cell, channel]: one index instead of two.
        cells = [position[:, 0].astype(np.int64) * width + position[:, 1] for position, _, _ in groups]
        for team, array in out.items():
            assert array.flags.c_contiguous  # else reshape would copy
            np.copyto(array, self._empty)
            state = array.reshape(-1, channels)
            for group, (_, hp, features) in enumerate(groups):
                if not len(hp):
                    continue
                channel = self._channel[team][group]
                state[cells[group], channel] = 1.0
                state[cells[group], channel + 1] = hp
                if self._extra:
                    # The feature block is [id bits, one-hot last action, padding, last reward].
                    first = 1 + 2 * self._num_groups
                    end = features.shape[1] - 1 - self._minimap_features
                    state[cells[group], first : first + end] = features[:, :end]
                    state[cells[group], -1] = features[:, end]

    def write(self, modules: Mapping[str, ModuleStep], out: Mapping[str, np.ndarray], terminal: bool) -> None:
        """Read the engine and draw; the slower way, for environments stepped through PettingZoo's dicts."""
        self.draw(self.read_groups(), out)


def group_rows(
    position: np.ndarray, view: np.ndarray, features: np.ndarray, lives: np.ndarray | slice = slice(None)
) -> GroupRows:
    """The living rows of one group from what the engine returns; hp is the centre of an agent's own view."""
    hp = view[:, view.shape[1] // 2, view.shape[2] // 2, 2]
    return GroupRows(position[lives], hp[lives], features[lives])
