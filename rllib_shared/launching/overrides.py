"""`--set KEY=VALUE`: values of the command line in place of those of the experiment file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from ray._common.deprecation import DEPRECATED_VALUE
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rllib_shared.envs.registry import env_config_keys
from rllib_shared.messages import unknown
from rllib_shared.modules.model_config import ModelConfig

# Whole numbers by default that may also be fractions.
_FRACTIONS = ("num_cpus_", "num_gpus_", "min_time_s_")
# Filled in by the config itself.
_NOT_SETTABLE = {"algo_class", "team_layout", "env_runner_cls", "policies", "policy_mapping_fn"}
# Read by RLlib's old stack only.
_NOT_SETTABLE |= {"model", "train_batch_size"}
_FILLED_IN = {"agent_id", "num_slots", "team_index", "weight_index", "critic_weight_index"}
_TEAMS = ("sharing", "critic_sharing", "agent_id")


def parse_assignments(option: str, given: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts to a dict; a value is JSON (`1e-4`, `true`, `[64,64]`, `null`) or else a string.

    Args:
        option: for messages, `--set` or `--stop`.
        given: the texts.

    Raises:
        ValueError: without `=` or key, or a key given twice.
    """
    assignments: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ValueError(f"{option} takes KEY=VALUE, got {text!r}")
        if key in assignments:
            raise ValueError(f"{option} {key} is given twice")
        try:
            assignments[key] = json.loads(value)
        except json.JSONDecodeError:
            assignments[key] = value
    return assignments


def given_overrides(assignments: Iterable[str], num_env_runners: int | None) -> dict[str, Any]:
    """What `--set` and `--num-env-runners` change in a config; raises ValueError as `parse_assignments` does."""
    changes = parse_assignments("--set", assignments)
    return changes if num_env_runners is None else {**changes, "num_env_runners": num_env_runners}


def apply_overrides(config: AlgorithmConfig, overrides: Mapping[str, Any]) -> None:
    """Change a config in place.

    Args:
        config: the experiment's.
        overrides: value of each key; dots for nesting (`env_config.map_size`).

    Raises:
        ValueError: unknown key, with the nearest known ones, or a value of the wrong kind.
    """
    # The environment first: it decides which env_config keys there are.
    for key in sorted(overrides, key=lambda key: key != "env"):
        root, _, rest = key.partition(".")
        value = overrides[key]
        if root not in settable_keys(config):
            raise ValueError(unknown("config key", root, sorted(settable_keys(config))))
        if root in _NESTED:
            _set_nested(config, root, rest, value)
        elif rest:
            raise ValueError(f"--set {key}: {root!r} has no keys below it; those that have: {', '.join(_NESTED)}")
        elif root == "env":
            config.environment(value)
        elif root in _TEAMS:
            # Words, dicts of groups, true or false: the config judges them when it is validated.
            config.teams(**{root: value})
        else:
            setattr(config, root, _checked(root, getattr(config, root), value))


def settable_keys(config: AlgorithmConfig) -> set[str]:
    """Names of the config's values, without what RLlib has deprecated."""
    values = {key for key, value in vars(config).items() if not _is_deprecated(value)}
    properties = {
        name
        for cls in type(config).__mro__
        for name, attribute in vars(cls).items()
        # Others are RLlib's former names.
        if isinstance(attribute, property) and attribute.fset is not None and f"_{name}" in vars(config)
    }
    names = values | properties | set(_NESTED)
    return {name for name in names if not name.startswith("_")} - _NOT_SETTABLE


def _is_deprecated(value: Any) -> bool:
    return isinstance(value, int) and value == DEPRECATED_VALUE


def _set_nested(config: AlgorithmConfig, root: str, rest: str, value: Any) -> None:
    """One value below `root`, or several as a dict."""
    if not rest and not isinstance(value, Mapping):
        raise ValueError(f"--set {root} takes a JSON object or one key, such as {root}.KEY=VALUE; got {value!r}")
    items = {rest: value} if rest else dict(value)
    known = _NESTED[root](config)
    for key in items:
        if known is not None and key not in known:
            raise ValueError(unknown(f"{root} key", key, sorted(known)))
    if root == "model_config":
        config.rl_module(model_config={**config.model_config, **items})
    else:
        setattr(config, root, {**(getattr(config, root) or {}), **items})


# What has keys of its own, and which; None: any.
_NESTED: dict[str, Callable[[AlgorithmConfig], set[str] | None]] = {
    "env_config": lambda config: env_config_keys(config.env) if config.env else None,
    "model_config": lambda config: {field.name for field in fields(ModelConfig)} - _FILLED_IN,
    "evaluation_config": settable_keys,
    "learner_config_dict": lambda config: None,
}


def _checked(key: str, current: Any, value: Any) -> Any:
    """`value` if it is of the same kind as the `current` one."""
    wanted = _wanted(current)
    if wanted is None:
        raise ValueError(f"--set {key}: cannot be given on the command line; set it in the experiment file")
    if isinstance(current, bool):
        fits = isinstance(value, bool)
    elif isinstance(current, int | float):
        # Schedules are lists; some numbers may be "auto" or switched off by null.
        fits = value is None or value == "auto" or isinstance(value, list) or _is_number(value)
        if isinstance(current, int) and isinstance(value, float) and not key.startswith(_FRACTIONS):
            fits = value.is_integer()
            value = int(value) if fits else value
            wanted = "a whole number"
    elif isinstance(current, str):
        fits = isinstance(value, str) or (current == "auto" and _is_number(value))
    elif isinstance(current, list | tuple):
        fits = isinstance(value, list)
    else:
        fits = True
    if not fits:
        raise ValueError(f"--set {key}={value!r}: expected {wanted} (it is {current!r} now)")
    return value


def _wanted(current: Any) -> str | None:
    """What a value must be, in words; None if no text can say it."""
    if current is None:
        return "any value"
    kinds = [
        (bool, "true or false"),
        (int, "a number"),
        (float, "a number"),
        (str, "a word"),
        ((list, tuple), "a list"),
    ]
    return next((words for kind, words in kinds if isinstance(current, kind)), None)  # type: ignore[arg-type]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
