"""Live progress of a study on stderr: one line per trial, and how long all of it will still take.

A table that stays in place on a terminal; elsewhere one plain line every few seconds.
"""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

from ray.tune.experiment import Trial
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from rllib_shared.algorithms.ppo import AGENT_STEPS
from rllib_shared.comparison.collect import StudyFiles, trials_of
from rllib_shared.comparison.schema import Row, Study
from rllib_shared.launching.progress import ProgressDisplay, TrialProgress, amount, counts, number
from rllib_shared.launching.stopping import StopRule

_BAR_WIDTH = 10
_NOTHING = "-"


class StudyDisplay(ProgressDisplay):
    """Shows the progress of a study.

    Args:
        rule: what ends the trials.
        study: what is compared.
        files: knows the evaluations so far.
    """

    def __init__(self, rule: StopRule, study: Study, files: StudyFiles) -> None:
        super().__init__(rule)
        self._study = study
        self._files = files
        self._started = 0.0
        self._done_before = 0.0

    def setup(self, *args: Any, **info: Any) -> None:
        """Begin to show."""
        self._started = time.monotonic()
        self._done_before = self._done()
        super().setup(*args, **info)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial has failed."""
        self._of(trial)
        if self._live is None:
            self._print(f"{trial}: failed; the others go on")

    def _line(self, progress: TrialProgress) -> str:
        parts = [f"{progress.name}: {counts(progress, self._rule.limits)}"]
        if (last := self._last(progress.name)) is not None:
            parts.append(f"evaluation {last.point} of {self._study.points}: {_score(last)}")
        return " | ".join([*parts, self._overall()])

    def _table(self) -> RenderableType:
        table = Table(box=None, padding=(0, 1), header_style="dim")
        for title in ("trial", "", "done", "agent steps/s", "played", "return", "wins", "state"):
            table.add_column(
                title,
                justify="left" if title in ("trial", "", "state") else "right",
                no_wrap=title in ("trial", "state"),
            )
        progress = {one.name: one for one in self._trials.values()}
        for name in trials_of(self._study):
            done, last = self._fraction(name), self._last(name)
            one = progress.get(name)
            table.add_row(
                name,
                ProgressBar(total=1.0, completed=done, width=_BAR_WIDTH),
                f"{100 * done:.0f} %",
                amount(one.rate(AGENT_STEPS)) if one is not None else _NOTHING,
                f"{last.point}/{self._study.points}" if last is not None else _NOTHING,
                number(last.return_per_agent) if last is not None else _NOTHING,
                f"{100 * last.win_rate:.0f} %" if last is not None and last.win_rate is not None else _NOTHING,
                self._state(name, one),
            )
        return Group(table, self._overall())

    def _state(self, name: str, progress: TrialProgress | None) -> str:
        if name in self._files.failures:
            return "failed"
        if name in self._files.finished(self._study):
            return "done"
        return progress.state.lower() if progress is not None else "waiting"

    def _overall(self) -> str:
        """How much of the whole study is done, and how long the rest takes if it goes on like this."""
        done, failed = len(self._files.finished(self._study)), len(self._files.failures)
        text = f"{done} of {len(trials_of(self._study))} trials done"
        if failed:
            text += f", {failed} failed"
        left = self._seconds_left()
        return text + (f", {timedelta(seconds=round(left))} left" if math.isfinite(left) else "")

    def _seconds_left(self) -> float:
        """By the wall clock of this session, evaluations included; NaN before anything is done.

        Not less than the slowest trial that runs: at the end it has the machine for itself and goes no faster.
        """
        done = self._done()
        new = done - self._done_before
        if new <= 0:
            return math.nan
        finished = self._files.finished(self._study)
        running = [
            one.seconds_left(self._rule.limits)
            for one in self._trials.values()
            if one.name not in finished and one.name not in self._files.failures
        ]
        left = (time.monotonic() - self._started) * (1 - done) / new
        return max(left, *(seconds for seconds in running if math.isfinite(seconds)), 0.0)

    def _done(self) -> float:
        """Share of the study that is done; a failed trial has nothing left to do."""
        names = list(trials_of(self._study))
        return sum(1.0 if name in self._files.failures else self._fraction(name) for name in names) / len(names)

    def _fraction(self, name: str) -> float:
        """How much of a trial is done: by its last result, or by what it reported in an earlier session."""
        shown = next((one.fraction(self._rule.limits) for one in self._trials.values() if one.name == name), 0.0)
        last = self._last(name)
        return max(shown, last.point / self._study.points if last is not None else 0.0)

    def _last(self, name: str) -> Row | None:
        """The newest evaluation, against the last opponent."""
        rows = self._files.rows[name]
        return rows[-1] if rows else None


def _score(row: Row) -> str:
    text = f"return per agent {number(row.return_per_agent)}"
    return f"{text}, win rate {number(row.win_rate)} against {row.opponent}" if row.win_rate is not None else text
