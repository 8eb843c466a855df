"""What critics may see: `state`, `joint`, `own`, a function; and environments whose `state()` is odd."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from pettingzoo.classic import rps_v2

from rllib_shared.envs.critic_observation import make_observer
from rllib_shared.envs.games import CoinGame
from rllib_shared.envs.registry import make_env, make_team_env, wrap_parallel_env
from rllib_shared.envs.team_env import TeamEnv, TeamStep
from tests.envs.play import at_random, everyone, fight, play

INSTEAD = r'use critic_observation="joint", "own" or a function'


def toy(critic_observation: Any, **env_config: Any) -> TeamEnv:
    return make_team_env("masked_teams", {"max_cycles": 4, **env_config}, critic_observation=critic_observation)


def test_joint_is_the_teammates_observations_side_by_side_with_zeros_for_the_dead() -> None:
    env = toy("joint", deaths={"red_1": 2})
    assert {team: space.shape for team, space in env.critic_spaces.items()} == {"red": (6,), "blue": (4,)}
    steps, _ = play(env, 2, at_random)
    red = [step.critic_observation["red"].tolist() for step in steps]
    assert red[1] == [0, 1, 1, 1, 2, 1]
    assert red[2] == [0, 2, 1, 2, 2, 2]  # red_1 died in this step and is still seen
    assert red[3] == [0, 3, 0, 0, 2, 3]
    assert steps[3].critic_observation["blue"].tolist() == [3, 3, 4, 3]


def test_joint_is_kept_apart_by_team_when_all_teams_share_a_module() -> None:
    env = make_team_env("masked_teams", {"num_red": 2}, sharing="all", critic_observation="joint")
    step = env.reset(seed=2)
    assert step.critic_observation["red"].tolist() == [0, 0, 1, 0]
    assert step.critic_observation["blue"].tolist() == [2, 0, 3, 0]


def test_own_has_no_critic_observation() -> None:
    env = toy("own")
    assert env.critic_spaces == {}
    assert env.reset(seed=2).critic_observation == {}
    assert set(env.module_spaces()["red"][0].spaces) == {"observation", "action_mask"}


def test_a_function_is_asked_once_per_team_and_step() -> None:
    asked: list[str] = []

    def count(env: Any, team: str) -> np.ndarray:
        asked.append(team)
        return np.array([env.frame, len(team), len(env.agents)])

    env = toy(count)
    assert {team: space.shape for team, space in env.critic_spaces.items()} == {"red": (3,), "blue": (3,)}
    asked.clear()
    steps, _ = play(env, 2, at_random)
    assert asked == ["red", "blue"] * 5
    assert [step.critic_observation["blue"].tolist() for step in steps] == [
        [0, 4, 5],
        [1, 4, 5],
        [2, 4, 5],
        [3, 4, 5],
        [4, 4, 0],
    ]
    assert steps[0].critic_observation["red"].dtype == np.float32


def test_a_function_may_come_with_its_space() -> None:
    space = gym.spaces.Box(0, 9, (2,), np.float32)
    env = toy((lambda env, team: np.full(2, env.frame), space))
    assert env.critic_spaces == {"red": space, "blue": space}
    assert env.reset(seed=2).critic_observation["red"].tolist() == [0, 0]


def test_a_function_whose_value_does_not_fit_its_space_is_named_by_team_and_shapes() -> None:
    space = gym.spaces.Box(0, 9, (2,), np.float32)
    env = toy((lambda env, team: np.zeros(3 if team == "blue" else 2), space))
    with pytest.raises(ValueError, match=r"masked_teams: .* team 'blue' has shape \(3,\), but its space says \(2,\)"):
        env.reset(seed=2)


def test_an_error_in_a_function_names_environment_and_team_and_keeps_its_cause() -> None:
    def fails(env: Any, team: str) -> np.ndarray:
        if env.frame == 2 and team == "blue":
            raise KeyError("no such thing")
        return np.zeros(1)

    with pytest.raises(RuntimeError, match=r"masked_teams: .* team 'blue' could not be computed: KeyError") as error:
        play(toy(fails), 2, at_random)
    assert isinstance(error.value.__cause__, KeyError)


def test_a_function_sees_magent2_after_the_step() -> None:
    seen = []

    def count(env: Any, team: str) -> np.ndarray:
        seen.append([env.unwrapped.env.get_num(handle) for handle in env.unwrapped.handles])
        return np.zeros(1)

    env = make_team_env("battle_v4", {"map_size": 16}, critic_observation=count)
    seen.clear()
    steps, _ = play(env, 3, fight)
    last = list(steps[-1].outcome.survivors.values())
    assert seen[0] == [6, 6]
    assert seen[-1] == last
    alive = [[int(part.alive.sum()) for part in step.modules.values()] for step in steps[:-1]]
    assert seen[::2][:-1] == alive


def test_an_unknown_choice_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="unknown critic_observation 'stat'; did you mean 'state'"):
        toy("stat")
    with pytest.raises(ValueError, match=r"critic_observation must be one of .* or a function"):
        toy(7)


# Environments whose state() is missing or odd.


def test_an_environment_without_state_is_refused_and_told_the_alternatives() -> None:
    with pytest.raises(ValueError, match=rf"masked_teams has no usable state\(\): NotImplementedError.*; {INSTEAD}"):
        toy("state", state=False)
    assert toy("joint", state=False).reset(seed=2).modules["red"].alive.all()


def test_a_state_that_is_no_function_is_refused() -> None:
    env = CoinGame()
    env.state = {"player_0": 0}
    with pytest.raises(ValueError, match=rf"coin_game has no callable state\(\); {INSTEAD}"):
        wrap_parallel_env(env)
    # PettingZoo's rock, paper, scissors hides its dict in a method that calls it.
    env, teams = rps_v2.parallel_env(), wrap_parallel_env(CoinGame()).teams
    env.reset()
    with pytest.raises(ValueError, match=rf"rps_v2 has no usable state\(\): TypeError.*; {INSTEAD}"):
        make_observer("state", env, teams, "rps_v2")


def test_a_state_that_raises_after_a_death_raises_with_its_name_while_somebody_lives() -> None:
    env = toy("state", state="raises", deaths={"red_1": 2})
    step = env.reset(seed=2)
    step = env.step(everyone(env, step, 0))
    with pytest.raises(RuntimeError, match=r"masked_teams: .* 'red' could not be computed: AttributeError"):
        env.step(everyone(env, step, 0))


def test_a_state_that_raises_on_a_terminal_step_is_held_because_nobody_bootstraps_from_it() -> None:
    env = toy("state", state="raises", deaths={"red_1": 4}, end="terminate")
    steps, _ = play(env, 2, at_random)
    assert steps[-1].over
    held, last = steps[-2].critic_observation["red"], steps[-1].critic_observation["red"]
    np.testing.assert_array_equal(last, held)
    assert play(env, 3, at_random)[0][0].critic_observation["red"].tolist() == [0, 1, 1, 1, 1, 1]


def test_a_state_that_raises_at_a_time_limit_is_not_held_because_it_is_bootstrapped_from() -> None:
    env = toy("state", state="raises", deaths={"red_1": 4}, end="truncate")
    with pytest.raises(RuntimeError, match="could not be computed"):
        play(env, 2, at_random)


def test_multiwalkers_state_raises_after_a_fall_and_joint_works() -> None:
    def walk(critic_observation: Any) -> list[TeamStep]:
        env = make_team_env(
            "multiwalker_v9",
            {"remove_on_fall": True, "terminate_on_fall": False, "max_cycles": 60},
            critic_observation=critic_observation,
        )
        rng = np.random.default_rng(0)
        steps = [env.reset(seed=2)]
        while not steps[-1].over and steps[-1].modules["walker"].alive.all():
            alive = steps[-1].modules["walker"].alive
            actions = rng.uniform(-1, 1, (3, 4)).astype(np.float32)
            actions[~alive] = np.nan
            steps.append(env.step({"walker": actions}))
        return steps

    with pytest.raises(RuntimeError, match=r"multiwalker_v9: .* 'walker' could not be computed: AttributeError"):
        walk("state")
    steps = walk("joint")
    assert not steps[-1].modules["walker"].alive.all()
    assert steps[-1].critic_observation["walker"].shape == (93,)


def test_a_float64_state_becomes_float32() -> None:
    env = make_team_env("knights_archers_zombies_v11", {"max_cycles": 2})
    assert env.env.state().dtype == np.float64
    step = env.reset(seed=2)
    assert step.critic_observation["archer"].dtype == np.float32
    np.testing.assert_allclose(step.critic_observation["archer"], env.env.state(), rtol=1e-6)


def test_the_state_of_mpe_is_its_own() -> None:
    env = make_env("simple_spread_v3", max_cycles=3)
    steps, _ = play(wrap_parallel_env(env), 2, at_random)
    np.testing.assert_allclose(steps[-1].critic_observation["agent"], env.state())
