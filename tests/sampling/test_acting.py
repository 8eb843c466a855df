"""One forward pass per module for all that live: what comes out for the living, the dead, masks and boxes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns

from rllib_shared.modules.centralized_critic import CentralizedCriticModule
from rllib_shared.sampling.acting import (
    DETERMINISTIC,
    EXPLORE,
    RANDOM,
    ActionArrays,
    ActionScaling,
    ModuleActor,
    NonFiniteLogits,
)
from rllib_shared.teams import Teams
from tests.sampling.collecting import make_collector

COPIES, SLOTS = 3, 4
OBSERVATION = gym.spaces.Box(-1, 1, (5,), np.float32)


def make_actor(action_space: gym.Space, scaling: ActionScaling | None = None) -> ModuleActor:
    agents = [f"red_{i}" for i in range(SLOTS)]
    slots = Teams.build(dict.fromkeys(agents, OBSERVATION), dict.fromkeys(agents, action_space)).modules["red"]
    torch.manual_seed(3)
    module = CentralizedCriticModule(
        observation_space=gym.spaces.Dict({"observation": OBSERVATION}),
        action_space=action_space,
        model_config={"hidden": [8]},
        inference_only=True,
    )
    return ModuleActor(module, slots, scaling or ActionScaling())


def act(actor: ModuleActor, acting: np.ndarray, mode: str = EXPLORE, mask: Any = None, seed: int = 0) -> ActionArrays:
    out = actor.make_arrays(COPIES)
    observation = np.random.default_rng(7).uniform(-1, 1, (COPIES, SLOTS, 5)).astype(np.float32)
    actor.act(observation, acting, mask, mode, out, torch.Generator().manual_seed(seed))
    return out


ALL = np.ones((COPIES, SLOTS), bool)
SOME = np.random.default_rng(1).random((COPIES, SLOTS)) < 0.5


@pytest.mark.parametrize("space", [gym.spaces.Discrete(6), gym.spaces.Box(-2, 3, (2,), np.float32)])
@pytest.mark.parametrize("mode", [EXPLORE, DETERMINISTIC, RANDOM])
def test_slots_that_do_not_act_get_no_action(space: gym.Space, mode: str) -> None:
    out = act(make_actor(space), SOME, mode)
    missing = (lambda array: array == -1) if isinstance(space, gym.spaces.Discrete) else np.isnan
    for array in (out.action, out.env_action):
        assert missing(array[~SOME]).all()
        assert not missing(array[SOME]).any()
    assert not out.logp[~SOME].any()
    assert not out.dist_inputs[~SOME].any()


def test_nobody_acting_is_no_work_and_no_error() -> None:
    out = act(make_actor(gym.spaces.Discrete(6)), np.zeros_like(ALL))
    assert (out.action == -1).all()


def test_a_living_agent_acts_the_same_whoever_else_lives() -> None:
    actor = make_actor(gym.spaces.Discrete(6))
    whole, part = act(actor, ALL, DETERMINISTIC), act(actor, SOME, DETERMINISTIC)
    np.testing.assert_array_equal(part.action[SOME], whole.action[SOME])
    np.testing.assert_allclose(part.dist_inputs[SOME], whole.dist_inputs[SOME], atol=1e-6)


def test_log_probabilities_are_those_of_the_policys_distribution() -> None:
    for space in (gym.spaces.Discrete(6), gym.spaces.Box(-1, 1, (2,), np.float32)):
        actor = make_actor(space)
        out = act(actor, ALL)
        distribution = actor.module.get_train_action_dist_cls().from_logits(torch.from_numpy(out.dist_inputs))
        np.testing.assert_allclose(distribution.logp(torch.from_numpy(out.action)), out.logp, atol=1e-5)


def test_the_distribution_is_what_the_module_gives() -> None:
    actor = make_actor(gym.spaces.Discrete(6))
    observation = np.random.default_rng(7).uniform(-1, 1, (COPIES, SLOTS, 5)).astype(np.float32)
    with torch.no_grad():
        batch = {Columns.OBS: {"observation": torch.from_numpy(observation.reshape(-1, 5))}}
        expected = actor.module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS]
    np.testing.assert_allclose(act(actor, ALL).dist_inputs.reshape(-1, 6), expected, atol=1e-6)


def test_the_mode_of_the_policy_is_its_most_probable_action() -> None:
    out = act(make_actor(gym.spaces.Discrete(6)), ALL, DETERMINISTIC)
    np.testing.assert_array_equal(out.action, out.dist_inputs.argmax(-1))


def test_the_same_generator_gives_the_same_actions_and_another_gives_others() -> None:
    actor = make_actor(gym.spaces.Discrete(6))
    first = act(actor, ALL, EXPLORE, seed=1).action
    np.testing.assert_array_equal(first, act(actor, ALL, EXPLORE, seed=1).action)
    assert (first != act(actor, ALL, EXPLORE, seed=2).action).any()


@pytest.mark.parametrize("mode", [EXPLORE, DETERMINISTIC, RANDOM])
def test_masked_actions_are_never_chosen(mode: str) -> None:
    actor = make_actor(gym.spaces.Discrete(6))
    mask = np.random.default_rng(2).random((COPIES, SLOTS, 6)) < 0.3
    mask[..., 4] |= ~mask.any(-1)
    for seed in range(20):
        action = act(actor, ALL, mode, mask, seed).action
        assert np.take_along_axis(mask, action[..., None], -1).all()


def test_random_actions_reach_every_allowed_one() -> None:
    actor = make_actor(gym.spaces.Discrete(6))
    mask = np.ones((COPIES, SLOTS, 6), bool)
    mask[..., 0] = False
    seen = np.unique([act(actor, ALL, RANDOM, mask, seed).action for seed in range(30)])
    assert seen.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("scaling", [ActionScaling(), ActionScaling(normalize=False, clip=True)])
@pytest.mark.parametrize("mode", [EXPLORE, RANDOM])
def test_continuous_actions_reach_the_environment_within_their_bounds(scaling: ActionScaling, mode: str) -> None:
    space = gym.spaces.Box(np.array([-2, 10]), np.array([0, 30]), dtype=np.float32)
    out = act(make_actor(space, scaling), ALL, mode)
    assert (out.env_action >= space.low).all()
    assert (out.env_action <= space.high).all()


def test_normalized_actions_are_stretched_from_minus_one_and_one_to_the_bounds() -> None:
    space = gym.spaces.Box(np.array([-2, 10]), np.array([0, 30]), dtype=np.float32)
    policy = np.array([[-1, -1], [0, 0], [1, 1], [5, -5]], np.float32)
    scaled = ActionScaling()(policy, space)
    assert scaled.tolist() == [[-2, 10], [-1, 20], [0, 30], [0, 10]]
    assert ActionScaling(normalize=False, clip=True)(policy, space).tolist() == [[-1, 10], [0, 10], [0, 10], [0, 10]]
    assert ActionScaling(normalize=False)(policy, space) is policy


def test_an_unbounded_box_gets_what_the_policy_says() -> None:
    out = act(make_actor(gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)), ALL)
    np.testing.assert_array_equal(out.env_action, out.action)


@pytest.mark.parametrize("mode", [EXPLORE, DETERMINISTIC, RANDOM])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_real_environment_with_continuous_actions_runs_within_its_bounds(mode: str, normalize: bool) -> None:
    """The environment itself refuses an action outside Box(0, 1)."""
    collector, notes = make_collector(
        "simple_spread_v3",
        copies=2,
        scaling=ActionScaling(normalize, not normalize),
        continuous_actions=True,
        max_cycles=5,
    )
    fragments = collector.collect(12, mode)
    assert len(notes.ended_episodes) == 4
    actions = np.concatenate([fragment.modules["agent"].action for fragment in fragments])
    if normalize and mode != DETERMINISTIC:
        assert actions.min() < 0, "the fragment keeps the policy's own action, which the learner needs"
    if mode == RANDOM and not normalize:
        assert 0 <= actions.min() < 0.2
        assert 0.8 < actions.max() <= 1


def test_non_finite_logits_name_the_row() -> None:
    actor = make_actor(gym.spaces.Discrete(6))
    observation = np.zeros((COPIES, SLOTS, 5), np.float32)
    observation[2, 1] = np.nan
    acting = ALL.copy()
    acting[0] = False
    with pytest.raises(NonFiniteLogits) as error:
        actor.act(observation, acting, None, EXPLORE, actor.make_arrays(COPIES))
    assert (error.value.row, error.value.from_observation) == ((2, 1), True)
    acting[2, 1] = False
    actor.act(observation, acting, None, EXPLORE, actor.make_arrays(COPIES))
