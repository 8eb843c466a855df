"""The sampling loop: steps E env copies with one forward pass per module, and cuts what happened into fragments.

No Ray here. `runner.py` puts it behind RLlib's EnvRunner interface.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from rllib_shared.envs.team_env import TeamEnv, TeamStep
from rllib_shared.sampling.acting import ModuleActor, NonFiniteLogits
from rllib_shared.sampling.episode import TeamEpisode
from rllib_shared.sampling.fragment import TeamFragment
from rllib_shared.sampling.rollout import Rollout, Seen
from rllib_shared.sampling.seeds import HIGHEST_SEED, LOWEST_SEED

logger = logging.getLogger("rllib_shared")


class EnvFailure(RuntimeError):
    """An env copy raised in `step` or `reset`; the environment's own error is the cause."""


class EpisodeEvents:
    """What the collector tells about episodes; the runner hangs metrics and callbacks here."""

    def started(self, episode: TeamEpisode, copy: int) -> None:
        """An episode begins (after the reset)."""

    def stepped(self, episode: TeamEpisode, copy: int) -> None:
        """An env step was taken."""

    def ended(self, episode: TeamEpisode, copy: int) -> None:
        """An episode is over."""

    def restarted(self, copy: int) -> None:
        """An env copy failed and was made anew."""


class Collector:
    """Env copies, their running episodes, and how to go on.

    Args:
        make_env: makes one env copy.
        copies: E.
        actors: act for each module.
        seeds: first seed of each copy; later episodes continue its random numbers, and a copy that is made anew gets
            another seed that follows from this one.
        events: told about episodes.
        restart_failed: make a failed env copy anew instead of raising.
        generator: random numbers for actions; None uses torch's global ones.
    """

    def __init__(
        self,
        make_env: Callable[[], TeamEnv],
        copies: int,
        actors: Callable[[TeamEnv], Mapping[str, ModuleActor]],
        seeds: Sequence[int],
        events: EpisodeEvents,
        restart_failed: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self._make_env = make_env
        self.envs = [make_env() for _ in range(copies)]
        self.actors = dict(actors(self.envs[0]))
        self._seeds: list[int | None] = list(seeds)
        self._more_seeds = [np.random.default_rng(seed) for seed in seeds]
        self._events = events
        self._restart_failed = restart_failed
        self._generator = generator
        self._episodes = [TeamEpisode(self.envs[0].teams) for _ in self.envs]
        self._seen: Seen | None = None

    def collect(self, steps: int, mode: str, force_reset: bool = False) -> list[TeamFragment]:
        """Take `steps` env steps in every copy.

        Args:
            steps: T, per copy.
            mode: see `ModuleActor.act`.
            force_reset: start new episodes first.
        """
        return self._chunk(steps, mode, force_reset, [None] * len(self.envs))

    def collect_episodes(self, episodes: int, mode: str, chunk: int) -> list[TeamFragment]:
        """Play exactly `episodes` new episodes, shared out over the copies, so that short ones are not favoured.

        Args:
            episodes: in all.
            mode: see `ModuleActor.act`.
            chunk: env steps per allocation of arrays.
        """
        copies = len(self.envs)
        quota: list[int | None] = [episodes // copies + (copy < episodes % copies) for copy in range(copies)]
        fragments = self._chunk(chunk, mode, True, quota)
        while any(quota):
            fragments += self._chunk(chunk, mode, False, quota)
        # Copies without an episode to play hold an untouched one, or the end of their last.
        self._seen = None
        return fragments

    def close(self) -> None:
        """Close all copies."""
        for env in self.envs:
            env.close()

    def _chunk(self, steps: int, mode: str, force_reset: bool, quota: list[int | None]) -> list[TeamFragment]:
        """Up to `steps` steps per copy; `quota` counts down the episodes a copy may still play (None: no limit)."""
        rollout = Rollout(self.envs[0], self.actors, steps, len(self.envs))
        active = np.array([left is None or left > 0 for left in quota])
        if force_reset or self._seen is None:
            for copy in np.flatnonzero(active).tolist():
                self._reset(copy, rollout, 0)
        else:
            rollout.start_from(self._seen)
        fragments: list[TeamFragment] = []
        start = [0] * len(self.envs)
        stop = [0] * len(self.envs)
        for t in range(steps):
            if not active.any():
                break
            self._act(rollout, t, active, mode)
            for copy in np.flatnonzero(active).tolist():
                try:
                    over = self._step(copy, rollout, t)
                except EnvFailure as failure:
                    if not self._restart_failed:
                        raise
                    # The steps so far stay; row t held this copy's last good observation, so it is the bootstrap.
                    if t > start[copy]:
                        fragments.append(_detached(rollout.fragment(copy, start[copy], t, ended=False)))
                    self._restart(copy, rollout, t, failure)
                    start[copy] = stop[copy] = t + 1
                    continue
                stop[copy] = t + 1
                if not over:
                    continue
                fragments.append(rollout.fragment(copy, start[copy], t + 1, ended=True))
                start[copy] = t + 1
                left = quota[copy]
                if left is not None:
                    quota[copy] = left - 1
                    active[copy] = left > 1
                if active[copy]:
                    self._reset(copy, rollout, t + 1)
        for copy in range(len(self.envs)):
            if stop[copy] > start[copy]:
                fragments.append(rollout.fragment(copy, start[copy], stop[copy], ended=False))
        self._seen = rollout.seen_after()
        return fragments

    def _act(self, rollout: Rollout, t: int, active: np.ndarray, mode: str) -> None:
        for module_id, part in rollout.modules.items():
            acting = part.alive[t] if active.all() else part.alive[t] & active[:, None]
            mask = None if part.action_mask is None else part.action_mask[t]
            actor = self.actors[module_id]
            try:
                actor.act(part.observation[t], acting, mask, mode, part.actions_at(t), self._generator)
            except NonFiniteLogits as error:
                copy, slot = error.row
                env, agent = self.envs[copy], actor.slots.agents[slot]
                where = f"{env.name} (copy {copy}), module {module_id!r}, agent {agent!r}, "
                where += f"step {self._episodes[copy].length} of its episode"
                if error.from_observation:
                    raise ValueError(f"NaN or inf in the observation: {where}") from error
                raise ValueError(f"the policy network gave NaN or inf, though its input is finite: {where}") from error

    def _step(self, copy: int, rollout: Rollout, t: int) -> bool:
        """One env step of one copy; returns whether its episode is over."""
        actions = {module_id: part.actions.env_action[t, copy] for module_id, part in rollout.modules.items()}
        episode = self._episodes[copy]
        try:
            step = self.envs[copy].step(actions, rollout.buffers(t + 1, copy))
        except Exception as error:
            raise self._failure(copy, "step", error) from error
        for module_id, part in step.modules.items():
            if not np.isfinite(part.reward).all():
                slot = int(np.flatnonzero(~np.isfinite(part.reward))[0])
                agent = self.envs[copy].teams.modules[module_id].agents[slot]
                raise ValueError(
                    f"NaN or inf in the reward: {self.envs[copy].name} (copy {copy}), module {module_id!r}, "
                    f"agent {agent!r}, step {episode.length} of its episode"
                )
        rollout.write_done(t, copy, step.modules)
        rollout.write_seen(t + 1, copy, step)
        episode.add(step.modules)
        self._events.stepped(episode, copy)
        if step.over:
            episode.outcome = step.outcome
            self._events.ended(episode, copy)
        return step.over

    def _reset(self, copy: int, rollout: Rollout, row: int) -> None:
        """Start an episode whose first observations go into `row`."""
        try:
            step = self._first_step(copy, rollout, row)
        except Exception as error:
            if not self._restart_failed:
                raise self._failure(copy, "reset", error) from error
            self._remake(copy, error)
            step = self._first_step(copy, rollout, row)
        rollout.write_seen(row, copy, step)
        self._episodes[copy] = TeamEpisode(self.envs[copy].teams)
        self._events.started(self._episodes[copy], copy)

    def _first_step(self, copy: int, rollout: Rollout, row: int) -> TeamStep:
        """Reset a copy, with a seed if it is new."""
        seed, self._seeds[copy] = self._seeds[copy], None
        return self.envs[copy].reset(seed, rollout.buffers(row, copy))

    def _restart(self, copy: int, rollout: Rollout, t: int, error: Exception) -> None:
        """Replace a copy that failed in step t; its next episode starts in row t + 1."""
        self._remake(copy, error)
        for part in rollout.modules.values():
            part.alive[t, copy] = False
        self._reset(copy, rollout, t + 1)

    def _remake(self, copy: int, error: Exception) -> None:
        logger.error("env copy %d failed and is made anew: %s: %s", copy, type(error).__name__, error, exc_info=error)
        try:
            self.envs[copy].close()
        except Exception as closing:
            logger.warning("closing the failed env copy %d raised %r", copy, closing)
        self.envs[copy] = self._make_env()
        # Unseeded, all remade copies of a MAgent2 environment would play alike.
        self._seeds[copy] = int(self._more_seeds[copy].integers(LOWEST_SEED, HIGHEST_SEED, endpoint=True))
        self._events.restarted(copy)

    def _failure(self, copy: int, what: str, error: Exception) -> EnvFailure:
        env, episode = self.envs[copy], self._episodes[copy]
        return EnvFailure(
            f"{env.name} (copy {copy}) raised {type(error).__name__} in {what}() after {episode.length} steps of its "
            f"episode: {error}"
        )


def _detached(fragment: TeamFragment) -> TeamFragment:
    """The fragment with a copy of its flags, because the failed step's row is about to be marked dead."""
    for part in fragment.modules.values():
        part.alive_after = part.alive_after.copy()
    return fragment
