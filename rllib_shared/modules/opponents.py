"""Opponents that need no training: uniform over the allowed actions, doing nothing, and a greedy fighter.

`Player` is what a match asks of anyone who plays in it; trained policies (`evaluation/policies.py`) are players too.
Arrays have the layout `[E, N, ...]`: E env copies, N slots of a module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rllib_shared.envs.attack_mask import TWO_GROUP_ENVS, AttackMask
from rllib_shared.envs.gridworld import is_gridworld
from rllib_shared.envs.gridworld_game import GridWorldGame
from rllib_shared.envs.team_env import NO_ACTION, TeamEnv
from rllib_shared.messages import unknown
from rllib_shared.sampling.acting import RANDOM, ActionScaling, ModuleActor, make_actors
from rllib_shared.teams import Teams


class ModuleView(NamedTuple):
    """What the agents of one module see in E env copies.

    Shapes: observation float32 `[E, N, ...]`, acting bool `[E, N]` (who needs an action), action_mask bool `[E, N, A]`
    or None.
    """

    observation: np.ndarray
    acting: np.ndarray
    action_mask: np.ndarray | None


class Player(Protocol):
    """Chooses actions for the agents of one environment.

    Attributes:
        teams: the modules in whose arrays it sees and acts.
    """

    teams: Teams

    def act(
        self,
        views: Mapping[str, ModuleView],
        *,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> dict[str, np.ndarray]:
        """Actions int64 `[E, N]` or float32 `[E, N, ...]` of each module; `NO_ACTION` or NaN where nobody acts."""


def act_in(
    actors: Mapping[str, ModuleActor], views: Mapping[str, ModuleView], mode: str, generator: torch.Generator | None
) -> dict[str, np.ndarray]:
    """What `Player.act` returns, chosen by the acting code of the runner.

    Args:
        actors: act for each module.
        views: what its agents see.
        mode: see `ModuleActor.act`.
        generator: random numbers; None uses torch's global ones.
    """
    actions = {}
    for module_id, actor in actors.items():
        view = views[module_id]
        out = actor.make_arrays(len(view.acting))
        actor.act(view.observation, view.acting, view.action_mask, mode, out, generator)
        actions[module_id] = out.env_action
    return actions


class RandomOpponent:
    """Uniform over the allowed actions, or over a bounded Box."""

    def __init__(self, env: TeamEnv) -> None:
        self.teams = env.teams
        self._actors = make_actors(None, env.teams.modules, ActionScaling())

    def act(
        self,
        views: Mapping[str, ModuleView],
        *,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> dict[str, np.ndarray]:
        """See `Player.act`; random also when asked to be deterministic."""
        return act_in(self._actors, views, RANDOM, generator)


class NoopOpponent:
    """Takes the action that does nothing; the first allowed one where a mask forbids it.

    Raises:
        ValueError: the environment knows no such action.
    """

    def __init__(self, env: TeamEnv) -> None:
        self.teams = env.teams
        self._noop = dict(env.noop_action)
        missing = sorted(set(env.teams.modules) - set(self._noop))
        if missing:
            raise ValueError(
                f"{env.name} has no action that is known to do nothing, for the modules {missing}; "
                "take another opponent, e.g. random"
            )

    def act(
        self,
        views: Mapping[str, ModuleView],
        *,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> dict[str, np.ndarray]:
        """See `Player.act`."""
        actions = {}
        for module_id, view in views.items():
            noop = self._noop[module_id]
            chosen: np.ndarray | int = noop
            if view.action_mask is not None:
                chosen = np.where(view.action_mask[..., noop], noop, view.action_mask.argmax(-1))
            actions[module_id] = np.where(view.acting, chosen, NO_ACTION).astype(np.int64)
        return actions


class GreedyOpponent:
    """Fights in MAgent2's battles: attack an adjacent enemy, else walk to the nearest one seen, else forward.

    Forward is toward the half where the enemy starts. The right team sees the map and acts mirrored; equally good
    actions are chosen among at random. Against itself the right team still wins 9 games in 10 on a map of 25: MAgent2
    moves the left team first, into the reach of those who are still standing. So swap sides, as `play` does.

    Args:
        env: `battle_v4` or `battlefield_v5`.

    Raises:
        ValueError: another environment.
    """

    def __init__(self, env: TeamEnv) -> None:
        raw: Any = getattr(env, "env", None)
        if raw is None or not is_gridworld(raw) or env.name not in TWO_GROUP_ENVS:
            raise ValueError(f"the greedy opponent plays {' and '.join(TWO_GROUP_ENVS)} only, not {env.name}")
        self.teams = env.teams
        self._attack_mask = AttackMask(raw.unwrapped)
        game = GridWorldGame(raw)
        # The second group starts on the right.
        right = set(game.agents_of(game.groups[1]))
        self._mirrored = {
            module_id: np.array([agent in right for agent in slots.agents])
            for module_id, slots in env.teams.modules.items()
        }
        self._moves = _disc(2.0)
        neighbours = _disc(1.5)
        neighbours = neighbours[(neighbours != 0).any(axis=1)]
        assert self._attack_mask.num_moves == len(self._moves)
        assert self._attack_mask.num_actions == len(self._moves) + len(neighbours)
        self._mirror = np.concatenate([_mirror(self._moves), len(self._moves) + _mirror(neighbours)])

    def act(
        self,
        views: Mapping[str, ModuleView],
        *,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> dict[str, np.ndarray]:
        """See `Player.act`."""
        actions = {}
        for module_id, view in views.items():
            out = np.full(view.acting.shape, NO_ACTION, np.int64)
            mirrored = np.broadcast_to(self._mirrored[module_id], view.acting.shape)[view.acting]
            out[view.acting] = self._choose(view.observation[view.acting], mirrored, generator)
            actions[module_id] = out
        return actions

    def _choose(self, observation: np.ndarray, mirrored: np.ndarray, generator: torch.Generator | None) -> np.ndarray:
        """Actions int64 `[R]` for observations `[R, H, W, C]`, which it may overwrite.

        Bool `[R]` says which rows play from the right; they are decided in the left team's view and turned back.
        """
        observation[mirrored] = observation[mirrored][:, :, ::-1]
        centre = observation.shape[1] // 2
        enemy = observation[..., self._attack_mask.enemy_channel] > 0
        taken = (observation[..., :2] > 0).any(axis=-1) | enemy  # channels 0 and 1: walls, own team

        distance = ((np.indices(enemy.shape[1:]) - centre) ** 2).sum(axis=0)
        nearest = _argmin(np.where(enemy, distance, np.inf).reshape(-1, distance.size), generator)
        target = np.stack(np.unravel_index(nearest, distance.shape), axis=1) - centre
        lost = ~enemy.any(axis=(1, 2))
        target[lost] = (0, 2 * centre)

        to_target = ((target[:, None] - self._moves) ** 2).sum(axis=-1)
        # Any step will do at a wall, which forward alone would never get round.
        to_target[lost & (observation[:, centre, centre + 1 : centre + 3, 0] > 0).any(axis=1)] = 0
        cells = self._moves + centre
        blocked = taken[:, cells[:, 0], cells[:, 1]] & (self._moves != 0).any(axis=1)
        move = _argmin(np.where(blocked, np.inf, to_target), generator)

        attacks = self._attack_mask(observation)[:, self._attack_mask.num_moves :]
        attack = self._attack_mask.num_moves + _argmin(np.where(attacks, 0.0, np.inf), generator)
        action = np.where(attacks.any(axis=1), attack, move)
        return np.where(mirrored, self._mirror[action], action)


SCRIPTED: dict[str, Callable[[TeamEnv], Player]] = {
    "random": RandomOpponent,
    "noop": NoopOpponent,
    "greedy": GreedyOpponent,
}


def make_opponent(name: str, env: TeamEnv) -> Player:
    """The scripted opponent of that name, for `env`.

    Raises:
        ValueError: unknown name, or an opponent that cannot play this environment.
    """
    if name not in SCRIPTED:
        raise ValueError(unknown("opponent", name, SCRIPTED))
    return SCRIPTED[name](env)


def _argmin(cost: np.ndarray, generator: torch.Generator | None) -> np.ndarray:
    """Column of the least whole-numbered cost in each row, int64 `[R]`; at random among several."""
    return (cost + torch.rand(cost.shape, generator=generator).numpy() * 0.5).argmin(axis=1)


def _disc(radius: float) -> np.ndarray:
    """Cells (dy, dx) of a disc, row by row, int64 `[cells, 2]`: the order of MAgent2's moves and attacks."""
    reach = range(-int(radius), int(radius) + 1)
    return np.array([(dy, dx) for dy in reach for dx in reach if dy * dy + dx * dx <= radius * radius])


def _mirror(cells: np.ndarray) -> np.ndarray:
    """Index of each cell's mirror image, left and right swapped."""
    index = {(dy, dx): i for i, (dy, dx) in enumerate(cells.tolist())}
    return np.array([index[dy, -dx] for dy, dx in cells.tolist()])
