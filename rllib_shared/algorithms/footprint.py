"""What a run will take, said before it starts: parameters, bytes, the optimizer's seconds; and what cannot fit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import psutil
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule

from rllib_shared.envs.team_env import TeamEnv

if TYPE_CHECKING:
    from rllib_shared.algorithms.config import TeamPPOConfig

_MEMORY_SHARE = 0.8  # of the machine's (or the GPU's) memory that a run may take
_FLOAT = 4
_LEARNED_COPIES = 4  # weights, gradients and Adam's two moments
# Fused Adam reads four arrays and writes three; gradients are written once, measured once and clipped once.
_MOVED_COPIES = 11
# The gradients of weight sets stay in the cache (`StackedAdam`).
_MOVED_COPIES_OF_SETS = 6


@dataclass(frozen=True)
class Footprint:
    """The networks of one module.

    Attributes:
        module_id: RLlib's module id.
        agents: how many act with it.
        actor_sets: weight sets of the actor.
        critic_sets: weight sets of the critic.
        parameters: numbers that are learned, of all sets.
        actor_parameters: those that the runners hold too.
    """

    module_id: str
    agents: int
    actor_sets: int
    critic_sets: int
    parameters: int
    actor_parameters: int

    @property
    def learner_bytes(self) -> int:
        """Weights, gradients and Adam's moments; the most that it can be."""
        return _LEARNED_COPIES * _FLOAT * self.parameters

    @property
    def moved_bytes(self) -> int:
        """What an optimizer step on a CPU reads and writes, about."""
        one_set = self.actor_sets == self.critic_sets == 1
        return (_MOVED_COPIES if one_set else _MOVED_COPIES_OF_SETS) * _FLOAT * self.parameters

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"{self.module_id}: {self.agents} agents, {_sets(self.actor_sets, 'actor')}, "
            f"{_sets(self.critic_sets, 'critic')}; {self.parameters:,} parameters, "
            f"{_size(self.learner_bytes)} with gradients and Adam ({_size(2 * _FLOAT * self.parameters)} of it Adam's)"
        )


def footprints(config: TeamPPOConfig, env: TeamEnv) -> list[Footprint]:
    """What each module will hold; nothing of it is made yet.

    Args:
        config: with `team_layout` set.
        env: one copy of its environment.
    """
    full, acting = (parameters_of(_built(config, env, only)) for only in (False, True))
    return [
        Footprint(
            module_id,
            slots.num_slots,
            len(slots.weight_sets),
            len(slots.critic_weight_sets),
            full[module_id],
            acting[module_id],
        )
        for module_id, slots in env.teams.modules.items()
    ]


def _built(config: TeamPPOConfig, env: TeamEnv, inference_only: bool) -> MultiRLModule:
    spec = config.get_multi_rl_module_spec(spaces=env.module_spaces(), inference_only=inference_only)
    try:
        # Sizes without memory: 400 networks of 100 MB each must be refused and not made.
        with torch.device("meta"):
            return spec.build()
    except (RuntimeError, NotImplementedError):
        # A user's own module may need real numbers.
        return spec.build()


def parameters_of(module: MultiRLModule) -> dict[str, int]:
    """Numbers that are learned, of each module."""
    return {module_id: sum(p.numel() for p in part.parameters()) for module_id, part in module.items()}


def learned_parameters(algorithm: Algorithm) -> int:
    """Numbers that an algorithm learns, actors' and critics', of all modules together."""
    counts = algorithm.learner_group.foreach_learner(lambda learner: sum(parameters_of(learner.module).values()))
    return next(iter(counts)).get()


def optimizer_seconds(config: TeamPPOConfig, networks: Sequence[Footprint]) -> float:
    """Seconds of one iteration that the optimizer's memory traffic takes on this machine's CPU; more with many agents.

    Args:
        config: for the number of minibatches.
        networks: see `footprints`.
    """
    steps = config.train_batch_size_per_learner
    minibatches = config.num_epochs * -(-steps // (config.minibatch_size or steps))
    return minibatches * sum(network.moved_bytes for network in networks) / _bytes_per_second()


def _bytes_per_second() -> float:
    """How fast this machine copies memory, reading and writing counted."""
    source = torch.zeros(8 * 2**20)
    target = torch.zeros_like(source)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - start)
    return 2 * _FLOAT * len(source) / min(seconds)


def check_memory(config: TeamPPOConfig, env: TeamEnv, networks: Sequence[Footprint]) -> None:
    """Refuse what cannot fit: the networks, and a train batch, which runner, learner and minibatches hold.

    Raises:
        ValueError: with what takes how much, and what to lower.
    """
    agents = sum(
        slots.num_slots * int(np.prod(slots.observation_space.shape or ())) for slots in env.teams.modules.values()
    )
    critics = sum(int(np.prod(space.shape)) for space in env.critic_spaces.values())
    steps = config.total_train_batch_size
    batch = _FLOAT * steps * (2 * agents + 2 * critics)
    machine = psutil.virtual_memory().total
    if batch > _MEMORY_SHARE * machine:
        raise ValueError(
            f"a train batch of {steps} env steps of {env.name} takes about {_size(batch)} "
            f"({_size(_FLOAT * agents)} of observations and {_size(_FLOAT * critics)} of critic observations per env "
            f"step, held twice), but this machine has {_size(machine)}; lower train_batch_size_per_learner"
        )
    learners = sum(network.learner_bytes for network in networks)
    # Each runner acts with a copy, and weights travel as one more.
    copies = _FLOAT * sum(network.actor_parameters for network in networks) * (config.num_env_runners + 2)
    on_gpu = config.num_gpus_per_learner > 0 and torch.cuda.is_available()
    needed = batch + copies + (0 if on_gpu else learners * max(1, config.num_learners))
    gpu = torch.cuda.get_device_properties(0).total_memory if on_gpu else 0
    for what, bytes_, there in (("this machine", needed, machine), ("a GPU", learners if on_gpu else 0, gpu)):
        if bytes_ > _MEMORY_SHARE * there and bytes_:
            raise ValueError(
                f"the networks of {env.name} cannot be trained here: {'; '.join(map(str, networks))}. With the train "
                f"batch that is about {_size(bytes_)}, but {what} has {_size(there)}; share more weights "
                "(.teams(sharing=..., critic_sharing=...)), or make model_config hidden smaller"
            )


def _sets(number: int, network: str) -> str:
    return f"1 {network}" if number == 1 else f"{number} {network}s"


def _size(bytes_: float) -> str:
    return f"{bytes_ / 2**30:.1f} GiB" if bytes_ >= 2**30 else f"{bytes_ / 2**20:.1f} MiB"
