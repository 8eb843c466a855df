"""The learner: what it keeps, what it skips, and that several learners agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import tree
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.algorithms.learner import TeamPPOLearner
from rllib_shared.algorithms.ppo import TeamPPO


def tiny_config(**training: Any) -> TeamPPOConfig:
    config = TeamPPOConfig().environment("battle_v4", env_config={"map_size": 12, "max_cycles": 20})
    config.env_runners(num_envs_per_env_runner=2).debugging(seed=1)
    config.training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=2, **training)
    return config.rl_module(model_config={"hidden": [16], "encoder": "mlp", "critic_encoder": "mlp"})


@pytest.fixture
def algorithm(ray_session: None) -> Iterator[TeamPPO]:
    algo = tiny_config(
        use_kl_loss=True, lr=[[0, 1e-3], [1000, 1e-4]], entropy_coeff=[[0, 0.1], [1000, 0.0]]
    ).build_algo()
    yield algo
    algo.stop()


def learner_of(algo: Algorithm) -> TeamPPOLearner:
    return algo.learner_group._learner


def assert_equal(a: Any, b: Any) -> None:
    tree.map_structure(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), a, b)


def test_kl_coefficient_schedules_and_optimizer_survive_a_restore(algorithm: TeamPPO, tmp_path: Any) -> None:
    """T6: stock restores the KL coefficient and the entropy coefficient to their start values."""
    for _ in range(2):
        algorithm.train()
    before = learner_of(algorithm)
    before.curr_kl_coeffs_per_module["red"].data.fill_(0.1)
    path = algorithm.save_to_path(str(tmp_path / "a checkpoint"))
    restored = Algorithm.from_checkpoint(path)
    after = learner_of(restored)
    try:
        assert float(after.curr_kl_coeffs_per_module["red"]) == pytest.approx(0.1)
        for module_id in ("red", "blue"):
            entropy = after.entropy_coeff_schedulers_per_module[module_id].get_current_value()
            assert entropy == pytest.approx(0.1 * (1 - 80 / 1000), rel=0.06)
            lr = after.get_optimizer(module_id).param_groups[0]["lr"]
            assert lr == pytest.approx(before.get_optimizer(module_id).param_groups[0]["lr"])
            assert lr < 1e-3
        assert_equal(before.get_state()["optimizer"], after.get_state()["optimizer"])
        assert_equal(before.get_state()["rl_module"], after.get_state()["rl_module"])
        # Restored and saved again it is the same, and training goes on counting.
        again = Algorithm.from_checkpoint(restored.save_to_path(str(tmp_path / "again")))
        assert_equal(before.get_state()["rl_module"], learner_of(again).get_state()["rl_module"])
        result = restored.train()
        assert result["env_steps"] == 120 and result["training_iteration"] == 3
        again.stop()
    finally:
        restored.stop()


def test_rolling_a_live_algorithm_back_takes_the_old_weights(algorithm: TeamPPO, tmp_path: Any) -> None:
    algorithm.train()
    path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
    old = learner_of(algorithm).get_state()["rl_module"]
    algorithm.train()
    algorithm.restore_from_path(path)
    assert_equal(old, learner_of(algorithm).get_state()["rl_module"])
    on_runner = algorithm.env_runner.get_state()["rl_module"]
    for module_id, weights in on_runner.items():
        assert_equal(weights, {key: old[module_id][key] for key in weights})


def test_a_non_finite_gradient_skips_the_update_and_is_counted(algorithm: TeamPPO) -> None:
    """T16: stock steps with NaN, or poisons Adam with 3e38."""
    learner = learner_of(algorithm)
    fragments = algorithm.env_runner.sample()

    def update() -> Any:
        return learner.update(
            episodes=fragments, num_epochs=1, minibatch_size=40, timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}
        )

    before = learner.get_state()["rl_module"]
    parameter = next(learner.module["red"].parameters())
    hook = parameter.register_hook(lambda grad: torch.full_like(grad, float("inf")))
    result = update()
    assert_equal(before, learner.get_state()["rl_module"])
    assert result["__all_modules__"]["num_skipped_updates"].peek() == 1
    hook.remove()
    update()
    after = learner.get_state()["rl_module"]
    moved = np.abs(before["red"]["actor.mlp.0.weight"] - after["red"]["actor.mlp.0.weight"]).max()
    assert 0 < moved < 0.1


def test_a_module_without_living_rows_gives_no_loss_and_no_nan(algorithm: TeamPPO) -> None:
    fragments = algorithm.env_runner.sample()
    for fragment in fragments:
        fragment.modules["blue"].alive[:] = False
        fragment.modules["blue"].alive_after = np.zeros_like(fragment.modules["blue"].alive_after)
    learner = learner_of(algorithm)
    before = learner.get_state()["rl_module"]
    learner.update(episodes=fragments, num_epochs=1, minibatch_size=20, timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 0})
    after = learner.get_state()["rl_module"]
    assert_equal(before["blue"], after["blue"])
    assert not np.array_equal(before["red"]["actor.mlp.0.weight"], after["red"]["actor.mlp.0.weight"])


def test_two_learners_end_with_equal_weights(ray_session: None) -> None:
    """T12: gloo on two processes; both must take the same number of steps and average their gradients."""
    config = tiny_config().learners(num_learners=2)
    config.training(train_batch_size_per_learner=30)
    algo = config.build_algo()
    try:
        algo.train()
        weights = [
            result.get()
            for result in algo.learner_group.foreach_learner(lambda learner: learner.get_state()["rl_module"])
        ]
        assert len(weights) == 2
        assert_equal(weights[0], weights[1])
    finally:
        algo.stop()


def test_a_nan_in_the_critic_observation_is_named(algorithm: TeamPPO) -> None:
    fragments = algorithm.env_runner.sample()
    fragments[0].critic_observation["red"][3] = np.nan
    with pytest.raises(ValueError, match=r"the critic of module 'red' gave NaN or inf.*critic observations"):
        learner_of(algorithm).update(
            episodes=fragments, num_epochs=1, minibatch_size=20, timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}
        )
