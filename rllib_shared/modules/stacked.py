"""G weight sets in one tensor: layers whose first dimension is the set, and the rows' way into sets and back.

Rows of all agents are sorted by weight set into `[G, M, ...]` (M: rows of the set that has most), go through batched
matrix products, and come back in their old order. G networks cost one call per layer, whatever G is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn import functional

# Of gradients at a time. Larger blocks leave the last cache; with smaller ones threads wait for each other more often.
BLOCK_BYTES = 16 * 2**20
# How many times smaller than their product factors must be, for their norms to cost less than its way to memory.
_MUCH_SMALLER = 4


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


class RowsBySet:
    """The rows of a batch by weight set: for an actor and a critic whose slots have the same sets made only once.

    Args:
        observation: `[R, ...]`.
        slot: int64 `[R]`.
        groups: of the rows.
    """

    def __init__(self, observation: torch.Tensor, slot: torch.Tensor, groups: RowGroups) -> None:
        self._observation = observation
        self._slot = slot
        self.groups = groups

    @cached_property
    def observation(self) -> torch.Tensor:
        """`[G, M, ...]`."""
        return self.groups.spread(self._observation)

    @cached_property
    def slot(self) -> torch.Tensor:
        """int64 `[G, M]`."""
        return self.groups.spread(self._slot)


class GradientFactors:
    """The gradient of a `StackedLinear`'s weight as the two factors that it is the product of.

    Training many networks on a CPU waits for memory. With few rows per set the factors are much smaller than the
    product, and its norms can be had without it; so a product that no cache holds need not be in memory as a whole.

    Args:
        rows: what the layer read, `[G, M, in]`.
        of_output: gradients of what it gave, `[G, M, out]`.
    """

    def __init__(self, rows: torch.Tensor, of_output: torch.Tensor) -> None:
        self._rows = rows.detach()
        self._of_output = of_output.detach()

    def add(self, rows: torch.Tensor, of_output: torch.Tensor) -> None:
        """Add the gradient of another use of the layer."""
        self._rows = torch.cat([self._rows, rows.detach()], 1)
        self._of_output = torch.cat([self._of_output, of_output.detach()], 1)

    def norms(self) -> torch.Tensor:
        """The norm of each set's gradient, `[G]`: `|X^T D|^2` is the sum of `(X X^T) * (D D^T)`."""
        rows, of_output = self._rows, self._of_output
        squares = torch.bmm(rows, rows.transpose(1, 2)) * torch.bmm(of_output, of_output.transpose(1, 2))
        # Rounding may put the square of a norm of 0 below it.
        return squares.sum((1, 2)).clamp(min=0).sqrt()

    def scale(self, by: torch.Tensor) -> None:
        """Multiply each set's gradient by a number, `[G]`; by 0 also what is NaN or inf."""
        # Not in place: autograd may have given the same tensor to another layer.
        zero = by == 0
        if bool(zero.any()):
            self._rows = torch.where(zero[:, None, None], 0.0, self._rows)
            self._of_output = torch.where(zero[:, None, None], 0.0, self._of_output)
        self._of_output = self._of_output * by[:, None, None]

    def blocks(self, buffer: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
        """The gradient `[sets, in, out]` of some sets after the other.

        Args:
            buffer: float32 `[n]`, memory for at least one set's; each block is overwritten by the next.
        """
        sets, n_in, n_out = len(self._rows), self._rows.shape[2], self._of_output.shape[2]
        at_once = min(sets, len(buffer) // (n_in * n_out))
        memory = buffer[: at_once * n_in * n_out].view(at_once, n_in, n_out)
        for begin in range(0, sets, at_once):
            rows, of_output = self._rows[begin : begin + at_once], self._of_output[begin : begin + at_once]
            block = torch.bmm(rows.transpose(1, 2), of_output, out=memory[: len(rows)])
            yield slice(begin, begin + len(rows)), block


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
        keeps_factors: whether to keep the factors of a gradient that no cache holds, if they are much smaller, instead
            of making `weight.grad`. An optimizer that can use them sets this (`algorithms/stacked_adam.py`). All uses
            of the layer in one loss must then have as few rows, or none.
        factors: these factors, or None.
        spare: memory like `weight` for its next gradient, or None. The optimizer returns the last gradient here: new
            memory for one costs as much time as its product.
    """

    keeps_factors = False
    factors: GradientFactors | None = None
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
        if self.keeps_factors and torch.is_grad_enabled():
            return _StackedProduct.apply(x, self.weight, self.bias, self)
        return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight)


class _StackedProduct(torch.autograd.Function):
    """`StackedLinear.forward`; its weight's gradient becomes the layer's `factors`, or is made in its spare memory."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, layer: StackedLinear
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer = layer
        return torch.baddbmm(bias.unsqueeze(1), x, weight)

    @staticmethod
    def backward(
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor, None]:
        x, weight = ctx.saved_tensors
        of_x = torch.bmm(gradient, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        return of_x, _gradient(ctx.layer, x, gradient), gradient.sum(1), None


def _gradient(layer: StackedLinear, x: torch.Tensor, of_output: torch.Tensor) -> torch.Tensor | None:
    """The gradient of the layer's weight, or None if the layer has its factors now."""
    _, n_in, n_out = layer.weight.shape
    if layer.weight.nbytes > BLOCK_BYTES and _MUCH_SMALLER * x.shape[1] * (n_in + n_out) <= n_in * n_out:
        if layer.factors is None:
            layer.factors = GradientFactors(x, of_output)
        else:
            layer.factors.add(x, of_output)
        return None
    # Taken out, so that autograd keeps it as it is instead of copying it, and a second use gets memory of its own.
    spare, layer.spare = layer.spare, None
    transposed = x.transpose(1, 2)
    return torch.bmm(transposed, of_output) if spare is None else torch.bmm(transposed, of_output, out=spare)


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
