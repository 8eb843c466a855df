"""`rllib-shared train`: from an experiment file and options to a finished Tune run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ray import tune
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.tune import Callback, CheckpointConfig, ResultGrid, RunConfig, SyncConfig, TuneConfig, Tuner
from ray.tune.experiment import Trial
from ray.tune.tune_config import ResumeConfig
from rich.console import Console

from rllib_shared.launching.errors import refusing
from rllib_shared.launching.experiment import Experiment, load_experiment
from rllib_shared.launching.machine import keep_quiet, share_cores, start_ray
from rllib_shared.launching.overrides import apply_overrides, given_overrides, parse_assignments
from rllib_shared.launching.progress import ProgressDisplay
from rllib_shared.launching.stopping import StopRule, check_limit_keys, checked_limits
from rllib_shared.launching.summary import print_footprints, print_summary
from rllib_shared.sampling.metrics import RETURN_PER_AGENT

_RECORD = "launch.json"
_CHECKPOINT_EVERY = 10
_MAIN_CPUS = "num_cpus_for_main_process"

OK, FAILED, INTERRUPTED = 0, 1, 130


@dataclass(frozen=True)
class LaunchRecord:
    """How a run was launched, kept in its folder so that it can be resumed.

    Attributes:
        experiment: the experiment file.
        overrides: `--set` as a dict.
        limits: the stop rule; a resumed run may raise it.
        seed: of the first trial; None for the experiment's own.
        num_samples: how many trials.
    """

    experiment: str
    overrides: Mapping[str, Any]
    limits: Mapping[str, float]
    seed: int | None = None
    num_samples: int = 1

    def save(self, run: Path) -> None:
        """Write it into the run's folder."""
        (run / _RECORD).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, run: Path) -> LaunchRecord:
        """Read it back."""
        return cls(**json.loads((run / _RECORD).read_text()))


def train(
    file: Path,
    *,
    stop: Sequence[str] = (),
    overrides: Sequence[str] = (),
    num_samples: int = 1,
    seed: int | None = None,
    storage: Path = Path("runs"),
    name: str | None = None,
    num_env_runners: int | None = None,
) -> tuple[Path, int]:
    """Train an experiment.

    Args:
        file: the experiment file.
        stop: `KEY=VALUE` texts; instead of the file's STOP.
        overrides: `KEY=VALUE` texts of `--set`.
        num_samples: trials to run.
        seed: of the first trial, one more for each other; None leaves the experiment's.
        storage: folder for runs.
        name: of the run; None for the file's name and the time.
        num_env_runners: instead of the experiment's.

    Returns:
        The run's folder and the exit code: 0, 1 if a trial failed, 130 after Ctrl-C.

    Raises:
        UsageError: something given cannot work; nothing has been started.
    """
    with refusing():
        changes = given_overrides(overrides, num_env_runners)
        experiment = load_experiment(file)
        limits = checked_limits(parse_assignments("--stop", stop) or experiment.stop)
        record = LaunchRecord(str(experiment.path), changes, limits, seed, num_samples)
        run = _new_run(storage, name or f"{experiment.path.stem}_{datetime.now():%Y-%m-%d_%H-%M-%S}")
        config = _prepared(experiment, record)
        print_footprints(config, Console(stderr=True, highlight=False))
    rule = StopRule(limits)
    progress = ProgressDisplay(rule)
    if seed is not None:
        config.debugging(seed=tune.grid_search([seed + sample for sample in range(num_samples)]))
    tuner = Tuner(
        config.algo_class,
        param_space=config,
        tune_config=TuneConfig(
            # Each seed of the grid is one sample.
            num_samples=num_samples if seed is None else 1,
            scheduler=rule,
            trial_name_creator=_trial_name,
            trial_dirname_creator=_trial_name,
        ),
        run_config=RunConfig(
            name=run.name,
            storage_path=str(run.parent),
            callbacks=[progress],
            checkpoint_config=CheckpointConfig(
                num_to_keep=1,  # and always the last one
                checkpoint_score_attribute=RETURN_PER_AGENT,
                checkpoint_frequency=_CHECKPOINT_EVERY,
                checkpoint_at_end=True,
            ),
            log_to_file=True,
            sync_config=SyncConfig(sync_artifacts=True),
            verbose=0,
        ),
    )
    record.save(run)
    return run, _fit(tuner, rule, progress)


def resume(file: Path, run: Path, *, stop: Sequence[str] = ()) -> tuple[Path, int]:
    """Continue all trials of a run from their last checkpoints, with the settings that it was launched with.

    Args:
        file: the experiment file.
        run: the run's folder.
        stop: `KEY=VALUE` texts; none: those of the run.

    Returns:
        As `train`.

    Raises:
        UsageError: as `train`; also if `run` is no run, or has reached its limits already.
    """
    with refusing():
        run = run.expanduser().resolve()
        if not Tuner.can_restore(run) or not (run / _RECORD).is_file():
            raise ValueError(f"{run} is no run to resume; give the folder that `rllib-shared train` printed last")
        experiment = load_experiment(file)
        before = LaunchRecord.load(run)
        limits = checked_limits(parse_assignments("--stop", stop) or before.limits)
        record = LaunchRecord(str(experiment.path), before.overrides, limits, before.seed, before.num_samples)
        config = _prepared(experiment, record)
        tuner = restored_tuner(run, config, ResumeConfig.ResumeType.RESUME)
        rule = StopRule(limits)
        if all(rule.is_reached(result.metrics or {}) for result in tuner.get_results()):
            reached = ", ".join(f"{key}={limit:g}" for key, limit in limits.items())
            raise ValueError(f"{run} has already reached {reached}; give a larger --stop")
    progress = ProgressDisplay(rule)
    rewire(tuner, rule, [progress])
    record.save(run)
    return run, _fit(tuner, rule, progress)


def restored_tuner(run: Path, config: AlgorithmConfig, how: ResumeConfig.ResumeType) -> Tuner:
    """The Tuner of a run, to go on with all of its trials.

    Args:
        run: its folder.
        config: of its experiment.
        how: from the trials' last checkpoints, or from their beginning.
    """
    return Tuner.restore(
        str(run), config.algo_class, _resume_config=ResumeConfig(finished=how, unfinished=how, errored=how)
    )


def rewire(tuner: Tuner, rule: StopRule, callbacks: list[Callback]) -> None:
    """Give a restored Tuner this session's rule and callbacks."""
    # Tuner.restore offers no way to change these; private, watched by tests/integration/test_command_line.py.
    tuner._local_tuner._tune_config.scheduler = rule
    tuner._local_tuner._run_config.callbacks = callbacks


def _new_run(storage: Path, name: str) -> Path:
    """The folder of a run that does not exist yet."""
    if not name or Path(name).name != name:
        raise ValueError(f"--name {name!r}: expected a folder name without slashes")
    run = storage.expanduser().resolve() / name
    if run.exists():
        raise ValueError(f"{run} exists already; choose another --name, or continue it with --resume")
    return run


def _prepared(experiment: Experiment, record: LaunchRecord) -> AlgorithmConfig:
    """The config to train: changed, checked, with its share of the cores. Starts Ray, but no actor."""
    config = experiment.config
    apply_overrides(config, record.overrides)
    if record.num_samples < 1:
        raise ValueError(f"--num-samples {record.num_samples}: expected at least 1")
    keep_quiet()
    # On a copy: what validate() fills in belongs to the process that trains.
    config.copy(copy_frozen=False).validate()
    untouched = config.num_cpus_for_main_process == config.algo_class.get_default_config().num_cpus_for_main_process
    if untouched and _MAIN_CPUS not in record.overrides:
        share_cores(config, record.num_samples)
    start_ray(config)
    check_limit_keys(record.limits, config)
    return config


def _trial_name(trial: Trial) -> str:
    """Short, as it is a folder, and the same when a run is resumed."""
    return f"trial_{int(trial.trial_id.rsplit('_', 1)[-1])}"


def _fit(tuner: Tuner, rule: StopRule, progress: ProgressDisplay) -> int:
    """Run all trials and print what they came to."""
    results = fit(tuner, rule, progress)
    print_summary(results, Console(stderr=True, highlight=False))
    return exit_code(results, rule)


def fit(tuner: Tuner, rule: StopRule, progress: ProgressDisplay) -> ResultGrid:
    """Run all trials; Ctrl-C ends them cleanly."""
    try:
        with _interruptible(rule):
            return tuner.fit()
    finally:
        progress.close()


def exit_code(results: ResultGrid, rule: StopRule) -> int:
    """What the command ends with."""
    if results.num_errors:
        return FAILED
    return INTERRUPTED if rule.interrupted else OK


@contextmanager
def _interruptible(rule: StopRule) -> Iterator[None]:
    """Ctrl-C ends the trials cleanly; a second one stops at once."""

    def handle(signum: int, frame: Any) -> None:
        if rule.interrupted:
            raise KeyboardInterrupt
        rule.interrupt()

    # Tune's own handler ends a run without saving its trials.
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
