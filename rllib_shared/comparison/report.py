"""A study's folder to its report: `summary.md`, `report.html` (one self-contained file) and `figures/*.png`.

The texts around the numbers are in `templates/`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from rllib_shared.comparison.analysis import Analysis, analyse
from rllib_shared.comparison.figures import Picture, draw_figures
from rllib_shared.comparison.schema import (
    FIGURES_FOLDER,
    REPORT_FILE,
    SUMMARY_FILE,
    read_failures,
    read_results,
    read_study,
)
from rllib_shared.comparison.tables import arms_table, comparisons_table, runs_table, settings
from rllib_shared.comparison.verdict import verdict, verdict_by_time
from rllib_shared.comparison.wording import duration


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        verdict: the main result in one sentence.
        summary: path of `summary.md`.
        html: path of `report.html`.
        figures: paths of the PNG files.
    """

    verdict: str
    summary: Path
    html: Path
    figures: tuple[Path, ...]


def write_report(directory: str | Path) -> Report:
    """Write the report of a study, in place of a former one.

    Args:
        directory: the study's.

    Raises:
        FileNotFoundError: it holds no study, or no results.
        ValueError: a file is damaged, results of different studies are mixed, or no trial reached the end.
    """
    directory = Path(directory)
    study = read_study(directory)
    analysis = analyse(study, read_results(directory, study), read_failures(directory))
    pictures = draw_figures(analysis, directory / FIGURES_FOLDER)
    summary, html = directory / SUMMARY_FILE, directory / REPORT_FILE
    content = _content(analysis, pictures)
    summary.write_text(_rendered("summary.md.j2", _markdown_cell, content), encoding="utf-8")
    html.write_text(_rendered("report.html.j2", _html_text, content), encoding="utf-8")
    return Report(content["verdict"], summary, html, tuple(picture.path for picture in pictures))


def _content(analysis: Analysis, pictures: list[Picture]) -> dict[str, Any]:
    """What both templates show."""
    study = analysis.study
    return {
        "study": study,
        "opponent": analysis.opponent,
        "reference": analysis.arms[0].arm.label,
        "verdict": verdict(analysis),
        "verdict_by_time": verdict_by_time(analysis) if analysis.comparisons else "",
        "arms": arms_table(analysis),
        "comparisons": comparisons_table(analysis.comparisons),
        "comparisons_by_time": comparisons_table(analysis.comparisons_by_time),
        "equal_time": duration(analysis.seconds),
        "runs": runs_table(analysis),
        "problems": analysis.problems,
        "pictures": pictures,
        "notes": _notes(analysis),
        "settings": settings(study),
    }


def _notes(analysis: Analysis) -> list[str]:
    """What the numbers mean and how they were made."""
    against = f" against `{analysis.opponent}`" if analysis.opponent else ""
    notes = [
        f"Score: the return of an agent in an episode{against}, mean over agents and games. Final: at the last "
        "evaluation. Over training: the area under the curve by agent steps, divided by the agent steps.",
        "Scores are interquartile means (IQM) over seeds: the highest and the lowest quarter are left out; with fewer "
        "than 4 seeds they are means. One seed gives no interval.",
        "Intervals: 95 %, percentile bootstrap over seeds (10 000 resamples, fixed random seed), the method of Agarwal "
        "et al., arXiv 2108.13264. With few seeds they are narrower than they should be, so the verdict asks for more.",
        "Two arms count as told apart if their intervals do not overlap, the interval of the probability that one "
        "beats the other does not reach 0.5, and there are enough seeds that luck alone seldom separates them.",
        "Training time is wall-clock time without evaluations, on the machine named below, with whatever else ran "
        "there at the same time. Between evaluations scores are taken from straight lines.",
    ]
    if len(analysis.comparisons) > 1:
        notes.append(
            f"Each of the {len(analysis.comparisons)} comparisons is judged alone: the more there are, the likelier it "
            "is that one of them comes out by luck."
        )
    if analysis.arms[0].arm.label != analysis.study.labels[0]:
        notes.append(
            f"The reference should have been `{analysis.study.labels[0]}`, which has no finished run; "
            f"`{analysis.arms[0].arm.label}` takes its place."
        )
    return notes


def _rendered(template: str, text: Callable[[str], str], content: dict[str, Any]) -> str:
    environment = Environment(
        loader=PackageLoader("rllib_shared.comparison"),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["text"] = text
    environment.filters["base64"] = lambda path: base64.b64encode(path.read_bytes()).decode()
    return environment.get_template(template).render(content)


def _markdown_cell(value: str) -> str:
    """Text that stays in its cell and on its line."""
    return " ".join(value.split()).replace("|", "\\|")


def _html_text(value: str) -> Markup:
    """Escaped, with what is in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(value))))
