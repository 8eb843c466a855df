"""The benchmark's result for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from rllib_shared.benchmark.load import BUSY
from rllib_shared.benchmark.run import PARTS
from rllib_shared.benchmark.work import ROWS, STOCK, TEAM, TEAM_STATE, Work


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print the table, the load, and a warning if the machine was busy.

    Args:
        result: what `run.run` returned.
        console: where to.
    """
    work = Work(**result["work"])
    rows = [row for row in ROWS if row in result]
    fewer = "".join(
        f", {row} of {result[row]['iterations']}" for row in rows if result[row]["iterations"] < work.iterations
    )
    table = Table(
        title=f"{work.env}, {work.agents} agents, hidden {work.hidden}: agent steps per second, "
        f"medians of {work.iterations} iterations{fewer}",
        caption=f"{work.env_steps} env steps of {work.num_envs} copies, {work.epochs} epochs, {work.threads} threads; "
        f"only living agents count{_sharing(work)}",
    )
    table.add_column("", no_wrap=True)
    for column in ("sampling", "learning", "whole iteration", "peak MiB", "million weights"):
        table.add_column(column, justify="right")
    for row in rows:
        rates = [f"{result[row][part]:,.0f}" for part in PARTS]
        memory, parameters = f"{result[row]['peak_mb']:,.0f}", f"{result[row]['parameters'] / 1e6:,.2f}"
        table.add_row(row, *rates, memory, parameters, end_section=row == rows[-1])
    ratios = (
        (f"{TEAM} / {STOCK}", result["ratio"]),
        (f"{TEAM} / {TEAM_STATE}", result["state_cost"]),
        (f"{work.sharing} / {work.stock_counterpart}", result["sharing_ratio"]),
        (f"{TEAM} / {work.sharing}", result["sharing_cost"]),
    )
    for name, ratio in ratios:
        if ratio is not None:
            table.add_row(name, *[f"{ratio[part]:.2f} x" for part in PARTS], "", "")
    console.print(table)
    during = ", ".join(
        f"{max(result['other_load_before'][row], result[row]['other_load']):.0%} ({row})" for row in rows
    )
    averages = " ".join(f"{average:.2f}" for average in result["load_average"])
    console.print(f"Load average before: {averages}. Cores used by other processes: {during}.")
    if result["busy"]:
        console.print(
            f"[bold red]The machine was busy (others used more than {BUSY:.0%} of its cores): these numbers are not "
            "good. Measure again when it is quiet.[/]"
        )


def _sharing(work: Work) -> str:
    """What the row of another sharing shares, for the caption."""
    if work.sharing == TEAM:
        return ""
    critic_sharing = work.critic_sharing or work.sharing
    return f"; row {work.sharing}: sharing={work.sharing}, critic_sharing={critic_sharing}"
