"""`CentralizedCriticModule`: an actor that sees its own observation, a critic that sees more.

One RLModule for both runners: RLlib's own, whose batches hold one row per agent and step, and `TeamEnvRunner`, whose
batches hold teams. The critic exists on the learner only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule

from rllib_shared.envs.team_env import ACTION_MASK, CRITIC_OBSERVATION, OBSERVATION
from rllib_shared.modules.distributions import MASKED_LOGIT, distribution_for
from rllib_shared.modules.model_config import ModelConfig
from rllib_shared.modules.networks import Actor, Critic
from rllib_shared.modules.stacked import RowsBySet

ALIVE = "alive"
CRITIC_ROW = "critic_row"
SLOT = "slot"


class Rows(NamedTuple):
    """A batch as rows of living agents, whatever layout it came in.

    Shapes: observation `[R, ...]`, action_mask bool `[R, A]` or None, critic_observation `[S, ...]` or None,
    critic_row int64 `[R]` or None, slot int64 `[R]` or None, alive bool `[B, N]` (where the rows go back to) or None.
    """

    observation: torch.Tensor
    action_mask: torch.Tensor | None
    critic_observation: torch.Tensor | None
    critic_row: torch.Tensor | None
    slot: torch.Tensor | None
    alive: torch.Tensor | None


class CentralizedCriticModule(TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """Actor on `observation`, critic on `critic_observation`, the own observation and the slot id.

    The observation space is `Dict(observation[, critic_observation][, action_mask])`, or an array space for an actor
    and critic that see the same. Options are those of `ModelConfig`.

    Batches come in one of three layouts, told apart by shapes and columns:

    - RLlib's: `obs[...]` with one row per agent and step, `[B, ...]` each;
    - teams: `obs["observation"] [B, N, ...]`, `obs["critic_observation"] [B, ...]` (`[B, K, ...]` for a module of K
      teams) and `alive [B, N]`; outputs are `[B, N, ...]` with zeros for the dead;
    - packed teams, what the learner makes: living rows only, `obs["observation"] [R, ...]`, with `critic_row [R]`
      saying which row of `obs["critic_observation"] [S, ...]` belongs to each, and `slot [R]`.

    With weight sets (`ModelConfig.weight_index`) or agent ids, rows in RLlib's layout need a `slot [B]` too.

    Raises:
        ValueError: unsupported spaces or options.
    """

    def setup(self) -> None:
        """Build the networks; RLlib calls this once."""
        space = self.observation_space
        parts = space.spaces if isinstance(space, gym.spaces.Dict) else {OBSERVATION: space}
        extra = set(parts) - {OBSERVATION, CRITIC_OBSERVATION, ACTION_MASK, SLOT}
        if OBSERVATION not in parts or extra:
            raise ValueError(
                f"the observation space must be an array or Dict({OBSERVATION}[, {CRITIC_OBSERVATION}]"
                f"[, {ACTION_MASK}]), got keys {sorted(parts)}"
            )
        config = ModelConfig.from_dict(self.model_config or {})
        self.action_dist_cls = distribution_for(self.action_space)
        self._shape = parts[OBSERVATION].shape or ()
        self._critic_shape = parts[CRITIC_OBSERVATION].shape if CRITIC_OBSERVATION in parts else None
        out = self.action_dist_cls.required_input_dim(self.action_space)
        self.actor = Actor(parts[OBSERVATION], out, config)
        self.register_buffer("_team_index", torch.as_tensor(config.team_index, dtype=torch.int64), persistent=False)
        if not self.inference_only:
            self.critic = Critic(parts[OBSERVATION], parts.get(CRITIC_OBSERVATION), config)
        self._same_sets = list(config.weight_index) == list(config.critic_weight_index)

    @property
    def needs_slot(self) -> bool:
        """Whether the actor must be told which slot a row is of: it has agent ids or several weight sets."""
        return self.actor.needs_slot

    def get_non_inference_attributes(self) -> list[str]:
        """The critic stays on the learner."""
        return ["critic"]

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Load weights.

        Raises:
            ValueError: weights are missing. RLlib's own ignores that on a full module and keeps random ones.
        """
        missing = sorted(set(self.state_dict()) - set(state))
        if missing:
            raise ValueError(
                f"the state does not fit this module: it lacks {missing}; it has {sorted(state)}. "
                "Was it saved with other model_config or spaces?"
            )
        super().set_state(state)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._distribution(self.rows(batch))

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        rows = self.rows(batch)
        by_set = self.actor.sets.sort(rows.observation, rows.slot)
        outputs = self._distribution(rows, by_set)
        # RLlib's losses hand this on to compute_values.
        return outputs | {Columns.EMBEDDINGS: by_set} if self._same_sets and by_set is not None else outputs

    def _distribution(self, rows: Rows, by_set: RowsBySet | None = None) -> dict[str, Any]:
        inputs = self.actor(rows.observation, rows.slot, by_set)
        if rows.action_mask is not None:
            inputs = torch.where(rows.action_mask.bool(), inputs, MASKED_LOGIT)
        return {Columns.ACTION_DIST_INPUTS: _scatter(inputs, rows.alive)}

    def compute_values(self, batch: dict[str, Any], embeddings: RowsBySet | None = None) -> torch.Tensor:
        """Values `[B]`, `[B, N]` or `[R]`, by the batch's layout; `embeddings` are those of `forward_train`, if any."""
        rows = self.rows(batch)
        values = self.critic(rows.observation, rows.critic_observation, rows.critic_row, rows.slot, embeddings)
        return _scatter(values, rows.alive)

    def rows(self, batch: Mapping[str, Any]) -> Rows:
        """The batch as rows of living agents; does not change the batch."""
        obs = batch[Columns.OBS]
        if not isinstance(obs, Mapping):
            obs = {OBSERVATION: obs}
        observation, mask, critic = obs[OBSERVATION], obs.get(ACTION_MASK), obs.get(CRITIC_OBSERVATION)
        if self._critic_shape is None:
            critic = None
        if observation.dim() == len(self._shape) + 1:
            return Rows(observation, mask, critic, batch.get(CRITIC_ROW), batch.get(SLOT, obs.get(SLOT)), None)
        steps, slots = observation.shape[:2]
        alive = batch.get(ALIVE)
        if alive is None:
            alive = torch.ones((steps, slots), dtype=torch.bool, device=observation.device)
        step, slot = alive.nonzero(as_tuple=True)
        row = step
        if critic is not None and critic.dim() == len(self._critic_shape or ()) + 2:
            teams = critic.shape[1]
            row = step * teams + self._team_index[slot]
            critic = critic.flatten(0, 1)
        return Rows(observation[alive], None if mask is None else mask[alive], critic, row, slot, alive)


def _scatter(values: torch.Tensor, alive: torch.Tensor | None) -> torch.Tensor:
    """Rows `[R, ...]` back to `[B, N, ...]`, zeros for the dead."""
    if alive is None:
        return values
    out = values.new_zeros((*alive.shape, *values.shape[1:]))
    out[alive] = values
    return out
