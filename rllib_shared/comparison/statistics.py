"""Statistics over few seeds: interquartile mean, bootstrap intervals, probability of improvement.

The method is that of Agarwal et al. (arXiv 2108.13264), known from the library `rliable`, on SciPy's bootstrap:
`rliable` 1.2 needs `arch` < 8, which cannot be imported with pandas 3, and it ignores the seed it is given. A study has
one environment, so the stratified bootstrap has one stratum: runs are drawn with replacement, arm by arm.
Which numbers of a study go in here lives in `analysis.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, trim_mean

Floats = NDArray[np.floating]

CONFIDENCE = 0.95
_RESAMPLES = 10_000
# The same report whenever it is made.
_RANDOM_SEED = 0


@dataclass(frozen=True)
class Estimate:
    """A number and how far it can be trusted.

    Attributes:
        value: of the runs seen.
        low: lower end of the 95 % bootstrap interval; None with one seed, which tells nothing about chance.
        high: upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def is_above(self, other: Estimate) -> bool | None:
        """Whether the whole interval lies above the other's; None where either has none."""
        if self.low is None or other.high is None:
            return None
        return self.low > other.high


@dataclass(frozen=True)
class Curve:
    """The IQM over seeds along a run.

    Attributes:
        x: [point], agent steps or seconds.
        value: [point].
        low: [point], lower end of the pointwise 95 % interval; None with one seed.
        high: [point], upper end.
    """

    x: Floats
    value: Floats
    low: Floats | None
    high: Floats | None


def iqm(scores: Floats, axis: int = 0) -> Floats:
    """Mean of the middle half: the highest and lowest quarter (rounded down) of the seeds are left out.

    With fewer than four seeds it is the mean.
    """
    return np.asarray(trim_mean(scores, 0.25, axis=axis))


def iqm_estimate(scores: Floats) -> Estimate:
    """The IQM of [seed] with its interval."""
    low, high = _interval((scores,), iqm)
    return Estimate(float(iqm(scores)), *(None if end is None else float(end) for end in (low, high)))


def iqm_curve(x: Floats, scores: Floats) -> Curve:
    """The IQM at each point.

    Args:
        x: [point].
        scores: [seed, point].
    """
    return Curve(x, iqm(scores), *_interval((scores,), iqm))


def improvement(scores: Floats, others: Floats) -> Estimate:
    """Probability that a run of one arm scores higher than a run of another, equal scores counting half.

    It is the Mann-Whitney statistic divided by the number of pairs.

    Args:
        scores: [seed].
        others: [seed of the other arm].
    """
    low, high = _interval((scores, others), _share_higher)
    value = float(_share_higher(scores, others))
    return Estimate(value, *(None if end is None else float(end) for end in (low, high)))


def chance_of_separation(runs: int, others: int) -> float:
    """Probability that all runs of one of two arms beat all of the other by luck alone, if the arms are equal."""
    return 2 / comb(runs + others, runs)


def _share_higher(scores: Floats, others: Floats, axis: int = -1) -> Floats:
    ones = np.moveaxis(scores, axis, -1)[..., :, None]
    twos = np.moveaxis(others, axis, -1)[..., None, :]
    return np.asarray(((ones > twos) + 0.5 * (ones == twos)).mean(axis=(-2, -1)))


def _interval(
    samples: tuple[Floats, ...], statistic: Callable[..., Floats]
) -> tuple[Floats, Floats] | tuple[None, None]:
    """Percentile bootstrap over the seeds, the first axis of every sample; nothing where a sample has one seed."""
    if min(len(sample) for sample in samples) < 2:
        return None, None
    found = bootstrap(
        samples,
        statistic,
        axis=0,
        vectorized=True,
        n_resamples=_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(_RANDOM_SEED),
    )
    return found.confidence_interval.low, found.confidence_interval.high
