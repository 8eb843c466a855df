"""MAgent2 from the engine's arrays: equal to its dicts, rows that stay with their agents, and ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from rllib_shared.envs.registry import make_env, make_team_env, wrap_parallel_env
from rllib_shared.envs.team_env import TIME_LIMIT, WIPED_OUT, TeamEnv, TeamStep
from tests.envs.play import (
    BATTLE_NOOP,
    EAST,
    NORTH,
    SOUTH,
    WEST,
    assert_same_step,
    at_random,
    everyone,
    fight,
    hunt,
    play,
)


def battle(**env_config: Any) -> TeamEnv:
    return make_team_env("battle_v4", {"map_size": 16, "max_cycles": 60, **env_config})


# Equal to the dict path.


@pytest.mark.parametrize(
    "env_config",
    [
        {"map_size": 16},
        {"map_size": 16, "minimap_mode": True},
        {"map_size": 16, "extra_features": True},
        {"map_size": 16, "minimap_mode": True, "extra_features": True},
        {"agents_per_team": 7},
    ],
    ids="-".join,
)
def test_arrays_equal_pettingzoos_dicts_bit_for_bit(env_config: dict[str, Any]) -> None:
    arrays, dicts = (
        wrap_parallel_env(make_env("battle_v4", max_cycles=60, **env_config), arrays=arrays) for arrays in (True, False)
    )
    fighting = partial(fight, enemy=4 if env_config.get("minimap_mode") else 3)
    ends = set()
    for seed, choose in ((2, at_random), (3, fighting), (7, fighting)):
        steps, taken = play(arrays, seed, choose)
        other = dicts.reset(seed=seed)
        assert_same_step(steps[0], other)
        for step, actions in zip(steps[1:], taken, strict=True):
            other = dicts.step(actions)
            assert_same_step(step, other)
        ends.add(steps[-1].outcome.reason)
        if choose is fighting:
            assert any(part.terminated.any() for step in steps[:-1] for part in step.modules.values())
    assert ends == {WIPED_OUT, TIME_LIMIT}


def test_arrays_equal_pettingzoos_dicts_with_masked_attacks() -> None:
    arrays, dicts = (
        wrap_parallel_env(make_env("battle_v4", map_size=16, max_cycles=60, mask_attacks=True), arrays=arrays)
        for arrays in (True, False)
    )
    steps, taken = play(arrays, 5, at_random)
    assert_same_step(steps[0], dicts.reset(seed=5))
    for step, actions in zip(steps[1:], taken, strict=True):
        assert_same_step(step, dicts.step(actions))


@pytest.mark.parametrize("name", ["battlefield_v5", "adversarial_pursuit_v4", "tiger_deer_v4", "gather_v5"])
def test_the_other_environments_equal_their_dicts_too(name: str) -> None:
    config = {"max_cycles": 6, **({"map_size": 20} if name[0] in "at" else {})}
    arrays, dicts = (wrap_parallel_env(make_env(name, **config), arrays=arrays) for arrays in (True, False))
    for seed in (2, 3):
        steps, taken = play(arrays, seed, at_random)
        assert_same_step(steps[0], dicts.reset(seed=seed))
        for step, actions in zip(steps[1:], taken, strict=True):
            assert_same_step(step, dicts.step(actions))


# Rows stay with their agents.


def test_after_deaths_a_row_still_moves_its_own_agent() -> None:
    env = battle(max_cycles=200)
    rng = np.random.default_rng(0)
    step = env.reset(seed=3)
    while not (2 < step.modules["red"].alive.sum() < 6 and not step.modules["red"].alive[:3].all()):
        step = env.step(fight(env, step, rng))
    engine, handle = env.game.engine, env.game.groups[0].handle
    slots = np.flatnonzero(step.modules["red"].alive)
    assert engine.get_agent_id(handle).tolist() == slots.tolist()
    moved = set()
    for row, slot in enumerate(slots):
        for direction in (EAST, WEST, NORTH, SOUTH):  # one of them is free
            before = engine.get_pos(handle).copy()
            actions = everyone(env, step, BATTLE_NOOP)
            actions["red"][slot] = direction
            step = env.step(actions)
            assert step.modules["red"].alive[slots].all()
            changed = np.flatnonzero((engine.get_pos(handle) != before).any(1))
            assert set(changed) <= {row}
            moved |= set(changed.tolist())
    assert moved == set(range(len(slots)))


def test_the_second_team_plays_its_own_first_actions() -> None:
    """MAgent2 counts its agents before it places them, and then gives blue the first actions of red."""
    for arrays in (True, False):
        env = wrap_parallel_env(make_env("battle_v4", map_size=16), arrays=arrays)
        game = env.game if arrays else env._game
        for episode in range(2):
            step = env.reset(seed=4 + episode)
            before = [game.engine.get_pos(group.handle).copy() for group in game.groups]
            actions = everyone(env, step, BATTLE_NOOP)
            actions["blue"][:] = EAST  # away from the front, which is free
            env.step(actions)
            after = [game.engine.get_pos(group.handle) for group in game.groups]
            assert (before[0] == after[0]).all(), f"red moved, {arrays=}, {episode=}"
            assert (before[1] != after[1]).any(axis=1).all(), f"blue stood still, {arrays=}, {episode=}"


# Nothing handed out changes later.


def test_what_was_handed_out_is_not_overwritten_by_later_steps_with_deaths() -> None:
    env = battle()
    rng = np.random.default_rng(1)
    step = env.reset(seed=3)
    deaths, kept = 0, []
    while not step.over:
        arrays = [
            array
            for part in step.modules.values()
            for array in (part.observation, part.alive, part.reward, part.terminated, part.truncated)
        ] + list(step.critic_observation.values())
        kept += [(array, array.tobytes()) for array in arrays]
        step = env.step(fight(env, step, rng))
        deaths += sum(int(part.terminated.sum()) for part in step.modules.values())
    env.reset(seed=9)
    assert deaths > 3
    assert all(array.tobytes() == before for array, before in kept)


# Ends.


def test_a_wipe_out_terminates_the_winners_too_and_the_winner_has_survivors() -> None:
    env = battle()
    steps, _ = play(env, 3, fight)
    last, before = steps[-1], steps[-2]
    outcome = last.outcome
    assert outcome.reason == WIPED_OUT
    assert sorted(outcome.survivors.values())[0] == 0
    winner = max(outcome.survivors, key=outcome.survivors.get)
    assert outcome.winner == winner
    assert outcome.survivors[winner] > 0
    for module_id, part in last.modules.items():
        np.testing.assert_array_equal(part.terminated, before.modules[module_id].alive)
        assert not part.truncated.any()
        assert not part.alive.any()


def test_a_wipe_out_in_the_very_last_step_is_a_wipe_out_and_terminates() -> None:
    steps, taken = play(battle(), 3, fight)
    env = battle(max_cycles=len(taken))
    env.reset(seed=3)
    for actions in taken:
        step = env.step(actions)
    assert step.outcome.reason == WIPED_OUT
    for module_id, part in step.modules.items():
        acted = steps[-2].modules[module_id].alive
        np.testing.assert_array_equal(part.terminated, acted)
        np.testing.assert_array_equal(part.truncated, acted)


def test_at_the_time_limit_survivors_are_truncated_and_equal_numbers_are_a_draw() -> None:
    env = battle(max_cycles=5)
    steps, _ = play(env, 3, everyone_stays)
    assert len(steps) == 6
    last = steps[-1]
    assert last.outcome.reason == TIME_LIMIT
    assert last.outcome.winner is None
    assert last.outcome.survivors == {"red": 6, "blue": 6}
    for part in last.modules.values():
        assert part.truncated.all()
        assert not part.terminated.any()


def everyone_stays(env: TeamEnv, step: TeamStep, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return everyone(env, step, BATTLE_NOOP)


def test_a_dying_agent_gets_its_last_reward_and_observation_and_then_nothing() -> None:
    env = battle()
    steps, _ = play(env, 3, fight)
    for before, step, after in zip(steps, steps[1:], steps[2:], strict=False):
        for module_id, part in step.modules.items():
            dead = part.terminated
            if dead.any():
                assert before.modules[module_id].alive[dead].all()
                assert (part.reward[dead] < 0).all()
                assert part.observation[dead].any(axis=(1, 2, 3)).all()
                later = after.modules[module_id]
                assert not later.alive[dead].any()
                assert not later.reward[dead].any()
                assert not later.observation[dead].any()
                assert not later.terminated[dead].any()
                return
    pytest.fail("nobody died before the last steps")


def test_survivors_and_winner_agree_with_who_is_left() -> None:
    for seed in (2, 3, 4, 5):
        env = battle(max_cycles=12)
        steps, _ = play(env, seed, fight)
        last, before = steps[-1], steps[-2]
        if last.outcome.reason == TIME_LIMIT:
            left = {
                mid: int((before.modules[mid].alive & ~part.terminated).sum()) for mid, part in last.modules.items()
            }
            assert last.outcome.survivors == left
            best = max(left.values())
            leaders = [team for team, count in left.items() if count == best]
            assert last.outcome.winner == (leaders[0] if len(leaders) == 1 else None)


# Teams of two types.

_BY_TYPE = {name: [f"{name}_*"] for name in ("redmelee", "redranged", "bluemelee", "blueranged")}


def test_combined_arms_types_have_different_spaces_so_one_team_of_both_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must have equal .* spaces.*'redmelee_0'.*'redranged_0'.*different teams"):
        make_team_env(
            "combined_arms_v6",
            {"map_size": 20},
            teams={"red": ["redmelee_*", "redranged_*"], "blue": ["bluemelee_*", "blueranged_*"]},
        )


def test_combined_arms_ends_for_all_when_one_group_is_wiped_out() -> None:
    env = make_team_env("combined_arms_v6", {"map_size": 20, "max_cycles": 400}, teams=_BY_TYPE)
    assert env.teams.names == tuple(_BY_TYPE)
    assert len({str(slots.action_space) for slots in env.teams.modules.values()}) == 2
    steps, _ = play(env, 2, partial(hunt, hunters=("bluemelee", "blueranged"), prey="redranged"))
    last, before = steps[-1], steps[-2]
    assert last.outcome.reason == WIPED_OUT
    wiped = [team for team, count in last.outcome.survivors.items() if count == 0]
    assert wiped == ["redranged"]
    assert last.outcome.detail == {"group": "redranged"}
    assert last.outcome.winner in ("bluemelee", "blueranged", "redmelee", None)
    for module_id, part in last.modules.items():
        np.testing.assert_array_equal(part.terminated, before.modules[module_id].alive)
        assert not part.truncated.any()


def test_a_team_that_splits_an_engine_group_is_refused() -> None:
    with pytest.raises(ValueError, match="a group must be in one team"):
        make_team_env("battle_v4", {"map_size": 16}, teams=lambda agent: "a" if agent[-1] in "01234" else "b")


def test_after_a_reset_in_the_middle_all_agents_are_back() -> None:
    env = battle()
    steps, taken = play(env, 3, fight)
    env.reset(seed=3)
    for actions in taken[: len(taken) // 2]:
        env.step(actions)
    assert_same_step(env.reset(seed=3), steps[0])
    for expected, actions in zip(steps[1:], taken, strict=True):
        assert_same_step(env.step(actions), expected)


def test_the_action_that_does_nothing_is_each_types_own() -> None:
    for name in ("battle_v4", "tiger_deer_v4", "adversarial_pursuit_v4", "gather_v5"):
        env = make_team_env(name, {} if name == "gather_v5" else {"map_size": 16})
        assert env.noop_action.keys() == env.teams.modules.keys()
        step = env.reset(seed=2)
        before = [env.game.engine.get_pos(group.handle).copy() for group in env.game.groups]
        env.step({mid: np.full(slots.num_slots, env.noop_action[mid]) for mid, slots in env.teams.modules.items()})
        for group, old in zip(env.game.groups, before, strict=True):
            np.testing.assert_array_equal(env.game.engine.get_pos(group.handle), old)
        assert step.over is False
