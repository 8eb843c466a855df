"""Who is in which team, role, module, slot and weight set; and the policy-mapping function.

`Teams` is a small immutable value, built once from the agents and their spaces; everything else asks it.
What an environment does with its teams lives in `envs/`, what a network does with its slots in `modules/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_shared.messages import preview
from rllib_shared.sharing import SAFE_NAME, SharingChoice, linked, match_patterns, roles, weight_sets

TeamsChoice = Mapping[str, Sequence[str]] | Callable[[str], str] | None
ALL_TEAMS_MODULE_ID = "shared"


@dataclass(frozen=True)
class ModuleSlots:
    """The agents that one RLlib module acts for: one slot (array row) each, for the whole episode.

    Attributes:
        module_id: RLlib's module id, also the policy id.
        agents: agent id of each slot, `[N]`, in `possible_agents` order.
        teams: the teams that have slots here (more than one if any weights are shared by several).
        team_index: int64 `[N]`, which of `teams` a slot belongs to.
        weight_index: int64 `[N]`, which of the actor's weight sets a slot uses; all 0 when all share one.
        critic_weight_index: int64 `[N]`, the same for the critic.
        weight_sets: names of the actor's G weight sets: of agents, groups, roles or teams, or `all`.
        critic_weight_sets: names of the critic's.
        observation_space: space of one agent's observation, without its action mask.
        action_space: space of one agent's action.
    """

    module_id: str
    agents: tuple[str, ...]
    teams: tuple[str, ...]
    team_index: np.ndarray = field(repr=False)
    weight_index: np.ndarray = field(repr=False)
    critic_weight_index: np.ndarray = field(repr=False)
    weight_sets: tuple[str, ...] = field(repr=False)
    critic_weight_sets: tuple[str, ...] = field(repr=False)
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
    """

    agents: Mapping[str, tuple[str, ...]]
    modules: Mapping[str, ModuleSlots]

    @classmethod
    def build(
        cls,
        observation_spaces: Mapping[str, gym.Space],
        action_spaces: Mapping[str, gym.Space],
        teams: TeamsChoice = None,
        sharing: SharingChoice = "team",
        critic_sharing: SharingChoice | None = None,
    ) -> Teams:
        """Sort agents into teams, modules and weight sets.

        A module is what RLlib trains as one policy: a team (or a team's role, where the roles have different spaces),
        or all teams between which any weights are shared. How many weight sets it holds is the sharing.

        Args:
            observation_spaces: space of each agent's observation (without action mask), in `possible_agents` order.
            action_spaces: space of each agent's action, same keys.
            teams: None for the agent name's prefix (`red_0` is in `red`), patterns
                `{"red": ["redmelee_*", "redranged_*"]}`, or a function `agent -> team`.
            sharing: who acts with the same weights: `"team"`, `"all"` (all teams), `"role"` (agents of a team with
                equal spaces), `"agent"` (nobody), or patterns by group, `{"scouts": ["red_0", "red_1*"], ...}`.
            critic_sharing: the same for the critic; None: as the actor.

        Raises:
            ValueError: agent in no team or group or in two, pattern without agents, two spaces under one module,
                unsafe name, or unknown sharing. Each message names the agents, spaces or patterns at fault.
            TypeError: agent ids or team names that are not strings.
        """
        if not observation_spaces:
            raise ValueError("the environment has no agents: `possible_agents` is empty")
        for agent in observation_spaces:
            if not isinstance(agent, str):
                raise TypeError(f"agent ids must be strings, got {agent!r} of type {type(agent).__name__}")
        team_of = _team_of(list(observation_spaces), teams)
        for team in dict.fromkeys(team_of.values()):
            if not SAFE_NAME.fullmatch(team):
                raise ValueError(
                    f"team name {team!r} cannot be used in a path or a metric key; "
                    "use letters, digits, '_', '-' and '.', beginning with a letter or digit"
                )
        # Slots are team by team, in `possible_agents` order within a team.
        order = {team: index for index, team in enumerate(dict.fromkeys(team_of.values()))}
        team_of = dict(sorted(team_of.items(), key=lambda item: order[item[1]]))
        role_of = roles(team_of, observation_spaces, action_spaces)
        actor_of = weight_sets("sharing", sharing, team_of, role_of)
        critic_of = actor_of
        if critic_sharing is not None:
            critic_of = weight_sets("critic_sharing", critic_sharing, team_of, role_of)
        modules: dict[str, ModuleSlots] = {}
        for agents in linked([role_of, actor_of, critic_of]):
            everyone = len(agents) == len(team_of) and "all" in (sharing, critic_sharing)
            module_id = ALL_TEAMS_MODULE_ID if everyone else _module_id(agents, team_of, role_of)
            if module_id in modules:
                raise ValueError(f"two modules would be called {module_id!r}; rename a team")
            _check_spaces(module_id, agents, observation_spaces, action_spaces)
            modules[module_id] = _slots(
                module_id,
                agents,
                team_of,
                actor_of,
                critic_of,
                observation_spaces[agents[0]],
                action_spaces[agents[0]],
            )
        by_team = {team: tuple(agent for agent, its_team in team_of.items() if its_team == team) for team in order}
        return cls(agents=by_team, modules=modules)

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
    return match_patterns(agents, teams, "team")


def _module_id(agents: Sequence[str], team_of: Mapping[str, str], role_of: Mapping[str, str]) -> str:
    """The name of a module: its team, its role, or its teams."""
    teams = list(dict.fromkeys(team_of[agent] for agent in agents))
    if len(teams) > 1:
        return "-".join(teams)
    whole = len(agents) == sum(team == teams[0] for team in team_of.values())
    return teams[0] if whole else role_of[agents[0]]


def _check_spaces(
    module_id: str,
    agents: Sequence[str],
    observation_spaces: Mapping[str, gym.Space],
    action_spaces: Mapping[str, gym.Space],
) -> None:
    """Agents of one module must have equal spaces."""
    first = agents[0]
    for kind, spaces in (("observation", observation_spaces), ("action", action_spaces)):
        for agent in agents[1:]:
            if spaces[agent] != spaces[first]:
                raise ValueError(
                    f"agents of module {module_id!r} must have equal {kind} spaces, but {first!r} has "
                    f"{spaces[first]} and {agent!r} has {spaces[agent]}; put them in different teams, or share by "
                    '"role" or "agent"'
                )


def _slots(
    module_id: str,
    agents: Sequence[str],
    team_of: Mapping[str, str],
    actor_of: Mapping[str, str],
    critic_of: Mapping[str, str],
    observation_space: gym.Space,
    action_space: gym.Space,
) -> ModuleSlots:
    teams, team_index = _numbered([team_of[agent] for agent in agents])
    actor_sets, actor_index = _numbered([actor_of[agent] for agent in agents])
    critic_sets, critic_index = _numbered([critic_of[agent] for agent in agents])
    return ModuleSlots(
        module_id=module_id,
        agents=tuple(agents),
        teams=teams,
        team_index=team_index,
        weight_index=actor_index,
        critic_weight_index=critic_index,
        weight_sets=actor_sets,
        critic_weight_sets=critic_sets,
        observation_space=observation_space,
        action_space=action_space,
    )


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The different names in order, and which of them stands at each place, int64 `[N]`."""
    different = tuple(dict.fromkeys(names))
    number = {name: i for i, name in enumerate(different)}
    return different, np.array([number[name] for name in names], np.int64)
