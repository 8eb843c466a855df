"""The files in a study's folder: what `study.py` writes and `report.py` reads.

`study.json` says what is compared, `results.csv` what every trial reached at every evaluation, `failures.json` which
trials failed. Each is replaced as a whole, so that a reader never sees half a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

STUDY_FILE = "study.json"
RESULTS_FILE = "results.csv"
FAILURES_FILE = "failures.json"
SUMMARY_FILE = "summary.md"
REPORT_FILE = "report.html"
FIGURES_FOLDER = "figures"


@dataclass(frozen=True)
class Arm:
    """One way to share, compared with the others.

    Attributes:
        label: its name, unique in the study.
        sharing: of the actors: `all`, `team`, `role`, `agent` or groups of agent patterns.
        critic_sharing: the same of the critics; never None: an arm says what holds.
        critic_observation: what the critic sees.
        agent_id: whether the networks are told which agent acts: False, True or `"binary"`.
    """

    label: str
    sharing: str | dict[str, list[str]] = "team"
    critic_sharing: str | dict[str, list[str]] = "team"
    critic_observation: str = "own"
    agent_id: bool | str = False


@dataclass(frozen=True)
class Study:
    """What is compared, and on which terms: the content of `study.json`.

    Attributes:
        experiment: path of the experiment file.
        env: name of the environment.
        env_config: its settings.
        stop: limit of each counter, the same for every trial.
        arms: the ways to share; the first is the reference.
        seeds: each arm has one trial per seed.
        opponents: played at every evaluation, the hardest last; empty for an environment without exactly two teams.
        episodes: games per evaluation and opponent.
        points: evaluations after the one before training, evenly spaced; the last one is at the end.
        config: training settings that are not the defaults.
        overrides: those of them, and of the environment's, that the command line set in place of the experiment's.
        versions: of the libraries.
        machine: in words.
        command: what made the study.
    """

    experiment: str
    env: str
    stop: dict[str, float]
    arms: list[Arm]
    seeds: list[int]
    episodes: int
    points: int
    opponents: list[str] = field(default_factory=list)
    env_config: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""
    command: str = ""

    @property
    def labels(self) -> list[str]:
        """The arms' names, in order."""
        return [arm.label for arm in self.arms]

    @property
    def played(self) -> list[str]:
        """What `Row.opponent` can be at an evaluation, the one of the main score last; one empty text without any."""
        return self.opponents or [""]


@dataclass(frozen=True)
class Row:
    """One evaluation of one trial against one opponent: a line of `results.csv`.

    Attributes:
        arm: label of the arm.
        seed: of the trial.
        trial: its name.
        point: 0 is before training, `Study.points` the end.
        env_steps: trained on so far.
        agent_steps: trained on so far, of all agents together.
        train_seconds: wall-clock time of training so far, evaluations not counted.
        opponent: who played the other team; empty without one.
        episodes: games played.
        return_per_agent: return of an agent in an episode, mean over agents of the evaluated side (over all teams
            without an opponent) and games.
        win_rate: share of the games won, 0 to 1; None without opponent.
        survivors: agents of the evaluated side alive at the end, mean over games; None where nobody dies.
        episode_length: env steps, mean over games.
        parameters: of all networks of the trial, actors and critics.
        memory_mib: peak resident memory of the trial's process.
        agent_steps_per_s: agent_steps / train_seconds; 0 before training.
    """

    arm: str
    seed: int
    trial: str
    point: int
    env_steps: int
    agent_steps: int
    train_seconds: float
    opponent: str
    episodes: int
    return_per_agent: float
    win_rate: float | None
    survivors: float | None
    episode_length: float
    parameters: int
    memory_mib: float
    agent_steps_per_s: float


@dataclass(frozen=True)
class Failure:
    """A trial that failed: an entry of `failures.json`.

    Attributes:
        arm: label of the arm.
        seed: of the trial.
        trial: its name.
        error: last line of the traceback.
        log: path of the whole of it.
    """

    arm: str
    seed: int
    trial: str
    error: str
    log: str = ""


COLUMNS = [column.name for column in fields(Row)]
_TEXTS = ["arm", "trial", "opponent"]
_MAY_BE_EMPTY = ["win_rate", "survivors"]
_WHOLE = ["seed", "point", "env_steps", "agent_steps", "episodes", "parameters"]


def write_study(directory: Path, study: Study) -> None:
    """Write `study.json`."""
    _replace(directory / STUDY_FILE, json.dumps(asdict(study), indent=2) + "\n")


def write_results(directory: Path, rows: Iterable[Row]) -> None:
    """Write `results.csv`."""
    table = pd.DataFrame([asdict(row) for row in rows], columns=COLUMNS)
    _replace(directory / RESULTS_FILE, table.to_csv(index=False))


def write_failures(directory: Path, failures: Iterable[Failure]) -> None:
    """Write `failures.json`."""
    _replace(directory / FAILURES_FILE, json.dumps([asdict(failure) for failure in failures], indent=2) + "\n")


def read_study(directory: Path) -> Study:
    """Read `study.json`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or misses something, or has something unknown.
    """
    path = directory / STUDY_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no {STUDY_FILE}; give the folder that `rllib-shared compare` wrote")
    content = _parsed(path)
    if not isinstance(content, Mapping) or not isinstance(content.get("arms"), list):
        raise ValueError(f"{path} must be a JSON object with a list of arms; it was not written by this version")
    arms = [_made(Arm, arm, path) for arm in content["arms"]]
    study = _made(Study, {**content, "arms": arms}, path)
    if not arms or len(set(study.labels)) < len(arms):
        raise ValueError(f"{path} must have arms, each with a label of its own, got {study.labels}")
    if study.points < 1:
        raise ValueError(
            f"{path}: points must be at least 1, as the last one is the end of training; got {study.points}"
        )
    return study


def read_failures(directory: Path) -> list[Failure]:
    """Read `failures.json`; without one nothing failed.

    Raises:
        ValueError: it is damaged.
    """
    path = directory / FAILURES_FILE
    if not path.is_file():
        return []
    content = _parsed(path)
    if not isinstance(content, list):
        raise ValueError(f"{path} must be a JSON list of failed trials, got {type(content).__name__}")
    return [_made(Failure, failure, path) for failure in content]


def read_results(directory: Path, study: Study) -> pd.DataFrame:
    """Read `results.csv`.

    Args:
        directory: the study's.
        study: what the rows must belong to.

    Returns:
        One row per evaluation with the columns of `Row`, sorted by arm in the study's order, seed, point and opponent.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or holds rows of another study.
    """
    path = directory / RESULTS_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no {RESULTS_FILE}: no trial was evaluated yet; let it run on")
    try:
        rows = pd.read_csv(
            path, dtype=dict.fromkeys(_TEXTS, str), keep_default_na=False, na_values=dict.fromkeys(_MAY_BE_EMPTY, "")
        )
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    missing = [column for column in COLUMNS if column not in rows.columns]
    if missing:
        raise ValueError(f"{path} lacks the columns {', '.join(missing)}; it was not written by this version")
    numbers = [column for column in COLUMNS if column not in _TEXTS]
    for column in numbers:
        if not pd.api.types.is_numeric_dtype(rows[column]) and len(rows):
            raise ValueError(f"{path}: column {column} must hold numbers, got {rows[column].iloc[0]!r} or the like")
        if column not in _MAY_BE_EMPTY and rows[column].isna().any():
            raise ValueError(f"{path}: column {column} has empty cells; the file is damaged")
    rows = rows.astype(dict.fromkeys(_WHOLE, int))
    _check_one_study(path, rows, study)
    ranked = rows.assign(
        arm=rows["arm"].map(study.labels.index),
        opponent=rows["opponent"].map(study.played.index),
    )
    rows = rows.loc[ranked.sort_values(["arm", "seed", "point", "opponent"]).index]
    return rows[COLUMNS].reset_index(drop=True)


def _check_one_study(path: Path, rows: pd.DataFrame, study: Study) -> None:
    """Refuse rows that `study.json` does not know of."""
    known: dict[str, list[Any]] = {
        "arm": study.labels,
        "seed": study.seeds,
        "opponent": study.played,
        "point": list(range(study.points + 1)),
        "episodes": [study.episodes],
    }
    for column, values in known.items():
        strange = rows.loc[~rows[column].isin(values), column].unique().tolist()
        if strange:
            raise ValueError(
                f"{path} has rows with {column} {strange[0]!r}, which {STUDY_FILE} does not know "
                f"({', '.join(map(str, values)) or 'none'}): results of different studies are mixed; "
                "give every study a folder of its own"
            )
    twice = rows.duplicated(["arm", "seed", "point", "opponent"])
    if twice.any():
        row = rows[twice].iloc[0]
        raise ValueError(
            f"{path} has two results for arm {row.arm!r}, seed {row.seed}, point {row.point}, opponent "
            f"{row.opponent!r}: results of different studies are mixed; give every study a folder of its own"
        )


_Made = TypeVar("_Made")


def _made(kind: type[_Made], content: Any, path: Path) -> _Made:
    try:
        return kind(**content)
    except TypeError as error:
        reason = str(error).replace(f"{kind.__name__}.__init__() ", "")
        raise ValueError(f"{path}: {kind.__name__.lower()} {reason}; it was not written by this version") from None


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(text)
    os.replace(unfinished, path)
