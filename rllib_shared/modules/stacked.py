"""G weight sets in one tensor: layers whose first dimension is the set, and the rows' way into sets and back.

Rows of all agents are sorted by weight set into `[G, M, ...]` (M: rows of the set that has most), go through batched
matrix products, and come back in their old order. G networks cost one call per layer, whatever G is.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class RowGroups:
    """The places of rows in the layout `[G, M, ...]`.

    Args:
        weight_set: int64 `[R]`, the set of each row, 0 to G - 1.
        sets: G.
    """

    def __init__(self, weight_set: torch.Tensor, sets: int) -> None:
        rows = len(weight_set)
        counts = torch.bincount(weight_set, minlength=sets)
        self.sets = sets
        self.most = max(1, int(counts.max()))
        order = torch.argsort(weight_set, stable=True)
        in_order = weight_set[order]
        within = torch.arange(rows, device=order.device) - (counts.cumsum(0) - counts)[in_order]
        self._place = torch.empty_like(order)
        self._place[order] = in_order * self.most + within
        # Places without a row repeat row 0: what is computed there is never read.
        self._row = order.new_zeros(sets * self.most)
        self._row[self._place] = torch.arange(rows, device=order.device)

    def spread(self, rows: torch.Tensor) -> torch.Tensor:
        """`[R, ...]` to `[G, M, ...]`."""
        if not len(rows):
            return rows.new_zeros((self.sets, self.most, *rows.shape[1:]))
        return rows.index_select(0, self._row).unflatten(0, (self.sets, self.most))

    def collect(self, grouped: torch.Tensor) -> torch.Tensor:
        """`[G, M, ...]` back to `[R, ...]`."""
        return grouped.flatten(0, 1).index_select(0, self._place)


class StackedLinear(nn.Module):
    """G linear layers, `[G, M, in] -> [G, M, out]`; or `[M, in]`, which all sets read, `-> [G, M, out]`.

    Args:
        n_in: inputs.
        n_out: outputs.
        sets: G.
        gain: of the orthogonal weights, each set's drawn by itself.

    Attributes:
        weight: `[G, in, out]`, so that its gradient comes out of a product as it is; `nn.Linear` has `[out, in]`.
        bias: `[G, out]`.
        spare: memory like `weight` for its next gradient, or None. A learner on a CPU returns the last gradient here:
            new memory for one costs as much time as its product.
    """

    spare: torch.Tensor | None = None

    def __init__(self, n_in: int, n_out: int, sets: int, gain: float = math.sqrt(2)) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sets, n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(sets, n_out))
        # Sizes are counted on the meta device, where there is nothing to fill.
        if not self.weight.is_meta:
            for matrix in self.weight.data:
                nn.init.orthogonal_(matrix.T, gain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer of each set."""
        if x.dim() == 2:
            x = x.expand(len(self.weight), *x.shape)
        if self.spare is not None and torch.is_grad_enabled():
            return _ProductIntoSpare.apply(x, self.weight, self.bias, self)
        return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight)


class _ProductIntoSpare(torch.autograd.Function):
    """`StackedLinear.forward`, whose weight's gradient is written into the layer's spare memory."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, layer: StackedLinear
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer = layer
        return torch.baddbmm(bias.unsqueeze(1), x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor, None]:
        x, weight = ctx.saved_tensors
        of_x = torch.bmm(gradient, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        # Taken out, so that autograd keeps it as it is instead of copying it, and a second use gets memory of its own.
        spare, ctx.layer.spare = ctx.layer.spare, None
        transposed = x.transpose(1, 2)
        of_weight = torch.bmm(transposed, gradient) if spare is None else torch.bmm(transposed, gradient, out=spare)
        return of_x, of_weight, gradient.sum(1), None


class StackedConv2d(nn.Module):
    """G convolutions, `[G, M, C, H, W] -> [G, M, C', H', W']`; or `[M, C, H, W]`, which all sets read.

    Args:
        n_in: channels C.
        n_out: channels C'.
        kernel: side of the kernel.
        stride: its step.
        sets: G.

    Attributes:
        weight: `[G, C', C, kernel, kernel]`, a slice is what `nn.Conv2d` has.
        bias: `[G, C']`.
    """

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int, sets: int) -> None:
        super().__init__()
        self.stride = stride
        self.padding = kernel // 2
        self.weight = nn.Parameter(torch.empty(sets, n_out, n_in, kernel, kernel))
        self.bias = nn.Parameter(torch.empty(sets, n_out))
        if not self.weight.is_meta:
            # As nn.Conv2d starts.
            bound = 1 / math.sqrt(n_in * kernel * kernel)
            nn.init.uniform_(self.weight, -bound, bound)
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution of each set."""
        sets, n_out = self.bias.shape
        shared = x.dim() == 4
        # Sets side by side as groups of channels: [M, G C, H, W].
        images = x if shared else x.transpose(0, 1).flatten(1, 2)
        y = functional.conv2d(
            images,
            self.weight.flatten(0, 1),
            self.bias.flatten(),
            self.stride,
            self.padding,
            groups=1 if shared else sets,
        )
        return y.unflatten(1, (sets, n_out)).transpose(0, 1)
