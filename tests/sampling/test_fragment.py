"""Fragments as RLlib sees them: length, steps, and slices that keep what is needed to bootstrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rllib_shared.sampling.acting import EXPLORE
from rllib_shared.sampling.fragment import TeamFragment
from tests.sampling.collecting import make_collector


def fragment(steps: int = 6, end: int = 20) -> TeamFragment:
    """`steps` steps of the toy; red_1 dies in step 3."""
    collector, _ = make_collector(deaths={"red_1": 3}, max_cycles=end)
    return collector.collect(steps, EXPLORE)[0]


def test_length_env_steps_and_agent_steps() -> None:
    whole = fragment()
    assert len(whole) == whole.env_steps() == 6
    assert whole.agent_steps() == 6 * 4 + 3
    assert whole[1:4].env_steps() == 3
    assert whole[1:4].agent_steps() == 3 * 4 + 2
    assert whole[6:].env_steps() == whole[6:].agent_steps() == 0


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_a_slice_keeps_its_bootstrap_observation(cut: int) -> None:
    whole = fragment()
    head, tail = whole[:cut], whole[cut:]
    for module_id, part in whole.modules.items():
        np.testing.assert_array_equal(head.modules[module_id].last_observation, part.observation[cut])
        np.testing.assert_array_equal(head.modules[module_id].alive_after, part.alive[cut])
        np.testing.assert_array_equal(tail.modules[module_id].last_observation, part.last_observation)
        np.testing.assert_array_equal(tail.modules[module_id].alive_after, part.alive_after)
    for team, array in whole.critic_observation.items():
        np.testing.assert_array_equal(head.last_critic_observation[team], array[cut])
        np.testing.assert_array_equal(tail.last_critic_observation[team], whole.last_critic_observation[team])


def test_the_pieces_make_up_the_whole() -> None:
    whole = fragment()
    pieces = [whole[:2], whole[2:3], whole[3:]]
    for module_id, part in whole.modules.items():
        for name in ("observation", "action_mask", "alive", "action", "dist_inputs", "logp", "reward", "terminated"):
            joined = np.concatenate([getattr(piece.modules[module_id], name) for piece in pieces])
            np.testing.assert_array_equal(joined, getattr(part, name))


def test_a_slice_of_a_slice_is_the_slice_of_the_whole() -> None:
    whole = fragment()
    a, b = whole[1:5][1:3], whole[2:4]
    np.testing.assert_array_equal(a.modules["red"].observation, b.modules["red"].observation)
    np.testing.assert_array_equal(a.modules["red"].last_observation, b.modules["red"].last_observation)
    np.testing.assert_array_equal(a.last_critic_observation["blue"], b.last_critic_observation["blue"])


def test_the_last_piece_of_an_ended_episode_still_says_how_it_ended() -> None:
    tail = fragment(steps=9, end=6)[4:]
    assert len(tail) == 2
    assert tail.modules["blue"].truncated.tolist() == [[False, False], [True, True]]
    assert not tail.modules["blue"].alive_after.any()
    assert tail.modules["blue"].last_observation.tolist() == [[3, 6], [4, 6]]


def test_rllibs_name_for_a_slice_does_the_same() -> None:
    whole = fragment()
    np.testing.assert_array_equal(
        whole.slice(slice(1, 3), len_lookback_buffer=0).modules["red"].observation,
        whole[1:3].modules["red"].observation,
    )


@pytest.mark.parametrize("index", [2, slice(0, 4, 2), slice(None, None, -1)])
def test_only_plain_slices_are_taken(index: Any) -> None:
    with pytest.raises(TypeError, match="a fragment is cut with a plain slice, got"):
        fragment()[index]
