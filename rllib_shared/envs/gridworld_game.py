"""What MAgent2's engine knows: its groups, who survived, what does nothing, and how to draw a fresh frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rllib_shared.envs.critic_observation import CriticObservationChoice, CriticObserver
from rllib_shared.envs.game import Game
from rllib_shared.envs.gridworld_state import GridWorldState
from rllib_shared.envs.team_env import TIME_LIMIT, WIPED_OUT, ModuleStep, Outcome, winner_by_survivors
from rllib_shared.teams import Teams


class Group(NamedTuple):
    """One engine group of agents: its handle, number among all handles, first agent id and number of agents."""

    handle: Any
    number: int
    first_id: int
    size: int


class GridWorldGame(Game):
    """Knowledge about a MAgent2 environment.

    Args:
        env: the environment as its factory made it, maybe wrapped.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.raw = env.unwrapped
        self.engine = self.raw.env
        numbers = [handle.value for handle in self.engine.get_handles()]
        sizes = [self.engine.get_num(handle) for handle in self.raw.handles]
        firsts = np.concatenate([[0], np.cumsum(sizes)])
        self.groups = [
            Group(handle, numbers.index(handle.value), int(first), size)
            for handle, first, size in zip(self.raw.handles, firsts[:-1], sizes, strict=True)
        ]

    def agents_of(self, group: Group) -> list[str]:
        """Agent ids of a group; the engine numbers agents in `possible_agents` order."""
        return self.raw.possible_agents[group.first_id : group.first_id + group.size]

    def groups_of_team(self, teams: Teams) -> dict[str, list[Group]]:
        """Engine groups of each team.

        Raises:
            ValueError: a group whose agents are in different teams.
        """
        found: dict[str, list[Group]] = {team: [] for team in teams.names}
        team_of = {agent: team for team, agents in teams.agents.items() for agent in agents}
        for group in self.groups:
            owners = {team_of[agent] for agent in self.agents_of(group)}
            if len(owners) > 1:
                raise ValueError(
                    f"agents of the MAgent2 group {self.agents_of(group)[0]!r}... are in the teams {sorted(owners)}; "
                    "a group must be in one team"
                )
            found[owners.pop()].append(group)
        return found

    def make_observer(self, choice: CriticObservationChoice, teams: Teams, name: str) -> CriticObserver:
        """As for any game, but `"state"` is drawn here, because MAgent2's own raises on the last step."""
        if choice == "state":
            return self.make_state(teams)
        return super().make_observer(choice, teams, name)

    def make_state(self, teams: Teams) -> GridWorldState:
        """The state observer of these teams."""
        groups = self.groups_of_team(teams)
        return GridWorldState(self.raw, {team: [g.number for g in found] for team, found in groups.items()})

    def after_reset(self) -> None:
        """Count the agents again: MAgent2 counts them before it places them.

        With the wrong counts (0) the second group plays the first group's actions in the first step of each episode.
        """
        self.raw.team_sizes = [self.engine.get_num(handle) for handle in self.raw.handles]

    def noop_action(self, teams: Teams) -> dict[str, int]:
        """The centre of each type's moves; action 0 is a move."""
        noop = {}
        for team, groups in self.groups_of_team(teams).items():
            base, _ = self.engine.get_view2attack(groups[0].handle)
            # Moves are the cells of a disc, row by row, so staying put is the middle one.
            noop[team] = int(base) // 2
        return {mid: noop[slots.teams[0]] for mid, slots in teams.modules.items()}

    def outcome(self, teams: Teams, modules: Mapping[str, ModuleStep], acted: Mapping[str, np.ndarray]) -> Outcome:
        """Counted by the engine: MAgent2 ends the game when one group is empty, and terminates the winners too."""
        survivors = {
            team: sum(self.engine.get_num(group.handle) for group in groups)
            for team, groups in self.groups_of_team(teams).items()
        }
        empty = [group for group in self.groups if self.engine.get_num(group.handle) == 0]
        detail = {"group": self.agents_of(empty[0])[0].rsplit("_", 1)[0]} if empty else {}
        reason = WIPED_OUT if empty else TIME_LIMIT
        return Outcome(winner_by_survivors(survivors), survivors, reason, detail)

    def render(self) -> np.ndarray | None:
        """A fresh frame."""
        # MAgent2's renderer asks the engine only on every third call unless its data is dropped.
        if self.raw._renderer is not None:
            self.raw._renderer.new_data = None
        return self.raw.render()

    def close(self) -> None:
        """Drop the renderer; MAgent2's own close() quits pygame for every environment of the process."""
        self.raw._renderer = None
