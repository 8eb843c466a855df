"""Matches: who plays which side, how many games, who has won."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from rllib_shared import load_policies, play
from rllib_shared.envs.registry import make_team_env
from rllib_shared.envs.team_env import TeamEnv
from rllib_shared.evaluation.lockstep import Seat
from rllib_shared.modules.opponents import ModuleView, RandomOpponent
from rllib_shared.teams import Teams, TeamsChoice

KEYS = [
    "episodes",
    "wins",
    "losses",
    "draws",
    "win_rate",
    "win_rate_ci",
    "return_per_agent",
    "team_return",
    "survivors",
    "episode_length",
    "opponent",
]


def battle(**env_config: object) -> TeamEnv:
    """Six against six."""
    return make_team_env("battle_v4", {"map_size": 16, **env_config}, critic_observation="own")


def short_battle() -> TeamEnv:
    """Nobody dies in five steps of doing nothing."""
    return battle(max_cycles=5)


def test_sides_are_swapped_every_other_game() -> None:
    result = play("greedy", battle, opponent="noop", episodes=6, num_envs=4)
    assert [game.played for game in result.games] == [("red",), ("blue",)] * 3
    assert [game.winner for game in result.games] == ["red", "blue"] * 3
    assert (result.wins, result.losses, result.draws) == (6, 0, 0)
    # The other side of the same games.
    mirrored = play("noop", battle, opponent="greedy", episodes=6, num_envs=4)
    assert (mirrored.wins, mirrored.losses, mirrored.draws) == (0, 6, 0)


def test_sides_stay_if_asked_to() -> None:
    result = play("greedy", battle, opponent="noop", episodes=3, alternate_sides=False)
    assert {game.played for game in result.games} == {("red",)}
    assert result.evaluated.games == {"red": 3, "blue": 0}
    assert result.to_dict()["survivors"] == {"red": 6.0, "blue": None}


def test_a_wiped_out_team_has_lost_though_everyone_terminated() -> None:
    result = play("greedy", battle, opponent="noop", episodes=2)
    assert result.to_dict()["survivors"] == {"red": 6.0, "blue": 6.0}
    assert result.to_dict()["opponent"]["survivors"] == {"red": 0.0, "blue": 0.0}
    assert result.episode_length < 1000
    # Six kills at 4.895 and five hits each at least, shared by six agents.
    assert all(value > 4 for value in result.to_dict()["return_per_agent"].values())


def test_equal_survivors_are_a_draw_and_no_win() -> None:
    result = play("noop", short_battle, opponent="noop", episodes=4)
    assert (result.wins, result.losses, result.draws, result.win_rate) == (0, 0, 4, 0.0)
    assert result.episode_length == 5


@pytest.mark.parametrize(("episodes", "num_envs"), [(1, 8), (7, 3), (8, 8)])
def test_exactly_the_asked_number_of_episodes_is_played_each_with_its_own_seed(episodes: int, num_envs: int) -> None:
    seeds: list[int] = []

    def recording() -> TeamEnv:
        env = short_battle()
        reset = env.reset

        def remember(seed: int, *args: object) -> object:
            seeds.append(seed)
            return reset(seed, *args)  # type: ignore[arg-type]

        env.reset = remember  # type: ignore[method-assign, assignment]
        return env

    done: list[int] = []
    result = play("random", recording, episodes=episodes, num_envs=num_envs, progress=done.append)
    assert [game.number for game in result.games] == list(range(episodes))
    assert len(set(seeds)) == len(seeds) == result.episodes == episodes
    assert done == list(range(1, episodes + 1))


def test_short_episodes_are_not_favoured() -> None:
    """Of two copies one plays short games; both play the half of all."""
    lengths = [3, 60]

    def uneven() -> TeamEnv:
        return battle(max_cycles=lengths.pop(0))

    result = play("noop", uneven, episodes=8, num_envs=2)
    assert sorted(game.length for game in result.games) == [3] * 4 + [60] * 4


def test_a_match_follows_from_its_seed() -> None:
    def moves(seed: int) -> list[Mapping[str, float]]:
        return [game.team_return for game in play("random", battle, opponent="greedy", episodes=4, seed=seed).games]

    assert moves(1) == moves(1)
    assert moves(1) != moves(2)


def test_a_checkpoint_plays_in_the_environment_of_its_training(checkpoint: Path) -> None:
    policies = load_policies(checkpoint)
    result = play(policies, opponent="random", episodes=4)
    assert list(result.to_dict()) == KEYS
    assert result.episode_length == 25
    assert set(result.to_dict()["return_per_agent"]) == {"red", "blue"}
    larger = play(policies, {"map_size": 25, "max_cycles": 3}, episodes=2)
    assert larger.evaluated.survivors == {"red": 20, "blue": 20}


def test_a_checkpoint_can_play_itself_by_path(checkpoint: Path) -> None:
    result = play(checkpoint, opponent=str(checkpoint), episodes=2)
    assert result.to_dict()["episodes"] == 2
    assert result.wins is not None and result.losses is not None and result.draws is not None
    assert result.wins + result.losses + result.draws == 2


def test_without_an_opponent_there_is_nothing_to_win() -> None:
    numbers = play("noop", short_battle, episodes=2).to_dict()
    assert list(numbers) == KEYS
    for key in ("wins", "losses", "draws", "win_rate", "win_rate_ci", "opponent"):
        assert numbers[key] is None
    np.testing.assert_allclose(numbers["return_per_agent"]["red"], 5 * -0.005, rtol=1e-5)
    np.testing.assert_allclose(numbers["team_return"]["blue"], 6 * 5 * -0.005, rtol=1e-5)


def test_an_opponent_needs_two_teams() -> None:
    def coins() -> TeamEnv:
        return make_team_env("coin_game", critic_observation="own")

    assert play("random", coins, episodes=2).to_dict()["wins"] is None
    with pytest.raises(ValueError, match="two teams, but coin_game has 1: 'player'; play without an opponent"):
        play("random", coins, opponent="random", episodes=2)


def test_masks_are_respected_by_every_opponent() -> None:
    def masked() -> TeamEnv:
        return make_team_env("masked_teams", {"deaths": {"blue_1": 3}}, critic_observation="own")

    result = play("random", masked, opponent="random", episodes=4)
    assert [game.winner for game in result.games] == ["red"] * 4
    assert (result.wins, result.losses) == (2, 2)
    masked_battle = play("greedy", lambda: battle(mask_attacks=True), opponent="random", episodes=2)
    assert masked_battle.wins == 2


def test_an_environment_that_was_given_is_left_open() -> None:
    env = short_battle()
    assert play("noop", env, episodes=3).episodes == 3
    env.reset(seed=2)


def test_impossible_requests_are_refused(checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="episodes=0"):
        play("random", battle, episodes=0)
    with pytest.raises(ValueError, match="give an env"):
        play("random", episodes=1)
    with pytest.raises(FileNotFoundError, match="'gredy' is neither one of 'random', 'noop', 'greedy' nor the path"):
        play("random", battle, opponent="gredy", episodes=1)
    with pytest.raises(ValueError, match="loaded without the modules 'blue'"):
        play(load_policies(checkpoint, module_ids=["red"]), episodes=1)


class Echo(RandomOpponent):
    """Does what its observation says."""

    def act(
        self,
        views: Mapping[str, ModuleView],
        *,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> dict[str, np.ndarray]:
        return {module_id: np.where(view.acting, view.observation, -1) for module_id, view in views.items()}


def odd_or_even(agent: str) -> str:
    """Teams whose agents are not neighbours in the other teams' modules."""
    return "odd" if agent.endswith("1") else "even"


@pytest.mark.parametrize(
    ("players", "envs", "choice"),
    [("all", "team", None), ("team", "all", None), ("team", "team", None), ("team", "team", odd_or_even)],
)
def test_players_that_share_weights_otherwise_sit_at_the_same_table(
    players: str, envs: str, choice: TeamsChoice
) -> None:
    """Each agent gets the action for its own observation, whatever module and row it has on either side."""
    agents = ("blue_0", "red_0", "red_1", "blue_1", "red_2")
    spaces = dict.fromkeys(agents, gym.spaces.Box(0, 9, (), np.float32))
    actions = dict.fromkeys(agents, gym.spaces.Discrete(20))
    table = Teams.build(spaces, actions, sharing=envs)
    player = Echo.__new__(Echo)
    player.teams = Teams.build(spaces, actions, choice, sharing=players)
    views = {}
    for module_id, slots in table.modules.items():
        numbers = np.array([agents.index(agent) for agent in slots.agents])
        # Two copies; nobody whose name ends in 1 acts in the second.
        acting = np.array([[True] * len(numbers), [not agent.endswith("1") for agent in slots.agents]])
        views[module_id] = ModuleView(np.stack([numbers, numbers + 10]), acting, None)
    chosen = Seat(player, table).act(views, deterministic=False, generator=torch.Generator())
    for module_id, view in views.items():
        np.testing.assert_array_equal(chosen[module_id], np.where(view.acting, view.observation, -1))
