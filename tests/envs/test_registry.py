"""From names to environments: what is known, what is refused with the nearest name, exact team sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from pettingzoo.utils import BaseParallelWrapper
from pettingzoo.utils.conversions import parallel_to_aec
from ray.tune.registry import register_env

from rllib_shared.envs.games import CoinGame, coin_game
from rllib_shared.envs.gridworld import GridWorldTeamEnv
from rllib_shared.envs.parallel import ParallelTeamEnv
from rllib_shared.envs.registry import NAMED, env_config_keys, make_env, make_team_env, wrap_parallel_env
from tests.envs.play import BATTLE_NOOP, everyone

GAMES = ("matrix_game", "two_step_game", "coin_game", "cartpole_team", "masked_teams")


@pytest.mark.parametrize("name", [*GAMES, "simple_spread_v3", "simple_tag_v3", "pursuit_v5", "multiwalker_v9"])
def test_a_name_makes_an_environment_as_arrays(name: str) -> None:
    env = make_team_env(name)
    assert isinstance(env, ParallelTeamEnv)
    step = env.reset(seed=2)
    assert all(part.alive.all() for part in step.modules.values())
    env.close()


def test_magent2_goes_the_fast_way() -> None:
    assert isinstance(make_team_env("battle_v4", {"map_size": 12}), GridWorldTeamEnv)


def test_every_name_tells_its_config_keys() -> None:
    for name in NAMED:
        keys = env_config_keys(name)
        assert keys is None or "self" not in keys, name
    assert env_config_keys("masked_teams") == {
        "deaths",
        "end",
        "max_cycles",
        "mask_in",
        "state",
        "num_red",
        "num_blue",
        "born",
    }
    assert {"map_size", "agents_per_team", "mask_attacks", "attack_opponent_reward"} <= env_config_keys("battle_v4")


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown env 'batle_v4'; did you mean 'battle_v4'.*package.module:factory"):
        make_env("batle_v4")


@pytest.mark.parametrize(
    ("name", "key", "nearest"),
    [
        ("battle_v4", "mapsize", "map_size"),
        ("coin_game", "max_cycle", "max_cycles"),
        ("battle_v4", "agents_per_teams", "agents_per_team"),
    ],
)
def test_an_unknown_config_key_is_refused_with_the_nearest_one(name: str, key: str, nearest: str) -> None:
    with pytest.raises(
        ValueError, match=rf"unknown env_config key '{key}'; did you mean '{nearest}'.*\(env '{name}'\)"
    ):
        make_env(name, **{key: 16})


def test_exact_team_sizes_are_for_battle_only() -> None:
    with pytest.raises(ValueError, match="unknown env_config key 'agents_per_team'"):
        make_env("battlefield_v5", agents_per_team=10)


@pytest.mark.parametrize(
    ("name", "missing", "install"),
    [
        ("simple_spread_v3", "mpe2", "pip install mpe2"),
        ("multiwalker_v9", "Box2D", "pip install 'pettingzoo[sisl]'"),
        ("battle_v4", "magent2", "pip install magent2"),
    ],
)
def test_a_missing_package_is_named_with_how_to_install_it(name: str, missing: str, install: str) -> None:
    hide = f"import sys; sys.modules[{missing!r}] = None"
    code = f"{hide}; from rllib_shared.envs.registry import make_env; make_env({name!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    last = done.stderr.splitlines()[-1]
    assert name in last and missing in last and last.endswith(install)


def test_a_factory_or_its_path_make_an_environment_too() -> None:
    assert make_team_env(coin_game, {"max_cycles": 3}).env.max_cycles == 3
    assert make_team_env("rllib_shared.envs.games:CoinGame", {"max_cycles": 4}).env.max_cycles == 4
    with pytest.raises(ValueError, match="unknown env_config key 'cycles'"):
        make_env("rllib_shared.envs.games:CoinGame", cycles=4)


@pytest.mark.parametrize("path", ["rllib_shared.envs.games:NoSuchGame", "no_such_package:factory"])
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=rf"env '{path}': .*no"):
        make_env(path)


def test_what_tune_knows_makes_an_environment_too() -> None:
    register_env("my_coin", lambda env_config: CoinGame(**env_config))
    assert make_team_env("my_coin", {"max_cycles": 5}).env.max_cycles == 5


def test_a_team_env_is_taken_as_it_is() -> None:
    env = make_team_env("coin_game")
    assert wrap_parallel_env(env) is env


def test_a_turn_based_environment_is_refused_and_told_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"make turn-based environments parallel with .*aec_to_parallel"):
        wrap_parallel_env(parallel_to_aec(CoinGame()))


@pytest.mark.parametrize("thing", [object(), "battle_v4", None])
def test_what_is_no_environment_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="expected a PettingZoo ParallelEnv or a TeamEnv, got"):
        wrap_parallel_env(thing)


def test_a_specifier_must_be_a_name_or_a_factory() -> None:
    with pytest.raises(TypeError, match="env must be a name"):
        make_env(7)


def test_a_map_on_which_tiger_deer_corrupts_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="tiger_deer_v4 corrupts memory above map_size=440, got 480"):
        make_env("tiger_deer_v4", map_size=480)


def test_masked_attacks_need_an_environment_whose_attack_cells_are_known() -> None:
    with pytest.raises(ValueError, match=r"mask_attacks needs one of .*'battle_v4'.*, not tiger_deer_v4"):
        make_env("tiger_deer_v4", map_size=16, mask_attacks=True)


# Exact team sizes.


@pytest.mark.parametrize("size", [1, 7, 20, 200])
def test_agents_per_team_is_exact(size: Any) -> None:
    env = make_team_env("battle_v4", {"agents_per_team": size, "max_cycles": 3})
    assert {team: len(agents) for team, agents in env.teams.agents.items()} == {"red": size, "blue": size}
    engine, handles = env.game.engine, env.env.handles
    for seed in (2, 3):
        step = env.reset(seed=seed)
        assert [engine.get_num(handle) for handle in handles] == [size, size]
        positions = np.concatenate([engine.get_pos(handle) for handle in handles])
        assert len(np.unique(positions, axis=0)) == 2 * size
        assert positions.min() >= 1
        assert positions.max() <= env.env.map_size - 2
    assert not env.step(everyone(env, step, BATTLE_NOOP)).over


def test_the_teams_of_a_sized_battle_face_each_other_at_the_middle() -> None:
    env = make_team_env("battle_v4", {"agents_per_team": 20})
    env.reset(seed=2)
    left, right = (env.game.engine.get_pos(handle) for handle in env.env.handles)
    middle = env.env.map_size // 2
    assert left[:, 0].max() == middle - 5
    assert right[:, 0].min() == middle + 3
    assert sorted(left[:, 1]) == sorted(right[:, 1])


def test_a_map_that_is_too_small_for_the_teams_is_refused() -> None:
    with pytest.raises(ValueError, match=r"200 agents per team need a map_size of at least \d+, got 20"):
        make_env("battle_v4", agents_per_team=200, map_size=20)


@pytest.mark.parametrize("size", [0, -3, 2.5, "many"])
def test_a_team_size_must_be_a_positive_whole_number(size: Any) -> None:
    with pytest.raises(ValueError, match="agents_per_team must be a whole number of at least 1"):
        make_env("battle_v4", agents_per_team=size)


def test_a_sized_battle_takes_battles_other_options() -> None:
    env = make_env("battle_v4", agents_per_team=5, dead_penalty=-0.7, max_cycles=9, minimap_mode=True)
    assert env.max_cycles == 9
    assert env.observation_space("red_0").shape == (13, 13, 9)
    steps = make_team_env("battle_v4", {"agents_per_team": 5, "step_reward": -0.25})
    step = steps.step(everyone(steps, steps.reset(seed=2), BATTLE_NOOP))
    np.testing.assert_allclose(step.modules["red"].reward, -0.25)


# What an import does to the process.


@pytest.mark.parametrize("before", [None, "2"])
def test_making_a_magent2_environment_keeps_the_number_of_threads(before: str | None) -> None:
    """`import magent2` sets OMP_NUM_THREADS, and a torch imported afterwards gets half the threads."""
    code = """
import os
from rllib_shared.envs.registry import make_env
make_env("battle_v4", map_size=12)
print(os.environ.get("OMP_NUM_THREADS"))
"""
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    environment |= {} if before is None else {"OMP_NUM_THREADS": before}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split()[-1] == str(before)


class Louder(BaseParallelWrapper):
    """A user's wrapper: rewards ten times as large."""

    def step(self, actions: dict) -> tuple:
        observations, rewards, *rest = super().step(actions)
        return observations, {agent: 10 * reward for agent, reward in rewards.items()}, *rest


def test_a_user_s_wrapper_around_magent2_is_not_bypassed() -> None:
    loud = wrap_parallel_env(Louder(make_env("battle_v4", map_size=12)))
    plain = make_team_env("battle_v4", {"map_size": 12})
    rewards = []
    for env in (plain, loud):
        env.reset(seed=3)
        actions = {mid: np.full(slots.num_slots, 6) for mid, slots in env.teams.modules.items()}
        rewards.append(env.step(actions).modules["red"].reward)
    np.testing.assert_allclose(rewards[1], 10 * rewards[0])
    assert rewards[0].any()


def test_what_a_factory_cannot_take_is_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"env 'battle_v4' refused env_config \{'map_size': 3\}.*at least 12"):
        make_env("battle_v4", map_size=3)
