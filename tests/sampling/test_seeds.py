"""Env copies differ from each other, and each follows from its seed in any process."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np

from rllib_shared.envs.registry import make_team_env
from rllib_shared.sampling.acting import EXPLORE
from rllib_shared.sampling.seeds import HIGHEST_SEED, LOWEST_SEED, env_seeds
from tests.sampling.collecting import contents, make_collector


def walls(seed: int) -> bytes:
    env = make_team_env("tiger_deer_v4", {"map_size": 24, "max_cycles": 5})
    return env.reset(seed=seed).critic_observation["deer"][..., 0].tobytes()


def test_seeds_differ_by_run_worker_copy_and_evaluation() -> None:
    seeds = [
        seed
        for run in (0, 1, 2)
        for worker in (0, 1, 2)
        for evaluation in (False, True)
        for seed in env_seeds(run, worker, 4, evaluation)
    ]
    assert len(set(seeds)) == len(seeds) == 72


def test_seeds_are_where_magent2_tells_them_apart() -> None:
    """It treats 0 and 1 alike and takes them modulo 2**32."""
    seeds = env_seeds(0, 1, 1000)
    assert min(seeds) >= LOWEST_SEED == 2
    assert max(seeds) <= HIGHEST_SEED < 2**31
    assert len(set(seeds)) == 1000


def test_more_copies_do_not_change_the_seeds_of_the_first() -> None:
    assert env_seeds(5, 1, 8)[:3] == env_seeds(5, 1, 3)


def test_without_a_seed_every_run_is_another() -> None:
    assert env_seeds(None, 0, 2) != env_seeds(None, 0, 2)


def test_eight_copies_of_tiger_deer_have_eight_layouts() -> None:
    for seed in (0, None):
        assert len({walls(s) for s in env_seeds(seed, 1, 8)}) == 8
    workers = [env_seeds(0, worker, 1)[0] for worker in range(8)]
    assert len({walls(seed) for seed in workers}) == 8


def digest(worker: int) -> str:
    """A fingerprint of what a runner samples."""
    collector, _ = make_collector("tiger_deer_v4", copies=2, seeds=env_seeds(3, worker, 2), map_size=16, max_cycles=7)
    fragments = [fragment for _ in range(3) for fragment in collector.collect(5, EXPLORE)]
    everything = b"".join(array.tobytes() for fragment in fragments for array in contents(fragment))
    return hashlib.sha256(everything).hexdigest()


def test_the_same_seed_worker_and_copy_play_the_same_in_another_process() -> None:
    code = "from tests.sampling.test_seeds import digest; print(digest(1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split()[-1] == digest(1) != digest(2)


def test_later_episodes_continue_the_random_numbers() -> None:
    env = make_team_env("tiger_deer_v4", {"map_size": 24, "max_cycles": 5})
    layouts = [env.reset(seed=2 if episode == 0 else None).critic_observation["deer"][..., 0] for episode in range(3)]
    assert not np.array_equal(layouts[0], layouts[1])
    assert not np.array_equal(layouts[1], layouts[2])
