"""What a match gave: its games, and the numbers that are reported of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Game:
    """One finished episode.

    Attributes:
        number: its place in the match, from 0.
        played: the teams that the evaluated policies played.
        winner: the team with the most survivors; None for a draw.
        length: env steps.
        return_per_agent: of each team, mean over its agents.
        team_return: of each team, sum over its agents.
        survivors: of each team.
    """

    number: int
    played: tuple[str, ...]
    winner: str | None
    length: int
    return_per_agent: Mapping[str, float]
    team_return: Mapping[str, float]
    survivors: Mapping[str, int]


@dataclass(frozen=True)
class SideNumbers:
    """Means of one side: for each team, over the games in which this side played it; None where it never did.

    Attributes:
        games: number of such games.
        return_per_agent: mean over agents and games.
        team_return: sum over agents, mean over games.
        survivors: agents alive at the end.
        episode_length: env steps.
    """

    games: Mapping[str, int]
    return_per_agent: Mapping[str, float | None]
    team_return: Mapping[str, float | None]
    survivors: Mapping[str, float | None]
    episode_length: Mapping[str, float | None]


@dataclass(frozen=True)
class MatchResult:
    """All games of a match, seen from the evaluated side.

    Attributes:
        games: in the order of their numbers.
        teams: names of all teams.
        has_opponent: whether somebody else played the other team; without, there is nobody to win against.
    """

    games: tuple[Game, ...]
    teams: tuple[str, ...]
    has_opponent: bool

    @property
    def episodes(self) -> int:
        """Number of games."""
        return len(self.games)

    @property
    def wins(self) -> int | None:
        """Games that the evaluated side won; None without an opponent."""
        return self._count(game.winner in game.played for game in self.games)

    @property
    def losses(self) -> int | None:
        """Games that the opponent won; None without one."""
        return self._count(game.winner is not None and game.winner not in game.played for game in self.games)

    @property
    def draws(self) -> int | None:
        """Games without a winner; None without an opponent."""
        return self._count(game.winner is None for game in self.games)

    @property
    def win_rate(self) -> float | None:
        """Wins per game (a draw is no win); None without an opponent."""
        return None if self.wins is None else self.wins / self.episodes

    @property
    def win_rate_ci(self) -> tuple[float, float] | None:
        """95 % Wilson interval of the win rate; None without an opponent."""
        if self.wins is None:
            return None
        interval = binomtest(self.wins, self.episodes).proportion_ci(CONFIDENCE, method="wilson")
        return float(interval.low), float(interval.high)

    @property
    def episode_length(self) -> float:
        """Mean env steps per game."""
        return float(np.mean([game.length for game in self.games]))

    @property
    def evaluated(self) -> SideNumbers:
        """The evaluated side's numbers."""
        return self._side({team: [game for game in self.games if team in game.played] for team in self.teams})

    @property
    def opponent(self) -> SideNumbers | None:
        """The opponent's numbers; None without one."""
        if not self.has_opponent:
            return None
        return self._side({team: [game for game in self.games if team not in game.played] for team in self.teams})

    def to_dict(self) -> dict[str, Any]:
        """The numbers as JSON takes them; win keys and `opponent` are None without an opponent."""
        opponent = self.opponent
        return {
            "episodes": self.episodes,
            "wins": self.wins,
            "losses": self.losses,
            "draws": self.draws,
            "win_rate": self.win_rate,
            "win_rate_ci": None if self.win_rate_ci is None else list(self.win_rate_ci),
            **_shown(self.evaluated),
            "episode_length": self.episode_length,
            "opponent": None if opponent is None else _shown(opponent),
        }

    def _count(self, games: Iterable[bool]) -> int | None:
        return sum(games) if self.has_opponent else None

    def _side(self, games: Mapping[str, list[Game]]) -> SideNumbers:
        return SideNumbers(
            games={team: len(played) for team, played in games.items()},
            return_per_agent={team: _mean(g.return_per_agent[team] for g in games[team]) for team in self.teams},
            team_return={team: _mean(g.team_return[team] for g in games[team]) for team in self.teams},
            survivors={team: _mean(g.survivors[team] for g in games[team]) for team in self.teams},
            episode_length={team: _mean(g.length for g in games[team]) for team in self.teams},
        )


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return float(np.mean(numbers)) if numbers else None


def _shown(side: SideNumbers) -> dict[str, Mapping[str, float | None]]:
    return {
        "return_per_agent": side.return_per_agent,
        "team_return": side.team_return,
        "survivors": side.survivors,
    }
