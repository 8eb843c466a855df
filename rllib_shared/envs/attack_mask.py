"""An optional action mask for MAgent2's battles: no attack on an empty cell.

Without it self-play learns "never attack" first, because most attacks of an untrained policy hit nothing and cost
0.1 each. The mask reads only the agent's own observation, so an actor that needs it can be deployed alone.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo.utils import BaseParallelWrapper

from rllib_shared.envs.team_env import ACTION_MASK, OBSERVATION

# With two groups of one type, channels are [wall, own presence, own hp, enemy presence, enemy hp(, minimaps)].
TWO_GROUP_ENVS = ("battle_v4", "battlefield_v5")
_ENEMY = {False: 3, True: 4}  # minimap mode puts the own minimap before the enemy's channels


class AttackMask:
    """Allowed actions from observations.

    Args:
        env: an unwrapped MAgent2 environment with two groups of one type.

    Attributes:
        num_actions: A.
        num_moves: actions below this one are moves, the others attacks.
        enemy_channel: where an observation shows enemies.
    """

    def __init__(self, env: Any) -> None:
        name = env.metadata["name"]
        if name not in TWO_GROUP_ENVS:
            raise ValueError(f"mask_attacks needs one of {TWO_GROUP_ENVS}, not {name}: its attack cells are not known")
        engine, handle = env.env, env.handles[0]
        self.num_actions = int(engine.get_action_space(handle)[0])
        base, cells = engine.get_view2attack(handle)
        self.num_moves = int(base)
        rows, columns = np.nonzero(cells >= 0)
        self._rows, self._columns = rows, columns
        self._actions = base + cells[rows, columns]
        self.enemy_channel = _ENEMY[bool(env.minimap_mode)]

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Bool `[N, A]` for observations float32 `[N, H, W, C]`: all moves, and attacks on cells that hold an enemy."""
        mask = np.ones((len(observation), self.num_actions), bool)
        mask[:, self._actions] = observation[:, self._rows, self._columns, self.enemy_channel] > 0
        return mask


class MaskEmptyAttacks(BaseParallelWrapper):
    """A PettingZoo wrapper that adds the mask to every observation: `Dict(observation, action_mask)`.

    Args:
        env: MAgent2 `battle_v4` or `battlefield_v5`, as a `ParallelEnv`.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.attack_mask = AttackMask(env.unwrapped)
        self._spaces: dict[str, gym.spaces.Dict] = {}

    def observation_space(self, agent: str) -> gym.spaces.Dict:
        """`Dict(observation, action_mask)`."""
        if agent not in self._spaces:
            self._spaces[agent] = gym.spaces.Dict(
                {
                    OBSERVATION: self.env.observation_space(agent),
                    ACTION_MASK: gym.spaces.Box(0, 1, (self.attack_mask.num_actions,), np.int8),
                }
            )
        return self._spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """As the wrapped environment's, with masks."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._with_masks(observations), infos

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """As the wrapped environment's, with masks."""
        observations, *rest = self.env.step(actions)
        return (self._with_masks(observations), *rest)

    def _with_masks(self, observations: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        if not observations:
            return {}
        masks = self.attack_mask(np.stack(list(observations.values()))).astype(np.int8)
        return {
            agent: {OBSERVATION: observation, ACTION_MASK: mask}
            for (agent, observation), mask in zip(observations.items(), masks, strict=True)
        }
