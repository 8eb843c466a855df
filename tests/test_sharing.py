"""Who uses the same weights: modules and weight sets of every choice of sharing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rllib_shared.teams import Teams

AGENTS = ("red_0", "red_1", "red_2", "blue_0", "blue_1")
VIEW = gym.spaces.Box(0, 1, (3,), np.float32)
COMBINED = ("redmelee_0", "redranged_0", "redmelee_1", "bluemelee_0", "blueranged_0")
COMBINED_TEAMS = {"red": ["red*"], "blue": ["blue*"]}


def build(sharing: Any, critic_sharing: Any = None, agents: Any = AGENTS, teams: Any = None) -> Teams:
    """Ranged agents have more actions than the others."""
    actions = {agent: gym.spaces.Discrete(5 if "ranged" in agent else 4) for agent in agents}
    return Teams.build(dict.fromkeys(agents, VIEW), actions, teams, sharing, critic_sharing)


def sets(teams: Teams) -> dict[str, tuple[list[int], list[int]]]:
    """Actor's and critic's weight index of each module."""
    return {mid: (m.weight_index.tolist(), m.critic_weight_index.tolist()) for mid, m in teams.modules.items()}


@pytest.mark.parametrize(
    ("sharing", "critic_sharing", "expected"),
    [
        ("team", None, {"red": ([0, 0, 0], [0, 0, 0]), "blue": ([0, 0], [0, 0])}),
        ("role", None, {"red": ([0, 0, 0], [0, 0, 0]), "blue": ([0, 0], [0, 0])}),
        ("agent", None, {"red": ([0, 1, 2], [0, 1, 2]), "blue": ([0, 1], [0, 1])}),
        ("agent", "team", {"red": ([0, 1, 2], [0, 0, 0]), "blue": ([0, 1], [0, 0])}),
        ("team", "agent", {"red": ([0, 0, 0], [0, 1, 2]), "blue": ([0, 0], [0, 1])}),
        ("all", None, {"shared": ([0] * 5, [0] * 5)}),
        ("agent", "all", {"shared": ([0, 1, 2, 3, 4], [0] * 5)}),
        ("all", "team", {"shared": ([0] * 5, [0, 0, 0, 1, 1])}),
        (
            {"scout": ["red_1", "blue_1"], "rest": ["*_0", "red_2"]},
            None,
            {"red-blue": ([0, 1, 0, 0, 1], [0, 1, 0, 0, 1])},
        ),
        (
            {"scout": "red_0", "rest": "red_[12]", "blue": "blue_*"},
            "agent",
            {"red": ([0, 1, 1], [0, 1, 2]), "blue": ([0, 0], [0, 1])},
        ),
    ],
)
def test_actor_and_critic_share_independently(sharing: Any, critic_sharing: Any, expected: Any) -> None:
    assert sets(build(sharing, critic_sharing)) == expected


def test_weight_sets_have_names() -> None:
    red = build({"scout": "red_0", "rest": ["red_[12]", "blue_*"]}, "agent").modules["red-blue"]
    assert red.weight_sets == ("scout", "rest")
    assert red.critic_weight_sets == AGENTS


def test_the_mapping_function_keeps_sending_a_team_to_one_policy() -> None:
    mapping = build("agent", "team").policy_mapping_fn
    assert {agent: mapping(agent) for agent in AGENTS} == {a: a.split("_")[0] for a in AGENTS}


@pytest.mark.parametrize("sharing", ["role", "agent"])
def test_roles_of_a_team_are_modules_of_their_own(sharing: str) -> None:
    teams = build(sharing, agents=COMBINED, teams=COMBINED_TEAMS)
    assert {mid: slots.agents for mid, slots in teams.modules.items()} == {
        "red_melee": ("redmelee_0", "redmelee_1"),
        "red_ranged": ("redranged_0",),
        "blue_melee": ("bluemelee_0",),
        "blue_ranged": ("blueranged_0",),
    }
    assert teams.names == ("red", "blue")


def test_roles_whose_names_do_not_tell_them_apart_are_numbered() -> None:
    agents = ("walker_0", "walker_1")
    actions = {"walker_0": gym.spaces.Discrete(2), "walker_1": gym.spaces.Discrete(3)}
    teams = Teams.build(dict.fromkeys(agents, VIEW), actions, sharing="role")
    assert teams.module_ids == ("walker_role0", "walker_role1")


@pytest.mark.parametrize(
    ("sharing", "critic_sharing", "error", "sentence"),
    [
        ("agnet", None, ValueError, "unknown sharing 'agnet'; did you mean 'agent'?"),
        ("team", "teams", ValueError, "unknown critic_sharing 'teams'; did you mean 'team'?"),
        (3, None, TypeError, "sharing must be one of 'team', 'all', 'role', 'agent' or a dict of agent patterns"),
        ({"a": ["green_*"]}, None, ValueError, "pattern 'green_\\*' of sharing group 'a' matches no agent"),
        ({"a": ["red_*"]}, None, ValueError, "agents in no sharing group: 'blue_0', 'blue_1'"),
        ({"a": []}, None, ValueError, "sharing group 'a' has no patterns"),
        ("team", {"a": "*", "b": "red_1"}, ValueError, "agents in more than one critic_sharing group: 'red_1'"),
    ],
)
def test_wrong_choices_are_refused(sharing: Any, critic_sharing: Any, error: type, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        build(sharing, critic_sharing)


@pytest.mark.parametrize(("sharing", "critic_sharing"), [("team", None), ("role", "team"), ("all", None)])
def test_weights_cannot_be_shared_between_different_spaces(sharing: str, critic_sharing: str | None) -> None:
    with pytest.raises(ValueError, match=r'equal action spaces.*share by "role" or "agent"'):
        build(sharing, critic_sharing, COMBINED, COMBINED_TEAMS)
