"""Who is in which team, role, module, slot and weight set; and the policy-mapping function.

`Teams` is a small immutable value, built once from the agents and their spaces; everything else asks it.
What an environment does with its teams lives in `envs/`, what a network does with its slots in `modules/`.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

TeamsChoice = Mapping[str, Sequence[str]] | Callable[[str], str] | None
SHARING = ("team", "all")
ALL_TEAMS_MODULE_ID = "shared"

# A module id becomes a folder name in checkpoints and a part of metric keys.
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class ModuleSlots:
    """The agents that one RLlib module acts for: one slot (array row) each, for the whole episode.

    Attributes:
        module_id: RLlib's module id, also the policy id.
        agents: agent id of each slot, `[N]`, in `possible_agents` order.
        teams: the teams that have slots here (more than one only with `sharing="all"`).
        team_index: int64 `[N]`, which of `teams` a slot belongs to.
        weight_index: int64 `[N]`, which of the module's weight sets a slot uses; all 0 when weights are shared.
        observation_space: space of one agent's observation, without its action mask.
        action_space: space of one agent's action.
    """

    module_id: str
    agents: tuple[str, ...]
    teams: tuple[str, ...]
    team_index: np.ndarray = field(repr=False)
    weight_index: np.ndarray = field(repr=False)
    observation_space: gym.Space = field(repr=False)
    action_space: gym.Space = field(repr=False)

    @property
    def num_slots(self) -> int:
        """Number of agents N."""
        return len(self.agents)


@dataclass(frozen=True)
class PolicyMapping:
    """RLlib's `policy_mapping_fn` as a picklable value: agent id -> module id, total over all agents."""

    module_of: Mapping[str, str]

    def __call__(self, agent_id: str, episode: Any = None, **kwargs: Any) -> str:
        """Return the module id of `agent_id`; raises KeyError for an agent that is in no team."""
        try:
            return self.module_of[agent_id]
        except KeyError:
            raise KeyError(f"agent {agent_id!r} is in no team; known agents: {preview(self.module_of)}") from None


@dataclass(frozen=True)
class Teams:
    """Teams, modules and slots of one environment.

    Attributes:
        agents: agent ids of each team, in `possible_agents` order.
        modules: the slots of each RLlib module.
        sharing: how many weight sets the agents of a module share, `"team"` or `"all"`.
    """

    agents: Mapping[str, tuple[str, ...]]
    modules: Mapping[str, ModuleSlots]
    sharing: str

    @classmethod
    def build(
        cls,
        observation_spaces: Mapping[str, gym.Space],
        action_spaces: Mapping[str, gym.Space],
        teams: TeamsChoice = None,
        sharing: str = "team",
    ) -> Teams:
        """Sort agents into teams and modules.

        Args:
            observation_spaces: space of each agent's observation (without action mask), in `possible_agents` order.
            action_spaces: space of each agent's action, same keys.
            teams: None for the agent name's prefix (`red_0` is in `red`), patterns
                `{"red": ["redmelee_*", "redranged_*"]}`, or a function `agent -> team`.
            sharing: `"team"` (one weight set per team) or `"all"` (one for every team).

        Raises:
            ValueError: agent in no team or in two, pattern without agents, two spaces under one module, unsafe
                name, or unknown sharing. Each message names the agents, spaces or patterns at fault.
            TypeError: agent ids or team names that are not strings.
        """
        if sharing not in SHARING:
            raise ValueError(unknown("sharing", sharing, SHARING))
        if not observation_spaces:
            raise ValueError("the environment has no agents: `possible_agents` is empty")
        for agent in observation_spaces:
            if not isinstance(agent, str):
                raise TypeError(f"agent ids must be strings, got {agent!r} of type {type(agent).__name__}")
        team_of = _team_of(list(observation_spaces), teams)
        by_team = {
            team: tuple(agent for agent, t in team_of.items() if t == team) for team in dict.fromkeys(team_of.values())
        }
        for team in by_team:
            if not _SAFE_ID.fullmatch(team):
                raise ValueError(
                    f"team name {team!r} cannot be used in a path or a metric key; "
                    "use letters, digits, '_', '-' and '.', beginning with a letter or digit"
                )
        groups = {team: (team,) for team in by_team} if sharing == "team" else {ALL_TEAMS_MODULE_ID: tuple(by_team)}
        modules = {
            module_id: _slots(module_id, members, by_team, observation_spaces, action_spaces)
            for module_id, members in groups.items()
        }
        return cls(agents=by_team, modules=modules, sharing=sharing)

    @property
    def names(self) -> tuple[str, ...]:
        """Team names, in the order of their first agent."""
        return tuple(self.agents)

    @property
    def module_ids(self) -> tuple[str, ...]:
        """RLlib module ids."""
        return tuple(self.modules)

    @property
    def policy_mapping_fn(self) -> PolicyMapping:
        """The function that sends every agent of a team to its RLlib policy ID."""
        return PolicyMapping({agent: mid for mid, slots in self.modules.items() for agent in slots.agents})


def _team_of(agents: list[str], teams: TeamsChoice) -> dict[str, str]:
    """Team of each agent, by prefix, patterns or function."""
    if teams is None:
        return {agent: re.sub(r"_\d+$", "", agent) for agent in agents}
    if callable(teams):
        team_of = {agent: teams(agent) for agent in agents}
        for agent, team in team_of.items():
            if not isinstance(team, str):
                raise TypeError(
                    f"the teams function must return a team name (a string); for agent {agent!r} it returned "
                    f"{team!r} of type {type(team).__name__}"
                )
        return team_of
    if not isinstance(teams, Mapping):
        raise TypeError(f"teams must be None, a dict of patterns or a function, got {type(teams).__name__}")
    matches: dict[str, list[str]] = {agent: [] for agent in agents}
    for team, patterns in teams.items():
        if not isinstance(team, str):
            raise TypeError(f"team names must be strings, got {team!r} of type {type(team).__name__}")
        if not patterns:
            raise ValueError(f"team {team!r} has no patterns, so it would have no agents; leave it out")
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            found = fnmatch.filter(agents, pattern)
            if not found:
                raise ValueError(f"pattern {pattern!r} of team {team!r} matches no agent; agents are {preview(agents)}")
            for agent in found:
                if team not in matches[agent]:
                    matches[agent].append(team)
    none = [agent for agent, found in matches.items() if not found]
    if none:
        raise ValueError(f"agents in no team: {preview(none)}; the patterns are {dict(teams)}")
    several = {agent: found for agent, found in matches.items() if len(found) > 1}
    if several:
        agent, found = next(iter(several.items()))
        raise ValueError(f"agents in more than one team: {preview(several)} ({agent!r} is in {found})")
    return {agent: found[0] for agent, found in matches.items()}


def _slots(
    module_id: str,
    members: tuple[str, ...],
    by_team: Mapping[str, tuple[str, ...]],
    observation_spaces: Mapping[str, gym.Space],
    action_spaces: Mapping[str, gym.Space],
) -> ModuleSlots:
    """The slots of one module: agents of its teams, whose spaces must be equal."""
    agents = tuple(agent for team in members for agent in by_team[team])
    first = agents[0]
    for kind, spaces in (("observation", observation_spaces), ("action", action_spaces)):
        for agent in agents[1:]:
            if spaces[agent] != spaces[first]:
                raise ValueError(
                    f"agents of module {module_id!r} must have equal {kind} spaces, but {first!r} has "
                    f"{spaces[first]} and {agent!r} has {spaces[agent]}; put them in different teams"
                )
    return ModuleSlots(
        module_id=module_id,
        agents=agents,
        teams=members,
        team_index=np.repeat(np.arange(len(members)), [len(by_team[team]) for team in members]),
        weight_index=np.zeros(len(agents), np.int64),
        observation_space=observation_spaces[first],
        action_space=action_spaces[first],
    )


def preview(names: Any, limit: int = 6) -> str:
    """A short list of names for a message: the first few, then how many more."""
    shown = [repr(name) for name in names]
    more = f", ... ({len(shown)} in all)" if len(shown) > limit else ""
    return ", ".join(shown[:limit]) + more


def unknown(what: str, given: Any, known: Any) -> str:
    """The sentence for a name that is not known, with the nearest names that are."""
    known = [str(name) for name in known]
    near = difflib.get_close_matches(str(given), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(name) for name in near)}?" if near else f"known: {preview(known, 20)}"
    return f"unknown {what} {given!r}; {hint}"
