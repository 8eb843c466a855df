"""From a name to an environment.

Names are PettingZoo's (`battle_v4`, `simple_spread_v3`, `multiwalker_v9`, ...), the games of `games.py` and
`masked_teams.py`, a path `"package.module:factory"`, or what `ray.tune.register_env` knows. `make_env` makes the
PettingZoo environment, `make_team_env` the arrays around it.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rllib_shared.envs.attack_mask import MaskEmptyAttacks
from rllib_shared.envs.critic_observation import CriticObservationChoice
from rllib_shared.envs.game import Game
from rllib_shared.envs.gridworld import GridWorldTeamEnv, is_gridworld
from rllib_shared.envs.gridworld_game import GridWorldGame
from rllib_shared.envs.parallel import ParallelTeamEnv
from rllib_shared.envs.team_env import TeamEnv
from rllib_shared.messages import unknown
from rllib_shared.sharing import SharingChoice
from rllib_shared.teams import TeamsChoice

EnvSpecifier = str | Callable[..., Any]

_MAGENT2 = (
    "battle_v4",
    "battlefield_v5",
    "combined_arms_v6",
    "gather_v5",
    "adversarial_pursuit_v4",
    "tiger_deer_v4",
)
_MPE2 = (
    "simple_v3",
    "simple_adversary_v3",
    "simple_crypto_v3",
    "simple_push_v3",
    "simple_reference_v3",
    "simple_speaker_listener_v4",
    "simple_spread_v3",
    "simple_tag_v3",
    "simple_world_comm_v3",
)
_PETTINGZOO = {
    "sisl": ("multiwalker_v9", "pursuit_v5"),
    "butterfly": ("knights_archers_zombies_v11", "pistonball_v6", "cooperative_pong_v6"),
}
_GAMES = {
    "games": ("matrix_game", "two_step_game", "coin_game", "cartpole_team"),
    "masked_teams": ("masked_teams",),
}

# Where each named environment's factory lives: module and attribute.
NAMED = {
    **{name: (f"magent2.environments.{name}", "parallel_env") for name in _MAGENT2},
    **{name: (f"mpe2.{name}", "parallel_env") for name in _MPE2},
    **{
        name: (f"pettingzoo.{family}.{name}", "parallel_env") for family, names in _PETTINGZOO.items() for name in names
    },
    **{name: (f"rllib_shared.envs.{file}", name) for file, names in _GAMES.items() for name in names},
}
# What to install where an environment's own package is missing.
_INSTALL = {
    "magent2.environments": "magent2",
    "mpe2": "mpe2",
    **{f"pettingzoo.{family}": f"'pettingzoo[{family}]'" for family in _PETTINGZOO},
}
# MAgent2's wall buffer holds 10 000 cells; more corrupt the heap (seen with tiger_deer at map_size=480).
_MAX_TIGER_DEER_MAP = 440


def make_env(env: EnvSpecifier, **env_config: Any) -> Any:
    """Make a PettingZoo `ParallelEnv`.

    Args:
        env: a name, `"package.module:factory"`, or the factory itself.
        **env_config: passed to the factory. For `battle_v4` also `agents_per_team` (exact team sizes, which no
            `map_size` gives) and `mask_attacks` (see `attack_mask.py`).

    Raises:
        ValueError: unknown name or unknown `env_config` key; the message has the nearest known ones.
        ImportError: the package of a named environment is not installed.
    """
    factory = resolve_factory(env)
    _check_keys(env, env_config)
    try:
        return _make_magent2(str(env), env_config) if env in _MAGENT2 else factory(**env_config)
    except (TypeError, AssertionError) as error:
        raise ValueError(f"env {env!r} refused env_config {env_config}: {error}") from error


def make_team_env(
    env: EnvSpecifier,
    env_config: Mapping[str, Any] | None = None,
    *,
    teams: TeamsChoice = None,
    sharing: SharingChoice = "team",
    critic_sharing: SharingChoice | None = None,
    critic_observation: CriticObservationChoice = "state",
) -> TeamEnv:
    """Make an environment and its arrays: MAgent2 from the engine, others from PettingZoo's dicts.

    Args:
        env: see `make_env`; a factory may also return a `TeamEnv` of its own.
        env_config: see `make_env`.
        teams: see `Teams.build`.
        sharing: see `Teams.build`.
        critic_sharing: see `Teams.build`.
        critic_observation: see `make_observer`.
    """
    return wrap_parallel_env(
        make_env(env, **(env_config or {})),
        teams=teams,
        sharing=sharing,
        critic_sharing=critic_sharing,
        critic_observation=critic_observation,
    )


def wrap_parallel_env(
    env: Any,
    *,
    teams: TeamsChoice = None,
    sharing: SharingChoice = "team",
    critic_sharing: SharingChoice | None = None,
    critic_observation: CriticObservationChoice = "state",
    arrays: bool = True,
) -> TeamEnv:
    """The arrays around a PettingZoo `ParallelEnv`.

    Args:
        env: the environment; a `TeamEnv` is returned as it is.
        teams: see `Teams.build`.
        sharing: see `Teams.build`.
        critic_sharing: see `Teams.build`.
        critic_observation: see `make_observer`.
        arrays: take MAgent2's arrays straight from its engine; False goes through its dicts, for comparison.

    Raises:
        TypeError: `env` is not a `ParallelEnv`.
    """
    if isinstance(env, TeamEnv):
        return env
    if not all(callable(getattr(env, name, None)) for name in ("reset", "step", "observation_space", "action_space")):
        raise TypeError(f"expected a PettingZoo ParallelEnv or a TeamEnv, got {type(env).__name__}: {env!r}")
    if not hasattr(env, "possible_agents") or hasattr(env, "agent_iter"):
        raise TypeError(
            f"{type(env).__name__} is not a ParallelEnv with possible_agents; "
            "make turn-based environments parallel with pettingzoo.utils.aec_to_parallel first"
        )
    if is_gridworld(env):
        # A wrapper that is not ours may change anything, so only the bare engine is stepped by arrays.
        bare = (env.env if isinstance(env, MaskEmptyAttacks) else env) is env.unwrapped
        if arrays and bare:
            return GridWorldTeamEnv(env, teams, sharing, critic_observation, critic_sharing)
        return ParallelTeamEnv(env, teams, sharing, critic_observation, GridWorldGame(env), critic_sharing)
    # In MPE action 0 is "no action"; elsewhere nothing is known.
    noop = 0 if type(env.unwrapped).__module__.startswith("mpe2.") else None
    return ParallelTeamEnv(env, teams, sharing, critic_observation, Game(env, noop), critic_sharing)


def resolve_factory(env: EnvSpecifier) -> Callable[..., Any]:
    """The function or class behind a specifier; raises ValueError or ImportError as `make_env` does."""
    if callable(env):
        return env
    if not isinstance(env, str):
        raise TypeError(f"env must be a name, 'package.module:factory' or a factory, got {env!r}")
    if env in NAMED:
        module, attribute = NAMED[env]
        try:
            with _omp_threads_kept():
                return getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            packages = _INSTALL.get(module.rpartition(".")[0])
            if packages is None:
                raise
            raise ImportError(f"env {env!r} cannot be imported ({error}); pip install {packages}") from error
    if ":" in env:
        module, _, attribute = env.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"env {env!r}: {error}") from error
    from ray.tune.registry import ENV_CREATOR, _global_registry

    if _global_registry.contains(ENV_CREATOR, env):
        creator = _global_registry.get(ENV_CREATOR, env)
        return lambda **env_config: creator(env_config)
    raise ValueError(f"{unknown('env', env, NAMED)} (or give 'package.module:factory')")


def env_config_keys(env: EnvSpecifier) -> set[str] | None:
    """The `env_config` keys that an environment takes; None if its factory takes any."""
    if env in _MAGENT2:
        return _magent2_keys(str(env))
    parameters = inspect.signature(resolve_factory(env)).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _check_keys(env: EnvSpecifier, env_config: Mapping[str, Any]) -> None:
    keys = env_config_keys(env)
    for key in env_config:
        if keys is not None and key not in keys:
            raise ValueError(f"{unknown('env_config key', key, sorted(keys))} (env {env!r})")


def _magent2_keys(name: str) -> set[str]:
    factory = resolve_factory(name)
    module = inspect.getmodule(factory)
    rewards = getattr(module, "default_reward_args", None) or getattr(module, "default_env_args", {})
    keys = {p.name for p in inspect.signature(factory).parameters.values() if p.kind is not p.VAR_KEYWORD}
    extra = {"mask_attacks"} | ({"agents_per_team"} if name == "battle_v4" else set())
    return keys | set(rewards) | extra


def _make_magent2(name: str, env_config: dict[str, Any]) -> Any:
    factory = resolve_factory(name)
    kwargs = dict(env_config)
    mask_attacks = kwargs.pop("mask_attacks", False)
    agents_per_team = kwargs.pop("agents_per_team", None)
    if name == "tiger_deer_v4" and kwargs.get("map_size", 0) > _MAX_TIGER_DEER_MAP:
        raise ValueError(
            f"tiger_deer_v4 corrupts memory above map_size={_MAX_TIGER_DEER_MAP}, got {kwargs['map_size']}"
        )
    if agents_per_team is not None:
        from rllib_shared.envs.sized_battle import sized_battle

        env = sized_battle(agents_per_team, **kwargs)
    else:
        env = factory(**kwargs)
    if mask_attacks:
        env = MaskEmptyAttacks(env)
    return env


@contextmanager
def _omp_threads_kept() -> Iterator[None]:
    """Undo what `import magent2` does to OMP_NUM_THREADS, which would halve the threads of a torch imported later."""
    before = os.environ.get("OMP_NUM_THREADS")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = before
