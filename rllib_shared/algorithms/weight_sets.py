"""PPO for G weight sets at once, each trained exactly as if it were alone.

Everything that PPO takes over a batch (means of the loss, the KL coefficient, the length to which gradients are
clipped) is taken for each set by itself: arrays of length G instead of numbers. With one set RLlib's own code is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo.ppo import (
    LEARNER_RESULTS_KL_KEY,
    LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY,
    LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY,
)
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.utils.torch_utils import explained_variance
from torch import nn

from rllib_shared.algorithms.batch import ADVANTAGES, VALUE_TARGETS
from rllib_shared.modules.centralized_critic import SLOT
from rllib_shared.modules.stacked import GradientFactors, StackedLinear
from rllib_shared.teams import ModuleSlots


class SetMeans:
    """Means over the rows of each weight set.

    Args:
        index: int64 `[R]`, the set of each row.
        sets: G.

    Attributes:
        present: bool `[G]`, whether a set has rows.
    """

    def __init__(self, index: torch.Tensor, sets: int) -> None:
        count = torch.bincount(index, minlength=sets)
        self._index = index
        self._count = count.clamp(min=1)
        self.present = count > 0

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Float `[R]` to the mean of each set, `[G]`; 0 for a set without rows."""
        sums = rows.new_zeros(len(self._count)).index_add(0, self._index, rows)
        return sums / self._count

    def shown(self, means: torch.Tensor) -> torch.Tensor:
        """One number for a log: the mean over the sets that have rows."""
        return means.detach()[self.present].mean()


@dataclass
class SetTraining:
    """What the learner keeps for a module of several weight sets.

    Attributes:
        actor_index: int64 `[N]`, actor's set of each slot.
        critic_index: int64 `[N]`, critic's set of each slot.
        actor_sets: G of the actor.
        critic_sets: G of the critic.
        kl_coeff: float `[G]`, KL coefficient of each set of the actor.
        kl: float `[G]`, KL divergence in the last minibatch in which a set had rows; NaN before.
        together: parameters whose gradients are clipped as one, per set: actor and critic of the same agents.
        layers: those that may keep factors of their weight's gradient, by weight.
    """

    actor_index: torch.Tensor
    critic_index: torch.Tensor
    actor_sets: int
    critic_sets: int
    kl_coeff: torch.Tensor
    kl: torch.Tensor
    together: list[tuple[int, list[nn.Parameter]]] = field(repr=False)
    layers: dict[nn.Parameter, StackedLinear] = field(repr=False)

    @classmethod
    def of(cls, slots: ModuleSlots, module: Any, kl_coeff: float, device: torch.device) -> SetTraining | None:
        """For a module; None if actor and critic have one set each.

        Args:
            slots: its agents.
            module: a `CentralizedCriticModule`, unwrapped.
            kl_coeff: the first KL coefficient.
            device: where the module is.
        """
        actor_sets, critic_sets = len(slots.weight_sets), len(slots.critic_weight_sets)
        if actor_sets == critic_sets == 1:
            return None
        actor, critic = list(module.actor.parameters()), list(module.critic.parameters())
        same = np.array_equal(slots.weight_index, slots.critic_weight_index)
        return cls(
            actor_index=torch.from_numpy(slots.weight_index).to(device),
            critic_index=torch.from_numpy(slots.critic_weight_index).to(device),
            actor_sets=actor_sets,
            critic_sets=critic_sets,
            kl_coeff=torch.full((actor_sets,), float(kl_coeff), device=device),
            kl=torch.full((actor_sets,), torch.nan, device=device),
            together=[(actor_sets, actor + critic)] if same else [(actor_sets, actor), (critic_sets, critic)],
            layers={layer.weight: layer for layer in module.modules() if isinstance(layer, StackedLinear)},
        )

    def loss(
        self, module: Any, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, torch.Tensor], entropy: float
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The sum over sets of RLlib's PPO loss (Schulman et al., arXiv 1707.06347), so each set's gradient is its own.

        Args:
            module: see `of`.
            config: the module's.
            batch: packed rows, see `CentralizedCriticModule`.
            fwd_out: of the module for these rows.
            entropy: the present entropy coefficient.

        Returns:
            The loss, and what RLlib logs of it, as means over sets.
        """
        slot = batch[SLOT]
        of_actor = SetMeans(self.actor_index[slot], self.actor_sets)
        of_critic = SetMeans(self.critic_index[slot], self.critic_sets)
        policy = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        ratio = torch.exp(policy.logp(batch[Columns.ACTIONS]) - batch[Columns.ACTION_LOGP])
        advantage = batch[ADVANTAGES]
        surrogate = torch.min(advantage * ratio, advantage * ratio.clamp(1 - config.clip_param, 1 + config.clip_param))
        bonus = policy.entropy()
        value = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        error = torch.square(value - batch[VALUE_TARGETS])
        clipped_error = error.clamp(0, config.vf_clip_param)
        actor_loss = of_actor(-surrogate - entropy * bonus)
        critic_loss = of_critic(clipped_error)
        kl = torch.zeros_like(self.kl)
        if config.use_kl_loss:
            old = module.get_exploration_action_dist_cls().from_logits(batch[Columns.ACTION_DIST_INPUTS])
            kl = of_actor(old.kl(policy))
            actor_loss = actor_loss + self.kl_coeff * kl
            self.kl = torch.where(of_actor.present, kl.detach(), self.kl)
        loss = actor_loss.sum() + config.vf_loss_coeff * critic_loss.sum()
        return loss, {
            POLICY_LOSS_KEY: of_actor.shown(of_actor(-surrogate)),
            VF_LOSS_KEY: of_critic.shown(critic_loss),
            LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY: of_critic.shown(of_critic(error)),
            LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY: explained_variance(batch[VALUE_TARGETS], value.detach()),
            ENTROPY_KEY: of_actor.shown(of_actor(bonus)),
            LEARNER_RESULTS_KL_KEY: of_actor.shown(kl),
        }

    def update_kl_coeff(self, kl_target: float) -> None:
        """RLlib's rule for each set; a set that had no rows since the last call keeps its coefficient."""
        self.kl_coeff = torch.where(self.kl > 2.0 * kl_target, self.kl_coeff * 1.5, self.kl_coeff)
        self.kl_coeff = torch.where(self.kl < 0.5 * kl_target, self.kl_coeff * 0.5, self.kl_coeff)
        self.kl = torch.full_like(self.kl, torch.nan)

    def clip(self, limit: float, by: str) -> tuple[torch.Tensor, int]:
        """Clip the gradients of each set by their own norm, in place.

        A set with a NaN or infinite gradient gets 0 instead, and the others go on.

        Args:
            limit: the longest norm.
            by: `global_norm` (of all gradients of a set) or `norm` (of each tensor).

        Returns:
            The mean norm before, and the number of sets with bad gradients.
        """
        norms, bad = [], 0
        for sets, parameters in self.together:
            gradients = [gradient for parameter in parameters if (gradient := self._gradient(parameter)) is not None]
            for part in [gradients] if by == "global_norm" else [[gradient] for gradient in gradients]:
                norm, unusable = _clip_sets(part, sets, limit)
                norms.append(norm)
                bad += unusable
        return torch.stack(norms).mean(), bad

    def _gradient(self, parameter: nn.Parameter) -> torch.Tensor | GradientFactors | None:
        layer = self.layers.get(parameter)
        return parameter.grad if layer is None or layer.factors is None else layer.factors


def _clip_sets(
    gradients: Sequence[torch.Tensor | GradientFactors], sets: int, limit: float
) -> tuple[torch.Tensor, int]:
    """Clip gradients `[G, ...]`, in place, by the norm of each set's; the mean norm, and how many were not finite."""
    norms = [
        gradient.norms()
        if isinstance(gradient, GradientFactors)
        else torch.linalg.vector_norm(gradient.view(sets, -1), dim=1)
        for gradient in gradients
    ]
    norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    finite = norm.isfinite()
    bad = int((~finite).sum())
    too_long = norm > limit
    if bool(too_long.any()) or bad:
        scale = torch.where(finite, torch.where(too_long, limit / norm, 1.0), 0.0)
        for gradient in gradients:
            if isinstance(gradient, GradientFactors):
                gradient.scale(scale)
                continue
            rows = gradient.view(sets, -1)
            rows.mul_(scale.unsqueeze(1))
            if bad:
                rows[~finite] = 0.0
    return norm[finite].mean() if bad < sets else norm.new_zeros(()), bad
