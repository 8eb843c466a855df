"""An experiment file: a docstring, `config()`, optionally `STOP`, and a `main()` that calls the command line.

What the command line changes in it lives in `overrides.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from ray import cloudpickle
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig


@dataclass(frozen=True)
class Experiment:
    """What an experiment file says.

    Attributes:
        path: the file, absolute.
        config: what its `config()` returned.
        stop: its `STOP`, the default stop rule; empty without one.
    """

    path: Path
    config: AlgorithmConfig
    stop: Mapping[str, float] = field(default_factory=dict)


def load_experiment(file: str | Path) -> Experiment:
    """Read an experiment file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no Python file, or one without `config()`.
        TypeError: `config()` returns something else than an algorithm's config, or STOP is no dict.
    """
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(f"no experiment file {path}; give a Python file that has a function config()")
    if path.suffix != ".py":
        raise ValueError(f"{path} is no Python file; give a file like experiments/battle.py")
    module = _imported(path)
    make_config = getattr(module, "config", None)
    if not callable(make_config):
        raise ValueError(f"{path} has no function config(); an experiment file defines config() -> TeamPPOConfig")
    config = make_config()
    if not isinstance(config, AlgorithmConfig):
        raise TypeError(
            f"config() of {path} must return an algorithm's config such as TeamPPOConfig, got {type(config).__name__}"
        )
    stop = getattr(module, "STOP", {})
    if not isinstance(stop, Mapping):
        raise TypeError(f'STOP of {path} must be a dict such as {{"agent_steps": 1e7}}, got {stop!r}')
    return Experiment(path, config, dict(stop))


def _imported(path: Path) -> ModuleType:
    """The file as a module; its neighbours can be imported, as when Python runs the file itself."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = f"experiment_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Ray's workers cannot import a module of this name: what the file defines travels with the pickles.
    cloudpickle.register_pickle_by_value(module)
    spec.loader.exec_module(module)
    return module
