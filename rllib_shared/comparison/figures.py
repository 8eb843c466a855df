"""The pictures of a report. Colours are told apart by colour-blind readers, and lines also by style and marker.

Figures are made through Matplotlib's objects, without pyplot's global state, so that any process can make them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rllib_shared.comparison.analysis import Analysis, ArmResult, Run
from rllib_shared.comparison.statistics import Curve, Estimate, Floats
from rllib_shared.comparison.wording import decimals, number

# Okabe and Ito's colours; grey in place of their yellow, which is too light for lines on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
_DASHES: tuple[object, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LABEL_WIDTH = 30
_DPI = 200
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Picture:
    """A figure in a file.

    Attributes:
        path: of the PNG.
        caption: what it shows, in a sentence or two.
    """

    path: Path
    caption: str


def draw_figures(analysis: Analysis, directory: Path) -> list[Picture]:
    """Write all pictures as PNG.

    Args:
        analysis: what they show.
        directory: made if missing.

    Returns:
        In the order of a report.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        figures = {
            "curves_agent_steps": _curves(
                analysis, "agent steps", lambda arm: arm.by_steps, lambda run: run.agent_steps
            ),
            "curves_wall_clock": _curves(
                analysis, "training time", lambda arm: arm.by_time, lambda run: run.train_seconds
            ),
            "scores": _scores(analysis),
        }
        if analysis.study.opponents:
            figures["win_rates"] = _win_rates(analysis)
        if analysis.comparisons:
            figures["probability_of_improvement"] = _improvements(analysis)
        figures["cost"] = _cost(analysis)
        captions = _captions(analysis)
        pictures = []
        for name, figure in figures.items():
            path = directory / f"{name}.png"
            figure.savefig(path, dpi=_DPI)
            pictures.append(Picture(path, captions[name]))
    return pictures


def _captions(analysis: Analysis) -> dict[str, str]:
    against = f" against {analysis.opponent}" if analysis.opponent else ""
    bands = "Bands: 95 % bootstrap intervals, point by point. Thin lines: single seeds."
    marks = "Ticks: IQM over seeds. Bars: 95 % bootstrap intervals. Circles: single seeds."
    return {
        "curves_agent_steps": f"Return per agent{against} by agent steps of training. Lines: IQM over seeds. {bands}",
        "curves_wall_clock": "The same by wall-clock time of training, evaluations not counted; each arm up to the "
        f"end of its shortest run, on straight lines between evaluations. {bands}",
        "scores": f"Return per agent{against}: at the last evaluation, and its mean over training. {marks}",
        "win_rates": f"Share of games won at the last evaluation. {marks}",
        "probability_of_improvement": f"Probability that a run of {analysis.arms[0].arm.label} scores higher than a "
        "run of the other arm. Bars: 95 % bootstrap intervals. Dotted line: a coin toss.",
        "cost": "What each arm costs: medians over runs.",
    }


def _score_label(analysis: Analysis) -> str:
    against = f"\nagainst {analysis.opponent}" if analysis.opponent else ""
    return f"return per agent per episode{against}"


def _wrapped(label: str, width: int = _LABEL_WIDTH) -> str:
    """Several short lines; labels without spaces may break after a slash."""
    parts = textwrap.wrap(label.replace("/", "/ "), width, break_on_hyphens=False)
    return "\n".join(part.replace("/ ", "/") for part in parts)


def _unit(name: str, largest: float) -> tuple[float, str]:
    """What to divide numbers by, and the axis label."""
    if name == "training time":
        size, unit = (
            (1.0, "seconds") if largest < 180 else (60.0, "minutes") if largest < 3 * 3600 else (3600.0, "hours")
        )
    else:
        size, unit = (1.0, "") if largest < 1e4 else (1e3, "thousands") if largest < 1e6 else (1e6, "millions")
    return size, f"{name} ({unit})" if unit else name


def _curves(
    analysis: Analysis, name: str, curve_of: Callable[[ArmResult], Curve], x_of: Callable[[Run], Floats]
) -> Figure:
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    size, label = _unit(name, max(float(curve_of(arm).x[-1]) for arm in analysis.arms))
    few = len(analysis.arms) <= 4
    for i, arm in enumerate(analysis.arms):
        colour, curve = _COLOURS[i % len(_COLOURS)], curve_of(arm)
        for run in arm.runs if len(arm.runs) > 1 else ():
            axes.plot(x_of(run) / size, run.scores, color=colour, linewidth=0.6, alpha=0.4 if few else 0.25)
        if curve.low is not None and curve.high is not None:
            axes.fill_between(curve.x / size, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(
            curve.x / size,
            curve.value,
            color=colour,
            linestyle=_DASHES[i % len(_DASHES)],
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=5,
            linewidth=2,
            label=_wrapped(arm.arm.label),
        )
    if name == "training time" and len(analysis.arms) > 1:
        at = analysis.seconds / size
        axes.axvline(at, color="#555555", linestyle=":", linewidth=1.2)
        axes.text(at, 1.01, "compared here", ha="center", fontsize=8, transform=axes.get_xaxis_transform())
    axes.set(xlabel=label, ylabel=_score_label(analysis))
    axes.set_xlim(left=0)
    columns = 4 if max(len(arm.arm.label) for arm in analysis.arms) < 14 else 3
    figure.legend(loc="outside lower center", ncols=min(columns, len(analysis.arms)), handlelength=3.2)
    return figure


def _rows(analysis: Analysis, panels: int, width: float = 3.6, ticks: int = 5) -> tuple[Figure, Sequence[Axes]]:
    """Panels side by side with one row per arm, the first on top."""
    count = len(analysis.arms)
    figure = Figure(figsize=(2.2 + width * panels, 1.3 + 0.5 * count), layout="constrained")
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    axes[0].set_yticks(range(count), [_wrapped(arm.arm.label) for arm in analysis.arms])
    axes[0].set_ylim(count - 0.4, -0.6)
    for panel in axes:
        panel.grid(axis="y", visible=False)
        panel.tick_params(axis="y", length=0)
        # Otherwise an interval at the edge ends at the frame, and cuts its circle.
        panel.use_sticky_edges = False
        panel.xaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    return figure, axes


def _intervals(axes: Axes, estimates: Sequence[Estimate], seeds: Sequence[Sequence[float]]) -> None:
    """Per row an interval as a bar, the estimate as a tick, the seeds as circles."""
    for row, (estimate, values) in enumerate(zip_longest(estimates, seeds, fillvalue=())):
        assert isinstance(estimate, Estimate)
        colour = _COLOURS[row % len(_COLOURS)]
        if estimate.low is not None and estimate.high is not None:
            axes.barh(row, estimate.high - estimate.low, left=estimate.low, height=0.5, color=colour, alpha=0.35)
        axes.plot([estimate.value] * 2, [row - 0.3, row + 0.3], color=colour, linewidth=2.5, solid_capstyle="butt")
        axes.plot(values, np.full(len(values), row), "o", markersize=4, mfc="white", mec=colour, mew=1.0)


def _scores(analysis: Analysis) -> Figure:
    figure, (final, mean) = _rows(analysis, 2)
    arms = analysis.arms
    _intervals(final, [arm.final for arm in arms], [[float(run.scores[-1]) for run in arm.runs] for arm in arms])
    _intervals(mean, [arm.over_training for arm in arms], [[run.over_training for run in arm.runs] for arm in arms])
    final.set(title="last evaluation", xlabel=_score_label(analysis))
    mean.set(title="mean over training", xlabel=_score_label(analysis))
    return figure


def _win_rates(analysis: Analysis) -> Figure:
    opponents = analysis.study.opponents
    figure, panels = _rows(analysis, len(opponents), 3.6 if len(opponents) < 3 else 2.6)
    for axes, opponent in zip(panels, opponents, strict=True):
        runs = [[run.win_rates[opponent] for run in arm.runs] for arm in analysis.arms]
        _intervals(axes, [arm.win_rates[opponent] for arm in analysis.arms], runs)
        axes.set(title=f"against {_wrapped(opponent, 24)}", xlabel="games won (%)", xlim=(-0.03, 1.03))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=None))
    return figure


def _improvements(analysis: Analysis) -> Figure:
    comparisons = analysis.comparisons
    figure = Figure(figsize=(7.2, 1.5 + 0.45 * len(comparisons)), layout="constrained")
    axes = figure.add_subplot()
    for row, comparison in enumerate(comparisons):
        colour, better = _COLOURS[(row + 1) % len(_COLOURS)], comparison.better
        if better.low is not None and better.high is not None:
            axes.barh(row, better.high - better.low, left=better.low, height=0.4, color=colour, alpha=0.35)
        axes.plot(
            better.value, row, marker=_MARKERS[(row + 1) % len(_MARKERS)], markersize=8, color=colour, clip_on=False
        )
    axes.axvline(0.5, color="#555555", linestyle=":", linewidth=1.2)
    axes.set_yticks(
        range(len(comparisons)), [_wrapped(f"against {comparison.other.arm.label}") for comparison in comparisons]
    )
    axes.set(ylim=(len(comparisons) - 0.4, -0.6), xlim=(-0.02, 1.02))
    axes.set_xlabel(
        f"probability that a run of {analysis.arms[0].arm.label}\nscores higher than a run of the other arm"
    )
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    return figure


def _cost(analysis: Analysis) -> Figure:
    figure, panels = _rows(analysis, 4, 2.3, 4)
    arms = analysis.arms
    columns = {
        "parameters": [arm.parameters for arm in arms],
        "agent steps per second": [arm.agent_steps_per_s for arm in arms],
        "peak memory (GiB)": [arm.memory_mib / 1024 for arm in arms],
        "training time": [arm.train_seconds for arm in arms],
    }
    for axes, (name, amounts) in zip(panels, columns.items(), strict=True):
        size, title = _unit(name, max(amounts))
        values = [amount / size for amount in amounts]
        bars = axes.barh(
            range(len(arms)), values, height=0.6, color=[_COLOURS[i % len(_COLOURS)] for i in range(len(arms))]
        )
        axes.bar_label(bars, [number(value, decimals([value])) for value in values], padding=3)
        axes.set(xlabel=title.replace(" (", "\n("), xlim=(0, 1.3 * max(values) or 1.0))
    return figure
