"""From a checkpoint to policies that act on arrays, in any process, without starting Ray.

`TeamPolicies` is a `Player`: it acts through the same code as the runner (`sampling/acting.py`). Who plays against whom
is in `match.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import ray.cloudpickle
import torch
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.util import log_once

from rllib_shared.envs.registry import EnvSpecifier, make_team_env
from rllib_shared.envs.team_env import TeamEnv, TeamStep
from rllib_shared.evaluation.checkpoints import checkpoint_path
from rllib_shared.messages import preview, unknown
from rllib_shared.modules.opponents import ModuleView, act_in
from rllib_shared.sampling.acting import DETERMINISTIC, EXPLORE, ActionScaling, make_actors
from rllib_shared.sharing import SharingChoice
from rllib_shared.teams import ModuleSlots, Teams, TeamsChoice

_CLASS_AND_ARGUMENTS = "class_and_ctor_args.pkl"


@dataclass(frozen=True)
class Training:
    """How the policies were trained: what a checkpoint's config says that matters for acting.

    Attributes:
        env: what `make_team_env` takes.
        env_config: its options.
        team_choice: see `Teams.build`.
        sharing: see `Teams.build`.
        critic_sharing: see `Teams.build`.
        scaling: from actions to the environment's.
        teams: who was in which module and slot.
    """

    env: EnvSpecifier
    env_config: Mapping[str, Any]
    team_choice: TeamsChoice
    sharing: SharingChoice
    critic_sharing: SharingChoice | None
    scaling: ActionScaling
    teams: Teams


class TeamPolicies:
    """Trained policies of all teams, without critics. Made by `load_policies`.

    Args:
        modules: the RLModules by module id, inference-only.
        training: how they were trained.
        path: the checkpoint, for messages.
        teams: the slots to act for; None takes those of the training.

    Attributes:
        teams: the modules in whose arrays these policies see and act.
    """

    def __init__(
        self, modules: Mapping[str, TorchRLModule], training: Training, path: Path, teams: Teams | None = None
    ) -> None:
        self.modules = dict(modules)
        self.training = training
        self.path = path
        self.teams = teams or training.teams
        slots = {module_id: self.teams.modules[module_id] for module_id in self.modules}
        trained = {
            module_id: _trained_slots(training.teams.modules[module_id], slots[module_id]) for module_id in slots
        }
        self._actors = make_actors(self.modules, slots, training.scaling, trained)

    def act(
        self,
        views: TeamStep | Mapping[str, ModuleView],
        *,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> dict[str, np.ndarray]:
        """Choose actions for everyone who is alive.

        Args:
            views: one step of one environment, or what the agents of each module see in E env copies, `[E, N, ...]`.
            deterministic: take the most probable action instead of sampling.
            generator: random numbers; None uses torch's global ones.

        Returns:
            What the environment's `step` takes: per loaded module int64 `[N]` or float32 `[N, ...]`, with `NO_ACTION`
            or NaN for the dead; with a leading E for E copies.

        Raises:
            ValueError: `views` lacks a module, or a network gave NaN.
        """
        if isinstance(views, TeamStep):
            one = self.act(_views_of(views), deterministic=deterministic, generator=generator)
            return {module_id: actions[0] for module_id, actions in one.items()}
        missing = [module_id for module_id in self.modules if module_id not in views]
        if missing:
            raise ValueError(f"the policies act for the modules {preview(self.modules)}, but got {preview(views)}")
        return act_in(self._actors, views, DETERMINISTIC if deterministic else EXPLORE, generator)

    def make_team_env(self, **env_config: Any) -> TeamEnv:
        """The environment that the policies were trained in; its critic observation is `"own"`, as no critic is here.

        Args:
            **env_config: instead of the training's own, e.g. `map_size=25` or `render_mode="rgb_array"`.

        Raises:
            ValueError: unknown environment or key, or an environment that the policies do not fit.
        """
        training = self.training
        env = make_team_env(
            training.env,
            {**training.env_config, **env_config},
            teams=training.team_choice,
            sharing=training.sharing,
            critic_sharing=training.critic_sharing,
            critic_observation="own",
        )
        try:
            self.in_env(env)
        except ValueError:
            env.close()
            raise
        return env

    def in_env(self, env: TeamEnv) -> TeamPolicies:
        """The same policies, acting for the agents of `env`.

        A shared policy does not care how many agents share it, so teams may be larger or smaller than in training;
        weights per agent or group and agent ids belong to the agents of the training. `env` may have been made with
        another `sharing`.

        Raises:
            ValueError: other teams or spaces, or agents for whom there are no weights; the message names module,
                expected and found.
        """
        owner = {agent: slots for slots in env.teams.modules.values() for agent in slots.agents}
        try:
            teams = Teams.build(
                {agent: slots.observation_space for agent, slots in owner.items()},
                {agent: slots.action_space for agent, slots in owner.items()},
                self.training.team_choice,
                self.training.sharing,
                self.training.critic_sharing,
            )
        except ValueError as error:
            raise ValueError(f"the policies of {self.path} do not fit {env.name}: {error}") from error
        if set(teams.names) != set(self.training.teams.names):
            raise ValueError(
                f"the policies of {self.path} do not fit {env.name}: they were trained for the teams "
                f"{preview(self.training.teams.names)}, but there are {preview(teams.names)}"
            )
        for module_id in self.modules:
            trained, found = self.training.teams.modules[module_id], teams.modules[module_id]
            _check_spaces(trained, found, f"{self.path}", env.name)
            strangers = [agent for agent in found.agents if agent not in trained.agents]
            if strangers and getattr(self.modules[module_id], "needs_slot", False):
                raise ValueError(
                    f"module {module_id!r} of {self.path} tells its agents apart and "
                    f"was trained with {preview(trained.agents)}; {env.name} also has {preview(strangers)}"
                )
        return TeamPolicies(self.modules, self.training, self.path, teams)


def load_policies(path: str | Path, *, module_ids: Collection[str] | None = None) -> TeamPolicies:
    """The policies of a checkpoint. Neither starts Ray nor makes the environment.

    Checkpoints are pickles, and unpickling runs code: load only those that you trust.

    Args:
        path: a checkpoint, trial or run folder; see `checkpoint_path`.
        module_ids: load only these RLModules; None loads all.

    Raises:
        FileNotFoundError: no checkpoint there.
        ValueError: a checkpoint of another algorithm, a broken one, weights that do not fit, or an unknown module id.
    """
    checkpoint = checkpoint_path(path)
    training = _training(checkpoint)
    wanted = list(training.teams.modules) if module_ids is None else list(module_ids)
    for module_id in wanted:
        if module_id not in training.teams.modules:
            raise ValueError(unknown("module", module_id, training.teams.modules))
    return TeamPolicies({module_id: _module(checkpoint, module_id) for module_id in wanted}, training, checkpoint)


def _training(checkpoint: Path) -> Training:
    """Read the Algorithm's config."""
    saved = _unpickle(checkpoint / _CLASS_AND_ARGUMENTS)
    arguments = saved["ctor_args_and_kwargs"][0]
    config = arguments[0] if arguments else {}
    if not isinstance(config, Mapping) or config.get("team_layout") is None:
        raise ValueError(
            f"{checkpoint} was saved by {saved['class'].__name__}, which is not an algorithm for teams; "
            "give a checkpoint of TeamPPO, or restore this one with Algorithm.from_checkpoint"
        )
    return training_of(config)


def training_of(config: Mapping[str, Any]) -> Training:
    """What the values of an algorithm's config say that matters for acting."""
    return Training(
        env=config["env"],
        env_config=config["env_config"],
        team_choice=config["team_choice"],
        sharing=config["sharing"],
        critic_sharing=config["critic_sharing"],
        scaling=ActionScaling(config["normalize_actions"], config["clip_actions"]),
        teams=config["team_layout"],
    )


def _module(checkpoint: Path, module_id: str) -> TorchRLModule:
    """One RLModule without its critic, with the learner's weights."""
    folder = checkpoint / COMPONENT_LEARNER_GROUP / COMPONENT_LEARNER / COMPONENT_RL_MODULE / module_id
    saved = _unpickle(folder / _CLASS_AND_ARGUMENTS)
    arguments, options = saved["ctor_args_and_kwargs"]
    # RLlib warns that its RLModule uses its own deprecated config class, which concerns nobody here.
    log_once("RLModule(config=[RLModuleConfig object])")
    try:
        # RLModule.from_checkpoint() ignores inference_only, so the module is made here.
        module = saved["class"](*arguments, **{**options, "inference_only": True})
        module.restore_from_path(str(folder))
    except Exception as error:
        reason = " ".join(str(error).split())  # torch's has several lines
        raise ValueError(f"module {module_id!r} of {checkpoint} cannot be restored: {reason}") from error
    return module


def _unpickle(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ValueError(f"the checkpoint is incomplete: {file} is missing")
    try:
        with file.open("rb") as stream:
            return ray.cloudpickle.load(stream)
    except Exception as error:
        raise ValueError(
            f"{file} cannot be read ({type(error).__name__}: {error}); it is damaged, was saved by another version, or "
            "needs code that cannot be imported here"
        ) from error


def _views_of(step: TeamStep) -> dict[str, ModuleView]:
    """One step as arrays of one env copy."""
    return {
        module_id: ModuleView(
            part.observation[None], part.alive[None], None if part.action_mask is None else part.action_mask[None]
        )
        for module_id, part in step.modules.items()
    }


def _trained_slots(trained: ModuleSlots, found: ModuleSlots) -> np.ndarray:
    """The slot of each agent in training, int64 `[N]`; 0 for others, whom only policies that need no slot may meet."""
    number = {agent: slot for slot, agent in enumerate(trained.agents)}
    return np.array([number.get(agent, 0) for agent in found.agents], np.int64)


def _check_spaces(trained: ModuleSlots, found: ModuleSlots, path: str, env_name: str) -> None:
    """Raise ValueError unless a policy can read the observations and its actions mean the same."""
    pairs = {
        "observation": (trained.observation_space, found.observation_space, _same_arrays),
        "action": (trained.action_space, found.action_space, lambda a, b: a == b),
    }
    for kind, (expected, got, same) in pairs.items():
        if not same(expected, got):
            raise ValueError(
                f"module {trained.module_id!r} of {path} does not fit {env_name}: it was trained with the {kind} space "
                f"{expected}, but the environment has {got}"
            )


def _same_arrays(a: gym.Space, b: gym.Space) -> bool:
    """Shape and dtype are equal; bounds mean nothing to a network."""
    return a.shape == b.shape and a.dtype == b.dtype
