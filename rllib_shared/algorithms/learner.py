"""`TeamPPOLearner`: RLlib's PPO learner over team batches.

The loss is RLlib's own. What differs is the path to it (minibatches by env step) and what RLlib forgets or gets wrong
on the way: scalar training state in checkpoints and non-finite gradients. Overrides name the stock behaviour. The loss
and the clipping of modules with several weight sets are in `weight_sets.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from ray.rllib.algorithms.ppo.ppo import LEARNER_RESULTS_CURR_KL_COEFF_KEY
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import ALL_MODULES, NUM_ENV_STEPS_SAMPLED_LIFETIME

from rllib_shared.algorithms.batch import MinibatchIterator
from rllib_shared.algorithms.connector import TeamAdvantages
from rllib_shared.algorithms.stacked_adam import StackedAdam
from rllib_shared.algorithms.weight_sets import SetTraining
from rllib_shared.modules.stacked import StackedLinear
from rllib_shared.sampling.seeds import allow_unfilled_memory

logger = logging.getLogger("rllib_shared")

KL_COEFF_STATE = "rllib_shared_kl_coeff"
TIMESTEP_STATE = "rllib_shared_timestep"
NUM_SKIPPED_UPDATES = "num_skipped_updates"
NUM_SKIPPED_WEIGHT_SETS = "num_skipped_weight_sets"


class TeamPPOLearner(PPOTorchLearner):
    """PPO over `TeamFragment`s. Built by RLlib from a `TeamPPOConfig`."""

    _timestep = 0
    _norms: list[torch.Tensor]
    _sets: dict[str, SetTraining]

    def build(self) -> None:
        """Build, and put the team connector at the end of the pipeline."""
        super().build()
        allow_unfilled_memory()
        self._norms = []
        slots = self.config.team_layout.modules
        per_module = {module_id: self.config.get_config_for_module(module_id) for module_id in slots}
        self._learner_connector.append(
            TeamAdvantages(
                slots,
                gamma={module_id: config.gamma for module_id, config in per_module.items()},
                lambda_={module_id: config.lambda_ for module_id, config in per_module.items()},
            )
        )
        self._sets = {}
        for module_id, config in per_module.items():
            module = self.module[module_id].unwrapped()
            sets = SetTraining.of(slots[module_id], module, config.kl_coeff, self._device)
            if sets is not None:
                self._sets[module_id] = sets

    def _create_iterator_if_necessary(
        self,
        *,
        training_data: TrainingData,
        num_total_minibatches: int = 0,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
        **kwargs: Any,
    ) -> Iterable:
        """Fragments to minibatches by env step.

        Stock cycles each module's rows until the largest module is covered, so a team of 100 rows is trained 40 times
        as often as one of 4000, and leaves the first epoch unshuffled. Watched by tests/algorithms/test_batch.py.
        """
        if training_data.episodes is None:
            raise ValueError("TeamPPOLearner learns from TeamFragments: call update(episodes=...)")
        modules = self._learner_connector(
            rl_module=self.module,
            batch={},
            episodes=training_data.episodes,
            shared_data={},
            metrics=self.metrics,
        )
        trained = {mid: batch for mid, batch in modules.items() if self.should_module_be_updated(mid, None)}
        if not trained:
            raise ValueError(f"policies_to_train leaves nothing to train; the modules are {sorted(modules)}")
        # With several learners RLlib counts for all of them, so that all take the same number of steps.
        pieces = max(1, round(num_total_minibatches / num_epochs)) if self.config.num_learners > 1 else None
        return MinibatchIterator(trained, num_epochs, minibatch_size, shuffle_batch_per_epoch, self._device, pieces)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """RLlib's PPO loss, of each weight set; 0 for a module none of whose agents lives in this minibatch."""
        if len(batch[Columns.ACTION_LOGP]) == 0:
            # Gradients of 0 instead of none, so that several learners stay in step.
            module = self.module[module_id].unwrapped()
            return 0.0 * (fwd_out[Columns.ACTION_DIST_INPUTS].sum() + module.compute_values(batch).sum())
        if module_id not in self._sets:
            return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        entropy = self.entropy_coeff_schedulers_per_module[module_id].get_current_value()
        module = self.module[module_id].unwrapped()
        loss, shown = self._sets[module_id].loss(module, config, batch, fwd_out, entropy)
        self.metrics.log_dict(shown, key=module_id, window=1)
        return loss

    def _update_module_kl_coeff(self, *, module_id: str, config: Any, kl_loss: float) -> None:
        """RLlib's rule, for each weight set by its own divergence."""
        if module_id not in self._sets:
            return super()._update_module_kl_coeff(module_id=module_id, config=config, kl_loss=kl_loss)
        sets = self._sets[module_id]
        sets.update_kl_coeff(config.kl_target)
        self.metrics.log_value((module_id, LEARNER_RESULTS_CURR_KL_COEFF_KEY), sets.kl_coeff.mean(), window=1)

    def postprocess_gradients_for_module(
        self, *, module_id: str, config: Any = None, module_gradients_dict: dict[Any, torch.Tensor]
    ) -> dict[Any, torch.Tensor]:
        """Clip; gradients of weight sets each by their own norm."""
        if module_id not in self._sets or not _clips_by_norm(config):
            return super().postprocess_gradients_for_module(
                module_id=module_id, config=config, module_gradients_dict=module_gradients_dict
            )
        norm, bad = self._sets[module_id].clip(config.grad_clip, config.grad_clip_by)
        self._norms.append(norm)
        self.metrics.log_value((module_id, "gradients_default_optimizer_global_norm"), norm, window=1)
        self.metrics.log_value((ALL_MODULES, NUM_SKIPPED_WEIGHT_SETS), bad, reduce="lifetime_sum")
        if bad:
            logger.error(
                "module %r: the gradients of %d weight sets are NaN or inf and count as 0 in this minibatch (counted "
                "in %s)",
                module_id,
                bad,
                NUM_SKIPPED_WEIGHT_SETS,
            )
        return module_gradients_dict

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam in one fused kernel, which reads each parameter once where stock's reads it five times."""
        params = self.get_parameters(self.module[module_id])
        layers = [layer for layer in self.module[module_id].modules() if isinstance(layer, StackedLinear)]
        # DDP averages whole gradients, a GPU's memory is fast, and only clipping by norm knows factors.
        blocks = self._device.type == "cpu" and self.config.num_learners < 2 and _clips_by_norm(config)
        optimizer: torch.optim.Optimizer = (
            StackedAdam(params, layers, eps=1e-5)
            if layers and blocks
            else torch.optim.Adam(params, eps=1e-5, fused=True)
        )
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=params, lr_or_lr_schedule=config.lr)

    def _get_clip_function(self) -> Any:
        """Stock's, but a global norm is computed once, kept for the check below, and scales only what is too long."""
        stock = super()._get_clip_function()

        def clip(gradients: dict[Any, torch.Tensor], *, grad_clip: float | None, grad_clip_by: str) -> Any:
            if grad_clip_by != "global_norm" or grad_clip is None:
                return stock(gradients, grad_clip=grad_clip, grad_clip_by=grad_clip_by)
            present = [grad.detach() for grad in gradients.values() if grad is not None]
            norm = torch.nn.utils.get_total_norm(present)
            self._norms.append(norm)
            if norm > grad_clip:
                torch._foreach_mul_(present, grad_clip / norm)
            return norm

        return clip

    def apply_gradients(self, gradients_dict: Mapping[Any, torch.Tensor]) -> None:
        """Step the optimizers; skip the step of all of them if any gradient is NaN or inf.

        Stock either uses such gradients as they are or turns inf into 3e38, whose square stops Adam for good; which of
        the two, its option says the wrong way round. Watched by tests/algorithms/test_learner.py.
        """
        gradients = [grad.detach() for grad in gradients_dict.values() if grad is not None]
        norms = self._norms or [torch.nn.utils.get_total_norm(gradients)]
        self._norms = []
        skipped = not bool(torch.stack(norms).isfinite().all())
        self.metrics.log_value((ALL_MODULES, NUM_SKIPPED_UPDATES), int(skipped), reduce="lifetime_sum")
        if skipped:
            logger.error("a gradient is NaN or inf: this minibatch is skipped (counted in %s)", NUM_SKIPPED_UPDATES)
            return
        super().apply_gradients(gradients_dict)

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Remember how far training is, for schedules after a restore."""
        super().before_gradient_based_update(timesteps=timesteps)
        self._timestep = timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """With the KL coefficients and the schedules' position, which stock leaves out of checkpoints."""
        state = super().get_state(*args, **kwargs)
        state[KL_COEFF_STATE] = {
            mid: self._sets[mid].kl_coeff.tolist() if mid in self._sets else float(self.curr_kl_coeffs_per_module[mid])
            for mid in list(self.module.keys())
        }
        state[TIMESTEP_STATE] = int(self._timestep)
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore all of it, also when rolling a live learner back.

        Stock skips weights whose sequence number is not newer, though it takes their optimizer state.
        """
        self._weights_seq_no = 0
        super().set_state(state)
        for module_id, value in state.get(KL_COEFF_STATE, {}).items():
            if module_id in self._sets:
                self._sets[module_id].kl_coeff.copy_(torch.as_tensor(value))
            else:
                self.curr_kl_coeffs_per_module[module_id].data.fill_(value)
        if TIMESTEP_STATE in state:
            self._timestep = state[TIMESTEP_STATE]
            for module_id in list(self.module.keys()):
                self.entropy_coeff_schedulers_per_module[module_id].update(timestep=self._timestep)


def _clips_by_norm(config: Any) -> bool:
    return config.grad_clip is not None and config.grad_clip_by != "value"
