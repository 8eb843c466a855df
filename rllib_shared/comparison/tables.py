"""The tables of a report, as text: one row per arm, per comparison, per run; and the settings of the study."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rllib_shared.comparison.analysis import Analysis, ArmResult, Comparison
from rllib_shared.comparison.schema import Arm, Study
from rllib_shared.comparison.verdict import finding
from rllib_shared.comparison.wording import (
    NOTHING,
    agent_id,
    decimals,
    duration,
    limit,
    number,
    percent,
    score,
    sharing,
)


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        header: a title per column.
        rows: a text per column.
        numeric: how many columns, counted from the right, hold numbers.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: int


def arms_table(analysis: Analysis) -> Table:
    """One row per arm of the study, also those without finished runs."""
    study = analysis.study
    has_ids = any(arm.agent_id for arm in study.arms)
    header = ["arm", "actor sharing", "critic sharing", "critic sees", *(["agent id"] if has_ids else [])]
    numbers = ["seeds", "final score [95 %]", "score over training [95 %]"]
    numbers += [f"wins against {opponent} [95 %]" for opponent in study.opponents]
    numbers += ["parameters", "peak memory (MiB)", "agent steps/s", "training time"]
    digits = decimals(arm.final.value for arm in analysis.arms)
    results = {result.arm.label: result for result in analysis.arms}
    rows = []
    for arm in study.arms:
        result = results.get(arm.label)
        cells = _numbers(result, study, digits) if result else [NOTHING] * (len(numbers) - 1)
        rows.append([*_names(arm, has_ids), f"{analysis.runs_of(arm.label)} of {len(study.seeds)}", *cells])
    return Table([*header, *numbers], rows, len(numbers))


def _names(arm: Arm, has_ids: bool) -> list[str]:
    names = [arm.label, sharing(arm.sharing), sharing(arm.critic_sharing), arm.critic_observation]
    return [*names, agent_id(arm.agent_id)] if has_ids else names


def _numbers(result: ArmResult, study: Study, digits: int) -> list[str]:
    wins = [result.win_rates.get(opponent) for opponent in study.opponents]
    return [
        score(result.final, digits),
        score(result.over_training, digits),
        *(percent(win) if win else NOTHING for win in wins),
        number(result.parameters),
        number(result.memory_mib),
        number(result.agent_steps_per_s),
        duration(result.train_seconds),
    ]


def comparisons_table(comparisons: Sequence[Comparison]) -> Table:
    """One row per comparison with the reference."""
    scores = [estimate.value for one in comparisons for estimate in (one.reference_score, one.other_score)]
    digits = decimals(scores)
    header = ["reference", "other arm", "finding", "P(reference > other) [95 %]", "reference scored", "other scored"]
    rows = [
        [
            one.reference.arm.label,
            one.other.arm.label,
            finding(one).value,
            score(one.better, 2),
            score(one.reference_score, digits),
            score(one.other_score, digits),
        ]
        for one in comparisons
    ]
    return Table(header, rows, 3)


def runs_table(analysis: Analysis) -> Table:
    """One row per finished run."""
    opponents = analysis.study.opponents
    digits = decimals(arm.final.value for arm in analysis.arms)
    header = ["arm", "seed", "final score", "score over training", *(f"wins against {name}" for name in opponents)]
    header += ["agent steps", "peak memory (MiB)", "agent steps/s", "training time"]
    rows = [
        [
            arm.arm.label,
            str(run.seed),
            f"{run.scores[-1]:.{digits}f}",
            f"{run.over_training:.{digits}f}",
            *(f"{100 * run.win_rates[name]:.0f} %" if name in run.win_rates else NOTHING for name in opponents),
            number(run.agent_steps[-1]),
            number(run.memory_mib),
            number(run.agent_steps_per_s),
            duration(run.train_seconds[-1]),
        ]
        for arm in analysis.arms
        for run in arm.runs
    ]
    return Table(header, rows, len(header) - 1)


def settings(study: Study) -> list[tuple[str, str]]:
    """Name and value of everything that the result depends on."""
    evaluation = f"before training and at {study.points} points, evenly spaced up to the end: {study.episodes} episodes"
    if study.opponents:
        evaluation += f" against each of {', '.join(study.opponents)}, sides swapped"
    entries = [
        ("experiment", study.experiment),
        ("environment", f"{study.env} {_compact(study.env_config)}".strip()),
        ("trained for", limit(study)),
        ("evaluated", evaluation),
        ("seeds", ", ".join(map(str, study.seeds))),
        ("training", _compact(study.config)),
        ("versions", ", ".join(f"{name} {version}" for name, version in study.versions.items())),
        ("machine", study.machine),
        ("command", study.command),
    ]
    return [(name, value) for name, value in entries if value]


def _compact(values: dict[str, Any]) -> str:
    """`map_size=25, hidden=[64, 64]`."""
    return ", ".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())
