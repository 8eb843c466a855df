"""The benchmark's rows do the same work; rates count living agents and rows that were really trained."""

from __future__ import annotations

import numpy as np
import pytest
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule

from rllib_shared.benchmark.measure import Iteration
from rllib_shared.benchmark.stock import FlatObservationEnv, stock_central_config, stock_config
from rllib_shared.benchmark.team import team_config
from rllib_shared.benchmark.work import Work, plan
from rllib_shared.envs.registry import make_team_env


@pytest.fixture(scope="module")
def work() -> Work:
    """Battle, 2 against 2."""
    return plan("battle_v4", {"map_size": 12, "max_cycles": 15}, hidden=16, env_steps=20, num_envs=2)


def test_work_is_planned_from_the_environment(work: Work) -> None:
    assert (work.agents, work.policies) == (4, 2)
    assert work.minibatch_env_steps == 20, "no more than there are"


def test_minibatches_hold_about_4096_agent_steps_in_either_unit() -> None:
    work = Work(env="battle_v4", env_config={}, agents=162, policies=2)
    assert work.minibatch_env_steps == 25
    assert work.minibatch_rows_per_policy == 2048


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"env": "batle_v4"}, "did you mean 'battle_v4'"),
        ({"env": "battle_v4", "env_config": {"mapsize": 12}}, "did you mean 'map_size'"),
        ({"env": "battle_v4", "env_config": {"map_size": 3}}, "refused env_config .*at least 12"),
        ({"env": "battle_v4", "num_envs": 3}, "choose a multiple"),
        ({"env": "battle_v4", "hidden": 0}, "hidden must be at least 1, got 0"),
    ],
)
def test_impossible_work_is_refused_with_a_sentence(arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plan(**arguments)


def test_stock_and_team_train_networks_of_the_same_size(work: Work) -> None:
    team = team_config(work, "own")
    team.validate()
    made = team.make_team_env()
    ours = team.get_multi_rl_module_spec(spaces=made.module_spaces()).build()
    stock_env = FlatObservationEnv({"env": work.env, "env_config": work.env_config})
    spaces = {
        slots.module_id: (stock_env.observation_spaces[slots.agents[0]], slots.action_space)
        for slots in made.teams.modules.values()
    }
    theirs = stock_config(work).get_multi_rl_module_spec(spaces=spaces).build()
    expected = 2 * (845 * 16 + 16 + 16 * 16 + 16) + (16 * 21 + 21) + (16 + 1)
    assert _sizes(ours) == {"red": expected, "blue": expected}
    assert _sizes(theirs) == {"red": expected, "blue": expected}


def test_all_rows_learn_with_the_same_settings(work: Work) -> None:
    configs = [team_config(work, "own"), team_config(work, "state"), stock_config(work), stock_central_config(work)]
    names = ("lr", "gamma", "lambda_", "grad_clip", "use_kl_loss", "num_epochs", "num_envs_per_env_runner")
    for name in (*names, "train_batch_size_per_learner", "num_env_runners", "num_learners"):
        assert len({getattr(config, name) for config in configs}) == 1, name


def test_stock_observes_the_same_numbers_as_the_team(work: Work) -> None:
    arrays = make_team_env(work.env, work.env_config, critic_observation="own")
    flat = FlatObservationEnv({"env": work.env, "env_config": work.env_config})
    step = arrays.reset(seed=3)
    observations, _ = flat.reset(seed=3)
    rng = np.random.default_rng(0)
    while not step.over:
        for slots in arrays.teams.modules.values():
            part = step.modules[slots.module_id]
            for slot in np.flatnonzero(part.alive):
                np.testing.assert_array_equal(observations[slots.agents[slot]], part.observation[slot].reshape(-1))
        actions = {
            mid: np.where(part.alive, rng.integers(0, 21, part.alive.shape), -1) for mid, part in step.modules.items()
        }
        by_agent = {
            agent: actions[mid][slot]
            for mid, slots in arrays.teams.modules.items()
            for slot, agent in enumerate(slots.agents)
            if actions[mid][slot] >= 0
        }
        step = arrays.step(actions)
        observations, _, terminateds, truncateds, _ = flat.step(by_agent)
    assert terminateds["__all__"] or truncateds["__all__"]


def test_learning_is_counted_in_rows_that_were_trained() -> None:
    asked = Iteration(env_steps=100, agent_steps=1000, rows_trained=2000, sample_s=1.0, learn_s=1.0, sync_s=0.0)
    cycled = Iteration(env_steps=100, agent_steps=1000, rows_trained=4000, sample_s=1.0, learn_s=2.0, sync_s=0.0)
    assert asked.learn_rate(epochs=2) == cycled.learn_rate(epochs=2) == 1000
    assert asked.total_rate(epochs=2) == cycled.total_rate(epochs=2) == 500


def test_the_way_of_the_weights_to_the_runner_counts_in_whole_iterations() -> None:
    slow = Iteration(env_steps=100, agent_steps=1000, rows_trained=2000, sample_s=1.0, learn_s=1.0, sync_s=2.0)
    assert slow.total_rate(epochs=2) == 250


def _sizes(modules: MultiRLModule) -> dict[str, int]:
    return {module_id: sum(p.numel() for p in module.parameters()) for module_id, module in modules.items()}
