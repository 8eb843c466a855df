"""A collector without Ray, over random modules, that notes which episodes it ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rllib_shared.envs.registry import make_team_env
from rllib_shared.envs.team_env import TeamEnv
from rllib_shared.modules.centralized_critic import CentralizedCriticModule
from rllib_shared.sampling.acting import ActionScaling, make_actors
from rllib_shared.sampling.collector import Collector, EpisodeEvents
from rllib_shared.sampling.episode import TeamEpisode
from rllib_shared.sampling.fragment import TeamFragment


class Notes(EpisodeEvents):
    """What the collector told."""

    def __init__(self) -> None:
        self.running: list[TeamEpisode] = []
        self.ended_episodes: list[TeamEpisode] = []
        self.steps = 0
        self.restarts: list[int] = []

    def started(self, episode: TeamEpisode, copy: int) -> None:
        assert len(episode) == 0
        self.running.append(episode)

    def stepped(self, episode: TeamEpisode, copy: int) -> None:
        self.steps += 1

    def ended(self, episode: TeamEpisode, copy: int) -> None:
        assert episode.is_done
        self.ended_episodes.append(episode)

    def restarted(self, copy: int) -> None:
        self.restarts.append(copy)


def make_collector(
    env: Any = "masked_teams",
    copies: int = 1,
    *,
    make: Callable[[], TeamEnv] | None = None,
    scaling: ActionScaling | None = None,
    seeds: list[int] | None = None,
    restart_failed: bool = False,
    **env_config: Any,
) -> tuple[Collector, Notes]:
    """A collector and its notes; torch's random numbers start anew, so that two are alike."""
    torch.manual_seed(0)
    make = make or (lambda: make_team_env(env, env_config))
    notes = Notes()

    def actors(team_env: TeamEnv) -> Any:
        modules = {
            module_id: CentralizedCriticModule(
                observation_space=observation,
                action_space=action,
                model_config={"hidden": [8], "encoder": "mlp"},
                inference_only=True,
            )
            for module_id, (observation, action) in team_env.module_spaces().items()
        }
        return make_actors(modules, team_env.teams.modules, scaling or ActionScaling())

    collector = Collector(make, copies, actors, seeds or [2 + i for i in range(copies)], notes, restart_failed)
    return collector, notes


def rewards(fragments: list[TeamFragment]) -> float:
    """Sum over all rows of the living."""
    return sum(float(part.reward[part.alive].sum()) for fragment in fragments for part in fragment.modules.values())


def returns(notes: Notes) -> float:
    """Sum of the environments' own rewards, of all episodes that began."""
    return sum(episode.get_return() for episode in notes.running)


def contents(fragment: TeamFragment) -> list[np.ndarray]:
    """All arrays of a fragment."""
    arrays = [array for part in fragment.modules.values() for array in vars(part).values() if array is not None]
    return [*arrays, *fragment.critic_observation.values(), *fragment.last_critic_observation.values()]
