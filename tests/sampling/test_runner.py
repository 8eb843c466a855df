"""`TeamEnvRunner` on its own: what `sample` returns, metrics, callbacks, state. No Ray actors here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ray.rllib.core import COMPONENT_RL_MODULE

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.envs.team_env import NO_ACTION
from rllib_shared.sampling.runner import TeamEnvRunner

COPIES, LENGTH = 3, 4


def make_config(**env_config: Any) -> TeamPPOConfig:
    config = TeamPPOConfig().environment(
        "masked_teams", env_config={"max_cycles": 6, "deaths": {"red_1": 2}, **env_config}
    )
    config.env_runners(num_envs_per_env_runner=COPIES, rollout_fragment_length=LENGTH)
    config.training(train_batch_size_per_learner=COPIES * LENGTH, minibatch_size=4)
    config.rl_module(model_config={"hidden": [8]})
    config.debugging(seed=1)
    return config


def make_runner(config: TeamPPOConfig | None = None) -> TeamEnvRunner:
    config = config or make_config()
    config.validate()
    return TeamEnvRunner(config=config, worker_index=0)


@pytest.fixture
def runner() -> Iterator[TeamEnvRunner]:
    made = make_runner()
    yield made
    made.stop()


def env_steps(fragments: list) -> int:
    return sum(fragment.env_steps() for fragment in fragments)


def flat(metrics: Any, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in metrics.items():
        found |= flat(value, (*prefix, key)) if isinstance(value, dict) else {"/".join((*prefix, key)): value}
    return found


def test_sample_takes_the_configs_fragment_length_in_every_copy(runner: TeamEnvRunner) -> None:
    assert env_steps(runner.sample()) == COPIES * LENGTH
    assert runner.num_envs == COPIES
    runner.assert_healthy()


@pytest.mark.parametrize(("asked", "taken"), [(1, 3), (3, 3), (10, 12)])
def test_timesteps_are_rounded_up_to_a_multiple_of_the_copies(runner: TeamEnvRunner, asked: int, taken: int) -> None:
    assert env_steps(runner.sample(num_timesteps=asked)) == taken


def test_num_episodes_plays_whole_episodes(runner: TeamEnvRunner) -> None:
    assert env_steps(runner.sample(num_episodes=5)) == 5 * 6


def test_timesteps_and_episodes_together_are_refused(runner: TeamEnvRunner) -> None:
    with pytest.raises(ValueError, match="give num_timesteps or num_episodes, not both"):
        runner.sample(num_timesteps=3, num_episodes=1)


def test_force_reset_starts_new_episodes(runner: TeamEnvRunner) -> None:
    runner.sample(num_timesteps=6)
    fragments = runner.sample(num_timesteps=6, force_reset=True)
    assert [fragment.modules["red"].observation[0, 0, 1] for fragment in fragments] == [0] * COPIES


def test_without_exploration_the_policys_mode_is_taken(runner: TeamEnvRunner) -> None:
    for fragment in runner.sample(explore=False):
        for part in fragment.modules.values():
            np.testing.assert_array_equal(part.action[part.alive], part.dist_inputs.argmax(-1)[part.alive])


def test_random_actions_need_no_policy(runner: TeamEnvRunner) -> None:
    for fragment in runner.sample(random_actions=True):
        assert not any(part.dist_inputs.any() for part in fragment.modules.values())


def test_metrics_count_only_the_living_and_keep_the_same_keys(runner: TeamEnvRunner) -> None:
    first = flat(runner.get_metrics())
    runner.sample(num_timesteps=18)
    one_episode_each = flat(runner.get_metrics())
    runner.sample(num_timesteps=3)
    later = flat(runner.get_metrics())
    # RLlib's own time between two samplings begins with the second.
    assert set(one_episode_each) == set(later) - {"time_between_sampling"}
    assert not [key for key in first if key not in later]

    def value(key: str) -> float:
        return float(one_episode_each[key].peek())

    assert value("num_env_steps_sampled") == 18
    assert value("num_agent_steps_sampled/red") == 3 * (6 + 2 + 6)
    assert value("num_agent_steps_sampled/blue") == 3 * 12
    assert value("num_module_steps_sampled/red") == 3 * 14
    assert value("num_episodes") == 3
    assert value("episode_len_mean") == 6
    assert value("episode_return_mean") == 26
    assert value("teams/red/return_per_agent") == pytest.approx(14 / 3)
    assert value("teams/red/team_return") == 14
    assert value("teams/red/survivors") == value("teams/blue/survivors") == 2
    assert value("teams/red/win_rate") == value("teams/blue/win_rate") == 0
    assert value("teams/red/episode_length") == 6


def test_the_number_of_metrics_does_not_grow_with_the_agents() -> None:
    few, many = make_runner(make_config(deaths={})), make_runner(make_config(deaths={}, num_red=30, num_blue=40))
    few.sample()
    many.sample()
    assert set(flat(few.get_metrics())) == set(flat(many.get_metrics()))


def test_callbacks_hear_of_every_episode_and_step() -> None:
    heard: Counter[str] = Counter()
    arguments: dict[str, set[str]] = {}

    def listen(name: str) -> Any:
        def callback(**kwargs: Any) -> None:
            heard[name] += 1
            arguments[name] = set(kwargs)

        return callback

    config = make_config()
    names = ("on_environment_created", "on_episode_start", "on_episode_step", "on_episode_end", "on_sample_end")
    config.callbacks(**{name: listen(name) for name in names})
    runner = make_runner(config)
    runner.sample(num_timesteps=21)
    assert heard == {
        "on_environment_created": 1,
        "on_episode_start": 6,
        "on_episode_step": 21,
        "on_episode_end": 3,
        "on_sample_end": 1,
    }
    assert {"episode", "env_runner", "metrics_logger", "env", "rl_module", "env_index"} <= arguments["on_episode_end"]
    assert "samples" in arguments["on_sample_end"]


def test_the_state_has_no_critic_and_restores_the_policies() -> None:
    first, second = make_runner(), make_runner(make_config().debugging(seed=9))
    state = first.get_state()
    weights = state[COMPONENT_RL_MODULE]
    assert set(weights) == {"red", "blue"}
    assert not [name for part in weights.values() for name in part if "critic" in name]
    before = first.sample(explore=False, force_reset=True)
    second.set_state(state)
    after = second.sample(explore=False, force_reset=True)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a.modules["red"].dist_inputs, b.modules["red"].dist_inputs)
        np.testing.assert_array_equal(a.modules["red"].action, b.modules["red"].action)


def test_spaces_are_told_per_module(runner: TeamEnvRunner) -> None:
    observation, action = runner.get_spaces()["red"]
    assert set(observation.spaces) == {"observation", "critic_observation", "action_mask"}
    assert observation["observation"].shape == (2,)
    assert action.n == 4


def test_an_error_is_remembered_for_the_driver(runner: TeamEnvRunner) -> None:
    def fails(worker: TeamEnvRunner) -> None:
        raise OSError("the simulator is gone")

    with pytest.raises(OSError, match="the simulator is gone"):
        runner.apply(fails)
    assert "OSError: the simulator is gone" in runner.failure
    assert runner.apply(lambda worker, number: worker.num_envs + number, 1) == COPIES + 1


def test_dead_slots_hold_no_action(runner: TeamEnvRunner) -> None:
    actions = np.concatenate([fragment.modules["red"].action[:, 1] for fragment in runner.sample(num_episodes=1)])
    assert (actions[2:] == NO_ACTION).all()
    assert (actions[:2] != NO_ACTION).all()
