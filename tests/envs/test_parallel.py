"""Any PettingZoo environment as arrays: flags, masks, births, and what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rllib_shared.envs.games import CoinGame
from rllib_shared.envs.masked_teams import MaskedTeams
from rllib_shared.envs.registry import make_team_env, wrap_parallel_env
from rllib_shared.envs.team_env import ENDED, NO_ACTION, TIME_LIMIT, WIPED_OUT, TeamEnv, TeamStep
from tests.envs.play import at_random, everyone, play


def toy(critic_observation: Any = "state", **env_config: Any) -> TeamEnv:
    return make_team_env("masked_teams", env_config, critic_observation=critic_observation)


def flags(step: TeamStep, name: str) -> dict[str, list[int]]:
    return {module_id: getattr(part, name).astype(int).tolist() for module_id, part in step.modules.items()}


def run(env: TeamEnv, seed: int = 2) -> list[TeamStep]:
    return play(env, seed, at_random)[0]


# Ends: terminated, truncated and absent are three things.


def test_at_a_time_limit_all_that_live_are_truncated_and_none_terminated() -> None:
    last = run(toy(end="truncate", max_cycles=3))[-1]
    assert flags(last, "truncated") == {"red": [1, 1, 1], "blue": [1, 1]}
    assert flags(last, "terminated") == flags(last, "alive") == {"red": [0, 0, 0], "blue": [0, 0]}
    assert last.over
    assert last.outcome.reason == TIME_LIMIT


def test_at_a_game_over_all_that_live_are_terminated_and_none_truncated() -> None:
    last = run(toy(end="terminate", max_cycles=3))[-1]
    assert flags(last, "terminated") == {"red": [1, 1, 1], "blue": [1, 1]}
    assert flags(last, "truncated") == flags(last, "alive") == {"red": [0, 0, 0], "blue": [0, 0]}
    assert last.over
    assert last.outcome.reason == ENDED


def test_in_a_mixed_end_each_team_keeps_its_own_flag_and_the_episode_is_over_once() -> None:
    steps = run(toy(end="mixed", max_cycles=3))
    assert [step.over for step in steps] == [False, False, False, True]
    assert flags(steps[-1], "terminated") == {"red": [1, 1, 1], "blue": [0, 0]}
    assert flags(steps[-1], "truncated") == {"red": [0, 0, 0], "blue": [1, 1]}


def test_a_dead_agents_slot_stays_and_is_absent_afterwards() -> None:
    steps = run(toy(deaths={"red_1": 2}, max_cycles=4))
    assert [flags(step, "alive")["red"] for step in steps] == [[1, 1, 1]] * 2 + [[1, 0, 1]] * 2 + [[0, 0, 0]]
    assert [flags(step, "terminated")["red"] for step in steps] == [[0] * 3] * 2 + [[0, 1, 0]] + [[0] * 3] * 2
    assert [step.modules["red"].reward.tolist() for step in steps[1:]] == [[1, 1, 1]] * 2 + [[1, 0, 1]] * 2
    assert steps[2].modules["red"].observation[1].tolist() == [1, 2]
    assert steps[3].modules["red"].observation.tolist() == [[0, 3], [0, 0], [2, 3]]
    assert flags(steps[-1], "truncated")["red"] == [1, 0, 1]


def test_an_agent_that_dies_in_the_last_step_has_both_flags() -> None:
    last = run(toy(deaths={"blue_0": 3}, max_cycles=3))[-1]
    assert flags(last, "terminated")["blue"] == [1, 0]
    assert flags(last, "truncated")["blue"] == [1, 1]


def test_steps_after_the_end_are_refused_until_the_next_reset() -> None:
    env = toy(max_cycles=2)
    last = run(env)[-1]
    for actions in (everyone(env, last, 0), {mid: np.zeros(len(p.alive), int) for mid, p in last.modules.items()}):
        with pytest.raises(RuntimeError, match=r"masked_teams: the episode is over; call reset\(\)"):
            env.step(actions)
    assert env.reset().modules["red"].alive.all()


# Outcome.


def test_the_team_with_more_survivors_wins_at_the_time_limit() -> None:
    outcome = run(toy(deaths={"red_0": 1, "red_1": 2}, max_cycles=4))[-1].outcome
    assert outcome.survivors == {"red": 1, "blue": 2}
    assert outcome.winner == "blue"


def test_equal_numbers_of_survivors_are_a_draw() -> None:
    outcome = run(toy(deaths={"red_0": 1}, max_cycles=4))[-1].outcome
    assert outcome.survivors == {"red": 2, "blue": 2}
    assert outcome.winner is None


def test_a_team_that_dies_out_loses_whatever_the_flags_of_the_others_say() -> None:
    env = toy(deaths={"blue_0": 2, "blue_1": 3}, end="terminate", max_cycles=5)
    outcome = run(env)[-1].outcome
    assert outcome.survivors == {"red": 3, "blue": 0}
    assert outcome.winner == "red"
    assert outcome.reason == WIPED_OUT


def test_an_environment_may_count_its_survivors_itself() -> None:
    class Counted(MaskedTeams):
        def survivors(self) -> dict[str, int]:
            return {"red": 0, "blue": 7}

    outcome = run(wrap_parallel_env(Counted(max_cycles=2, end="terminate")))[-1].outcome
    assert (outcome.winner, outcome.survivors, outcome.reason) == ("blue", {"red": 0, "blue": 7}, WIPED_OUT)


def test_one_team_alone_wins_nothing() -> None:
    assert run(make_team_env("coin_game", {"max_cycles": 2}))[-1].outcome.winner is None


# Masks.


@pytest.mark.parametrize("mask_in", ["observation", "info"])
def test_masks_are_taken_from_observations_and_from_infos(mask_in: str) -> None:
    env = toy(mask_in=mask_in, deaths={"red_1": 2}, max_cycles=4)
    assert env.masked
    assert env.teams.modules["red"].observation_space.shape == (2,)
    assert set(env.module_spaces()["red"][0].spaces) == {"observation", "critic_observation", "action_mask"}
    game = env.env
    step, seen = env.reset(seed=2), set()
    while not step.over:
        for module_id, part in step.modules.items():
            for slot in np.flatnonzero(part.alive):
                expected = game.mask(env.teams.modules[module_id].agents[slot]).astype(bool)
                np.testing.assert_array_equal(part.action_mask[slot], expected)
                seen.add(tuple(expected))
        step = env.step(at_random(env, step, np.random.default_rng(0)))
    assert len(seen) == 3


def test_a_masked_action_is_refused_before_the_environment_is_called() -> None:
    env = toy()
    step = env.reset(seed=2)
    slot = 1
    actions = everyone(env, step, 0)
    masked = int(np.flatnonzero(~step.modules["red"].action_mask[slot])[0])
    actions["red"][slot] = masked
    with pytest.raises(ValueError, match=rf"masked_teams, module 'red': action {masked} of agent 'red_1' is masked"):
        env.step(actions)
    assert env.env.frame == 0


def test_environments_without_masks_have_none() -> None:
    env = make_team_env("coin_game")
    assert not env.masked
    assert env.reset(seed=2).modules["player"].action_mask is None


def test_masks_need_discrete_actions() -> None:
    class Continuous(MaskedTeams):
        def action_space(self, agent: str) -> gym.Space:
            return gym.spaces.Box(-1, 1, (2,), np.float32)

    env = wrap_parallel_env(Continuous())
    with pytest.raises(ValueError, match="action masks need Discrete actions, not Box"):
        env.module_spaces()


# Illegal actions.


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"red": [0, 4, 0]}, "action 4 of agent 'red_1' is out of range; allowed are 0 to 3"),
        ({"red": [0, -2, 0]}, "action -2 of agent 'red_1' is out of range"),
        ({"red": [0, 0, NO_ACTION]}, "no action for living agents 'red_2'"),
        ({"blue": [0, 0, 0]}, r"actions must be integers of shape \(2,\), got int64 of shape \(3,\)"),
        ({"blue": [0.0, 7.9]}, r"actions must be integers of shape \(2,\), got float64"),
        ({"green": [0]}, r"give actions for the modules \['blue', 'red'\], got \['blue', 'green', 'red'\]"),
    ],
)
def test_illegal_actions_are_refused_before_the_environment_is_called(actions: Any, message: str) -> None:
    env = toy()
    env.reset(seed=2)
    legal = {"red": np.zeros(3, int), "blue": np.zeros(2, int)}
    with pytest.raises(ValueError, match=f"masked_teams.*{message}"):
        env.step({**legal, **{module_id: np.array(array) for module_id, array in actions.items()}})
    assert env.env.frame == 0
    assert env.step(legal).modules["red"].reward.tolist() == [1, 1, 1]


def test_an_action_for_a_dead_agent_is_refused() -> None:
    env = toy(deaths={"red_1": 1})
    env.reset(seed=2)
    env.step({"red": np.zeros(3, int), "blue": np.zeros(2, int)})
    with pytest.raises(ValueError, match=r"action for dead agents 'red_1'; dead slots must hold NO_ACTION \(-1\)"):
        env.step({"red": np.zeros(3, int), "blue": np.zeros(2, int)})
    assert env.env.frame == 1


def test_continuous_actions_outside_their_bounds_are_refused() -> None:
    env = make_team_env("simple_spread_v3", {"continuous_actions": True, "max_cycles": 3})
    env.reset(seed=2)
    actions = {"agent": np.full((3, 5), 0.5, np.float32)}
    env.step(actions)
    actions["agent"][1, 2] = 1.5
    with pytest.raises(
        ValueError, match=r"simple_spread_v3, module 'agent': action .* of agent 'agent_1' is out of range"
    ):
        env.step(actions)
    actions["agent"][1, 2] = np.nan
    with pytest.raises(ValueError, match="no action for living agents 'agent_1'"):
        env.step(actions)


# Births, and agents that appear or vanish.


def test_an_agent_born_late_has_a_slot_from_the_start_and_is_absent_until_then() -> None:
    env = toy(born={"blue_1": 2}, max_cycles=4)
    assert env.teams.agents["blue"] == ("blue_0", "blue_1")
    steps = run(env)
    assert [flags(step, "alive")["blue"] for step in steps] == [[1, 0], [1, 0], [1, 1], [1, 1], [0, 0]]
    assert steps[2].modules["blue"].observation[1].tolist() == [4, 2]
    assert [step.modules["blue"].reward.tolist() for step in steps[1:]] == [[1, 0], [1, 0], [1, 1], [1, 1]]
    assert steps[-1].outcome.survivors == {"red": 3, "blue": 2}


def test_an_agent_that_was_never_announced_is_refused_by_name() -> None:
    class Surprise(MaskedTeams):
        def step(self, actions: dict[str, int]) -> Any:
            observations, *rest = super().step(actions)
            return ({**observations, "green_0": observations["red_0"]}, *rest)

    env = wrap_parallel_env(Surprise())
    with pytest.raises(ValueError, match=r"agents \['green_0'\] were not in possible_agents"):
        env.step(everyone(env, env.reset(seed=2), 0))


def test_an_agent_that_vanishes_without_a_flag_is_cut_off_with_its_last_observation() -> None:
    class Vanishing(CoinGame):
        def step(self, actions: dict[str, int]) -> Any:
            results = super().step(actions)
            self.agents = [agent for agent in self.agents if agent != "player_1"]
            return tuple({agent: value for agent, value in part.items() if agent in self.agents} for part in results)

    env = wrap_parallel_env(Vanishing())
    out = env.make_buffers()
    step = env.step(everyone(env, env.reset(seed=2, out=out), 0), out)
    part = step.modules["player"]
    assert part.truncated.tolist() == [False, True]
    assert part.terminated.tolist() == [False, False]
    assert part.observation.tolist() == [[1], [1]]


# Spaces.


def test_a_dict_observation_with_other_keys_is_refused() -> None:
    class Odd(MaskedTeams):
        def observation_space(self, agent: str) -> gym.Space:
            return gym.spaces.Dict({"observation": gym.spaces.Box(0, 1, (2,)), "speed": gym.spaces.Box(0, 1, (1,))})

    with pytest.raises(ValueError, match=r"'red_0' has a Dict observation with keys \['observation', 'speed'\]"):
        wrap_parallel_env(Odd())


@pytest.mark.parametrize("space", [gym.spaces.MultiDiscrete([2, 2]), gym.spaces.Discrete(3, start=1)])
def test_action_spaces_other_than_box_and_discrete_from_0_are_refused(space: gym.Space) -> None:
    class Odd(CoinGame):
        def action_space(self, agent: str) -> gym.Space:
            return space

    with pytest.raises(ValueError, match=r"coin_game: action space .* of agent 'player_0'"):
        wrap_parallel_env(Odd())


def test_integer_rewards_and_float64_observations_become_float32() -> None:
    env = make_team_env("knights_archers_zombies_v11", {"max_cycles": 3})
    step = env.reset(seed=2)
    assert env.env.observation_space("archer_0").dtype == np.float64
    assert {part.observation.dtype for part in step.modules.values()} == {np.dtype(np.float32)}
    assert {critic.dtype for critic in step.critic_observation.values()} == {np.dtype(np.float32)}
    step = env.step(everyone(env, step, 5))
    assert {part.reward.dtype for part in step.modules.values()} == {np.dtype(np.float32)}


class Visitors(CoinGame):
    """Says who is there, but not who may ever come."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        self.possible_agents = ["player_0", "player_1"]
        started = super().reset(seed, options)
        self.possible_agents = []
        return started


def test_weights_per_agent_need_a_list_of_all_agents() -> None:
    assert wrap_parallel_env(Visitors()).teams.names == ("player",)
    with pytest.raises(ValueError, match=r"does not say in possible_agents.*weights per agent would have no bound"):
        wrap_parallel_env(Visitors(), critic_sharing="agent")
