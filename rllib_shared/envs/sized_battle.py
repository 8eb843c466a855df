"""MAgent2's battle with exact team sizes: `agents_per_team=200` really is 200 against 200.

The stock map places `floor(0.2 * map_size) ** 2` agents per team, which is 196 or 225 but never 200.
"""

from __future__ import annotations

import math
from typing import Any

import magent2.environments.battle.battle as stock
from gymnasium.utils import EzPickle

_GAP = 3  # cells between a team's front line and the middle, as in the stock map
_SPACING = 2


def sized_battle(agents_per_team: int, map_size: int | None = None, **kwargs: Any) -> SizedBattle:
    """`battle_v4` with `agents_per_team` agents on each side.

    Args:
        agents_per_team: at least 1.
        map_size: None chooses the stock density (one agent of a team per 25 cells, so 200 need a map of 71).
        **kwargs: as `battle_v4.parallel_env`.

    Raises:
        ValueError: the teams do not fit the map.
    """
    if not isinstance(agents_per_team, int) or agents_per_team < 1:
        raise ValueError(f"agents_per_team must be a whole number of at least 1, got {agents_per_team!r}")
    needed = _smallest_map(agents_per_team)
    if map_size is None:
        map_size = max(needed, math.ceil(math.sqrt(agents_per_team / 0.04)))
    if map_size < needed:
        raise ValueError(f"{agents_per_team} agents per team need a map_size of at least {needed}, got {map_size}")
    reward_names = stock.default_reward_args
    rewards = {**reward_names, **{key: value for key, value in kwargs.items() if key in reward_names}}
    options = {key: value for key, value in kwargs.items() if key not in reward_names}
    return SizedBattle(
        agents_per_team,
        map_size,
        options.get("minimap_mode", stock.minimap_mode_default),
        rewards,
        options.get("max_cycles", stock.max_cycles_default),
        options.get("extra_features", False),
        options.get("render_mode"),
        options.get("seed"),
    )


class SizedBattle(stock._parallel_env):
    """`battle_v4` whose `generate_map` places a fixed number of agents per team; see `sized_battle`."""

    def __init__(self, agents_per_team: int, map_size: int, *args: Any) -> None:
        self.agents_per_team = agents_per_team
        super().__init__(map_size, *args)
        EzPickle.__init__(self, agents_per_team, map_size, *args)

    def generate_map(self) -> None:
        """Place both teams, front lines first, as the stock map does."""
        left, right = _positions(self.agents_per_team, self.map_size)
        self.env.add_agents(self.handles[0], method="custom", pos=left)
        self.env.add_agents(self.handles[1], method="custom", pos=right)


def _side(agents_per_team: int) -> int:
    return math.ceil(math.sqrt(agents_per_team))


def _smallest_map(agents_per_team: int) -> int:
    side = _side(agents_per_team)
    columns = math.ceil(agents_per_team / side)
    # Both blocks, both gaps and the walls; 12 is MAgent2's own minimum.
    return max(12, 2 * (columns * _SPACING + _GAP) + 2, side * _SPACING + 3)


def _positions(agents_per_team: int, map_size: int) -> tuple[list[list[int]], list[list[int]]]:
    side = _side(agents_per_team)
    middle, top = map_size // 2, (map_size - side * _SPACING) // 2
    left, right = [], []
    for i in range(agents_per_team):
        column, row = divmod(i, side)
        y = top + row * _SPACING
        left.append([middle - _GAP - _SPACING * (column + 1), y, 0])
        right.append([middle + _GAP + _SPACING * column, y, 0])
    return left, right
