"""Live progress on stderr: how far, how fast, how long still, and how the teams do.

A table that stays in place on a terminal; elsewhere one plain line every few seconds.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_AGENT_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED
from ray.tune import Callback
from ray.tune.experiment import Trial
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from rllib_shared.algorithms.ppo import AGENT_STEPS, ENV_STEPS
from rllib_shared.launching.stopping import COUNTERS, HOURS, ITERATIONS, StopRule, number_in
from rllib_shared.sampling.metrics import RETURN_PER_AGENT, SURVIVORS, TEAMS, WIN_RATE

_LINE_EVERY_S = 10.0
_REDRAW_EVERY_S = 0.5
_RECENT = 10
_BAR_WIDTH = 30


@dataclass
class TrialProgress:
    """How far one trial is.

    Attributes:
        name: of the trial.
        result: its last result; empty before the first.
        recent: what each of the last iterations added to each counter.
        state: Tune's word for what it does.
        is_news: whether the last result has not been printed as a line.
    """

    name: str
    result: Mapping[str, Any] = field(default_factory=dict)
    recent: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    state: str = Trial.PENDING
    is_news: bool = False

    def add(self, result: Mapping[str, Any]) -> None:
        """Take in a result."""
        runners = result.get(ENV_RUNNER_RESULTS, {})
        self.result = result
        self.is_news = True
        self.recent.append(
            {
                AGENT_STEPS: float(sum(runners.get(NUM_AGENT_STEPS_SAMPLED, {}).values())),
                ENV_STEPS: float(runners.get(NUM_ENV_STEPS_SAMPLED, 0)),
                ITERATIONS: 1.0,
                HOURS: result["time_this_iter_s"] / 3600,
            }
        )

    def rate(self, counter: str) -> float:
        """How much of a counter is done per second, of late; NaN before the first result."""
        hours = sum(added[HOURS] for added in self.recent)
        return sum(added[counter] for added in self.recent) / (3600 * hours) if hours else math.nan

    def shown_counter(self, limits: Mapping[str, float]) -> str:
        """The counter to show: agent steps, unless the run ends by another one only."""
        return next((key for key in COUNTERS if key in limits), AGENT_STEPS)

    def fraction(self, limits: Mapping[str, float]) -> float:
        """How much is done, 0 to 1, by the counter that ends first; 0 where nothing is known."""
        done = [number_in(self.result, key) / limits[key] for key in COUNTERS if key in limits]
        return min(1.0, max((part for part in done if math.isfinite(part)), default=0.0))

    def seconds_left(self, limits: Mapping[str, float]) -> float:
        """Until the first counter reaches its limit; NaN if no counter ends the run, or before the first result."""
        left = [
            (limits[key] - number_in(self.result, key)) / self.rate(key)
            for key in COUNTERS
            if key in limits and self.rate(key) > 0
        ]
        return max(0.0, min(left)) if left else math.nan


class ProgressDisplay(Callback):
    """Shows the progress of all trials.

    Args:
        rule: what ends the trials.
    """

    def __init__(self, rule: StopRule) -> None:
        self._rule = rule
        self._trials: dict[str, TrialProgress] = {}
        self._last_shown = 0.0
        self._told_interruption = False
        # Made when the run starts: Tune pickles its callbacks before.
        self._console: Console | None = None
        self._live: Live | None = None

    def setup(self, *args: Any, **info: Any) -> None:
        """Begin to show."""
        self._console = Console(stderr=True, highlight=False)
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, auto_refresh=False, redirect_stdout=False, get_renderable=self._table
            )
            self._live.start()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial runs."""
        self._of(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has done an iteration."""
        progress = self._of(trial)
        progress.add(result)
        if self._live is None and time.monotonic() - self._last_shown >= _LINE_EVERY_S:
            self._print_line(progress)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial has ended."""
        progress = self._of(trial)
        if self._live is None and progress.is_news:
            self._print_line(progress)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial has failed."""
        self._of(trial)
        if self._live is None:
            self._print(f"{trial}: failed")

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Redraw now and then. Said here, and not by the signal's handler, which may interrupt other printing."""
        if self._rule.interrupted and not self._told_interruption:
            self._told_interruption = True
            self._print("Interrupted: finishing this iteration and saving. Press Ctrl-C again to stop at once.")
        if self._live is not None and time.monotonic() - self._last_shown >= _REDRAW_EVERY_S:
            for trial in trials:
                self._of(trial)
            self._live.refresh()
            self._last_shown = time.monotonic()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Draw for the last time."""
        for trial in trials:
            self._of(trial)
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was; fine to call twice."""
        if self._live is not None:
            self._live.refresh()
            self._live.stop()
            self._live = None

    def _of(self, trial: Trial) -> TrialProgress:
        """The progress of a trial, brought up to date."""
        progress = self._trials.setdefault(trial.trial_id, TrialProgress(str(trial)))
        progress.state = trial.status
        return progress

    def _line(self, progress: TrialProgress) -> str:
        return line(progress, self._rule.limits)

    def _print_line(self, progress: TrialProgress) -> None:
        self._print(self._line(progress))
        progress.is_news = False

    def _print(self, text: str) -> None:
        assert self._console is not None
        self._console.print(text, soft_wrap=True, markup=False)
        self._last_shown = time.monotonic()

    def _table(self) -> RenderableType:
        """All trials: a bar and the teams below it."""
        parts: list[Any] = []
        for progress in list(self._trials.values()):
            head = Table.grid(padding=(0, 2))
            bar = ProgressBar(total=1.0, completed=progress.fraction(self._rule.limits), width=_BAR_WIDTH)
            head.add_row(progress.name, bar, counts(progress, self._rule.limits))
            parts.append(head)
            if progress.result:
                parts.append(_team_table(progress))
        return Group(*parts)


def counts(progress: TrialProgress, limits: Mapping[str, float]) -> str:
    """How far, how fast, how long still, in words."""
    if not progress.result:
        return "starting" if progress.state == Trial.RUNNING else progress.state.lower()
    counter = progress.shown_counter(limits)
    done = number_in(progress.result, counter)
    parts = [f"{counter.replace('_', ' ')} {amount(done)}"]
    if counter in limits:
        parts[0] += f" of {amount(limits[counter])} ({100 * min(1.0, done / limits[counter]):.0f} %)"
    if counter != AGENT_STEPS:
        parts.append(f"agent steps {amount(number_in(progress.result, AGENT_STEPS))}")
    parts.append(f"{amount(progress.rate(AGENT_STEPS))} agent steps/s")
    left = progress.seconds_left(limits)
    if math.isfinite(left):
        parts.append(f"{timedelta(seconds=round(left))} left")
    parts += [
        f"{key} {number(number_in(progress.result, key))} of {number(limit)}"
        for key, limit in limits.items()
        if key not in COUNTERS
    ]
    return ", ".join(parts)


def line(progress: TrialProgress, limits: Mapping[str, float]) -> str:
    """All about a trial in one line."""
    teams = [
        f"{team}: return per agent {number(numbers[RETURN_PER_AGENT])}, win rate {number(numbers[WIN_RATE])}, "
        f"survivors {number(numbers[SURVIVORS], 1)}"
        for team, numbers in team_numbers(progress.result).items()
    ]
    return " | ".join([f"{progress.name}: {counts(progress, limits)}", *teams])


def team_numbers(result: Mapping[str, Any]) -> Mapping[str, Mapping[str, float]]:
    """The metrics of each team in a result, by name: Ray brings them in any order."""
    return dict(sorted(result.get(ENV_RUNNER_RESULTS, {}).get(TEAMS, {}).items()))


def number(value: float, digits: int = 2) -> str:
    """A number for people; a dash for NaN (no episode has ended yet)."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def amount(value: float) -> str:
    """A counter: whole if large, with a few digits if small."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:.3g}"


def _team_table(progress: TrialProgress) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for title in ("team", "return per agent", "win rate", "survivors"):
        table.add_column(title, justify="left" if title == "team" else "right")
    for team, numbers in team_numbers(progress.result).items():
        table.add_row(team, number(numbers[RETURN_PER_AGENT]), number(numbers[WIN_RATE]), number(numbers[SURVIVORS], 1))
    return table
