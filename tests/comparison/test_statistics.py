"""IQM, bootstrap intervals and probability of improvement against numbers computed by hand or by SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, trim_mean

from rllib_shared.comparison.statistics import chance_of_separation, improvement, iqm, iqm_curve, iqm_estimate

NORMAL = np.random.default_rng(3)


def test_iqm_leaves_out_the_highest_and_lowest_quarter() -> None:
    assert iqm(np.array([-100.0, 1.0, 2.0, 3.0, 100.0])) == 2.0
    assert iqm(np.array([-100.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 100.0])) == 2.5


def test_iqm_of_few_seeds_is_their_mean() -> None:
    assert iqm(np.array([1.0, 2.0, 6.0])) == 3.0


def test_iqm_agrees_with_scipy_at_every_point() -> None:
    scores = NORMAL.normal(size=(9, 4))
    curve = iqm_curve(np.arange(4.0), scores)
    for point in range(4):
        assert curve.value[point] == pytest.approx(trim_mean(scores[:, point], 0.25))


def test_one_seed_has_a_value_and_no_interval() -> None:
    estimate = iqm_estimate(np.array([3.0]))
    assert (estimate.value, estimate.low, estimate.high) == (3.0, None, None)
    curve = iqm_curve(np.arange(2.0), np.array([[1.0, 2.0]]))
    assert curve.low is None and curve.high is None
    assert improvement(np.array([3.0]), np.array([1.0, 2.0])).low is None


def test_the_interval_holds_the_value_and_lies_within_the_scores() -> None:
    scores = NORMAL.normal(size=6)
    estimate = iqm_estimate(scores)
    assert estimate.low is not None and estimate.high is not None
    assert scores.min() <= estimate.low < estimate.value < estimate.high <= scores.max()


def test_equal_scores_have_an_interval_of_no_width() -> None:
    estimate = iqm_estimate(np.full(5, 1.5))
    assert (estimate.value, estimate.low, estimate.high) == (1.5, 1.5, 1.5)


def test_intervals_shrink_with_more_seeds() -> None:
    quantiles = {seeds: np.linspace(-1, 1, seeds) for seeds in (5, 20, 80)}
    widths = []
    for scores in quantiles.values():
        estimate = iqm_estimate(scores)
        assert estimate.low is not None and estimate.high is not None
        widths.append(estimate.high - estimate.low)
    assert widths[0] > 1.5 * widths[1] > 2.25 * widths[2]


def test_the_interval_holds_the_true_mean_about_as_often_as_it_says() -> None:
    held = 0
    for _ in range(200):
        estimate = iqm_estimate(NORMAL.normal(size=20))
        assert estimate.low is not None and estimate.high is not None
        held += estimate.low < 0 < estimate.high
    assert 0.87 <= held / 200 <= 0.99


def test_the_same_scores_give_the_same_interval_again() -> None:
    # So many that two draws of resamples seldom end at the same number.
    scores = NORMAL.normal(size=30)
    assert iqm_estimate(scores) == iqm_estimate(scores)
    assert improvement(scores, scores + 0.1) == improvement(scores, scores + 0.1)


def test_separated_arms_improve_with_certainty_and_equal_ones_by_a_coin_toss() -> None:
    low, high = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0, 7.0])
    assert improvement(high, low).value == 1.0
    assert improvement(low, high).value == 0.0
    assert (improvement(high, low).low, improvement(high, low).high) == (1.0, 1.0)
    assert improvement(low, low).value == 0.5
    assert improvement(np.ones(4), np.ones(4)).value == 0.5


def test_improvement_is_the_share_of_pairs_that_mann_whitney_counts() -> None:
    ones, others = NORMAL.normal(size=5).round(1), NORMAL.normal(size=7).round(1)
    assert improvement(ones, others).value == pytest.approx(mannwhitneyu(ones, others).statistic / 35)
    assert improvement(np.array([1.0, 3.0]), np.array([2.0, 3.0])).value == (0 + 0 + 1 + 0.5) / 4


def test_improvement_draws_the_runs_of_each_arm_on_its_own() -> None:
    # Runs drawn in pairs would always give 1 here.
    estimate = improvement(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.9, 1.9, 2.9, 3.9]))
    assert estimate.low is not None and estimate.high is not None
    assert estimate.low < 0.5 < estimate.high


def test_luck_separates_few_runs_often_and_many_seldom() -> None:
    # Of all orders of n + n runs, two have one arm on top.
    assert chance_of_separation(2, 2) == pytest.approx(1 / 3)
    assert chance_of_separation(3, 3) == pytest.approx(1 / 10)
    assert chance_of_separation(5, 5) == pytest.approx(2 / 252)
