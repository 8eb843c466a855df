"""What a run will take; what it came to: a table of results, its checkpoints, and how to evaluate them."""

from __future__ import annotations

import shlex
from datetime import timedelta
from pathlib import Path

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.tune import Result, ResultGrid
from rich.console import Console
from rich.table import Table

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.algorithms.footprint import optimizer_seconds
from rllib_shared.algorithms.ppo import AGENT_STEPS, ENV_STEPS
from rllib_shared.launching.progress import number, team_numbers
from rllib_shared.launching.stopping import number_in
from rllib_shared.sampling.metrics import EPISODE_LENGTH, RETURN_PER_AGENT, SURVIVORS, WIN_RATE


def print_footprints(config: AlgorithmConfig, console: Console) -> None:
    """Say what a run will hold and how long its optimizer will take, before it starts."""
    if not isinstance(config, TeamPPOConfig):
        return
    networks = config.footprints()
    for network in networks:
        say(console, str(network))
    seconds = optimizer_seconds(config, networks)
    if seconds >= 1:
        say(console, f"the optimizer's memory traffic alone takes about {seconds:.0f} s per iteration on this CPU")


def print_summary(results: ResultGrid, console: Console) -> None:
    """Print the results of all trials, and the errors of those that failed."""
    reported = [result for result in results if _has_result(result)]
    if reported:
        console.print(_table(reported))
    for result in results:
        _print_trial(result, console)


def _table(results: list[Result]) -> Table:
    """One row per team of each trial."""
    table = Table()
    several = len(results) > 1
    for title in ("trial", "team") if several else ("team",):
        table.add_column(title)
    for title in ("return per agent", "win rate", "survivors", "episode length"):
        table.add_column(title, justify="right")
    for result in results:
        for team, numbers in team_numbers(result.metrics or {}).items():
            table.add_row(
                *([_name(result)] if several else []),
                team,
                number(numbers[RETURN_PER_AGENT]),
                number(numbers[WIN_RATE]),
                number(numbers[SURVIVORS], 1),
                number(numbers[EPISODE_LENGTH], 1),
            )
    return table


def _print_trial(result: Result, console: Console) -> None:
    trial = _name(result)
    if result.metrics is not None and _has_result(result):
        agent_steps, seconds = number_in(result.metrics, AGENT_STEPS), number_in(result.metrics, "time_total_s")
        say(
            console,
            f"{trial}: {agent_steps:,.0f} agent steps, {number_in(result.metrics, ENV_STEPS):,.0f} env steps in "
            f"{timedelta(seconds=round(seconds))} ({agent_steps / seconds:,.0f} agent steps/s)",
        )
    if result.checkpoint is not None:
        say(console, f"checkpoint: {result.checkpoint.path}")
        best = result.best_checkpoints[-1][0].path if result.best_checkpoints else result.checkpoint.path
        if best != result.checkpoint.path:
            say(console, f"best by {RETURN_PER_AGENT}: {best}")
        opponent = " --opponent random" if len(team_numbers(result.metrics or {})) > 1 else ""
        say(
            console,
            f"evaluate: rllib-shared evaluate {shlex.quote(result.checkpoint.path)}{opponent} --episodes 100",
        )
    elif result.error is None:
        say(console, f"{trial}: no checkpoint, as it ended before its first iteration")
    if result.error is not None:
        say(console, f"{trial} failed:\n{result.error}")


def _has_result(result: Result) -> bool:
    """Whether the trial did an iteration; Tune's own numbers are there before."""
    return bool(team_numbers(result.metrics or {}))


def _name(result: Result) -> str:
    """The trial's name, which is that of its folder."""
    return Path(result.path).name


def say(console: Console, text: str) -> None:
    """Print a text as it is: paths and commands must not be wrapped or coloured."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)
