"""The algorithm as a whole: runners local and remote, evaluation, failures, callbacks, plain PPO with our module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.utils.util import flatten_dict

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.envs.critic_observation_env import CriticObservationEnv
from rllib_shared.envs.registry import make_env
from rllib_shared.modules.centralized_critic import CentralizedCriticModule
from tests.algorithms.test_learner import assert_equal, tiny_config

pytestmark = pytest.mark.usefixtures("ray_session")


def test_results_count_agent_steps_and_keep_the_same_keys() -> None:
    algo = tiny_config().build_algo()
    try:
        first, second = (flatten_dict(algo.train()) for _ in range(2))
        stock = {key for key in second if "timers/" in key or "throughput" in key or "time_between" in key}
        ours = {key for key in second if key.startswith("env_runners/teams") or key.startswith("env_runners/num_")}
        assert ours - stock <= set(first)
        assert first["agent_steps"] == 160 and second["agent_steps"] == 320 and second["env_steps"] == 80
        assert np.isfinite(second["return_per_agent"])
        for team in ("red", "blue"):
            for name in ("return_per_agent", "team_return", "win_rate", "survivors", "episode_length"):
                assert np.isfinite(second[f"env_runners/teams/{team}/{name}"])
    finally:
        algo.stop()


def test_remote_runners_train_and_evaluate_with_the_learner_s_weights() -> None:
    config = tiny_config().env_runners(num_env_runners=1)
    config.evaluation(evaluation_interval=1, evaluation_num_env_runners=1, evaluation_duration=3)
    algo = config.build_algo()
    try:
        result = algo.train()
        assert result["agent_steps"] == 160
        assert result["evaluation"]["env_runners"]["num_episodes"] == 3
        learner = algo.learner_group._learner.get_state()["rl_module"]
        weights = algo.env_runner_group.foreach_env_runner(
            lambda runner: runner.get_state()["rl_module"], local_env_runner=False
        )[0]
        for module_id, state in weights.items():
            assert not [key for key in state if key.startswith("critic")]
            assert_equal(state, {key: learner[module_id][key] for key in state})
    finally:
        algo.stop()


class FailsInStep:
    """A battle whose fourth step raises; made by name in other processes."""

    def __new__(cls, **env_config: Any) -> Any:
        from rllib_shared.envs.registry import make_env

        env = make_env("battle_v4", map_size=12)
        engine, steps = env.unwrapped.env, [0]
        step = engine.step

        def failing_step() -> bool:
            steps[0] += 1
            if steps[0] > 3:
                raise ZeroDivisionError("the bridge has fallen")
            return step()

        engine.step = failing_step
        return env


def test_the_user_sees_the_traceback_of_an_environment_that_fails_on_a_remote_runner() -> None:
    config = tiny_config().environment("tests.algorithms.test_ppo:FailsInStep", env_config={})
    algo = config.env_runners(num_env_runners=1).build_algo()
    try:
        with pytest.raises(RuntimeError, match=r"(?s)env runner 1 failed.*failing_step.*the bridge has fallen"):
            algo.train()
    finally:
        algo.stop()


def only_on_the_driver(**env_config: Any) -> Any:
    """A battle that cannot be made in an actor."""
    if ray.get_runtime_context().get_actor_id():
        raise FileNotFoundError("the map file is missing on this node")
    return make_env("battle_v4", map_size=12)


def test_the_user_sees_the_traceback_of_a_remote_runner_that_cannot_be_made() -> None:
    config = tiny_config().environment("tests.algorithms.test_ppo:only_on_the_driver", env_config={})
    with pytest.raises(RuntimeError, match=r"(?s)env runner 1 could not be made.*the map file is missing on this node"):
        config.env_runners(num_env_runners=1).build_algo()


def test_a_runner_that_dies_is_brought_back_and_training_goes_on() -> None:
    config = tiny_config().env_runners(num_env_runners=1)
    config.fault_tolerance(delay_between_env_runner_restarts_s=0.1)
    algo = config.build_algo()
    try:
        algo.train()
        actor = algo.env_runner_group._worker_manager.actors()[1]
        ray.kill(actor, no_restart=False)
        # On a busy machine its process takes longer to start than several empty iterations; giving up takes a minute.
        while algo.train()["agent_steps"] <= 160:
            pass
    finally:
        algo.stop()


def test_iterations_without_samples_end_the_run() -> None:
    algo = tiny_config().fault_tolerance(env_runner_restore_timeout_s=0).build_algo()
    try:
        algo.training_step = lambda: None  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="3 iterations in a row brought no samples"):
            for _ in range(3):
                algo.train()
    finally:
        algo.stop()


class Recorder(RLlibCallback):
    """Counts calls into the metrics."""

    def on_episode_start(self, *, metrics_logger: Any, **kwargs: Any) -> None:
        metrics_logger.log_value("starts", 1, reduce="sum")

    def on_episode_step(self, *, metrics_logger: Any, **kwargs: Any) -> None:
        metrics_logger.log_value("steps", 1, reduce="sum")

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        metrics_logger.log_value("ends", 1, reduce="sum")
        metrics_logger.log_value("length", len(episode), window=10)

    def on_sample_end(self, *, samples: Any, metrics_logger: Any, **kwargs: Any) -> None:
        metrics_logger.log_value("fragments", len(samples), reduce="sum")


def test_callbacks_are_called() -> None:
    algo = tiny_config().callbacks(Recorder).build_algo()
    try:
        runners = algo.train()["env_runners"]
        assert (runners["starts"], runners["steps"], runners["ends"], runners["length"]) == (4, 40, 2, 20)
        assert runners["fragments"] == 2
    finally:
        algo.stop()


@pytest.mark.parametrize("critic_observation", ["state", "joint", "own"])
def test_the_module_trains_under_plain_ppo_with_rllib_s_own_runner(critic_observation: str) -> None:
    env_config = {
        "env": "battle_v4",
        "env_config": {"map_size": 12, "max_cycles": 20},
        "critic_observation": critic_observation,
    }
    teams = CriticObservationEnv(env_config).team_env.teams
    options = {"hidden": [16], "encoder": "mlp", "critic_encoder": "mlp"}
    config = (
        PPOConfig()
        .environment(CriticObservationEnv, env_config=env_config)
        .multi_agent(policies=set(teams.module_ids), policy_mapping_fn=teams.policy_mapping_fn)
        .env_runners(num_env_runners=0)
        .training(train_batch_size_per_learner=40, minibatch_size=32, num_epochs=1)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=CentralizedCriticModule, model_config=options))
    )
    algo = config.build_algo()
    try:
        before = algo.learner_group._learner.get_state()["rl_module"]["red"]
        result = algo.train()
        after = algo.learner_group._learner.get_state()["rl_module"]["red"]
        assert np.isfinite(result["learners"]["red"]["vf_loss"])
        assert not np.array_equal(before["critic.rest.1.0.weight"], after["critic.rest.1.0.weight"])
        assert not [key for key in algo.env_runner.module["red"].state_dict() if key.startswith("critic")]
    finally:
        algo.stop()


def test_continuous_actions_train_on_mpe() -> None:
    config = TeamPPOConfig().environment("simple_spread_v3", env_config={"continuous_actions": True, "max_cycles": 10})
    config.training(train_batch_size_per_learner=40, minibatch_size=20).rl_module(model_config={"hidden": [16]})
    algo = config.build_algo()
    try:
        assert np.isfinite(algo.train()["learners"]["agent"]["policy_loss"])
    finally:
        algo.stop()
