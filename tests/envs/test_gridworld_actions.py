"""What MAgent2 would crash on or silently get wrong raises before its engine is called."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from rllib_shared.envs.registry import make_team_env
from rllib_shared.envs.team_env import NO_ACTION, TeamEnv
from tests.envs.play import (
    BATTLE_NOOP,
    NEIGHBOURS,
    assert_same_step,
    at_random,
    everyone,
    fight,
    play,
)


def battle(**env_config: Any) -> TeamEnv:
    return make_team_env("battle_v4", {"map_size": 16, "max_cycles": 60, **env_config})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: 10**6}, r"battle_v4, module 'red': action 1000000 of agent 'red_0' is out of range; allowed are 0 to 20"),
        ({1: 21}, r"action 21 of agent 'red_1' is out of range"),
        ({2: -5}, r"action -5 of agent 'red_2' is out of range"),
        ({2: NO_ACTION}, r"no action for living agents 'red_2'"),
    ],
)
def test_an_illegal_action_is_refused_and_the_episode_goes_on(change: dict[int, int], message: str) -> None:
    env, twin = battle(), battle()
    step, other = env.reset(seed=2), twin.reset(seed=2)
    actions = everyone(env, step, BATTLE_NOOP)
    bad = {module_id: array.copy() for module_id, array in actions.items()}
    for slot, action in change.items():
        bad["red"][slot] = action
    with pytest.raises(ValueError, match=message):
        env.step(bad)
    assert_same_step(env.step(actions), twin.step(actions))
    assert other.over is False


def test_an_action_for_a_dead_agent_is_refused() -> None:
    env = battle()
    rng = np.random.default_rng(0)
    step = env.reset(seed=3)
    while step.modules["red"].alive.all():
        step = env.step(fight(env, step, rng))
    dead = int(np.flatnonzero(~step.modules["red"].alive)[0])
    actions = everyone(env, step, BATTLE_NOOP)
    actions["red"][dead] = BATTLE_NOOP
    with pytest.raises(ValueError, match=rf"action for dead agents 'red_{dead}'; dead slots must hold NO_ACTION"):
        env.step(actions)


def test_an_attack_on_an_empty_cell_is_refused_where_attacks_are_masked() -> None:
    env = battle(mask_attacks=True)
    step = env.reset(seed=2)
    assert step.modules["red"].action_mask[:, :13].all()
    assert not step.modules["red"].action_mask[:, 13:].any()
    actions = everyone(env, step, BATTLE_NOOP)
    actions["blue"][4] = 13
    with pytest.raises(ValueError, match=r"module 'blue': action 13 of agent 'blue_4' is masked"):
        env.step(actions)


def test_the_attack_mask_allows_exactly_the_neighbouring_enemies() -> None:
    env = battle(mask_attacks=True)
    steps, _ = play(env, 3, fight)
    allowed = 0
    for step in steps[:-1]:
        for part in step.modules.values():
            near = np.stack([part.observation[:, 6 + dy, 6 + dx, 3] > 0 for dx, dy in NEIGHBOURS], axis=1)
            np.testing.assert_array_equal(part.action_mask[part.alive][:, 13:], near[part.alive])
            allowed += int(near[part.alive].sum())
    assert allowed > 20


def test_a_strided_array_of_actions_is_read_as_what_it_says() -> None:
    env, twin = battle(), battle()
    step = env.reset(seed=2)
    twin.reset(seed=2)
    rng = np.random.default_rng(0)
    actions = at_random(env, step, rng)
    strided = {mid: np.repeat(array, 2)[::2] for mid, array in actions.items()}
    assert_same_step(env.step(strided), twin.step(actions))


@pytest.mark.parametrize("end", ["wipe", "limit", "huge"])
def test_what_crashes_magent2_raises_here_and_the_process_lives(end: str) -> None:
    """In a process of its own, because the failure to guard against is a crash."""
    code = """
import sys
import numpy as np
from rllib_shared.envs.registry import make_team_env
from tests.envs.play import everyone, fight, hunt, play
end = sys.argv[1]
env = make_team_env("battle_v4", {"map_size": 16, "max_cycles": 60 if end == "wipe" else 3})
if end == "huge":
    step, bad = env.reset(seed=3), 10**6
else:
    steps, _ = play(env, 3, fight)
    step, bad = steps[-2], 0
    assert steps[-1].outcome.reason == {"wipe": "wiped_out", "limit": "time_limit"}[end]
for arrays in ("same", "empty"):
    try:
        actions = everyone(env, step, bad)
        env.step(actions if arrays == "same" else {m: np.full(len(a), -1) for m, a in actions.items()})
    except (RuntimeError, ValueError) as error:
        print(type(error).__name__, error)
step = env.reset(seed=2)
env.step(everyone(env, step, 6))
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code, end], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "alive"
    if end == "huge":
        assert lines[0].startswith("ValueError battle_v4, module 'red': action 1000000 of agent 'red_0'")
        assert "no action for living agents 'red_0'" in lines[1]
    else:
        assert lines[:2] == ["RuntimeError battle_v4: the episode is over; call reset() before the next step()"] * 2


def test_a_step_before_the_first_reset_is_refused() -> None:
    env = battle()
    with pytest.raises(RuntimeError, match=r"battle_v4: call reset\(\) before step\(\)"):
        env.step({"red": np.zeros(9, int), "blue": np.zeros(9, int)})
