"""Minibatches by env step: every row equally often, all agents of a step together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch

from rllib_shared.algorithms.batch import MinibatchIterator, ModuleBatch, pack
from rllib_shared.envs.team_env import CRITIC_OBSERVATION, OBSERVATION
from rllib_shared.modules.centralized_critic import CRITIC_ROW, SLOT
from tests.algorithms.fragments import make_teams, module_fragment, team_fragment


def uneven_batches(steps: int = 40) -> dict[str, ModuleBatch]:
    """100 red agents per step; one blue agent that is there in every fourth step only."""
    teams = make_teams({"red": 100, "blue": 1})
    blue_alive = (np.arange(steps) % 4 == 0)[:, None]
    parts = {"red": module_fragment(np.ones((steps, 100))), "blue": module_fragment(blue_alive)}
    batches = {}
    for module_id, slots in teams.modules.items():
        # The first number of an observation names its row.
        count = parts[module_id].alive.size
        parts[module_id].observation[..., 0] = np.arange(count).reshape(steps, -1)
        critic = {"red": np.arange(steps + 1, dtype=np.float32)[:, None], "blue": np.zeros((steps + 1, 1), np.float32)}
        fragment = team_fragment(parts, critic)
        batches[module_id] = pack([fragment], module_id, slots.teams, slots.team_index)
    return batches


def rows_seen(batches: dict[str, ModuleBatch], module_id: str, **kwargs: object) -> Counter:
    options = {"num_epochs": 2, "minibatch_size": 7, "shuffle": True, "device": "cpu"} | kwargs
    seen: Counter = Counter()
    for minibatch in MinibatchIterator(batches, **options):  # type: ignore[arg-type]
        seen.update(minibatch.policy_batches[module_id]["obs"][OBSERVATION][:, 0].int().tolist())
    return seen


def test_each_row_is_used_exactly_num_epochs_times_however_uneven_the_teams_are() -> None:
    """T4: stock RLlib trains the 10 blue rows 400 times."""
    batches = uneven_batches()
    assert set(rows_seen(batches, "red").values()) == {2} and len(rows_seen(batches, "red")) == 4000
    assert set(rows_seen(batches, "blue").values()) == {2} and len(rows_seen(batches, "blue")) == 10


def test_a_fixed_number_of_minibatches_still_uses_each_row_once_per_epoch() -> None:
    seen = rows_seen(uneven_batches(), "red", minibatches_per_epoch=3, num_epochs=1)
    assert set(seen.values()) == {1} and len(seen) == 4000


def test_the_first_epoch_is_shuffled() -> None:
    np.random.seed(0)
    iterator = MinibatchIterator(uneven_batches(), num_epochs=1, minibatch_size=10, shuffle=True, device="cpu")
    first = next(iter(iterator)).policy_batches["red"]["obs"][OBSERVATION][:, 0]
    assert set((first // 100).int().tolist()) != set(range(10))


def test_minibatches_have_equal_sizes() -> None:
    iterator = MinibatchIterator(uneven_batches(), num_epochs=1, minibatch_size=39, shuffle=True, device="cpu")
    assert [minibatch.env_steps() for minibatch in iterator] == [20, 20]


def test_all_agents_of_a_step_travel_together_with_one_critic_observation() -> None:
    iterator = MinibatchIterator(uneven_batches(), num_epochs=1, minibatch_size=5, shuffle=True, device="cpu")
    for minibatch in iterator:
        red = minibatch.policy_batches["red"]
        steps = red["obs"][OBSERVATION][:, 0] // 100
        assert len(red["obs"][CRITIC_OBSERVATION]) == 5
        # The critic observation of a step is its number, so each row must find its own step's.
        assert torch.equal(red["obs"][CRITIC_OBSERVATION][red[CRITIC_ROW]][:, 0], steps)
        assert Counter(steps.int().tolist()) == dict.fromkeys(steps.int().tolist(), 100)
        assert red[SLOT].tolist() == list(range(100)) * 5


def test_packing_joins_fragments_and_leaves_out_the_dead() -> None:
    teams = make_teams({"red": 2})
    parts = [module_fragment([[1, 1], [1, 0]], seed=1), module_fragment([[0, 1]], seed=2)]
    slots = teams.modules["red"]
    batch = pack([team_fragment({"red": part}) for part in parts], "red", slots.teams, slots.team_index)
    assert batch.first_row.tolist() == [0, 2, 3, 4] and batch.slot.tolist() == [0, 1, 0, 1]
    expected = [
        parts[0].observation[0, 0],
        parts[0].observation[0, 1],
        parts[0].observation[1, 0],
        parts[1].observation[0, 1],
    ]
    np.testing.assert_array_equal(batch.observation.numpy(), np.stack(expected))
    assert batch.critic_observation is None
