"""MAgent2's state, where MAgent2's own is wrong (wipe-outs, moving walls, extra features), and team-relative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rllib_shared.envs.registry import make_team_env
from rllib_shared.envs.team_env import WIPED_OUT, TeamEnv
from tests.envs.play import at_random, fight, play


def make(name: str, critic_observation: Any = "state", **env_config: Any) -> TeamEnv:
    return make_team_env(name, env_config, critic_observation=critic_observation)


def test_the_state_is_right_on_the_step_that_wipes_a_team_out() -> None:
    env = make("battle_v4", map_size=16)
    steps, _ = play(env, 3, fight)
    last = steps[-1]
    assert last.outcome.reason == WIPED_OUT
    with pytest.raises(ValueError, match="not enough values to unpack"):
        env.env.state()
    winner, loser = (
        last.outcome.winner,
        next(team for team in last.outcome.survivors if not last.outcome.survivors[team]),
    )
    for team, own, enemy in ((winner, 1, 3), (loser, 3, 1)):
        state = last.critic_observation[team]
        assert state.shape == env.critic_spaces[team].shape == (16, 16, 5)
        assert np.isfinite(state).all()
        assert state[..., own].sum() == last.outcome.survivors[winner]
        assert not state[..., enemy : enemy + 2].any()


@pytest.mark.parametrize("extra_features", [False, True])
@pytest.mark.parametrize("minimap_mode", [False, True])
def test_while_both_teams_live_the_first_teams_state_is_magent2s_own(minimap_mode: bool, extra_features: bool) -> None:
    env = make("battle_v4", map_size=16, max_cycles=15, minimap_mode=minimap_mode, extra_features=extra_features)
    step, rng = env.reset(seed=3), np.random.default_rng(0)
    while not step.over:
        np.testing.assert_array_equal(step.critic_observation["red"], env.env.state())
        step = env.step(fight(env, step, rng, enemy=4 if minimap_mode else 3))


def test_each_team_sees_its_own_channels_first() -> None:
    env = make("battle_v4", map_size=16)
    for step in play(env, 3, fight)[0]:
        red, blue = step.critic_observation["red"], step.critic_observation["blue"]
        np.testing.assert_array_equal(blue, red[..., [0, 3, 4, 1, 2]])
    step = env.reset(seed=2)
    for handle, team in zip(env.env.handles, ("red", "blue"), strict=True):
        x, y = env.env.env.get_pos(handle).T
        presence = np.zeros((16, 16))
        presence[x, y] = 1
        np.testing.assert_array_equal(step.critic_observation[team][..., 1], presence)


@pytest.mark.parametrize("name", ["tiger_deer_v4", "adversarial_pursuit_v4"])
def test_the_wall_channel_shows_the_walls_of_this_episode(name: str) -> None:
    env = make(name, map_size=24, max_cycles=4)
    layouts = []
    for seed in (2, 3, 4):
        steps, _ = play(env, seed, at_random)
        walls = np.zeros((24, 24), np.float32)
        x, y = np.array(env.env.env._get_walls_info()).T
        walls[x, y] = 1
        for step in steps:
            for state in step.critic_observation.values():
                np.testing.assert_array_equal(state[..., 0], walls)
                assert not (state[..., 0] * state[..., 1]).any(), "an agent stands in a wall"
        layouts.append(walls.tobytes())
    assert len(set(layouts)) == 3


def test_extra_features_do_not_erase_anybody_in_gather() -> None:
    env = make("gather_v5", max_cycles=3, extra_features=True)
    for step in play(env, 2, at_random)[0]:
        alive = int(step.modules["omnivore"].alive.sum())
        state = step.critic_observation["omnivore"]
        assert int(state[..., 1].sum()) == alive or step.over
        assert (state[..., 2] > 0).sum() == state[..., 1].sum()
        assert state[..., 3].sum() > 100, "the food"


def test_observations_are_finite_on_the_terminal_step_with_minimaps() -> None:
    env = make("battle_v4", map_size=16, minimap_mode=True)
    steps, _ = play(env, 3, lambda env, step, rng: fight(env, step, rng, enemy=4))
    assert steps[-1].outcome.reason == WIPED_OUT
    for step in steps:
        assert all(np.isfinite(part.observation).all() for part in step.modules.values())
        assert all(np.isfinite(state).all() for state in step.critic_observation.values())
