"""Every agent's every step is sampled once, whatever cuts, deaths and failures come in between."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from rllib_shared.envs.games import CoinGame
from rllib_shared.envs.registry import wrap_parallel_env
from rllib_shared.envs.team_env import NO_ACTION
from rllib_shared.sampling.acting import DETERMINISTIC, EXPLORE, RANDOM
from rllib_shared.sampling.collector import EnvFailure
from tests.sampling.collecting import contents, make_collector, returns, rewards


@pytest.mark.parametrize("end", ["truncate", "terminate", "mixed"])
@pytest.mark.parametrize("death", [7, 8, 9])
@pytest.mark.parametrize("length", [1, 4, 8, 50])
def test_every_row_is_there_once_with_a_death_around_the_cut(death: int, length: int, end: str) -> None:
    """The toy's observation says which agent and step a row is."""
    collector, notes = make_collector(deaths={"red_1": death}, max_cycles=11, end=end)
    fragments = []
    while len(notes.ended_episodes) < 2:
        fragments += collector.collect(length, EXPLORE)
    lives = {0: 11, 1: death, 2: 11, 3: 11, 4: 11}
    seen: list[tuple[int, int]] = []
    episode = 0
    for fragment in fragments:
        first = int(fragment.modules["red"].observation[0, 0, 1])
        steps = np.arange(first, first + len(fragment))
        episode += first == 0
        for part in fragment.modules.values():
            for slot in range(part.alive.shape[1]):
                rows = part.observation[part.alive[:, slot], slot]
                np.testing.assert_array_equal(rows[:, 1], steps[part.alive[:, slot]])
                seen += [(episode, int(agent), int(step)) for agent, step in rows]
            np.testing.assert_array_equal(part.reward, part.alive)
    counts = Counter(seen)
    assert set(counts.values()) == {1}
    expected = {(e, agent, step) for e in (1, 2) for agent, life in lives.items() for step in range(life)}
    assert {key for key in counts if key[0] <= 2} == expected
    assert rewards(fragments) == returns(notes)


def test_a_death_at_the_cut_has_no_bootstrap_and_one_step_later_has_one() -> None:
    for death, alive_after in ((8, [True, False, True]), (9, [True, True, True])):
        collector, _ = make_collector(deaths={"red_1": death}, max_cycles=20)
        (fragment,) = collector.collect(8, EXPLORE)
        red = fragment.modules["red"]
        assert red.terminated[:, 1].tolist() == [False] * 7 + [death == 8]
        assert not red.truncated.any()
        assert red.alive_after.tolist() == alive_after
        assert red.last_observation[2].tolist() == [2, 8]
        (following,) = collector.collect(8, EXPLORE)
        np.testing.assert_array_equal(following.modules["red"].alive[0], alive_after)
        np.testing.assert_array_equal(following.modules["red"].observation[0], red.last_observation)
        np.testing.assert_array_equal(following.critic_observation["red"][0], fragment.last_critic_observation["red"])


def test_fragments_never_span_episodes() -> None:
    collector, notes = make_collector(copies=3, deaths={"red_0": 2}, max_cycles=5)
    for _ in range(4):
        for fragment in collector.collect(8, EXPLORE):
            steps = fragment.modules["blue"].observation[:, 0, 1]
            np.testing.assert_array_equal(np.diff(steps), 1)
            ends = (fragment.modules["blue"].truncated | fragment.modules["blue"].terminated).any(1)
            assert not ends[:-1].any()
            assert bool(ends[-1]) == (not fragment.modules["blue"].alive_after.any())
    assert len(notes.ended_episodes) == 3 * (4 * 8 // 5)


def test_the_last_observation_of_an_episode_is_kept_when_the_next_starts_in_its_place() -> None:
    collector, _ = make_collector(max_cycles=3)
    first, second, third = collector.collect(8, EXPLORE)
    for fragment in (first, second):
        assert fragment.modules["red"].truncated[-1].all()
        assert fragment.modules["red"].last_observation.tolist() == [[0, 3], [1, 3], [2, 3]]
        assert fragment.last_critic_observation["red"].tolist() == [3, 0, 0, 0, 0, 0]
    assert third.modules["red"].observation[0, 0].tolist() == [0, 0]
    assert len(third) == 2


def test_rewards_in_rows_are_the_environments_own_sum_in_a_real_battle() -> None:
    collector, notes = make_collector("battle_v4", copies=2, map_size=12, max_cycles=17)
    fragments = [fragment for _ in range(4) for fragment in collector.collect(12, RANDOM)]
    assert sum(fragment.env_steps() for fragment in fragments) == 2 * 4 * 12 == notes.steps
    assert rewards(fragments) == pytest.approx(returns(notes), abs=1e-3)
    assert rewards(fragments) < -1


def test_fragments_are_not_overwritten_by_later_sampling() -> None:
    collector, _ = make_collector("battle_v4", copies=2, map_size=12, max_cycles=9)
    kept = [(array, array.tobytes()) for fragment in collector.collect(12, EXPLORE) for array in contents(fragment)]
    for _ in range(3):
        collector.collect(12, EXPLORE)
    assert all(array.tobytes() == before for array, before in kept)


def test_a_forced_reset_starts_new_episodes() -> None:
    collector, notes = make_collector(copies=2, max_cycles=20)
    collector.collect(5, EXPLORE)
    fragments = collector.collect(5, EXPLORE, force_reset=True)
    assert [fragment.modules["red"].observation[0, 0, 1] for fragment in fragments] == [0, 0]
    assert len(notes.running) == 4


@pytest.mark.parametrize(("episodes", "copies"), [(1, 1), (1, 3), (5, 2), (7, 3)])
@pytest.mark.parametrize("chunk", [4, 64])
def test_exactly_so_many_episodes_are_played(episodes: int, copies: int, chunk: int) -> None:
    collector, notes = make_collector("cartpole_team", copies=copies, max_cycles=30)
    collector.collect(3, EXPLORE)
    begun = len(notes.running)
    fragments = collector.collect_episodes(episodes, EXPLORE, chunk)
    assert len(notes.ended_episodes) == len(notes.running) - begun == episodes
    assert sum(len(fragment) for fragment in fragments) == sum(len(episode) for episode in notes.ended_episodes)
    assert rewards(fragments) == sum(episode.get_return() for episode in notes.ended_episodes)
    assert all(fragment.modules["cart"].alive.any(1).all() for fragment in fragments)
    fresh = collector.collect(3, EXPLORE)
    assert len(notes.running) >= begun + episodes + copies
    assert sum(len(fragment) for fragment in fresh) == 3 * copies


@pytest.mark.parametrize("mode", [EXPLORE, DETERMINISTIC, RANDOM])
def test_actions_respect_the_masks_and_dead_slots_have_none(mode: str) -> None:
    collector, _ = make_collector(copies=3, deaths={"red_1": 2, "blue_0": 4}, max_cycles=9)
    for fragment in collector.collect(20, mode):
        for part in fragment.modules.values():
            assert (part.action[~part.alive] == NO_ACTION).all()
            assert not part.logp[~part.alive].any()
            assert not part.dist_inputs[~part.alive].any()
            chosen = np.take_along_axis(part.action_mask, np.maximum(part.action, 0)[..., None], -1)[..., 0]
            assert chosen[part.alive].all()
            assert (~part.alive).any() or len(fragment) < 3


# NaN.


class Broken(CoinGame):
    """Gives NaN in its third step."""

    def __init__(self, observation: bool = False, reward: bool = False) -> None:
        super().__init__()
        self._nan = (observation, reward)

    def step(self, actions: dict[str, int]) -> Any:
        observations, rewards, *rest = super().step(actions)
        if self.frame == 3:
            if self._nan[0]:
                observations["player_1"] = np.full(1, np.nan, np.float32)
            if self._nan[1]:
                rewards["player_1"] = float("nan")
        return observations, rewards, *rest


@pytest.mark.parametrize("mode", [EXPLORE, DETERMINISTIC])
def test_a_nan_observation_names_environment_module_agent_and_step(mode: str) -> None:
    collector, _ = make_collector(copies=2, make=lambda: wrap_parallel_env(Broken(observation=True)))
    message = r"NaN or inf in the observation: coin_game \(copy 0\), module 'player', agent 'player_1', step 3 of"
    with pytest.raises(ValueError, match=message):
        collector.collect(10, mode)


def test_a_nan_reward_names_environment_module_agent_and_step() -> None:
    collector, _ = make_collector(make=lambda: wrap_parallel_env(Broken(reward=True)))
    message = r"NaN or inf in the reward: coin_game \(copy 0\), module 'player', agent 'player_1', step 2 of"
    with pytest.raises(ValueError, match=message):
        collector.collect(10, EXPLORE)


# Failures.


class Fails(CoinGame):
    """Raises in its n-th step or at its n-th reset."""

    def __init__(self, at_step: int = 0, at_reset: int = 0) -> None:
        super().__init__(max_cycles=6)
        self._at_step, self._at_reset, self._resets = at_step, at_reset, 0

    def step(self, actions: dict[str, int]) -> Any:
        if self.frame + 1 == self._at_step:
            raise OSError("the simulator is gone")
        return super().step(actions)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._resets += 1
        if self._resets == self._at_reset:
            raise OSError("the simulator does not start")
        return super().reset(seed, options)


def test_an_environment_that_raises_is_named_with_its_own_error_as_the_cause() -> None:
    collector, _ = make_collector(make=lambda: wrap_parallel_env(Fails(at_step=3)))
    message = r"coin_game \(copy 0\) raised OSError in step\(\) after 2 steps of its episode: the simulator is gone"
    with pytest.raises(EnvFailure, match=message) as error:
        collector.collect(10, EXPLORE)
    assert isinstance(error.value.__cause__, OSError)


@pytest.mark.parametrize("length", [1, 4, 5, 10])
def test_a_failed_copy_is_made_anew_and_what_was_sampled_before_is_kept(length: int) -> None:
    envs = [wrap_parallel_env(Fails(at_step=5)), wrap_parallel_env(Fails())]
    collector, notes = make_collector(
        copies=2, make=lambda: envs.pop(0) if envs else wrap_parallel_env(Fails()), restart_failed=True
    )
    fragments = [fragment for _ in range(20 // length) for fragment in collector.collect(length, EXPLORE)]
    assert notes.restarts == [0]
    assert collector.envs[0].env._at_step == 0
    # One of 40 steps failed; the 4 before it are there, with the observation that they led to.
    assert sum(len(fragment) for fragment in fragments) == notes.steps == 39
    assert rewards(fragments) == returns(notes)
    for fragment in fragments:
        part = fragment.modules["player"]
        assert part.alive.all()
        ended = part.truncated[-1].all()
        assert part.alive_after.tolist() == [not ended] * 2
        assert part.last_observation.all()


def test_a_copy_that_fails_to_reset_is_made_anew_too() -> None:
    envs = [wrap_parallel_env(Fails(at_reset=3))]
    collector, notes = make_collector(
        make=lambda: envs.pop(0) if envs else wrap_parallel_env(Fails()), restart_failed=True
    )
    fragments = collector.collect(10, EXPLORE)
    assert notes.restarts == [0]
    assert [len(fragment) for fragment in fragments] == [6, 4]


def test_a_copy_made_anew_gets_a_seed_of_its_own() -> None:
    """Unseeded, all remade copies of a MAgent2 environment would play alike."""
    given: list[int | None] = []

    class Noted(Fails):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            given.append(seed)
            return super().reset(seed, options)

    def seeds_of_a_run() -> list[int | None]:
        collector, _ = make_collector(copies=2, make=lambda: wrap_parallel_env(Noted(at_step=2)), restart_failed=True)
        given.clear()
        collector.collect(5, EXPLORE)
        return [seed for seed in given if seed is not None]

    first = seeds_of_a_run()
    assert len(first) == len(set(first)) == 2 + 2 * 2
    assert seeds_of_a_run() == first


def test_a_failed_reset_without_restarts_is_named() -> None:
    collector, _ = make_collector(make=lambda: wrap_parallel_env(Fails(at_reset=3)))
    with pytest.raises(EnvFailure, match=r"raised OSError in reset\(\) after 6 steps .*the simulator does not start"):
        collector.collect(10, EXPLORE)
