"""Who is in which team, module and slot, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rllib_shared.teams import Teams

AGENTS = ("blue_0", "red_0", "red_1", "blue_1", "red_2")
OBSERVATION = gym.spaces.Box(0, 1, (3,), np.float32)
ACTION = gym.spaces.Discrete(4)


def build(agents: Any = AGENTS, teams: Any = None, sharing: str = "team", **spaces: gym.Space) -> Teams:
    """Teams over equal spaces, but for the observation spaces given by agent."""
    return Teams.build(
        {agent: spaces.get(agent, OBSERVATION) for agent in agents}, dict.fromkeys(agents, ACTION), teams, sharing
    )


def test_teams_are_the_prefixes_of_agent_names() -> None:
    assert build(("red_0", "speaker", "big_walker_12", "red_10")).agents == {
        "red": ("red_0", "red_10"),
        "speaker": ("speaker",),
        "big_walker": ("big_walker_12",),
    }


def test_slots_are_in_possible_agents_order() -> None:
    teams = build()
    assert teams.names == teams.module_ids == ("blue", "red")
    assert teams.modules["red"].agents == ("red_0", "red_1", "red_2")
    assert teams.modules["blue"].agents == ("blue_0", "blue_1")
    assert teams.modules["red"].num_slots == 3
    assert teams.modules["red"].weight_index.tolist() == [0, 0, 0]


def test_patterns_put_several_kinds_of_agents_into_one_team() -> None:
    teams = build(("redmelee_0", "redranged_0", "blue_0"), {"red": ["redmelee_*", "redranged_*"], "blue": "blue_*"})
    assert teams.agents == {"red": ("redmelee_0", "redranged_0"), "blue": ("blue_0",)}


def test_a_function_names_the_team_of_each_agent() -> None:
    teams = build(teams=lambda agent: "even" if int(agent[-1]) % 2 == 0 else "odd")
    assert teams.agents == {"even": ("blue_0", "red_0", "red_2"), "odd": ("red_1", "blue_1")}


def test_the_policy_mapping_sends_all_agents_of_a_team_to_one_policy() -> None:
    mapping = build().policy_mapping_fn
    assert {agent: mapping(agent, None) for agent in AGENTS} == {
        "red_0": "red",
        "red_1": "red",
        "red_2": "red",
        "blue_0": "blue",
        "blue_1": "blue",
    }
    assert mapping("red_1", episode=object(), worker=None) == "red"


def test_the_policy_mapping_survives_pickling() -> None:
    mapping = build(teams=lambda agent: agent.split("_")[0]).policy_mapping_fn
    restored = pickle.loads(pickle.dumps(mapping))
    assert [restored(agent) for agent in AGENTS] == [mapping(agent) for agent in AGENTS]


def test_the_policy_mapping_refuses_an_agent_it_does_not_know() -> None:
    with pytest.raises(KeyError, match=r"'green_0' is in no team; known agents: .*'red_0'"):
        build().policy_mapping_fn("green_0")


def test_sharing_all_gives_every_team_one_module_and_keeps_the_teams_apart() -> None:
    teams = build(sharing="all")
    assert teams.names == ("blue", "red")
    (slots,) = teams.modules.values()
    assert slots.module_id == "shared"
    assert slots.agents == ("blue_0", "blue_1", "red_0", "red_1", "red_2")
    assert slots.teams == ("blue", "red")
    assert slots.team_index.tolist() == [0, 0, 1, 1, 1]
    assert {teams.policy_mapping_fn(agent) for agent in AGENTS} == {"shared"}


def test_an_agent_in_no_team_is_named() -> None:
    with pytest.raises(ValueError, match=r"agents in no team: 'blue_0', 'blue_1'; the patterns are"):
        build(teams={"red": ["red_*"]})


def test_an_agent_in_two_teams_is_named_with_both() -> None:
    with pytest.raises(ValueError, match=r"more than one team: 'red_0' \('red_0' is in \['all', 'first'\]\)"):
        build(teams={"all": ["*"], "first": ["red_0"]})


def test_a_pattern_that_matches_nobody_is_named() -> None:
    with pytest.raises(ValueError, match=r"pattern 'green_\*' of team 'green' matches no agent; agents are 'blue_0'"):
        build(teams={"red": ["red_*"], "blue": ["blue_*"], "green": ["green_*"]})


def test_a_team_without_patterns_is_refused() -> None:
    with pytest.raises(ValueError, match="team 'green' has no patterns"):
        build(teams={"all": ["*"], "green": []})


def test_two_observation_spaces_under_one_policy_are_refused() -> None:
    wide = gym.spaces.Box(0, 1, (5,), np.float32)
    with pytest.raises(ValueError, match=r"module 'red' must have equal observation spaces.*'red_0'.*'red_1'") as error:
        build(red_1=wide)
    assert str(OBSERVATION) in str(error.value)
    assert str(wide) in str(error.value)


def test_two_action_spaces_under_one_policy_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"module 'shared' must have equal action spaces.*Discrete\(4\).*Discrete\(9\)"
    ):
        Teams.build(
            dict.fromkeys(("red_0", "blue_0"), OBSERVATION),
            {"red_0": ACTION, "blue_0": gym.spaces.Discrete(9)},
            sharing="all",
        )


@pytest.mark.parametrize("answer", [None, 3, ("red",)])
def test_a_teams_function_must_return_a_string(answer: Any) -> None:
    with pytest.raises(TypeError, match=r"for agent 'blue_0' it returned .* of type"):
        build(teams=lambda agent: answer)


def test_agent_ids_must_be_strings() -> None:
    with pytest.raises(TypeError, match="agent ids must be strings, got 0 of type int"):
        build(agents=(0, 1))


def test_team_names_must_be_strings() -> None:
    with pytest.raises(TypeError, match="team names must be strings, got 7 of type int"):
        build(teams={7: ["*"]})


@pytest.mark.parametrize("name", ["red/team", "../up", "", "two words", ".hidden"])
def test_a_team_name_must_be_safe_in_a_path(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be used in a path or a metric key"):
        build(teams={name: ["*"]})


def test_unknown_sharing_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="unknown sharing 'teem'; did you mean 'team'"):
        build(sharing="teem")


def test_an_environment_without_agents_is_refused() -> None:
    with pytest.raises(ValueError, match="has no agents"):
        build(agents=())


def test_teams_must_be_a_dict_a_function_or_none() -> None:
    with pytest.raises(TypeError, match="teams must be None, a dict of patterns or a function, got list"):
        build(teams=["red", "blue"])
