"""Frames are fresh, and closing one environment leaves the others alone."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_shared.envs.registry import make_env, wrap_parallel_env
from rllib_shared.envs.team_env import TeamEnv
from tests.envs.play import EAST, at_random, everyone


def battle(arrays: bool = True) -> TeamEnv:
    return wrap_parallel_env(make_env("battle_v4", map_size=16, render_mode="rgb_array"), arrays=arrays)


@pytest.mark.parametrize("arrays", [True, False])
def test_every_step_has_a_fresh_frame(arrays: bool) -> None:
    """MAgent2's own renderer asks the engine on every third call only."""
    env, rng = battle(arrays), np.random.default_rng(0)
    step, frames = env.reset(seed=2), []
    for _ in range(9):
        step = env.step(at_random(env, step, rng))
        frames.append(env.render())
    assert frames[0].dtype == np.uint8
    assert frames[0].shape == (16 * 8 + 16, 16 * 8, 3)
    assert len({frame.tobytes() for frame in frames}) == 9


@pytest.mark.parametrize("arrays", [True, False])
def test_the_first_frame_after_a_reset_shows_the_new_episode(arrays: bool) -> None:
    env = battle(arrays)
    step = env.reset(seed=2)
    first = env.render()
    for _ in range(4):
        step = env.step(everyone(env, step, EAST))
        env.render()
    assert not np.array_equal(env.render(), first)
    env.reset(seed=2)
    np.testing.assert_array_equal(env.render(), first)


def test_closing_one_environment_leaves_the_others_drawing() -> None:
    first, second = battle(), battle()
    for env in (first, second):
        env.reset(seed=2)
        env.render()
    first.close()
    second.step(everyone(second, second.reset(seed=2), EAST))
    assert second.render().shape == (144, 128, 3)
    third = battle(arrays=False)
    third.reset(seed=2)
    assert third.render().any()


def test_without_a_render_mode_there_is_no_frame() -> None:
    env = wrap_parallel_env(make_env("battle_v4", map_size=16))
    env.reset(seed=2)
    assert env.render() is None
