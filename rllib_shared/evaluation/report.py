"""A match's result as a table for people."""

from __future__ import annotations

from rich.table import Table

from rllib_shared.evaluation.result import MatchResult, SideNumbers


def headline(result: MatchResult) -> str:
    """One line: wins / losses / draws with the 95 % Wilson interval, or the number of episodes without an opponent."""
    interval = result.win_rate_ci
    if interval is None or result.win_rate is None:
        return f"{result.episodes} episodes without an opponent"
    low, high = interval
    return (
        f"{result.wins} wins / {result.losses} losses / {result.draws} draws in {result.episodes} episodes; "
        f"win rate {result.win_rate:.1%}, 95 % Wilson interval [{low:.1%}, {high:.1%}]"
    )


def match_table(result: MatchResult) -> Table:
    """One row per side and team that it played: means of returns, survivors and episode length (env steps)."""
    table = Table()
    table.add_column("side")
    table.add_column("team")
    for name in ("episodes", "return per agent", "team return", "survivors", "episode length"):
        table.add_column(name, justify="right")
    sides = [("evaluated", result.evaluated)]
    if result.opponent is not None:
        sides.append(("opponent", result.opponent))
    for name, side in sides:
        for team in result.teams:
            if side.games[team]:
                table.add_row(name, team, *_cells(side, team))
    return table


def _cells(side: SideNumbers, team: str) -> list[str]:
    numbers = (side.return_per_agent, side.team_return, side.survivors, side.episode_length)
    formats = ("{:.3f}", "{:.2f}", "{:.2f}", "{:.1f}")
    return [str(side.games[team]), *(fmt.format(values[team]) for fmt, values in zip(formats, numbers, strict=True))]
