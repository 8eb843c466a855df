"""Who uses the same weights: the choices of sharing, and the partition of agents that each one means.

A partition names the weight set of every agent. Actor and critic have one each (`Teams`); the networks that hold the
sets are in `modules/`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence

import gymnasium as gym

from rllib_shared.messages import preview, unknown

SharingChoice = str | Mapping[str, Sequence[str]]
SHARING = ("team", "all", "role", "agent")

# A module id becomes a folder name in checkpoints and a part of metric keys.
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def roles(
    team_of: Mapping[str, str],
    observation_spaces: Mapping[str, gym.Space],
    action_spaces: Mapping[str, gym.Space],
) -> dict[str, str]:
    """The role of each agent: agents of a team with equal spaces have one.

    A team of one role gives it the team's name; otherwise it is team and kind, as `red_melee` for `redmelee_0`.
    """
    role_of: dict[str, str] = {}
    for team in dict.fromkeys(team_of.values()):
        kinds: list[tuple[tuple[gym.Space, gym.Space], list[str]]] = []
        for agent in (agent for agent, its_team in team_of.items() if its_team == team):
            spaces = (observation_spaces[agent], action_spaces[agent])
            members = next((members for known, members in kinds if known == spaces), None)
            if members is None:
                kinds.append((spaces, [agent]))
            else:
                members.append(agent)
        for (_, members), name in zip(kinds, _role_names(team, [members for _, members in kinds]), strict=True):
            role_of.update(dict.fromkeys(members, name))
    return {agent: role_of[agent] for agent in team_of}


def _role_names(team: str, kinds: Sequence[Sequence[str]]) -> list[str]:
    """Names of a team's roles: by the prefix that only its agents have, else by number."""
    if len(kinds) == 1:
        return [team]
    prefixes = [{re.sub(r"_\d+$", "", agent) for agent in members} for members in kinds]
    alone = all(len(found) == 1 for found in prefixes) and len(set.union(*prefixes)) == len(kinds)
    if not alone:
        return [f"{team}_role{number}" for number in range(len(kinds))]
    names = [next(iter(found)) for found in prefixes]
    return [f"{team}_{name.removeprefix(team).strip('_-') or name}" for name in names]


def weight_sets(
    axis: str, choice: SharingChoice, team_of: Mapping[str, str], role_of: Mapping[str, str]
) -> dict[str, str]:
    """The name of each agent's weight set.

    Args:
        axis: `sharing` or `critic_sharing`, for messages.
        choice: one of `SHARING`, or agent patterns by group: `{"scouts": ["red_0", "red_1*"], "rest": [...]}`.
        team_of: team of each agent.
        role_of: role of each agent, see `roles`.

    Raises:
        ValueError: unknown choice; a group without agents, agents in no group or in two.
        TypeError: neither a word nor a dict.
    """
    if isinstance(choice, str):
        if choice not in SHARING:
            raise ValueError(unknown(axis, choice, SHARING))
        names = {
            "all": dict.fromkeys(team_of, "all"),
            "team": team_of,
            "role": role_of,
            "agent": {a: a for a in team_of},
        }
        return dict(names[choice])
    if not isinstance(choice, Mapping):
        raise TypeError(
            f"{axis} must be one of {preview(SHARING)} or a dict of agent patterns by group, "
            f"got {choice!r} of type {type(choice).__name__}"
        )
    return match_patterns(list(team_of), choice, f"{axis} group")


def match_patterns(agents: Sequence[str], patterns: Mapping[str, Sequence[str]], kind: str) -> dict[str, str]:
    """The name whose patterns an agent matches, for each agent.

    Args:
        agents: all agents.
        patterns: of each name, as for `fnmatch`; one pattern may stand alone.
        kind: what is named, for messages: `team`, or `sharing group`.

    Raises:
        ValueError: a name without patterns, a pattern without agents, agents of no name or of two.
        TypeError: a name that is no string.
    """
    matches: dict[str, list[str]] = {agent: [] for agent in agents}
    for name, given in patterns.items():
        if not isinstance(name, str):
            raise TypeError(f"{kind} names must be strings, got {name!r} of type {type(name).__name__}")
        if not given:
            raise ValueError(f"{kind} {name!r} has no patterns, so it would have no agents; leave it out")
        for pattern in [given] if isinstance(given, str) else given:
            found = fnmatch.filter(agents, pattern)
            if not found:
                raise ValueError(
                    f"pattern {pattern!r} of {kind} {name!r} matches no agent; agents are {preview(agents)}"
                )
            for agent in found:
                if name not in matches[agent]:
                    matches[agent].append(name)
    none = [agent for agent, found in matches.items() if not found]
    if none:
        raise ValueError(f"agents in no {kind}: {preview(none)}; the patterns are {dict(patterns)}")
    several = {agent: found for agent, found in matches.items() if len(found) > 1}
    if several:
        agent, found = next(iter(several.items()))
        raise ValueError(f"agents in more than one {kind}: {preview(several)} ({agent!r} is in {found})")
    return {agent: found[0] for agent, found in matches.items()}


def linked(partitions: Iterable[Mapping[str, str]]) -> list[list[str]]:
    """Agents that hang together: those that have the same name in any of the partitions, directly or over others.

    Args:
        partitions: each names every agent, in the same order.

    Returns:
        Groups in the order of their first agent, agents in order.
    """
    partitions = list(partitions)
    leader: dict[str, str] = {agent: agent for agent in partitions[0]}

    def find(agent: str) -> str:
        while leader[agent] != agent:
            leader[agent] = leader[leader[agent]]
            agent = leader[agent]
        return agent

    for partition in partitions:
        first: dict[str, str] = {}
        for agent, name in partition.items():
            leader[find(agent)] = find(first.setdefault(name, agent))
    groups: dict[str, list[str]] = {}
    for agent in leader:
        groups.setdefault(find(agent), []).append(agent)
    return list(groups.values())
