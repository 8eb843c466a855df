"""How the tests choose actions for whole teams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rllib_shared.envs.gridworld import GridWorldTeamEnv
from rllib_shared.envs.team_env import NO_ACTION, TeamEnv, TeamStep

BATTLE_NOOP = 6
EAST, WEST, NORTH, SOUTH = 7, 5, 2, 10
# (dx, dy) of battle's attacks 13 to 20.
NEIGHBOURS = ((-1, -1), (0, -1), (1, -1), (-1, 0), (1, 0), (-1, 1), (0, 1), (1, 1))

Actions = dict[str, np.ndarray]


def everyone(env: TeamEnv, step: TeamStep, action: int) -> Actions:
    """The same action for all that live."""
    return {module_id: np.where(part.alive, action, NO_ACTION) for module_id, part in step.modules.items()}


def at_random(env: TeamEnv, step: TeamStep, rng: np.random.Generator) -> Actions:
    """Any allowed action for all that live."""
    actions = {}
    for module_id, part in step.modules.items():
        count = int(env.teams.modules[module_id].action_space.n)
        chances = rng.random((len(part.alive), count))
        if part.action_mask is not None:
            chances *= part.action_mask
        actions[module_id] = np.where(part.alive, chances.argmax(1), NO_ACTION)
    return actions


def fight(env: TeamEnv, step: TeamStep, rng: np.random.Generator, enemy: int = 3) -> Actions:
    """Battle: attack a neighbour, else walk to the nearest enemy in sight; most games end with a team wiped out.

    Args:
        env: a battle.
        step: its last step.
        rng: random numbers.
        enemy: the observation's channel of the enemy's presence; 4 in minimap mode.
    """
    y, x = np.mgrid[-6:7, -6:7]
    towards = np.where(abs(x) > abs(y), np.where(x > 0, EAST, WEST), np.where(y > 0, SOUTH, NORTH)).reshape(-1)
    actions = {}
    for module_id, part in step.modules.items():
        seen = part.observation[:, :, :, enemy].reshape(-1, 169) > 0
        nearest = np.where(seen, (abs(x) + abs(y)).reshape(-1), 99).argmin(1)
        wander = (rng.random(len(seen)) < 0.3) | ~seen.any(1)
        walk = np.where(wander, rng.integers(0, 13, len(seen)), towards[nearest])
        near = np.stack([part.observation[:, 6 + dy, 6 + dx, enemy] for dx, dy in NEIGHBOURS], axis=1) > 0
        chosen = np.where(near.any(1), 13 + near.argmax(1), walk)
        actions[module_id] = np.where(part.alive, chosen, NO_ACTION)
    return actions


def hunt(env: GridWorldTeamEnv, step: TeamStep, rng: np.random.Generator, hunters: Sequence[str], prey: str) -> Actions:
    """Any MAgent2: the hunters of a team together attack one of the prey or walk to it; all others do nothing."""
    actions = everyone(env, step, 0)
    for module_id, part in step.modules.items():
        actions[module_id][part.alive] = env.noop_action[module_id]
    engine = env.game.engine
    groups = {env.game.agents_of(group)[0].rsplit("_", 1)[0]: group for group in env.game.groups}
    targets = engine.get_pos(groups[prey].handle)
    for team in hunters:
        base, cells = engine.get_view2attack(groups[team].handle)
        centre, speed = cells.shape[0] // 2, {5: 1, 13: 2}[int(base)]
        square = [(x, y) for y in range(-speed, speed + 1) for x in range(-speed, speed + 1)]
        moves = np.array([(x, y) for x, y in square if x * x + y * y <= speed * speed])
        living = np.flatnonzero(step.modules[team].alive)
        positions = engine.get_pos(groups[team].handle)
        target = targets[abs(targets - positions.mean(0)).sum(1).argmin()]
        for slot, (x, y) in zip(living, target - positions, strict=True):
            hit = cells[centre + y, centre + x] if max(abs(x), abs(y)) <= centre else -1
            walk = int(rng.integers(base)) if rng.random() < 0.4 else int(abs(moves - (x, y)).sum(1).argmin())
            actions[team][slot] = base + hit if hit >= 0 else walk
    return actions


def play(
    env: TeamEnv, seed: int, choose: Callable[[TeamEnv, TeamStep, np.random.Generator], Actions]
) -> tuple[list[TeamStep], list[Actions]]:
    """One whole episode: the steps, `reset`'s first, and the actions between them."""
    rng = np.random.default_rng(seed)
    steps, taken = [env.reset(seed=seed)], []
    while not steps[-1].over:
        taken.append(choose(env, steps[-1], rng))
        steps.append(env.step(taken[-1]))
    return steps, taken


def assert_same_step(a: TeamStep, b: TeamStep) -> None:
    """Two steps are equal, bit for bit. Masks count where an agent acts next."""
    assert a.modules.keys() == b.modules.keys()
    for module_id, part in a.modules.items():
        other = b.modules[module_id]
        for name in ("observation", "alive", "reward", "terminated", "truncated"):
            x, y = getattr(part, name), getattr(other, name)
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y, err_msg=f"{module_id} {name}")
        assert (part.action_mask is None) == (other.action_mask is None)
        if part.action_mask is not None and other.action_mask is not None:
            np.testing.assert_array_equal(part.action_mask[part.alive], other.action_mask[part.alive])
    assert a.critic_observation.keys() == b.critic_observation.keys()
    for team, value in a.critic_observation.items():
        np.testing.assert_array_equal(value, b.critic_observation[team], err_msg=f"critic of {team}")
    assert (a.over, a.outcome) == (b.over, b.outcome)
