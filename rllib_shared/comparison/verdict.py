"""The verdict in words: which arm scored higher, and how sure that is. It never says more than the intervals allow.

Two arms are told apart only if three things hold: the 95 % intervals of their scores do not overlap; the interval of
the probability that a run of one beats a run of the other lies on one side of 0.5; and there are so many runs that luck
alone seldom puts all runs of one arm above all of the other. Among equal arms with 4 or 5 runs each and normally
distributed scores, that happens in about 2 of 100 comparisons (simulated).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from rllib_shared.comparison.analysis import Analysis, ArmResult, Comparison
from rllib_shared.comparison.statistics import chance_of_separation
from rllib_shared.comparison.wording import decimals, described, duration, limit, score

_ERROR = 0.05


class Finding(Enum):
    """What a comparison of the reference with another arm allows to say."""

    HIGHER = "the reference scored higher"
    LOWER = "the reference scored lower"
    HINT = "may differ, not sure"
    NONE = "no difference could be told"
    TOO_FEW = "too few runs to tell"


_OF_MANY = {
    Finding.HIGHER: "scored higher than {}",
    Finding.LOWER: "scored lower than {}",
    Finding.HINT: "may differ from {}, but that is not sure",
    Finding.NONE: "could not be told apart from {}",
    Finding.TOO_FEW: "has, or meets, too few runs to be compared with {}",
}


def finding(comparison: Comparison) -> Finding:
    """What the intervals allow to say."""
    runs, others = len(comparison.reference.runs), len(comparison.other.runs)
    better = comparison.better
    if better.low is None or better.high is None or chance_of_separation(runs, others) > _ERROR:
        return Finding.TOO_FEW
    if not better.low > 0.5 and not better.high < 0.5:
        return Finding.NONE
    if better.low > 0.5 and comparison.reference_score.is_above(comparison.other_score):
        return Finding.HIGHER
    if better.high < 0.5 and comparison.other_score.is_above(comparison.reference_score):
        return Finding.LOWER
    return Finding.HINT


def verdict(analysis: Analysis) -> str:
    """The main result, in one sentence."""
    after = f"after {limit(analysis.study)}"
    return _verdict(analysis, analysis.comparisons, after) + _left_out(analysis) + "."


def verdict_by_time(analysis: Analysis) -> str:
    """The same at equal wall-clock time of training, in one sentence."""
    after = f"after equal wall-clock times of training ({duration(analysis.seconds)}, when the fastest run was done)"
    return _verdict(analysis, analysis.comparisons_by_time, after) + "."


def _verdict(analysis: Analysis, comparisons: Sequence[Comparison], after: str) -> str:
    if not comparisons:
        only = analysis.arms[0]
        scored = score(only.final, decimals([only.final.value]))
        return f"There is nothing to compare: only `{only.arm.label}` has finished runs, which scored {scored}"
    if len(comparisons) == 1:
        return _sentence(analysis, comparisons[0], after)
    return _sentence_of_many(comparisons, after)


def _sentence(analysis: Analysis, comparison: Comparison, after: str) -> str:
    """Of two arms."""
    name, other = (described(result.arm, analysis.study.arms) for result in (comparison.reference, comparison.other))
    numbers = [comparison.reference_score, comparison.other_score]
    digits = decimals(number.value for number in numbers)
    mine, theirs = (score(number, digits) for number in numbers)
    found = finding(comparison)
    better = score(comparison.better, 2)
    seeds = _seeds([comparison.reference, comparison.other])
    if found in (Finding.HIGHER, Finding.LOWER):
        relation = "higher" if found is Finding.HIGHER else "lower"
        return (
            f"{_upper(name)} scored {relation} than {other} {after}: {mine} against {theirs}; a run of the first beat "
            f"a run of the second with probability {better} ({seeds})"
        )
    scores = f"{mine} for {name}, {theirs} for {other}"
    if found is Finding.TOO_FEW:
        return f"{_upper(_too_few(comparison))}: {after}, {scores}"
    chance = f"a run of the first beat a run of the second with probability {better}, where 0.50 is a coin toss"
    if found is Finding.HINT:
        higher, lower = (name, other) if comparison.better.value > 0.5 else (other, name)
        return (
            f"{_upper(higher)} may be better than {lower}, but it is not sure with {seeds}: {after}, {scores}, and "
            f"these intervals overlap; {chance}"
        )
    untold = f"No difference could be told with {seeds}, which does not show that they are equal"
    return f"{untold}: {after}, {scores}; {chance}"


def _sentence_of_many(comparisons: Sequence[Comparison], after: str) -> str:
    reference = comparisons[0].reference
    numbers = [comparisons[0].reference_score, *(comparison.other_score for comparison in comparisons)]
    digits = decimals(number.value for number in numbers)
    parts = []
    for kind, words in _OF_MANY.items():
        found = [comparison for comparison in comparisons if finding(comparison) is kind]
        if found:
            named = [f"`{one.other.arm.label}` ({score(one.other_score, digits)})" for one in found]
            parts.append(words.format(_listed(named)))
    arms = [reference, *(comparison.other for comparison in comparisons)]
    scored = score(numbers[0], digits)
    return f"{_upper(after)}, `{reference.arm.label}` ({scored}) {'; it '.join(parts)} ({_seeds(arms)})"


def _too_few(comparison: Comparison) -> str:
    runs, others = len(comparison.reference.runs), len(comparison.other.runs)
    if min(runs, others) == 1:
        return f"one run of an arm tells nothing about chance, so no difference can be told ({_seeds_of(runs, others)})"
    odds = round(1 / chance_of_separation(runs, others))
    return (
        f"too few runs to tell a difference ({_seeds_of(runs, others)}): even equal arms would come out fully apart in "
        f"1 of {odds} such studies, so run at least 4 seeds of each"
    )


def _seeds(arms: Sequence[ArmResult]) -> str:
    return _seeds_of(*(len(arm.runs) for arm in arms))


def _seeds_of(*counts: int) -> str:
    if len(set(counts)) == 1:
        return f"{counts[0]} seed{'s' if counts[0] > 1 else ''} each"
    return f"{', '.join(map(str, counts[:-1]))} and {counts[-1]} seeds"


def _left_out(analysis: Analysis) -> str:
    """What the reader of the verdict alone must know about missing runs."""
    study = analysis.study
    planned = len(study.seeds)
    missing = [(label, planned - analysis.runs_of(label)) for label in study.labels]
    texts = [f"{count} of {planned} runs of `{label}`" for label, count in missing if count]
    if not texts:
        return ""
    return f"; left out, as they did not reach the end (which can favour an arm): {_listed(texts)}"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
