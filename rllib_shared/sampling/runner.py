"""`TeamEnvRunner`: the collector behind RLlib's EnvRunner interface.

It stands in for `MultiAgentEnvRunner` in training and evaluation, local and remote. RLlib's connectors are not used:
what they do per agent object is done here per array.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any

import gymnasium as gym
import ray
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils import force_list
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.framework import get_device
from ray.rllib.utils.metrics import (
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    SAMPLE_TIMER,
    TIME_BETWEEN_SAMPLING,
    WEIGHTS_SEQ_NO,
)

from rllib_shared.envs.team_env import TeamEnv
from rllib_shared.sampling.acting import DETERMINISTIC, EXPLORE, RANDOM, ActionScaling, make_actors
from rllib_shared.sampling.collector import Collector, EpisodeEvents
from rllib_shared.sampling.episode import TeamEpisode
from rllib_shared.sampling.fragment import TeamFragment
from rllib_shared.sampling.metrics import RunnerMetrics
from rllib_shared.sampling.seeds import allow_unfilled_memory, env_seeds

logger = logging.getLogger("rllib_shared")


CONSTRUCTION_FAILURE = "__failure__"


class TeamEnvRunner(EnvRunner, Checkpointable):
    """Samples `TeamFragment`s from copies of one environment.

    Args:
        config: a `TeamPPOConfig`, or a reference to one (RLlib sends remote runners a reference).
        **kwargs: RLlib's: `worker_index`, `num_workers`, `spaces`, `tune_trial_id`, ...
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        # Remote runners get an ObjectRef that Ray has not resolved, because it is nested in keyword arguments.
        if isinstance(config, ray.ObjectRef):
            config = ray.get(config)
        super().__init__(config=config, **kwargs)
        self.spaces = kwargs.get("spaces") or {}
        self.module: MultiRLModule | None = None
        self.failure: str | None = None
        self.collector: Collector | None = None
        self._weights_seq_no = 0
        self._time_after_sampling: float | None = None
        self._env_runner_state_server: Any = None
        self._callbacks: list[RLlibCallback] = [cls() for cls in force_list(self.config.callbacks_class)]
        self._device = get_device(self.config, 0 if not self.worker_index else self.config.num_gpus_per_env_runner)
        self._first_env: TeamEnv | None = None
        if CONSTRUCTION_FAILURE in self.spaces:
            raise RuntimeError(
                f"env runner 1 could not be made. Its own traceback:\n{self.spaces[CONSTRUCTION_FAILURE]}"
            )
        try:
            if not self.worker_index and not self.config.create_env_on_local_worker and self.config.num_env_runners > 0:
                self.make_module()
            else:
                self.make_env()
        except Exception:
            if not self.worker_index:
                raise
            # An actor that dies in its constructor is an IndexError on the driver; this one lives to tell.
            self.failure = traceback.format_exc()

    # What RLlib calls while it runs.

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
        **kwargs: Any,
    ) -> list[TeamFragment]:
        """Take env steps in all copies.

        Args:
            num_timesteps: env steps in all, rounded up to a multiple of the copies; None takes the config's
                `rollout_fragment_length` per copy.
            num_episodes: play exactly so many new episodes instead.
            explore: sample actions from the policies (True) or take their mode (False); None takes the config's.
            random_actions: ignore the policies.
            force_reset: start new episodes first.
            **kwargs: ignored, for later versions of RLlib.

        Returns:
            Fragments, none longer than an episode.
        """
        if self.collector is None:
            raise ValueError(f"{type(self).__name__} {self.worker_index} has no environment to sample from")
        if num_timesteps is not None and num_episodes is not None:
            raise ValueError(f"give num_timesteps or num_episodes, not both: {num_timesteps=}, {num_episodes=}")
        self._pull_state()
        if self._time_after_sampling is not None:
            self.metrics.log_value(TIME_BETWEEN_SAMPLING, time.perf_counter() - self._time_after_sampling)
        self.metrics.log_value(WEIGHTS_SEQ_NO, self._weights_seq_no, window=1)
        copies = self.config.num_envs_per_env_runner
        length = self.config.get_rollout_fragment_length(self.worker_index or 0)
        mode = RANDOM if random_actions else EXPLORE if (self.config.explore if explore is None else explore) else ""
        with self.metrics.log_time(SAMPLE_TIMER):
            if num_episodes is not None:
                fragments = self.collector.collect_episodes(num_episodes, mode or DETERMINISTIC, length)
            else:
                steps = length if num_timesteps is None else -(-num_timesteps // copies)
                fragments = self.collector.collect(steps, mode or DETERMINISTIC, force_reset)
        self._count(fragments)
        self._callback("on_sample_end", samples=fragments, metrics_logger=self.metrics)
        self._time_after_sampling = time.perf_counter()
        return fragments

    def get_metrics(self) -> Any:
        """Means over the last episodes and counts since the last call, as RLlib's Stats."""
        if self._reported is not None:
            self._reported.log_means(forget=self.config.in_evaluation)
        return self.metrics.reduce()

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `func(self, ...)` for the driver, and remember its error.

        RLlib's own `apply` exits the actor on any error, so the driver sees a dead actor and never the user's
        traceback. Here the actor lives on, and `TeamPPO.restore_env_runners` asks it what happened and raises that.
        """
        try:
            return func(self, *args, **kwargs)
        except Exception:
            self.failure = self.failure or traceback.format_exc()
            raise

    def get_spaces(self) -> dict[str, tuple[gym.Space, gym.Space]]:
        """Observation and action space of each module; under RLlib's special keys, of all of them as a Dict."""
        if self._first_env is None:
            return {CONSTRUCTION_FAILURE: self.failure} if self.failure else self.spaces  # type: ignore[dict-item]
        spaces = self._first_env.module_spaces()
        together = (
            gym.spaces.Dict({mid: observation for mid, (observation, _) in spaces.items()}),
            gym.spaces.Dict({mid: action for mid, (_, action) in spaces.items()}),
        )
        return {INPUT_ENV_SPACES: together, INPUT_ENV_SINGLE_SPACES: together, **spaces}

    # State.

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Weights of the modules and the step counter."""
        state: dict[str, Any] = {NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled_lifetime}
        if self.module is not None and self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(
                components=self._get_subcomponents(COMPONENT_RL_MODULE, components),
                not_components=self._get_subcomponents(COMPONENT_RL_MODULE, not_components),
                **kwargs,
            )
            state[WEIGHTS_SEQ_NO] = self._weights_seq_no
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over weights and the step counter."""
        if COMPONENT_RL_MODULE in state and self.module is not None:
            number = state.get(WEIGHTS_SEQ_NO, 0)
            # RLlib's runners skip older weights, so an Algorithm that is rolled back would evaluate the newer ones.
            if number == 0 or number != self._weights_seq_no:
                weights = state[COMPONENT_RL_MODULE]
                self.module.set_state(ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights)
            if number > 0:
                self._weights_seq_no = number
        if NUM_ENV_STEPS_SAMPLED_LIFETIME in state:
            self.num_env_steps_sampled_lifetime = state[NUM_ENV_STEPS_SAMPLED_LIFETIME]

    def get_ctor_args_and_kwargs(self) -> tuple[tuple, dict[str, Any]]:
        """For RLlib's checkpoints."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """The modules."""
        return [(COMPONENT_RL_MODULE, self.module)]

    # Environment and modules.

    @property
    def num_envs(self) -> int:
        """Number of env copies; 0 on a local runner that has none."""
        return len(self.collector.envs) if self.collector is not None else 0

    def assert_healthy(self) -> None:
        """Raise AssertionError unless environment and modules are there, or `get_spaces` says why they are not."""
        assert self.failure or (self.collector is not None and self.module is not None)

    def make_env(self) -> None:
        """Make the env copies (anew) and, with them, the modules that act in them."""
        self._close_envs()
        context = EnvContext(
            self.config.env_config, worker_index=self.worker_index or 0, num_workers=self.config.num_env_runners
        )
        self._first_env = self.config.make_team_env(context)
        first: list[TeamEnv] = [self._first_env]
        if self.module is None:
            self.make_module()
        window = max(1, self.config.metrics_num_episodes_for_smoothing // max(1, self.config.num_env_runners))
        self._reported = RunnerMetrics(self.metrics, self._first_env.teams, window)
        self.collector = Collector(
            make_env=lambda: first.pop() if first else self.config.make_team_env(context),
            copies=self.config.num_envs_per_env_runner,
            actors=lambda env: make_actors(
                self.module,
                env.teams.modules,
                ActionScaling(self.config.normalize_actions, self.config.clip_actions),
            ),
            seeds=env_seeds(
                self.config.seed,
                self.worker_index or 0,
                self.config.num_envs_per_env_runner,
                evaluation=self.config.in_evaluation,
            ),
            events=_RunnerEvents(self, self._reported),
            restart_failed=self.config.restart_failed_sub_environments,
        )
        self.env = self.collector.envs[0]
        self._callback("on_environment_created", metrics_logger=self.metrics, env=self.env, env_context=context)

    def make_module(self) -> None:
        """Build the inference-only modules from the config."""
        allow_unfilled_memory()
        spec = self.config.get_multi_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        module = spec.build()
        module.foreach_module(lambda _module_id, part: part.to(self._device))
        self.module = module

    def stop(self) -> None:
        """Close the env copies."""
        self._close_envs()

    _reported: RunnerMetrics | None = None

    def _close_envs(self) -> None:
        if self.collector is not None:
            self.collector.close()

    def _count(self, fragments: list[TeamFragment]) -> None:
        assert self._first_env is not None and self._reported is not None
        agents = dict.fromkeys(self._first_env.teams.names, 0)
        modules = dict.fromkeys(self._first_env.teams.modules, 0)
        for fragment in fragments:
            for module_id, slots in self._first_env.teams.modules.items():
                per_slot = fragment.modules[module_id].alive.sum(axis=0)
                modules[module_id] += int(per_slot.sum())
                for index, team in enumerate(slots.teams):
                    agents[team] += int(per_slot[slots.team_index == index].sum())
        self._reported.count_steps(sum(len(fragment) for fragment in fragments), agents, modules)

    def _pull_state(self) -> None:
        """Ask RLlib's optional state server for newer weights."""
        if self._env_runner_state_server is None:
            return
        newer = ray.get(self._env_runner_state_server.pull_if_newer.remote(self._weights_seq_no))
        if newer is not None:
            self.set_state(newer)

    def _callback(self, name: str, **kwargs: Any) -> None:
        functions = getattr(self.config, f"callbacks_{name}")
        make_callback(name, self._callbacks, functions, kwargs={"env_runner": self, **kwargs})

    def _overrides(self, name: str) -> bool:
        """Whether any user callback listens to `name`; most do not listen to every step."""
        listening = any(getattr(type(obj), name) is not getattr(RLlibCallback, name) for obj in self._callbacks)
        return listening or bool(getattr(self.config, f"callbacks_{name}"))


class _RunnerEvents(EpisodeEvents):
    """Turns the collector's events into metrics and RLlib callbacks."""

    def __init__(self, runner: TeamEnvRunner, metrics: RunnerMetrics) -> None:
        self._runner = runner
        self._metrics = metrics
        self._on_step = runner._overrides("on_episode_step")

    def started(self, episode: TeamEpisode, copy: int) -> None:
        self._call("on_episode_created", episode, copy)
        self._call("on_episode_start", episode, copy)

    def stepped(self, episode: TeamEpisode, copy: int) -> None:
        if self._on_step:
            self._call("on_episode_step", episode, copy)

    def ended(self, episode: TeamEpisode, copy: int) -> None:
        self._metrics.add_episode(episode)
        self._call("on_episode_end", episode, copy, prev_episode_chunks=[])

    def restarted(self, copy: int) -> None:
        self._metrics.count_restart()

    def _call(self, name: str, episode: TeamEpisode, copy: int, **kwargs: Any) -> None:
        runner = self._runner
        assert runner.collector is not None
        runner._callback(
            name,
            episode=episode,
            metrics_logger=runner.metrics,
            env=runner.collector.envs[copy],
            rl_module=runner.module,
            env_index=copy,
            **kwargs,
        )
