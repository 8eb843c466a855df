"""What may be said of a study: which runs count, and what their intervals allow."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rllib_shared.comparison.analysis import analyse
from rllib_shared.comparison.report import write_report
from rllib_shared.comparison.schema import Failure, read_failures, read_results, read_study
from rllib_shared.comparison.statistics import improvement, iqm_estimate
from rllib_shared.comparison.verdict import Finding, finding, verdict, verdict_by_time
from tests.comparison.studies import write

HIGH, LOW = [3.0, 3.1, 3.2, 3.3, 3.4], [1.0, 1.1, 1.2, 1.3, 1.4]


def sentence(directory: Path, *, by_time: bool = False) -> str:
    """The verdict of a study in a folder."""
    study = read_study(directory)
    analysis = analyse(study, read_results(directory, study), read_failures(directory))
    return verdict_by_time(analysis) if by_time else verdict(analysis)


def test_a_clear_difference_is_said_with_its_numbers(tmp_path: Path) -> None:
    write(tmp_path, {"team": HIGH, "agent": LOW})
    said = sentence(tmp_path)
    assert said.startswith(
        "One policy and critic per team scored higher than one policy and critic per agent after 300 000 agent steps: "
        "3.20 [3.0"
    )
    assert "against 1.20 [1.0" in said
    assert said.endswith("with probability 1.00 [1.00, 1.00] (5 seeds each).")


def test_a_reference_that_loses_is_said_to_have_scored_lower(tmp_path: Path) -> None:
    write(tmp_path, {"team": LOW, "agent": HIGH})
    assert sentence(tmp_path).startswith(
        "One policy and critic per team scored lower than one policy and critic per agent"
    )


def test_arms_that_mix_are_not_told_apart(tmp_path: Path) -> None:
    write(tmp_path, {"team": [1.0, 2.0, 3.0, 4.0, 5.0], "agent": [1.1, 2.1, 2.9, 3.9, 4.9]})
    said = sentence(tmp_path)
    assert said.startswith("No difference could be told with 5 seeds each, which does not show that they are equal")
    assert "coin toss" in said and "higher" not in said


def test_a_likely_difference_with_overlapping_intervals_is_only_a_hint(tmp_path: Path) -> None:
    write(tmp_path, {"team": [2.0, 3.0, 4.0, 5.0, 6.0], "agent": [1.0, 1.5, 2.2, 2.9, 3.5]})
    said = sentence(tmp_path)
    assert said.startswith("One policy and critic per team may be better than") and "not sure with 5 seeds each" in said


@pytest.mark.parametrize(
    ("scores", "other_scores", "expected"),
    [
        (HIGH[:1], LOW[:1], "One run of an arm tells nothing about chance"),
        (HIGH, LOW[:1], "One run of an arm tells nothing about chance"),
        (HIGH[:2], LOW[:2], "fully apart in 1 of 3 such studies"),
        (HIGH[:3], LOW[:3], "fully apart in 1 of 10 such studies"),
    ],
)
def test_too_few_seeds_never_make_a_difference(
    tmp_path: Path, scores: list[float], other_scores: list[float], expected: str
) -> None:
    write(tmp_path, {"team": scores, "agent": other_scores})
    said = sentence(tmp_path)
    assert expected in said and "higher" not in said and "lower" not in said


def test_equal_arms_are_rarely_told_apart(tmp_path: Path) -> None:
    """The words "scored higher" are wrong in a few of a hundred studies, not more."""
    study = write(tmp_path, {"team": HIGH, "agent": LOW})
    comparison = analyse(study, read_results(tmp_path, study), []).comparisons[0]
    draw, told = np.random.default_rng(0), 0
    for _ in range(200):
        ones, others = draw.normal(size=5), draw.normal(size=5)
        drawn = replace(
            comparison,
            reference_score=iqm_estimate(ones),
            other_score=iqm_estimate(others),
            better=improvement(ones, others),
        )
        told += finding(drawn) in (Finding.HIGHER, Finding.LOWER)
    assert told / 200 <= 0.05


def test_several_arms_are_each_compared_with_the_first(tmp_path: Path) -> None:
    write(tmp_path, {"all": HIGH, "team": [score + 0.05 for score in HIGH], "role": [9.0] * 5, "agent": LOW})
    said = sentence(tmp_path)
    assert re.search(r"`all` \(3\.20 \[[^]]+\]\) scored higher than `agent`", said)
    assert re.search(r"it scored lower than `role`", said)
    assert re.search(r"it could not be told apart from `team`", said)


def test_runs_that_failed_are_left_out_and_said_so(tmp_path: Path) -> None:
    failure = Failure("agent", 2, "agent_2", "RuntimeError: out of memory", "logs/agent_2.txt")
    scores = {"team": HIGH, "agent": [1.0, 1.1, 99.0, 1.3, 1.4]}
    write(tmp_path, scores, stopped_at={("agent", 2): 1}, failures=[failure])
    said = sentence(tmp_path)
    assert "(5 and 4 seeds)" in said and "1 of 5 runs of `agent`" in said
    text = write_report(tmp_path).summary.read_text()
    assert (
        "`agent`, seed 2: failed with RuntimeError: out of memory (log: logs/agent_2.txt); got to evaluation 1" in text
    )
    assert "| 4 of 5 |" in text and "99" not in text.split("## Figures")[0]


def test_a_trial_that_failed_after_its_last_evaluation_counts_and_is_listed(tmp_path: Path) -> None:
    write(tmp_path, {"team": HIGH, "agent": LOW}, failures=[Failure("team", 0, "team_0", "OSError: disk full")])
    assert "left out" not in sentence(tmp_path)
    assert "OSError: disk full. Its scores count" in write_report(tmp_path).summary.read_text()


def test_an_arm_without_finished_runs_stays_in_the_table(tmp_path: Path) -> None:
    write(tmp_path, {"team": [1.0], "agent": [2.0]}, stopped_at={("team", 0): 2})
    assert sentence(tmp_path).startswith("There is nothing to compare: only `agent` has finished runs")
    assert "| team | team | team | state | 0 of 1 | - |" in write_report(tmp_path).summary.read_text()


def test_the_main_score_is_against_the_last_opponent(tmp_path: Path) -> None:
    study = write(tmp_path, {"team": HIGH})
    analysis = analyse(study, read_results(tmp_path, study), [])
    assert analysis.arms[0].final.value == pytest.approx(3.2)
    assert analysis.arms[0].over_training.value == pytest.approx(1.6)
    assert set(analysis.arms[0].win_rates) == {"random", "greedy"}


def test_the_slower_arm_is_judged_by_what_it_had_reached_when_the_faster_was_done(tmp_path: Path) -> None:
    # After 100 of its 300 seconds, agent is at a third of its way.
    scores = {"team": HIGH, "agent": [score + 1.0 for score in HIGH]}
    study = write(tmp_path, scores, speeds={"team": 3000.0, "agent": 1000.0})
    analysis = analyse(study, read_results(tmp_path, study), [])
    assert analysis.seconds == pytest.approx(100.0)
    assert analysis.comparisons_by_time[0].other_score.value == pytest.approx(4.2 / 3)
    assert "scored lower" in sentence(tmp_path)
    assert "scored higher" in sentence(tmp_path, by_time=True) and "1.7 min" in sentence(tmp_path, by_time=True)


def test_curves_end_where_every_run_of_the_arm_still_trains(tmp_path: Path) -> None:
    study = write(tmp_path, {"team": HIGH})
    rows = read_results(tmp_path, study)
    rows.loc[rows["seed"] == 1, "train_seconds"] *= 2
    curve = analyse(study, rows, []).arms[0].by_time
    assert curve.x[-1] == pytest.approx(300.0)
    # Seed 1 (3.1) has gone half its way then; it is left out as the lowest of five.
    assert curve.value[-1] == pytest.approx((3.0 + 3.2 + 3.3) / 3)
