"""GAE and value targets over arrays: what bootstraps, what does not, and that the dead do not count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rllib_shared.algorithms import connector
from rllib_shared.algorithms.advantages import standardized
from rllib_shared.algorithms.batch import ADVANTAGES, VALUE_TARGETS, ModuleBatch
from rllib_shared.algorithms.connector import TeamAdvantages
from rllib_shared.envs.team_env import CRITIC_OBSERVATION, OBSERVATION
from rllib_shared.modules.centralized_critic import CRITIC_ROW
from rllib_shared.sampling.fragment import TeamFragment
from rllib_shared.teams import Teams
from tests.algorithms.fragments import make_teams, module_fragment, team_fragment


class ScriptedCritic(torch.nn.Module):
    """A critic whose value is a constant, the first number of the observation, or of the critic observation."""

    def __init__(self, value: float | None = None, read: str = OBSERVATION) -> None:
        super().__init__()
        self._value = value
        self._read = read
        self._device_holder = torch.nn.Parameter(torch.zeros(1))

    def unwrapped(self) -> ScriptedCritic:
        return self

    def compute_values(self, batch: dict[str, Any]) -> torch.Tensor:
        obs = batch["obs"]
        if self._value is not None:
            return torch.full((len(obs[OBSERVATION]),), self._value)
        if self._read == OBSERVATION:
            return obs[OBSERVATION][:, 0]
        return obs[CRITIC_OBSERVATION][batch[CRITIC_ROW]][:, 0]


def learn(
    teams: Teams, fragments: list[TeamFragment], critic: ScriptedCritic, gamma: float = 1.0, lambda_: float = 1.0
) -> dict[str, ModuleBatch]:
    """The train batch that the learner would make."""
    ids = teams.module_ids
    advantages = TeamAdvantages(teams.modules, dict.fromkeys(ids, gamma), dict.fromkeys(ids, lambda_))
    return advantages(rl_module=dict.fromkeys(ids, critic), batch={}, episodes=fragments)  # type: ignore[arg-type]


def test_a_time_limit_bootstraps_from_the_last_value() -> None:
    """T1: reward 1, limit after 3 steps, V = 10 everywhere: the target of the first step is 3 + 10."""
    teams = make_teams({"red": 2})
    ones = np.ones((3, 2))
    truncated = np.zeros((3, 2))
    truncated[-1] = 1
    fragment = team_fragment({"red": module_fragment(ones, reward=ones, truncated=truncated)})
    batch = learn(teams, [fragment], ScriptedCritic(10.0))["red"]
    np.testing.assert_allclose(batch.columns[VALUE_TARGETS].reshape(3, 2)[0], [13.0, 13.0])


def test_a_termination_does_not_bootstrap() -> None:
    teams = make_teams({"red": 2})
    ones = np.ones((3, 2))
    terminated = np.zeros((3, 2))
    terminated[-1] = 1
    fragment = team_fragment({"red": module_fragment(ones, reward=ones, terminated=terminated)})
    batch = learn(teams, [fragment], ScriptedCritic(10.0))["red"]
    np.testing.assert_allclose(batch.columns[VALUE_TARGETS].reshape(3, 2)[:, 0], [3.0, 2.0, 1.0])


def test_in_a_mixed_end_each_agent_follows_its_own_flag() -> None:
    """T2: in the last step red terminates and blue is truncated."""
    teams = make_teams({"red": 1, "blue": 1})
    ones, last = np.ones((3, 1)), np.array([[0], [0], [1]])
    fragment = team_fragment(
        {
            "red": module_fragment(ones, reward=ones, terminated=last),
            "blue": module_fragment(ones, reward=ones, truncated=last),
        }
    )
    batch = learn(teams, [fragment], ScriptedCritic(10.0))
    assert batch["red"].columns[VALUE_TARGETS][0] == pytest.approx(3.0)
    assert batch["blue"].columns[VALUE_TARGETS][0] == pytest.approx(13.0)


def test_an_agent_both_terminated_and_truncated_does_not_bootstrap() -> None:
    teams = make_teams({"red": 1})
    one = np.ones((1, 1))
    fragment = team_fragment({"red": module_fragment(one, reward=one, terminated=one, truncated=one)})
    assert learn(teams, [fragment], ScriptedCritic(10.0))["red"].columns[VALUE_TARGETS][0] == pytest.approx(1.0)


def test_a_cut_fragment_bootstraps_from_its_last_observation() -> None:
    teams = make_teams({"red": 1})
    observation = np.array([[[5.0, 0]], [[6.0, 0]], [[7.0, 0]]], np.float32)
    part = module_fragment(np.ones((2, 1)), alive_after=[True], observation=observation)
    targets = learn(teams, [team_fragment({"red": part})], ScriptedCritic(), lambda_=0.0)["red"].columns[VALUE_TARGETS]
    np.testing.assert_allclose(targets, [6.0, 7.0])


def test_truncated_agents_bootstrap_from_the_last_critic_observation() -> None:
    teams = make_teams({"red": 2, "blue": 1})
    critic = {"red": np.array([[1.0], [2], [30]], np.float32), "blue": np.array([[4.0], [5], [60]], np.float32)}
    last = np.array([[0, 0], [1, 1]])
    fragment = team_fragment(
        {
            "red": module_fragment(np.ones((2, 2)), truncated=last),
            "blue": module_fragment(np.ones((2, 1)), truncated=last[:, :1]),
        },
        critic,
    )
    batch = learn(teams, [fragment], ScriptedCritic(read=CRITIC_OBSERVATION), lambda_=0.0)
    np.testing.assert_allclose(batch["red"].columns[VALUE_TARGETS].reshape(2, 2), [[2, 2], [30, 30]])
    np.testing.assert_allclose(batch["blue"].columns[VALUE_TARGETS], [5, 60])


def test_an_agent_truncated_before_the_others_bootstraps_from_what_it_saw_then() -> None:
    teams = make_teams({"red": 2})
    observation = np.array([[[1.0, 0], [1, 0]], [[2, 0], [20, 0]], [[3, 0], [0, 0]]], np.float32)
    part = module_fragment(
        [[1, 1], [1, 0]], truncated=[[0, 1], [0, 0]], alive_after=[True, False], observation=observation
    )
    targets = learn(teams, [team_fragment({"red": part})], ScriptedCritic(), lambda_=0.0)["red"].columns[VALUE_TARGETS]
    np.testing.assert_allclose(targets, [2.0, 20.0, 3.0])


def test_modules_of_several_teams_read_each_team_s_own_critic_observation() -> None:
    teams = make_teams({"red": 1, "blue": 2}, sharing="all")
    critic = {"red": np.array([[1.0], [2]], np.float32), "blue": np.array([[3.0], [4]], np.float32)}
    part = module_fragment(np.ones((1, 3)), alive_after=[True] * 3)
    batch = learn(teams, [team_fragment({"shared": part}, critic)], ScriptedCritic(read=CRITIC_OBSERVATION), 1.0, 0.0)
    np.testing.assert_allclose(batch["shared"].columns[VALUE_TARGETS], [2, 4, 4])


def test_each_fragment_bootstraps_from_its_own_last_observations() -> None:
    teams = make_teams({"red": 1, "blue": 2}, sharing="all")
    fragments = []
    for first in (1.0, 10.0, 100.0):
        critic = {
            "red": np.array([[first], [2 * first]], np.float32),
            "blue": np.array([[3 * first], [4 * first]], np.float32),
        }
        # Nobody goes on after the second.
        part = module_fragment(np.ones((1, 3)), alive_after=[first != 10] * 3, terminated=[[first == 10] * 3])
        fragments.append(team_fragment({"shared": part}, critic))
    batch = learn(teams, fragments, ScriptedCritic(read=CRITIC_OBSERVATION), 1.0, 0.0)
    np.testing.assert_allclose(batch["shared"].columns[VALUE_TARGETS], [2, 4, 4, 0, 0, 0, 200, 400, 400])


def test_many_bootstraps_go_through_the_critic_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "_VALUE_CHUNK", 2)
    teams = make_teams({"red": 2})
    fragments = []
    for value in (1.0, 2.0, 3.0):
        observation = np.full((2, 2, 2), value, np.float32)
        fragments.append(
            team_fragment({"red": module_fragment(np.ones((1, 2)), alive_after=[True, True], observation=observation)})
        )
    targets = learn(teams, fragments, ScriptedCritic(), lambda_=0.0)["red"].columns[VALUE_TARGETS]
    np.testing.assert_allclose(targets, [1, 1, 2, 2, 3, 3])


def test_nothing_flows_from_a_later_life_of_a_slot() -> None:
    teams = make_teams({"red": 1})
    part = module_fragment(np.ones((3, 1)), reward=[[0], [0], [100]], terminated=[[0], [1], [0]])
    targets = learn(teams, [team_fragment({"red": part})], ScriptedCritic(0.0))["red"].columns[VALUE_TARGETS]
    np.testing.assert_allclose(targets, [0, 0, 100])


def test_gae_equals_the_textbook_recursion() -> None:
    teams = make_teams({"red": 1})
    rng = np.random.default_rng(3)
    reward, observation = rng.normal(size=(5, 1)), rng.normal(size=(6, 1, 2)).astype(np.float32)
    part = module_fragment(np.ones((5, 1)), reward=reward, alive_after=[True], observation=observation)
    batch = learn(teams, [team_fragment({"red": part})], ScriptedCritic(), gamma=0.9, lambda_=0.8)["red"]
    value, expected, running = observation[:, 0, 0], np.zeros(5), 0.0
    for t in reversed(range(5)):
        running = reward[t, 0] + 0.9 * value[t + 1] - value[t] + 0.9 * 0.8 * running
        expected[t] = running
    np.testing.assert_allclose(batch.columns[VALUE_TARGETS], expected + value[:5], rtol=1e-5)
    np.testing.assert_allclose(batch.columns[ADVANTAGES], standardized(expected), rtol=1e-4)


def test_advantages_that_are_all_zero_stay_zero() -> None:
    """T5: three trajectories with rewards 0 and constant values; stock divides by a deviation of phantom rows."""
    teams = make_teams({"red": 1})
    fragments = []
    for value in (1.0, 50.0, -50.0):
        observation = np.full((5, 1, 2), value, np.float32)
        part = module_fragment(np.ones((4, 1)), alive_after=[True], observation=observation)
        fragments.append(team_fragment({"red": part}))
    batch = learn(teams, fragments, ScriptedCritic())["red"]
    np.testing.assert_allclose(batch.columns[ADVANTAGES], np.zeros(12), atol=1e-3)


def test_what_dead_slots_hold_changes_nothing() -> None:
    """T5: 1e9 in every array of every dead slot."""
    teams = make_teams({"red": 3})
    alive = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1]], bool)
    batches = []
    for garbage in (0.0, 1e9):
        part = module_fragment(alive, reward=np.ones((3, 3)), terminated=[[0, 1, 0], [0, 0, 0], [0, 0, 0]])
        part.alive_after = np.array([True, False, True])
        for array in (part.observation, part.dist_inputs, part.logp, part.reward):
            array[~alive] = garbage
        part.last_observation[1] = garbage
        batches.append(learn(teams, [team_fragment({"red": part})], ScriptedCritic(), 0.9, 0.8)["red"])
    clean, dirty = batches
    assert torch.equal(clean.observation, dirty.observation)
    for name, column in clean.columns.items():
        assert torch.equal(column, dirty.columns[name]), name


def test_each_weight_set_is_standardized_by_itself() -> None:
    advantage = np.array([1.0, 100, 3, 300], np.float32)
    result = standardized(advantage, np.array([0, 1, 0, 1]))
    np.testing.assert_allclose(result, [-1, -1, 1, 1])
