"""The numbers of a match."""

from __future__ import annotations

import pytest

from rllib_shared.evaluation.report import headline
from rllib_shared.evaluation.result import Game, MatchResult


def match(outcomes: str, has_opponent: bool = True) -> MatchResult:
    """Games of red (evaluated in even games) and blue with these winners: `r`, `b`, or `-` for a draw."""
    winners = {"r": "red", "b": "blue", "-": None}
    games = [
        Game(
            number=number,
            played=(("red", "blue")[number % 2],) if has_opponent else ("red", "blue"),
            winner=winners[outcome],
            length=10 + number,
            return_per_agent={"red": number, "blue": -number},
            team_return={"red": 2 * number, "blue": -3 * number},
            survivors={"red": 5, "blue": number},
        )
        for number, outcome in enumerate(outcomes)
    ]
    return MatchResult(tuple(games), ("red", "blue"), has_opponent)


def test_wins_are_those_of_the_side_that_was_played() -> None:
    result = match("rrb-")
    # Red in games 0 and 2, blue in 1 and 3.
    assert (result.wins, result.losses, result.draws) == (1, 2, 1)
    assert result.win_rate == 0.25


@pytest.mark.parametrize(
    ("wins", "games", "low", "high"), [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0)]
)
def test_the_interval_is_wilsons(wins: int, games: int, low: float, high: float) -> None:
    """Values of Wilson's formula with z = 1.96."""
    sides = "rb" * games
    result = match("".join(side if i < wins else "-" for i, side in enumerate(sides[:games])))
    assert result.wins == wins
    assert result.win_rate_ci == pytest.approx((low, high), abs=1e-4)


def test_each_side_has_its_own_games_of_a_team() -> None:
    numbers = match("rrb-").to_dict()
    assert numbers["return_per_agent"] == {"red": 1.0, "blue": -2.0}
    assert numbers["team_return"] == {"red": 2.0, "blue": -6.0}
    assert numbers["survivors"] == {"red": 5.0, "blue": 2.0}
    assert numbers["episode_length"] == 11.5
    assert numbers["opponent"]["return_per_agent"] == {"red": 2.0, "blue": -1.0}


def test_without_an_opponent_every_game_counts_for_every_team() -> None:
    result = match("rrb-", has_opponent=False)
    assert result.to_dict()["return_per_agent"] == {"red": 1.5, "blue": -1.5}
    assert result.to_dict()["win_rate_ci"] is None
    assert headline(result) == "4 episodes without an opponent"


def test_the_headline_tells_wins_and_interval() -> None:
    assert headline(match("rrb-")) == (
        "1 wins / 2 losses / 1 draws in 4 episodes; win rate 25.0%, 95 % Wilson interval [4.6%, 69.9%]"
    )
