"""`StackedAdam`: Adam that makes the gradients of stacked weights a block at a time and uses them up at once.

Networks per agent are bound by memory and not by arithmetic: whole gradients would be written, read for their norm,
read and written by the clip and read by Adam, and no cache holds that much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.adam import adam

from rllib_shared.modules.stacked import GradientFactors, StackedLinear

# Of gradients. Larger blocks leave the last cache; with smaller ones threads wait for each other more often.
_BLOCK_BYTES = 16 * 2**20


class StackedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, with the same state.

    Args:
        params: see `torch.optim.Adam`.
        layers: those whose weights are among `params`; from now on they keep `factors` instead of `weight.grad` when
            there are few rows.
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
        # Kept, because the pages of new memory cost more than what is written into it.
        self._buffer = torch.empty(max(self._at_once(weight) * weight[0].numel() for weight in self._layers))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, kept factors too."""
        super().zero_grad(set_to_none)
        for layer in self._layers.values():
            layer.factors = None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of Adam."""
        loss = super().step(closure)
        for group in self.param_groups:
            for weight in group["params"]:
                layer = self._layers.get(weight)
                if layer is not None and layer.factors is not None:
                    self._step(group, weight, layer.factors)
        return loss

    def _at_once(self, weight: torch.Tensor) -> int:
        return min(len(weight), max(1, _BLOCK_BYTES // weight[0].nbytes))

    def _step(self, group: dict[str, Any], weight: torch.Tensor, factors: GradientFactors) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        at_once = self._at_once(weight)
        buffer = self._buffer[: at_once * weight[0].numel()].view(at_once, *weight.shape[1:])
        beta1, beta2 = group["betas"]
        for begin in range(0, len(weight), at_once):
            block = slice(begin, begin + at_once)
            adam(
                [weight[block]],
                [factors.product(block, buffer)],
                [state["exp_avg"][block]],
                [state["exp_avg_sq"][block]],
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
