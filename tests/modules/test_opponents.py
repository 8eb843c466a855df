"""Opponents that need no training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rllib_shared import play
from rllib_shared.envs.registry import make_env, make_team_env, wrap_parallel_env
from rllib_shared.envs.team_env import NO_ACTION, TeamEnv
from rllib_shared.modules.opponents import GreedyOpponent, ModuleView, NoopOpponent, make_opponent
from tests.envs.play import BATTLE_NOOP, EAST, NEIGHBOURS, WEST

CENTRE = 6
WALL, OWN, ENEMY = 0, 1, 3


def battle(**env_config: object) -> TeamEnv:
    """Six against six on a map of 16."""
    return make_team_env("battle_v4", {"map_size": 16, **env_config}, critic_observation="own")


def observation(*cells: tuple[int, int, int]) -> np.ndarray:
    """An observation `[13, 13, 5]` with something at (dx, dy) in a channel."""
    seen = np.zeros((13, 13, 5), np.float32)
    seen[CENTRE, CENTRE, OWN] = 1
    for dx, dy, channel in cells:
        seen[CENTRE + dy, CENTRE + dx, channel] = 1
    return seen


def greedy(*observations: np.ndarray, team: str = "red", seed: int = 0) -> np.ndarray:
    """What agents of a team choose for these observations, one each; int64 `[R]`."""
    env = battle()
    views = {}
    for module_id in ("red", "blue"):
        rows = np.zeros((len(observations), 6, 13, 13, 5), np.float32)
        acting = np.zeros((len(observations), 6), bool)
        if module_id == team:
            rows[:, 2] = np.stack(observations)
            acting[:, 2] = True
        views[module_id] = ModuleView(rows, acting, None)
    actions = GreedyOpponent(env).act(views, generator=torch.Generator().manual_seed(seed))
    assert (actions["blue" if team == "red" else "red"] == NO_ACTION).all()
    return actions[team][:, 2]


def offset(action: int) -> tuple[int, int]:
    """(dx, dy) of one of battle's moves: the cells of a disc of radius 2, row by row."""
    cells = [(dx, dy) for dy in range(-2, 3) for dx in range(-2, 3) if dx * dx + dy * dy <= 4]
    return cells[action]


def test_doing_nothing_is_the_centre_of_the_moves_and_not_action_0() -> None:
    env = battle()
    seen = ModuleView(np.zeros((2, 6, 13, 13, 5), np.float32), np.ones((2, 6), bool), None)
    seen.acting[1, 4] = False
    actions = make_opponent("noop", env).act({"red": seen, "blue": seen})["red"]
    assert BATTLE_NOOP == 6
    assert (actions[seen.acting] == BATTLE_NOOP).all()
    assert actions[1, 4] == NO_ACTION


def test_agents_that_do_nothing_stay_where_they_are_and_earn_minus_1_in_200_steps() -> None:
    result = play("noop", lambda: battle(max_cycles=200), episodes=1)
    assert result.evaluated.return_per_agent == pytest.approx({"red": -1.0, "blue": -1.0}, abs=1e-4)
    assert result.evaluated.survivors == {"red": 6, "blue": 6}


def test_a_forbidden_noop_becomes_an_allowed_action() -> None:
    env = battle(mask_attacks=True)
    mask = np.zeros((1, 6, 21), bool)
    mask[..., 3] = True
    mask[0, 0, BATTLE_NOOP] = True
    view = ModuleView(np.zeros((1, 6, 13, 13, 5), np.float32), np.ones((1, 6), bool), mask)
    assert NoopOpponent(env).act({"red": view, "blue": view})["red"].tolist() == [[BATTLE_NOOP, 3, 3, 3, 3, 3]]


def test_no_known_noop_is_refused() -> None:
    with pytest.raises(ValueError, match=r"coin_game has no action that is known to do nothing.*take another"):
        make_opponent("noop", make_team_env("coin_game", critic_observation="own"))


def test_random_takes_every_allowed_action_equally_often_and_no_other() -> None:
    env = battle(mask_attacks=True)
    mask = np.zeros((2000, 6, 21), bool)
    mask[..., [2, 5, 20]] = True
    view = ModuleView(np.zeros((2000, 6, 13, 13, 5), np.float32), np.ones((2000, 6), bool), mask)
    views = {"red": view, "blue": view}
    actions = make_opponent("random", env).act(views, generator=torch.Generator().manual_seed(0))["red"]
    counts = np.bincount(actions.reshape(-1), minlength=21)
    assert counts.sum() == counts[[2, 5, 20]].sum() == 12000
    np.testing.assert_allclose(counts[[2, 5, 20]] / 12000, 1 / 3, atol=0.02)


@pytest.mark.parametrize("team", ["red", "blue"])
def test_greedy_attacks_an_adjacent_enemy(team: str) -> None:
    # One that is nearer in sight than others farther off, one for each neighbouring cell.
    chosen = greedy(*(observation((dx, dy, ENEMY), (4, 0, ENEMY)) for dx, dy in NEIGHBOURS), team=team)
    assert chosen.tolist() == list(range(13, 21))


@pytest.mark.parametrize("team", ["red", "blue"])
def test_greedy_walks_to_the_nearest_enemy_in_sight(team: str) -> None:
    (chosen,) = greedy(observation((-5, 0, ENEMY), (0, 4, ENEMY), (4, -4, ENEMY)), team=team)
    assert offset(chosen) == (0, 2)


def test_greedy_walks_toward_the_half_where_the_enemy_starts() -> None:
    assert offset(greedy(observation(), team="red")[0]) == (2, 0)
    assert offset(greedy(observation(), team="blue")[0]) == (-2, 0)


def test_greedy_goes_round_what_stands_in_its_way() -> None:
    crowded = observation((2, 0, OWN), (5, 0, ENEMY))
    walled = observation((2, 0, WALL), (5, 0, ENEMY))
    for chosen in greedy(crowded, walled):
        assert offset(chosen) in {(1, 1), (1, -1), (1, 0)}


def test_greedy_keeps_moving_where_a_wall_stops_it() -> None:
    """Forward alone would leave it there for the rest of the game."""
    walls = [(1, dy, WALL) for dy in range(-6, 7)]
    steps = {offset(greedy(observation(*walls), seed=seed)[0]) for seed in range(30)}
    assert len(steps) > 4
    assert max(dx for dx, _ in steps) <= 2 and (1, 0) not in steps


def test_greedy_is_mirrored_for_the_two_sides() -> None:
    rng = np.random.default_rng(0)
    seen = [
        observation(*((int(x), int(y), ENEMY) for x, y in rng.integers(-6, 7, (3, 2)) if (x, y) != (0, 0)))
        for _ in range(50)
    ]
    red = greedy(*seen, team="red")
    blue = greedy(*(view[:, ::-1] for view in seen), team="blue")
    cells = [offset(action) for action in range(13)] + list(NEIGHBOURS)
    moves = [cells[a] for a in red]
    assert [(-dx, dy) for dx, dy in moves] == [cells[a] for a in blue]
    assert len(set(moves)) > 5


@pytest.mark.parametrize("arrays", [True, False])
def test_greedy_beats_random(arrays: bool) -> None:
    """All of 100 games on each map from 16 to 45 when measured."""
    result = play(
        "greedy",
        lambda: wrap_parallel_env(make_env("battle_v4", map_size=16), critic_observation="own", arrays=arrays),
        opponent="random",
        episodes=40 if arrays else 4,
    )
    assert result.win_rate is not None and result.win_rate >= 0.95


def test_greedy_plays_minimap_battles_and_battlefields() -> None:
    assert play("greedy", lambda: battle(minimap_mode=True), opponent="random", episodes=4).wins == 4
    field = make_team_env("battlefield_v5", {"map_size": 46, "max_cycles": 30}, critic_observation="own")
    play("greedy", field, opponent="random", episodes=1)


def test_greedy_refuses_other_games() -> None:
    for name, env_config in (("coin_game", {}), ("adversarial_pursuit_v4", {"map_size": 20})):
        with pytest.raises(ValueError, match=f"plays battle_v4 and battlefield_v5 only, not {name}"):
            make_opponent("greedy", make_team_env(name, env_config, critic_observation="own"))


def test_an_unknown_opponent_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown opponent 'gredy'; did you mean 'greedy'"):
        make_opponent("gredy", battle())


def test_moves_east_and_west_are_where_the_tests_think() -> None:
    assert (offset(EAST), offset(WEST)) == ((1, 0), (-1, 0))
