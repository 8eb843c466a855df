"""What a study will do, from what the user gave: everything is checked here, before any trial starts.

Running it is in `study.py`.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.algorithms.ppo import AGENT_STEPS, ENV_STEPS
from rllib_shared.comparison.arms import AXES, Arms, check_different, make_arms, same_arms
from rllib_shared.comparison.schema import Study
from rllib_shared.envs.team_env import TeamEnv
from rllib_shared.evaluation.match import resolved, seated
from rllib_shared.launching.experiment import Experiment, load_experiment
from rllib_shared.launching.machine import cores
from rllib_shared.launching.overrides import apply_overrides, settable_keys
from rllib_shared.launching.stopping import checked_limits
from rllib_shared.messages import preview
from rllib_shared.modules.opponents import SCRIPTED

COUNTERS = (AGENT_STEPS, ENV_STEPS)
SEEDS, EPISODES, POINTS = 5, 20, 10

# Two studies are the same if all else is: these say how and where it was made.
_CIRCUMSTANCES = ("experiment", "overrides", "versions", "machine", "command")
# Said elsewhere in study.json, or no matter of training.
_NOT_SHOWN = {*AXES, "env", "env_config", "seed", "callbacks_class", "team_choice", "num_cpus_for_main_process"}


@dataclass(frozen=True)
class Wishes:
    """What the user gave; None where nothing was said.

    Attributes:
        axes: values of each of `arms.AXES`.
        seeds: how many, counted from 0, or which.
        stop: limit of one counter.
        opponents: scripted players or checkpoints.
        episodes: games per evaluation and opponent.
        points: evaluations after the one before training.
        overrides: config values in place of the experiment's.
        command: what was typed.
    """

    axes: Mapping[str, Sequence[Any] | None]
    seeds: int | Sequence[int] | None = None
    stop: Mapping[str, Any] | None = None
    opponents: Sequence[str] | None = None
    episodes: int | None = None
    points: int | None = None
    overrides: Mapping[str, Any] | None = None
    command: str = ""


@dataclass(frozen=True)
class Plan:
    """A study that can start.

    Attributes:
        study: what `study.json` will say.
        config: the experiment's, with the overrides; its axes are those of no arm in particular.
        configs: validated, one per arm, by label.
        arms: the grid.
    """

    study: Study
    config: TeamPPOConfig
    configs: Mapping[str, TeamPPOConfig]
    arms: Arms

    @property
    def counter(self) -> str:
        """What every trial is trained by."""
        return next(iter(self.study.stop))

    @property
    def limit(self) -> float:
        """Where the counter ends training."""
        return self.study.stop[self.counter]


def make_plan(experiment: str | Path | AlgorithmConfig, wishes: Wishes, before: Study | None = None) -> Plan:
    """Check everything.

    Args:
        experiment: an experiment file, or a config.
        wishes: what the user gave.
        before: the study to go on with, which says what the wishes leave open.

    Raises:
        ValueError: something cannot work.
        FileNotFoundError: no experiment file, or no such opponent.
    """
    found, shown = _found(experiment)

    def wanted(name: str, default: Any) -> Any:
        said = [getattr(one, name) for one in (wishes, before) if one is not None]
        return next((value for value in said if value is not None), default)

    overrides = wanted("overrides", {})
    config = _changed(found.config, overrides)
    given = {axis: choices for axis, choices in wishes.axes.items() if choices}
    arms = same_arms(config, before.arms) if before is not None and not given else make_arms(config, given)
    configs = arms.configs(config)
    for label, one in configs.items():
        _validate(label, one)
    check_different(configs)
    stop = _one_counter(wanted("stop", found.stop))
    env = next(iter(configs.values())).make_team_env()
    try:
        opponents = _opponents(env, wanted("opponents", None))
        agents = len([agent for slots in env.teams.modules.values() for agent in slots.agents])
    finally:
        env.close()
    study = Study(
        experiment=shown,
        env=str(config.env),
        env_config=_plain(config.env_config),
        stop=stop,
        arms=list(arms.arms),
        seeds=_seeds(wanted("seeds", SEEDS)),
        opponents=opponents,
        episodes=_at_least_1("episodes", wanted("episodes", EPISODES)),
        points=_points(wanted("points", None), config, stop, agents),
        config=_changed_settings(config),
        overrides=_plain(overrides),
        versions={name: version(name) for name in ("rllib_shared", "ray", "torch")},
        machine=_machine(),
        command=wishes.command,
    )
    return Plan(study, config, configs, arms)


def difference(there: Study, here: Study) -> str:
    """What tells two studies apart, in words; empty if nothing does."""
    for field in fields(Study):
        old, new = getattr(there, field.name), getattr(here, field.name)
        if field.name in _CIRCUMSTANCES or old == new:
            continue
        if field.name == "arms":
            old, new = there.labels, here.labels
        elif isinstance(old, Mapping):
            keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            old, new = ({key: one.get(key) for key in keys} for one in (old, new))
        return f"{field.name}: {old} there, {new} here"
    return ""


def _found(experiment: str | Path | AlgorithmConfig) -> tuple[Experiment, str]:
    """The experiment and how to name it: by a path from here, as studies are read on other machines too."""
    if isinstance(experiment, AlgorithmConfig):
        return Experiment(Path(), experiment), "a config object"
    found = load_experiment(experiment)
    here = Path.cwd()
    return found, str(found.path.relative_to(here) if found.path.is_relative_to(here) else found.path)


def _changed(config: AlgorithmConfig, overrides: Mapping[str, Any]) -> TeamPPOConfig:
    if not isinstance(config, TeamPPOConfig):
        raise ValueError(
            f"a study compares ways to share, which {type(config).__name__} does not know; give a TeamPPOConfig"
        )
    changed = config.copy(copy_frozen=False)
    apply_overrides(changed, overrides)
    # RLlib's own evaluation would count as training time.
    changed.evaluation(evaluation_interval=None)
    return changed


def _validate(label: str, config: TeamPPOConfig) -> None:
    # On a copy: what validate() fills in belongs to the process that trains.
    copy = config.copy(copy_frozen=False)
    try:
        copy.validate()
    except ValueError as error:
        raise ValueError(f"arm {label!r}: {error}") from error
    config.team_layout = copy.team_layout


def _one_counter(stop: Mapping[str, Any]) -> dict[str, float]:
    limits = checked_limits(stop)
    if len(limits) != 1 or next(iter(limits)) not in COUNTERS:
        raise ValueError(
            f"stop {', '.join(limits)}: a study trains every arm for the same number of steps, so give exactly one of "
            "agent_steps and env_steps, such as --stop agent_steps=1e6"
        )
    return limits


def _opponents(env: TeamEnv, given: Sequence[str] | None) -> list[str]:
    """Who is played, each tried once in the environment."""
    two_teams = len(env.teams.names) == 2
    if given and not two_teams:
        raise ValueError(
            f"opponents {preview(given)} need an environment with two teams, but {env.name} has "
            f"{len(env.teams.names)}: {preview(env.teams.names)}; leave --opponent out"
        )
    if given is not None:
        for opponent in given:
            seated(resolved(opponent), env)
        return list(dict.fromkeys(given))
    return [name for name in ("random", "greedy") if two_teams and _can_play(name, env)]


def _can_play(name: str, env: TeamEnv) -> bool:
    try:
        SCRIPTED[name](env)
    except ValueError:
        return False
    return True


def _seeds(given: int | Sequence[int]) -> list[int]:
    seeds = list(given) if isinstance(given, Sequence) else list(range(given))
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be at least 1 and different, got {given!r}")
    return seeds


def _at_least_1(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


def _points(given: int | None, config: TeamPPOConfig, stop: Mapping[str, float], agents: int) -> int:
    """How many evaluations; each needs at least an iteration of training before it."""
    (counter, limit) = next(iter(stop.items()))
    per_iteration = _env_steps_per_iteration(config) * (agents if counter == AGENT_STEPS else 1)
    most = max(1, int(limit // per_iteration))
    if given is None:
        return min(POINTS, most)
    if _at_least_1("points", given) > most:
        raise ValueError(
            f"points {given}: that is an evaluation every {limit / given:g} {counter.replace('_', ' ')}, but an "
            f"iteration takes up to {per_iteration} of them; give at most {most}, a larger stop, or a smaller "
            "train_batch_size_per_learner"
        )
    return given


def _env_steps_per_iteration(config: TeamPPOConfig) -> int:
    """Runners go on in rounds until there is enough."""
    runners = range(1, config.num_env_runners + 1) if config.num_env_runners else (0,)
    fragments = sum(config.get_rollout_fragment_length(runner) for runner in runners)
    one_round = fragments * config.num_envs_per_env_runner
    return one_round * math.ceil(config.total_train_batch_size / one_round)


def _changed_settings(config: TeamPPOConfig) -> dict[str, Any]:
    """Settings that are not the defaults, as far as JSON can say them."""
    defaults = type(config)()
    changed = {}
    for key in sorted(settable_keys(config) - _NOT_SHOWN):
        value = getattr(config, key)
        if value != getattr(defaults, key, None):
            changed[key] = _plain(value)
    return changed


def _plain(value: Any) -> Any:
    """A value as JSON gives it back; functions and classes by their names."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__name__", type(value).__name__)


def _machine() -> str:
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return f"{cores()} cores, {', '.join(gpus) or 'no GPU'}, {platform.system()}"
