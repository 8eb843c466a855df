"""Ray on this machine, and who gets which cores."""

from __future__ import annotations

import logging
import os

import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig


def cores() -> int:
    """Cores that this process may use, or those of the Ray that runs already."""
    if ray.is_initialized():
        return int(ray.cluster_resources().get("CPU", 1))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_cores(config: AlgorithmConfig, trials: int) -> None:
    """Give the main process, which learns, the cores that the runners do not use.

    Ray sets OMP_NUM_THREADS to the CPUs of an actor, so that with RLlib's default of one it learns with one thread.

    Args:
        config: changed in place.
        trials: how many there are; as many as fit run at once.
    """
    if config.num_learners > 0:
        return
    runners = int(config.num_env_runners * config.num_cpus_per_env_runner)
    at_once = max(1, min(trials, cores() // (1 + runners)))
    config.resources(num_cpus_for_main_process=max(1, cores() // at_once - runners))


def keep_quiet() -> None:
    """Keep Ray's, Tune's and RLlib's remarks off the terminal: progress and errors are shown by us, once."""
    # Ray warns on machines without a GPU about GPUs.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    for name in ("ray", "ray.rllib", "ray.tune"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # It only names the trials that failed.
    logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    os.environ["TUNE_PRINT_ALL_TRIAL_ERRORS"] = "0"


def start_ray(config: AlgorithmConfig) -> None:
    """Start Ray with this machine's cores, or as many as one trial asks for if that is more."""
    if ray.is_initialized():
        return
    # Relative paths in an experiment mean the folder in which the user is.
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
    needed = config.algo_class.default_resource_request(config.to_dict()).required_resources.get("CPU", 1)
    # What actors print is in the trials' folders.
    ray.init(num_cpus=max(cores(), int(needed)), include_dashboard=False, logging_level="ERROR", log_to_driver=False)
