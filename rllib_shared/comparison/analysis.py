"""From the rows of a study to the numbers of its report: scores, comparisons and costs of every arm.

The main score is the return per agent against the last opponent, the hardest; without opponents, the return per agent.
Only runs that reached the last evaluation count; the others are named with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rllib_shared.comparison.schema import FAILURES_FILE, RESULTS_FILE, STUDY_FILE, Arm, Failure, Study
from rllib_shared.comparison.statistics import Curve, Estimate, Floats, improvement, iqm_curve, iqm_estimate


@dataclass(frozen=True)
class Run:
    """A run that reached the last evaluation, judged by the main score.

    Attributes:
        seed: of the trial.
        agent_steps: [point], at each evaluation.
        train_seconds: [point], evaluations not counted.
        scores: [point].
        win_rates: at the end, of each opponent.
        parameters: of all its networks.
        memory_mib: peak of its process.
        agent_steps_per_s: over the whole training.
    """

    seed: int
    agent_steps: Floats
    train_seconds: Floats
    scores: Floats
    win_rates: Mapping[str, float]
    parameters: int
    memory_mib: float
    agent_steps_per_s: float

    @property
    def over_training(self) -> float:
        """Mean score over the agent steps of training: the area under the curve, divided by its width."""
        width = self.agent_steps[-1] - self.agent_steps[0]
        return float(np.trapezoid(self.scores, self.agent_steps) / width)

    def score_at(self, seconds: float | Floats) -> Floats:
        """The score at these training times, on straight lines between evaluations."""
        return np.asarray(np.interp(seconds, self.train_seconds, self.scores))


@dataclass(frozen=True)
class ArmResult:
    """What an arm with at least one finished run came to.

    Attributes:
        arm: which.
        runs: the finished ones, by seed.
        final: main score at the last evaluation.
        over_training: mean main score over training.
        win_rates: at the end, of each opponent.
        by_steps: main score along agent steps, at the evaluations that all runs have.
        by_time: main score along the seconds of training, up to the end of the shortest run.
    """

    arm: Arm
    runs: tuple[Run, ...]
    final: Estimate
    over_training: Estimate
    win_rates: Mapping[str, Estimate]
    by_steps: Curve
    by_time: Curve

    @property
    def parameters(self) -> float:
        """Median over runs."""
        return float(np.median([run.parameters for run in self.runs]))

    @property
    def memory_mib(self) -> float:
        """Median over runs."""
        return float(np.median([run.memory_mib for run in self.runs]))

    @property
    def agent_steps_per_s(self) -> float:
        """Median over runs."""
        return float(np.median([run.agent_steps_per_s for run in self.runs]))

    @property
    def train_seconds(self) -> float:
        """Median over runs."""
        return float(np.median([run.train_seconds[-1] for run in self.runs]))


@dataclass(frozen=True)
class Comparison:
    """The reference arm against another one.

    Attributes:
        reference: the arm that all others are compared with.
        other: the other arm.
        reference_score: IQM of the reference.
        other_score: IQM of the other.
        better: probability that a run of the reference scores higher than a run of the other.
    """

    reference: ArmResult
    other: ArmResult
    reference_score: Estimate
    other_score: Estimate
    better: Estimate


@dataclass(frozen=True)
class Problem:
    """A trial that failed or did not reach the end.

    Attributes:
        arm: label.
        seed: of the trial.
        text: what happened.
        counts: whether its scores are in the report all the same, as it had made all its evaluations.
    """

    arm: str
    seed: int
    text: str
    counts: bool


@dataclass(frozen=True)
class Analysis:
    """All numbers of a report.

    Attributes:
        study: what was compared.
        opponent: whom the main score is against; empty without one.
        arms: those with finished runs, in the study's order; the first is the reference.
        comparisons: of the reference with each other arm, after all of training.
        seconds: training time at which every run of every arm was still training, or just done.
        comparisons_by_time: as `comparisons`, after this many seconds of training.
        problems: by arm and seed.
    """

    study: Study
    opponent: str
    arms: tuple[ArmResult, ...]
    comparisons: tuple[Comparison, ...]
    seconds: float
    comparisons_by_time: tuple[Comparison, ...]
    problems: tuple[Problem, ...]

    def runs_of(self, label: str) -> int:
        """How many finished runs an arm has."""
        return next((len(arm.runs) for arm in self.arms if arm.arm.label == label), 0)


def analyse(study: Study, rows: pd.DataFrame, failures: Sequence[Failure]) -> Analysis:
    """Compute everything that a report says.

    Args:
        study: what was compared.
        rows: its results, as `read_results` gives them.
        failures: its failed trials.

    Raises:
        ValueError: no trial reached the last evaluation, or failures of another study.
    """
    for failure in failures:
        if failure.arm not in study.labels or failure.seed not in study.seeds:
            raise ValueError(
                f"{FAILURES_FILE} has a trial of arm {failure.arm!r} with seed {failure.seed}, which {STUDY_FILE} does "
                "not know: results of different studies are mixed; give every study a folder of its own"
            )
    opponent = study.played[-1]
    trials = {(str(arm), int(seed)): trial for (arm, seed), trial in rows.groupby(["arm", "seed"])}
    finished = {key for key, trial in trials.items() if {0, study.points} <= _points(study, trial)}
    if not finished:
        raise ValueError(
            f"no trial in {RESULTS_FILE} reached the last evaluation ({study.points}), so there is no final score; "
            "let the study run on with --resume, or read failures.json for what went wrong"
        )
    arms = tuple(
        _arm_result(study, arm, [trials[arm.label, seed] for seed in study.seeds if (arm.label, seed) in finished])
        for arm in study.arms
        if any((arm.label, seed) in finished for seed in study.seeds)
    )
    seconds = min(float(arm.by_time.x[-1]) for arm in arms)
    return Analysis(
        study,
        opponent,
        arms,
        tuple(_compared(arms[0], other) for other in arms[1:]),
        seconds,
        tuple(_compared(arms[0], other, seconds) for other in arms[1:]),
        tuple(_problems(study, trials, finished, failures)),
    )


def _points(study: Study, trial: pd.DataFrame) -> set[int]:
    """The evaluations that were made against every opponent."""
    complete = trial.groupby("point").size() == len(study.played)
    return {int(point) for point in complete[complete].index}


def _arm_result(study: Study, arm: Arm, trials: list[pd.DataFrame]) -> ArmResult:
    runs = tuple(_run(study, trial) for trial in trials)
    common = sorted(set.intersection(*(set(_judged(study, trial)["point"]) for trial in trials)))
    tables = [_judged(study, trial).set_index("point").loc[common] for trial in trials]
    scores = np.stack([table["return_per_agent"].to_numpy(float) for table in tables])
    steps = np.mean([table["agent_steps"].to_numpy(float) for table in tables], axis=0)
    times = np.linspace(0.0, min(run.train_seconds[-1] for run in runs), study.points + 1)
    return ArmResult(
        arm,
        runs,
        iqm_estimate(np.array([run.scores[-1] for run in runs])),
        iqm_estimate(np.array([run.over_training for run in runs])),
        {
            opponent: iqm_estimate(np.array([run.win_rates[opponent] for run in runs]))
            for opponent in runs[0].win_rates
            if all(opponent in run.win_rates for run in runs)
        },
        iqm_curve(steps, scores),
        iqm_curve(times, np.stack([run.score_at(times) for run in runs])),
    )


def _judged(study: Study, trial: pd.DataFrame) -> pd.DataFrame:
    """The rows of the main score."""
    return trial[trial["opponent"] == study.played[-1]]


def _run(study: Study, trial: pd.DataFrame) -> Run:
    judged = _judged(study, trial)
    last = judged.iloc[-1]
    for column in ("agent_steps", "train_seconds"):
        if not judged[column].is_monotonic_increasing or judged[column].iloc[0] == last[column]:
            raise ValueError(
                f"{RESULTS_FILE}: {column} of trial {last['trial']!r} must grow from evaluation to evaluation, got "
                f"{judged[column].tolist()}; the file is damaged"
            )
    at_the_end = trial[(trial["point"] == study.points) & trial["win_rate"].notna()]
    return Run(
        int(last["seed"]),
        judged["agent_steps"].to_numpy(float),
        judged["train_seconds"].to_numpy(float),
        judged["return_per_agent"].to_numpy(float),
        {str(name): float(rate) for name, rate in zip(at_the_end["opponent"], at_the_end["win_rate"], strict=True)},
        int(last["parameters"]),
        float(last["memory_mib"]),
        float(last["agent_steps_per_s"]),
    )


def _compared(reference: ArmResult, other: ArmResult, seconds: float | None = None) -> Comparison:
    """Final scores, or those after some seconds of training."""
    scores, others = (
        np.array([float(run.scores[-1] if seconds is None else run.score_at(seconds)) for run in arm.runs])
        for arm in (reference, other)
    )
    better = improvement(scores, others)
    return Comparison(reference, other, iqm_estimate(scores), iqm_estimate(others), better)


def _problems(
    study: Study,
    trials: Mapping[tuple[str, int], pd.DataFrame],
    finished: set[tuple[str, int]],
    failures: Sequence[Failure],
) -> list[Problem]:
    failed = {(failure.arm, failure.seed): failure for failure in failures}
    problems = []
    for label in study.labels:
        for seed in study.seeds:
            key = (label, seed)
            parts = []
            if key in failed:
                failure = failed[key]
                parts.append(f"failed with {failure.error}" + (f" (log: {failure.log})" if failure.log else ""))
            if key not in finished:
                points = _points(study, trials[key]) if key in trials else set()
                parts.append(f"got to evaluation {max(points)} of {study.points}" if points else "was never evaluated")
            if parts:
                problems.append(Problem(label, seed, "; ".join(parts), key in finished))
    return problems
