"""Play and count: policies against an opponent, or all teams by themselves.

A winner is whom the environment's `Outcome` names (the team with more survivors), never read off termination flags:
MAgent2 terminates the winners too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rllib_shared.envs.team_env import TeamEnv, TeamStep
from rllib_shared.evaluation.lockstep import Lockstep, Seat
from rllib_shared.evaluation.policies import TeamPolicies, load_policies
from rllib_shared.evaluation.result import Game, MatchResult
from rllib_shared.evaluation.video import VideoFile
from rllib_shared.messages import preview
from rllib_shared.modules.opponents import SCRIPTED, Player
from rllib_shared.sampling.episode import TeamEpisode
from rllib_shared.sampling.seeds import env_seeds

PlayerChoice = TeamPolicies | str | Path | Callable[[TeamEnv], Player]
EnvChoice = TeamEnv | Callable[[], TeamEnv] | Mapping[str, Any] | None


def play(
    policies: PlayerChoice,
    env: EnvChoice = None,
    *,
    opponent: PlayerChoice | None = None,
    episodes: int = 100,
    deterministic: bool = False,
    seed: int = 0,
    num_envs: int = 8,
    alternate_sides: bool = True,
    progress: Callable[[int], None] | None = None,
    video: str | Path | None = None,
) -> MatchResult:
    """Play episodes and count.

    Every episode is reset with a seed of its own. MAgent2's battles start alike whatever the seed, which only orders
    simultaneous moves: with deterministic players most of their games are the same game.

    Args:
        policies: the evaluated side: policies, the path of a checkpoint, a scripted player (`"random"`, `"noop"`,
            `"greedy"`), or a function `env -> Player`.
        env: None makes the one that the policies were trained in, a dict the same with some of its `env_config`
            changed; a function is called for each copy; a `TeamEnv` is used as the only copy and left open.
        opponent: plays the other team of a two-team environment; choices as for `policies`. None lets `policies` play
            all teams.
        episodes: how many, exactly.
        deterministic: policies on both sides take their most probable actions instead of sampling.
        seed: of the episodes and of all sampled actions.
        num_envs: env copies that are stepped together; more is faster, and the sampled actions differ.
        alternate_sides: the evaluated side plays the first team in every other game, the second team in the rest;
            False always gives it the first.
        progress: called with the number of finished episodes.
        video: file (`.mp4`) to which one more game is recorded first, in an environment of its own.

    Raises:
        ValueError: numbers below 1, an opponent for an environment without exactly two teams, a player that cannot
            play in the environment, or a video of an environment that draws nothing.
        FileNotFoundError: no checkpoint at a path.
    """
    if episodes < 1 or num_envs < 1:
        raise ValueError(f"episodes and num_envs must be at least 1, got episodes={episodes}, num_envs={num_envs}")
    home = resolved(policies)
    away = None if opponent is None else resolved(opponent)
    make_env = _env_maker(home, env)
    if video is not None:
        with make_env(True) as stage, VideoFile(video) as film:
            list(_Match([stage], home, away, deterministic, seed, watch=film.add).games(1, alternate_sides=False))
    copies = 1 if isinstance(env, TeamEnv) else min(num_envs, episodes)
    games = []
    with ExitStack() as opened:
        envs = [opened.enter_context(make_env(False)) for _ in range(copies)]
        for game in _Match(envs, home, away, deterministic, seed).games(episodes, alternate_sides):
            games.append(game)
            if progress is not None:
                progress(len(games))
    games.sort(key=lambda game: game.number)
    return MatchResult(tuple(games), envs[0].teams.names, has_opponent=opponent is not None)


class _Match:
    """Two sides in E env copies.

    Args:
        envs: the copies.
        home: the evaluated side.
        away: the opponent; None lets `home` play all teams.
        deterministic: see `play`.
        seed: see `play`.
        watch: called with the environment after each reset and step of a game.
    """

    def __init__(
        self,
        envs: Sequence[TeamEnv],
        home: TeamPolicies | Callable[[TeamEnv], Player],
        away: TeamPolicies | Callable[[TeamEnv], Player] | None,
        deterministic: bool,
        seed: int,
        watch: Callable[[TeamEnv], None] | None = None,
    ) -> None:
        first = envs[0]
        self._teams = first.teams
        if away is not None and len(self._teams.names) != 2:
            raise ValueError(
                f"an opponent needs an environment with two teams, but {first.name} has {len(self._teams.names)}: "
                f"{preview(self._teams.names)}; play without an opponent"
            )
        self._seats = [Seat(seated(side, first), self._teams) for side in (home, away) if side is not None]
        self._table = Lockstep(envs)
        self._deterministic = deterministic
        self._seed = seed
        self._generator = torch.Generator().manual_seed(seed)
        self._watch = watch or (lambda env: None)
        # bool [side, copy, team]: who plays which team in a copy's present game.
        self._plays = np.zeros((len(self._seats), len(envs), len(self._teams.names)), bool)

    def games(self, episodes: int, alternate_sides: bool) -> Iterator[Game]:
        """Play exactly `episodes` games, shared out over the copies beforehand, so that short ones are not favoured."""
        copies = len(self._table.envs)
        seeds = env_seeds(self._seed, 0, episodes, evaluation=True)
        waiting = [list(range(copy, episodes, copies)) for copy in range(copies)]
        episode = [TeamEpisode(self._teams) for _ in range(copies)]

        def start(copy: int) -> None:
            number = waiting[copy][0]
            self._take_sides(copy, swapped=alternate_sides and number % 2 == 1)
            episode[copy] = TeamEpisode(self._teams)
            self._table.reset(copy, seeds[number])
            self._watch(self._table.envs[copy])

        for copy in range(copies):
            start(copy)
        while any(waiting):
            actions = self._act()
            for copy in [copy for copy in range(copies) if waiting[copy]]:
                step = self._table.step(copy, actions)
                episode[copy].add(step.modules)
                self._watch(self._table.envs[copy])
                if step.over:
                    yield self._finished(waiting[copy].pop(0), copy, episode[copy], step)
                    if waiting[copy]:
                        start(copy)

    def _take_sides(self, copy: int, swapped: bool) -> None:
        self._plays[:, copy] = True
        if len(self._seats) == 2:
            self._plays[0, copy] = (not swapped, swapped)
            self._plays[1, copy] = (swapped, not swapped)

    def _act(self) -> dict[str, np.ndarray]:
        """Actions of both sides, `[E, N, ...]` per module."""
        actions: dict[str, np.ndarray] = {}
        for seat, plays in zip(self._seats, self._plays, strict=True):
            views = self._table.views(plays)
            for module_id, chosen in seat.act(views, self._deterministic, self._generator).items():
                acting = views[module_id].acting
                if module_id in actions:
                    actions[module_id][acting] = chosen[acting]
                else:
                    actions[module_id] = chosen
        return actions

    def _finished(self, number: int, copy: int, episode: TeamEpisode, step: TeamStep) -> Game:
        if step.outcome is None:
            raise ValueError(
                f"{self._table.envs[copy].name} ended an episode without an outcome; its last TeamStep must have one"
            )
        return Game(
            number=number,
            played=tuple(team for team, mine in zip(self._teams.names, self._plays[0, copy], strict=True) if mine),
            winner=step.outcome.winner,
            length=len(episode),
            return_per_agent=episode.return_per_agent(),
            team_return=episode.team_return(),
            survivors=dict(step.outcome.survivors),
        )


def resolved(choice: PlayerChoice) -> TeamPolicies | Callable[[TeamEnv], Player]:
    """Load what is named by a path, find what is named by a word.

    Raises:
        FileNotFoundError: neither a known word nor a path.
    """
    if isinstance(choice, str) and choice in SCRIPTED:
        return SCRIPTED[choice]
    if not isinstance(choice, str | Path):
        return choice
    if not Path(choice).expanduser().exists():
        raise FileNotFoundError(f"{str(choice)!r} is neither one of {preview(SCRIPTED)} nor the path of a checkpoint")
    return load_policies(choice)


def seated(choice: TeamPolicies | Callable[[TeamEnv], Player], env: TeamEnv) -> Player:
    """The player, bound to the environment.

    Raises:
        ValueError: it cannot play there.
    """
    if not isinstance(choice, TeamPolicies):
        return choice(env)
    missing = [module_id for module_id in choice.teams.modules if module_id not in choice.modules]
    if missing:
        raise ValueError(f"{choice.path} was loaded without the modules {preview(missing)}; a match needs all of them")
    return choice.in_env(env)


def _env_maker(
    home: TeamPolicies | Callable[[TeamEnv], Player], env: EnvChoice
) -> Callable[[bool], AbstractContextManager[TeamEnv]]:
    """Makes an env copy, which can draw frames if asked to; a caller's own environment is not closed afterwards."""

    def make(draws: bool) -> AbstractContextManager[TeamEnv]:
        if isinstance(env, TeamEnv):
            return nullcontext(env)
        if callable(env):
            return closing(env())
        if not isinstance(home, TeamPolicies):
            raise ValueError("give an env: only policies from a checkpoint know in which one they play")
        try:
            return closing(home.make_team_env(**{**(env or {}), **({"render_mode": "rgb_array"} if draws else {})}))
        except ValueError as error:
            raise ValueError(f"no video of {home.training.env!r}: {error}" if draws else f"{error}") from error

    return make
