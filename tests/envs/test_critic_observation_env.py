"""The wrapper for RLlib's own runners: the same content, and flags that RLlib's episodes understand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

from rllib_shared.envs.critic_observation_env import CriticObservationEnv
from rllib_shared.envs.registry import make_team_env
from rllib_shared.envs.team_env import ACTION_MASK, CRITIC_OBSERVATION, NO_ACTION, OBSERVATION


def play(env: CriticObservationEnv, seed: int = 3, action: int = 0) -> MultiAgentEpisode:
    """One episode with the same action for all, recorded as RLlib's runner records it."""
    mapping = env.team_env.teams.policy_mapping_fn
    episode = MultiAgentEpisode(
        observation_space=env.observation_spaces,
        action_space=env.action_spaces,
        agent_to_module_mapping_fn=mapping,
    )
    observations, infos = env.reset(seed=seed)
    episode.add_env_reset(observations=observations, infos=infos)
    for _ in range(60):
        actions = {agent: np.int64(action) for agent in env.agents}
        observations, rewards, terminateds, truncateds, infos = env.step(actions)
        episode.add_env_step(observations, actions, rewards, infos, terminateds=terminateds, truncateds=truncateds)
        if terminateds["__all__"] or truncateds["__all__"]:
            break
    return episode


def masked_teams(**env_config: Any) -> CriticObservationEnv:
    return CriticObservationEnv({"env": "masked_teams", "env_config": {"max_cycles": 3, **env_config}})


def flags(episode: MultiAgentEpisode) -> dict[str, tuple[bool, bool]]:
    return {agent: (part.is_terminated, part.is_truncated) for agent, part in episode.agent_episodes.items()}


def test_agents_see_what_the_team_environment_shows() -> None:
    options = {"map_size": 12, "mask_attacks": True}
    ours = CriticObservationEnv({"env": "battle_v4", "env_config": options, "critic_observation": "state"})
    arrays = make_team_env("battle_v4", options, critic_observation="state")
    observations, _ = ours.reset(seed=5)
    step = arrays.reset(seed=5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        for module_id, slots in arrays.teams.modules.items():
            for slot, agent in enumerate(slots.agents):
                assert ours.observation_spaces[agent].contains(observations[agent])
                np.testing.assert_array_equal(
                    observations[agent][OBSERVATION], step.modules[module_id].observation[slot]
                )
                np.testing.assert_array_equal(
                    observations[agent][CRITIC_OBSERVATION], step.critic_observation[slots.teams[0]]
                )
                np.testing.assert_array_equal(
                    observations[agent][ACTION_MASK], step.modules[module_id].action_mask[slot]
                )
        actions = {mid: rng.integers(0, 13, slots.num_slots) for mid, slots in arrays.teams.modules.items()}
        step = arrays.step(actions)
        observations, rewards, *_ = ours.step(
            {
                agent: actions[mid][i]
                for mid, slots in arrays.teams.modules.items()
                for i, agent in enumerate(slots.agents)
            }
        )
        assert rewards["red_0"] == step.modules["red"].reward[0]


def test_a_time_limit_truncates_the_living_in_rllib_s_episode() -> None:
    """Stock's wrapper makes RLlib record (True, True): terminated, no bootstrap."""
    episode = play(masked_teams(end="truncate", deaths={"red_0": 2}))
    assert episode.is_done and not episode.is_terminated
    assert flags(episode)["red_0"] == (True, False)
    assert {value for agent, value in flags(episode).items() if agent != "red_0"} == {(False, True)}


def test_a_mixed_end_ends_the_episode_once_and_bootstraps_only_the_truncated() -> None:
    """T2: stock would step this environment for ever."""
    env = masked_teams(end="mixed")
    episode = play(env)
    assert episode.is_done and len(episode) == 3
    by_team = {agent[:-2]: value for agent, value in flags(episode).items()}
    assert by_team["red"][0] is True
    assert by_team["blue"] == (False, True)
    observations, _ = env.reset()
    assert len(observations) == 5


def test_a_terminal_end_terminates_everyone() -> None:
    assert set(flags(play(masked_teams(end="terminate"))).values()) == {(True, False)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda actions: actions.pop("red_1"), "no action for living agents 'red_1'"),
        (lambda actions: actions.update(red_9=0), "unknown agents 'red_9'"),
        (lambda actions: actions.update(red_1=99), "out of range"),
        (lambda actions: actions.update(red_0=0), "action for dead agents 'red_0'"),
    ],
)
def test_bad_actions_are_refused(change: Any, message: str) -> None:
    env = masked_teams(deaths={"red_0": 1})
    env.reset(seed=0)
    env.step(dict.fromkeys(env.agents, 0))
    actions = dict.fromkeys(env.agents, 0)
    change(actions)
    with pytest.raises(ValueError, match=message):
        env.step(actions)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="takes the options"):
        CriticObservationEnv({"env": "battle_v4", "critic": "state"})


def test_dead_slots_get_no_action() -> None:
    env = masked_teams(deaths={"red_0": 1})
    env.reset(seed=0)
    env.step(dict.fromkeys(env.agents, 0))
    assert "red_0" not in env.agents
    assert env._arrays(dict.fromkeys(env.agents, 0))["red"][0] == NO_ACTION
