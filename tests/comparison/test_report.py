"""The files of a report: what they hold, and that they hold it themselves."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest

from rllib_shared.comparison.report import write_report
from rllib_shared.comparison.schema import Failure
from tests.comparison.studies import write

HIGH, LOW = [3.0, 3.1, 3.2, 3.3, 3.4], [1.0, 1.1, 1.2, 1.3, 1.4]


class Links(HTMLParser):
    """What a page loads or refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "object")
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "poster")]


@pytest.mark.parametrize("opponents", [(), ("random", "greedy")])
def test_the_page_holds_everything_itself(tmp_path: Path, opponents: tuple[str, ...]) -> None:
    write(tmp_path, {"team": HIGH, "agent": LOW}, opponents=opponents)
    report = write_report(tmp_path)
    page = report.html.read_text()
    links = Links()
    links.feed(page)
    assert len(links.found) == len(report.figures) == (6 if opponents else 5)
    assert all(link.startswith("data:image/png;base64,") for link in links.found)
    assert not re.search(r"https?://|url\(|@import", page)
    assert report.verdict.split(":")[0] in page


def test_texts_from_outside_cannot_break_the_page_or_the_table(tmp_path: Path) -> None:
    failure = Failure("agent", 0, "agent_0", "ValueError: <script>alert(1)</script> | a\nb")
    write(tmp_path, {"team": HIGH, "agent": LOW}, failures=[failure])
    report = write_report(tmp_path)
    assert "<script>" not in report.html.read_text()
    assert "</script> \\| a b" in report.summary.read_text()


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_the_figures_are_pictures_with_something_on_them(tmp_path: Path, seeds: int) -> None:
    arms = ["team", "agent", "role", "all", "a/very/long/label/of/an/arm/with/everything/in/it", "f", "g", "h"]
    write(tmp_path, {arm: [rank + 0.1 * seed for seed in range(seeds)] for rank, arm in enumerate(arms)})
    report = write_report(tmp_path)
    names = {path.stem for path in report.figures}
    assert names == {
        "curves_agent_steps", "curves_wall_clock", "scores", "win_rates", "probability_of_improvement", "cost"
    }  # fmt: skip
    for path in report.figures:
        picture = imageio.imread(path)
        assert 400 <= picture.shape[0] <= 2000 and 1000 <= picture.shape[1] <= 3000
        # Neither empty nor full.
        assert 0.02 < np.mean(picture[..., :3].min(axis=-1) < 250) < 0.6


def test_the_summary_names_the_settings_and_the_pictures_that_exist(tmp_path: Path) -> None:
    write(tmp_path, {"team": HIGH, "agent": LOW})
    text = write_report(tmp_path).summary.read_text()
    for setting in ("map_size=16", "300 000 agent steps", "20 episodes against each of random, greedy", "lr=0.0005"):
        assert setting in text
    assert "ray 2.60.0" in text and "`rllib-shared compare experiments/battle.py --sharing team agent`" in text
    pictures = re.findall(r"\]\((figures/\w+\.png)\)", text)
    assert len(pictures) == 6 and all((tmp_path / picture).is_file() for picture in pictures)


def test_the_report_is_the_same_when_it_is_made_again(tmp_path: Path) -> None:
    write(tmp_path, {"team": HIGH, "agent": LOW})
    first = write_report(tmp_path).summary.read_text()
    assert write_report(tmp_path).summary.read_text() == first
