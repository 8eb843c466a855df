"""`rllib-shared compare`: trains every arm with every seed as one grid of Tune trials, and reports what came out.

What is compared is checked in `plan.py`; evaluations are made in `evaluation_points.py` and collected in `collect.py`.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.utils import force_list
from ray.tune import CheckpointConfig, ResultGrid, RunConfig, SyncConfig, TuneConfig, Tuner
from ray.tune.experiment import Trial
from ray.tune.search import BasicVariantGenerator
from ray.tune.tune_config import ResumeConfig
from rich.console import Console

from rllib_shared.comparison.arms import Arms
from rllib_shared.comparison.collect import TRIALS_FOLDER, StudyFiles, trial_name
from rllib_shared.comparison.display import StudyDisplay
from rllib_shared.comparison.evaluation_points import EvaluationPoints
from rllib_shared.comparison.plan import Plan, Wishes, difference, make_plan
from rllib_shared.comparison.schema import STUDY_FILE, Failure, Study, read_results, read_study, write_study
from rllib_shared.launching.errors import refusing
from rllib_shared.launching.machine import cores, keep_quiet, share_cores, start_ray
from rllib_shared.launching.stopping import StopRule
from rllib_shared.launching.summary import print_footprints, say
from rllib_shared.launching.tune_run import FAILED, INTERRUPTED, OK, fit, restored_tuner, rewire

# Two, as Tune may remember the last but one after a kill.
_CHECKPOINTS_KEPT = 2
_SNAPSHOT_EVERY_S = "2"


@dataclass(frozen=True)
class StudyResult:
    """What a study came to.

    Attributes:
        directory: its folder, with `summary.md`, `report.html`, `figures/`, `results.csv` and all trials.
        rows: the content of `results.csv`.
        failures: the trials that failed.
        verdict: the main result in one sentence; empty while no trial has finished.
        exit_code: 0, 1 if a trial failed, 130 after Ctrl-C.
    """

    directory: Path
    rows: pd.DataFrame
    failures: tuple[Failure, ...]
    verdict: str
    exit_code: int


def compare(
    experiment: str | Path | AlgorithmConfig,
    out: str | Path | None = None,
    *,
    sharing: Sequence[Any] | None = None,
    critic_sharing: Sequence[Any] | None = None,
    critic_observation: Sequence[Any] | None = None,
    agent_id: Sequence[bool | str] | None = None,
    seeds: int | Sequence[int] | None = None,
    stop: Mapping[str, float] | None = None,
    opponents: Sequence[str] | None = None,
    episodes: int | None = None,
    points: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    concurrent: int | None = None,
    resume: bool = False,
    command: str = "",
) -> StudyResult:
    """Compare ways to share, on equal terms.

    Every combination of the given ways is an arm; every arm is trained with every seed, for the same number of steps,
    and plays the same games at the same points of training.

    Args:
        experiment: an experiment file, or a `TeamPPOConfig`.
        out: the study's folder; None for `runs/<file>_study_<time>`.
        sharing: of the actors, see `TeamPPOConfig.teams`; None for the experiment's.
        critic_sharing: of the critics; None for the same as the actors', unless the experiment says otherwise.
        critic_observation: what the critics see; None for the experiment's.
        agent_id: whether the networks are told which agent acts; None for the experiment's.
        seeds: how many (5 if None), counted from 0, or which.
        stop: limit of `agent_steps` or `env_steps`; None for the experiment file's STOP.
        opponents: who is played at evaluations, the hardest last: `random`, `noop`, `greedy` or checkpoints. None
            takes those of `random` and `greedy` that can play, in an environment with two teams.
        episodes: games per evaluation and opponent; 20 if None.
        points: evaluations after the one before training; None for 10, fewer if iterations are longer.
        overrides: config values in place of the experiment's, as for `--set`.
        concurrent: trials at a time; None for as many as the cores allow.
        resume: go on with the study in `out`; what is None is as it was.
        command: for the report, what was typed.

    Raises:
        UsageError: something given cannot work; nothing has been started.
    """
    console = Console(stderr=True, highlight=False)
    axes = {
        "sharing": sharing,
        "critic_sharing": critic_sharing,
        "critic_observation": critic_observation,
        "agent_id": agent_id,
    }
    wishes = Wishes(axes, seeds, stop, opponents, episodes, points, overrides, command)
    with refusing():
        keep_quiet()
        directory, before = _folder(experiment, out, resume)
        plan = make_plan(experiment, wishes, before)
        if before is not None:
            _check_same(directory, before, plan.study, concurrent)
        _announce(plan, directory, console)
        rule = StopRule(plan.study.stop)
        files = StudyFiles(directory, plan.study)
        display = StudyDisplay(rule, plan.study, files)
        _prepare_machine(plan, concurrent)
        tuner = _tuner(plan, directory, concurrent, rule, display, files)
        if before is None:
            write_study(directory, plan.study)
    results = fit(tuner, rule, display)
    files.write()
    return _concluded(plan.study, directory, files, results, rule, console)


def _folder(
    experiment: str | Path | AlgorithmConfig, out: str | Path | None, resume: bool
) -> tuple[Path, Study | None]:
    """The study's folder, and the study that it holds."""
    if out is None:
        if resume:
            raise ValueError("--resume goes on with the study in a folder; give it with --out DIR")
        name = "study" if isinstance(experiment, AlgorithmConfig) else f"{Path(experiment).stem}_study"
        out = Path("runs") / f"{name}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    directory = Path(out).expanduser().resolve()
    if resume:
        if not (directory / STUDY_FILE).is_file():
            raise ValueError(f"{directory} holds no study to go on with; leave --resume out to begin one there")
        return directory, read_study(directory)
    if (directory / STUDY_FILE).is_file():
        raise ValueError(f"{directory} holds a study already; go on with it by --resume, or give another --out")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ValueError(f"{directory} exists and is no study; give --out a new folder")
    return directory, None


def _check_same(directory: Path, before: Study, now: Study, concurrent: int | None) -> None:
    if concurrent is not None:
        raise ValueError("--resume goes on with as many trials at a time as before; leave --concurrent out")
    if apart := difference(before, now):
        raise ValueError(f"{directory} holds another study: {apart}; leave that out, or give another --out")


def _announce(plan: Plan, directory: Path, console: Console) -> None:
    study = plan.study
    for label, config in plan.configs.items():
        say(console, f"arm {label}:")
        print_footprints(config, console)
    if len(study.arms) == 1:
        say(console, f"There is one arm only ({study.labels[0]}), so there is nothing to compare it with.")
    evaluation = f"{study.episodes} episodes at {study.points + 1} points"
    if study.opponents:
        evaluation += f" against {' and '.join(study.opponents)}"
    trials = f"{len(study.arms)} arms x {len(study.seeds)} seeds"
    say(console, f"{trials}, {plan.counter.replace('_', ' ')} {plan.limit:,.0f} each; {evaluation}; in {directory}")


def _prepare_machine(plan: Plan, concurrent: int | None) -> None:
    config, trials = plan.config, len(plan.study.arms) * len(plan.study.seeds)
    needed = 1 + int(config.num_env_runners * config.num_cpus_per_env_runner)
    if concurrent is not None and not 1 <= concurrent <= max(1, cores() // needed):
        raise ValueError(
            f"--concurrent {concurrent}: a trial needs {needed} of the {cores()} cores here, so that at most "
            f"{max(1, cores() // needed)} can run at a time"
        )
    untouched = config.num_cpus_for_main_process == type(config)().num_cpus_for_main_process
    if untouched and "num_cpus_for_main_process" not in plan.study.overrides:
        share_cores(config, min(trials, concurrent or trials))
    # Tune then knows of every trial's newest checkpoint soon enough for a kill.
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", _SNAPSHOT_EVERY_S)
    start_ray(config)


def _tuner(
    plan: Plan, directory: Path, concurrent: int | None, rule: StopRule, display: StudyDisplay, files: StudyFiles
) -> Tuner:
    """All trials, or what is left of them."""
    run = directory / TRIALS_FOLDER
    callbacks = [files, display]
    if Tuner.can_restore(run):
        tuner = restored_tuner(run, plan.config, ResumeConfig.ResumeType.RESUME)
        if _lost_checkpoint(tuner.get_results(), rule):
            tuner = restored_tuner(run, plan.config, ResumeConfig.ResumeType.RESTART)
        rewire(tuner, rule, callbacks)
        return tuner
    name = functools.partial(_name, plan.arms)
    return Tuner(
        plan.config.algo_class,
        param_space=_grid(plan),
        tune_config=TuneConfig(
            # Seed by seed, so that a study that ends early has all arms.
            search_alg=BasicVariantGenerator(
                points_to_evaluate=[{"seed": seed} for seed in plan.study.seeds], max_concurrent=concurrent or 0
            ),
            num_samples=len(plan.study.seeds),
            scheduler=rule,
            trial_name_creator=name,
            trial_dirname_creator=name,
        ),
        run_config=RunConfig(
            name=run.name,
            storage_path=str(directory),
            callbacks=callbacks,
            # Evaluations ask for checkpoints.
            checkpoint_config=CheckpointConfig(num_to_keep=_CHECKPOINTS_KEPT, checkpoint_at_end=True),
            log_to_file=True,
            sync_config=SyncConfig(sync_artifacts=True),
            verbose=0,
        ),
    )


def _grid(plan: Plan) -> AlgorithmConfig:
    """The config of all trials: a grid along each axis."""
    study, config = plan.study, plan.config
    points = functools.partial(
        EvaluationPoints, plan.counter, plan.limit, study.points, tuple(study.opponents), study.episodes
    )
    config.callbacks([*force_list(config.callbacks_class), points])
    config.teams(**{axis: tune.grid_search(list(choices)) for axis, choices in plan.arms.values.items()})
    config.debugging(seed=tune.choice(study.seeds))
    return config


def _name(arms: Arms, trial: Trial) -> str:
    return trial_name(arms.of(trial.config).label, trial.config["seed"])


def _lost_checkpoint(results: ResultGrid, rule: StopRule) -> bool:
    """Whether a trial that must go on would look for a checkpoint that is gone."""
    return any(
        result.checkpoint is not None
        and not Path(result.checkpoint.path).is_dir()
        and not rule.is_reached(result.metrics or {})
        for result in results
    )


def _concluded(
    study: Study, directory: Path, files: StudyFiles, results: ResultGrid, rule: StopRule, console: Console
) -> StudyResult:
    """Report what came out, and what did not."""
    from rllib_shared.comparison.report import write_report

    for failure in files.failures.values():
        say(console, f"{failure.trial} failed: {failure.error}\n  log: {failure.log}")
    verdict = ""
    if files.finished(study):
        report = write_report(directory)
        verdict = report.verdict
        say(console, f"{verdict}\nreport: {report.html}")
    else:
        say(console, "No trial has finished, so there is no report.")
    complete = len(files.finished(study)) == len(files.rows)
    if not complete:
        command = ["rllib-shared", "compare", study.experiment, "--resume", "--out", str(directory)]
        say(console, f"go on with: {shlex.join(command)}")
    code = INTERRUPTED if rule.interrupted else OK if complete and not files.failures else FAILED
    return StudyResult(directory, read_results(directory, study), tuple(files.failures.values()), verdict, code)
