"""Runs the rows of the benchmark, one process after the other, and puts their numbers together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rllib_shared.benchmark.load import BUSY, others_now
from rllib_shared.benchmark.team import team_config
from rllib_shared.benchmark.work import (
    AGENT,
    ROWS,
    SHARING_ROWS,
    STOCK,
    STOCK_AGENT,
    STOCK_CENTRAL,
    TEAM,
    TEAM_STATE,
    Work,
)
from rllib_shared.launching.machine import keep_quiet
from rllib_shared.messages import unknown

PARTS = ("sample", "learn", "total")
_LAST_LINES = 20


def choose_rows(only: Sequence[str] | None, stock_central: bool, sharing: str = TEAM) -> list[str]:
    """The rows to measure.

    Args:
        only: some of `ROWS`; None or empty for `team`, `team_state`, `stock` and those of the sharing.
        stock_central: that one too, which takes long.
        sharing: `"team"`, or one of `SHARING_ROWS`, which is then a row; `"agent"` has one of stock RLlib beside it.

    Raises:
        ValueError: unknown row, with the nearest known ones; the row of another sharing.
    """
    for row in only or ():
        if row not in ROWS:
            raise ValueError(unknown("row", row, ROWS))
        if row in SHARING_ROWS and row != sharing:
            raise ValueError(f"the row {row!r} needs --sharing {row}, got --sharing {sharing}")
    chosen = set(only or (TEAM, TEAM_STATE, STOCK, sharing, *([STOCK_AGENT] if sharing == AGENT else [])))
    chosen |= {STOCK_CENTRAL} if stock_central else set()
    return [row for row in ROWS if row in chosen]


def check(work: Work, rows: Sequence[str]) -> None:
    """Refuse what the sharing cannot do on this machine, before any row starts.

    Raises:
        ValueError: what `TeamPPOConfig.validate` raises.
    """
    keep_quiet()
    if work.sharing in rows:
        team_config(work, "own", work.sharing, work.critic_sharing).validate()


def run(work: Work, rows: Sequence[str], announce: Callable[[str], None] = lambda row: None) -> dict[str, Any]:
    """Measure rows.

    Args:
        work: what each row does.
        rows: see `choose_rows`.
        announce: called with each row's name before it is measured.

    Returns:
        `agents`, `hidden`, per row `sample`, `learn`, `total` (agent steps per second), `peak_mb` (MiB) and
        `parameters`; for the three rates `ratio` (team / stock), `state_cost` (team / team_state), `sharing_ratio`
        (row of the sharing / the same of stock RLlib) and `sharing_cost` (team / row of the sharing: the time that it
        takes in multiples of the shared run's), None where a row is missing or the sharing is `team`; `busy` and what
        it was judged by; the work.

    Raises:
        RuntimeError: a row failed; with its last lines.
    """
    average = os.getloadavg()
    before: dict[str, float] = {}
    measured: dict[str, dict[str, Any]] = {}
    for row in rows:
        announce(row)
        before[row] = others_now()
        measured[row] = measure_in_subprocess(row, work)
    return {
        "agents": work.agents,
        "hidden": work.hidden,
        **measured,
        "ratio": ratio(measured, TEAM, STOCK),
        "state_cost": ratio(measured, TEAM, TEAM_STATE),
        "sharing_ratio": ratio(measured, work.sharing, work.stock_counterpart) if work.sharing != TEAM else None,
        "sharing_cost": ratio(measured, TEAM, work.sharing) if work.sharing != TEAM else None,
        "busy": any(max(before[row], measured[row]["other_load"]) > BUSY for row in measured),
        "load_average": list(average),
        "other_load_before": before,
        "work": asdict(work),
    }


def measure_in_subprocess(row: str, work: Work) -> dict[str, Any]:
    """Measure one row in a process of its own, so that its peak memory is its own.

    Raises:
        RuntimeError: it failed; with its last lines.
    """
    threads = str(work.threads)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        process = subprocess.run(
            [sys.executable, "-m", "rllib_shared.benchmark.measure", row, json.dumps(asdict(work)), str(result)],
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if process.returncode or not result.exists():
            lines = "\n".join(process.stdout.splitlines()[-_LAST_LINES:])
            raise RuntimeError(
                f"the row {row!r} failed with exit status {process.returncode}; its last lines:\n{lines}"
            )
        return json.loads(result.read_text())


def ratio(measured: Mapping[str, Mapping[str, float]], above: str, below: str) -> dict[str, float] | None:
    """The rates of row `above` in multiples of those of row `below`; None if either is missing."""
    if above not in measured or below not in measured:
        return None
    return {part: measured[above][part] / measured[below][part] for part in PARTS}
