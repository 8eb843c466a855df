"""What trials report, as the files of a study: `results.csv` and `failures.json`, rewritten as trials go on.

What is in the files is in `schema.py`; who reads them, in `report.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from rllib_shared.comparison.arms import slug
from rllib_shared.comparison.evaluation_points import EVALUATIONS
from rllib_shared.comparison.schema import Failure, Row, Study, write_failures, write_results

TRIALS_FOLDER = "trials"
_RESULTS = "result.json"


class StudyFiles(Callback):
    """Writes the files of a study while its trials run.

    Args:
        directory: the study's; what its trials have reported before is taken up.
        study: what is compared.
    """

    def __init__(self, directory: Path, study: Study) -> None:
        self._directory = directory
        self._whose = trials_of(study)
        self.rows = {trial: read_rows(directory / TRIALS_FOLDER / trial, *self._whose[trial]) for trial in self._whose}
        self.failures: dict[str, Failure] = {}

    def setup(self, *args: Any, **info: Any) -> None:
        """Begin with what there is."""
        self.write()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has done an iteration; keep its evaluations."""
        if result.get(EVALUATIONS):
            name = str(trial)
            self.rows[name] = _with(self.rows[name], _rows(name, *self._whose[name], result[EVALUATIONS]))
            self.write()

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial has failed."""
        name = str(trial)
        log = Path(trial.error_file) if trial.error_file else None
        self.failures[name] = Failure(*self._whose[name], name, _last_line(log), str(log or ""))
        self.write()

    def write(self) -> None:
        """Replace both files."""
        write_results(self._directory, (row for rows in self.rows.values() for row in rows))
        write_failures(self._directory, self.failures.values())

    def finished(self, study: Study) -> list[str]:
        """The trials that reached the last evaluation."""
        return [trial for trial, rows in self.rows.items() if any(row.point == study.points for row in rows)]


def trials_of(study: Study) -> dict[str, tuple[str, int]]:
    """Label of the arm and seed of each trial, by the trial's name, which is that of its folder."""
    return {trial_name(label, seed): (label, seed) for seed in study.seeds for label in study.labels}


def trial_name(label: str, seed: int) -> str:
    """Short and fit for a folder."""
    return f"{slug(label)}_seed{seed}"


def read_rows(trial: Path, arm: str, seed: int) -> list[Row]:
    """The evaluations of a trial as Tune has kept them.

    Args:
        trial: its folder, which may not exist.
        arm: label of its arm.
        seed: its own.
    """
    file = trial / _RESULTS
    rows: list[Row] = []
    for line in file.read_text().splitlines() if file.is_file() else ():
        if f'"{EVALUATIONS}"' in line:
            try:
                rows = _with(rows, _rows(trial.name, arm, seed, json.loads(line)[EVALUATIONS]))
            except json.JSONDecodeError:
                # The last line of a trial that was killed while it wrote; it comes again.
                continue
    return rows


def _rows(trial: str, arm: str, seed: int, evaluations: Iterable[Mapping[str, Any]]) -> list[Row]:
    return [Row(arm=arm, seed=seed, trial=trial, **evaluation) for evaluation in evaluations]


def _with(rows: Sequence[Row], news: Sequence[Row]) -> list[Row]:
    """Rows with newer ones, which replace those of a trial's earlier life from the same point on."""
    first = min(row.point for row in news)
    return [*(row for row in rows if row.point < first), *news]


def _last_line(log: Path | None) -> str:
    """What went wrong, in the words of the error."""
    text = log.read_text() if log is not None and log.is_file() else ""
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    return lines[-1] if lines else "unknown error"
