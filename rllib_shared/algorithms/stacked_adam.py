"""`StackedAdam`: Adam that makes the gradients of stacked weights a block at a time and uses them up at once.

Networks per agent are bound by memory and not by arithmetic: whole gradients would be written, read for their norm,
read and written by the clip and read by Adam, and no cache holds that much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.adam import adam

from rllib_shared.modules.stacked import BLOCK_BYTES, GradientFactors, StackedLinear


class StackedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, with the same state.

    Args:
        params: see `torch.optim.Adam`.
        layers: those whose weights are among `params`; from now on they may keep `factors` instead of
            `weight.grad`.
        lr: see `torch.optim.Adam`.
        eps: see `torch.optim.Adam`.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], layers: Iterable[StackedLinear], *, lr: float = 1e-3, eps: float
    ) -> None:
        super().__init__(params, lr=lr, eps=eps, fused=True)
        self._layers = {layer.weight: layer for layer in layers}
        for layer in self._layers.values():
            layer.keeps_factors = True
        # One for all layers, so that it stays in the cache.
        largest = max(weight[0].numel() for weight in self._layers)
        self._buffer = torch.empty(max(largest, BLOCK_BYTES // 4))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, kept factors too; the memory of gradients goes back to their layers."""
        for weight, layer in self._layers.items():
            layer.factors, layer.spare = None, weight.grad if set_to_none else None
        super().zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of Adam."""
        loss = super().step(closure)
        for group in self.param_groups:
            for weight in group["params"]:
                factors = self._layers[weight].factors if weight in self._layers else None
                if factors is not None:
                    self._step(group, weight, factors)
        return loss

    def _step(self, group: dict[str, Any], weight: torch.Tensor, factors: GradientFactors) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        beta1, beta2 = group["betas"]
        for sets, gradient in factors.blocks(self._buffer):
            adam(
                [weight[sets]],
                [gradient],
                [state["exp_avg"][sets]],
                [state["exp_avg_sq"][sets]],
                [],
                # It counts the step itself.
                [state["step"].clone()],
                foreach=False,
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=group["maximize"],
            )
        state["step"] += 1
