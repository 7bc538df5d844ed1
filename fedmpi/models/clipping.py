"""Gradients of single rows, each scaled down to a norm of at most `clip`, and summed.

One row then changes the sum by at most weight × clip, which is what noise for differential privacy
is measured by. Perceptrons have their own passes (perceptron_passes.py); here are all other models.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedmpi.models.losses import Loss
from fedmpi.models.perceptron_passes import RowWeights

ROOM = 64 * 2**20
"""Bytes that the gradients of the rows of one pass may take."""
SLACK = 64
"""By how many units of rounding a clipped norm stays below `clip`: norms are rounded themselves."""

RowGradients = Callable[[Tensor, Tensor], tuple[list[Tensor], Tensor]]
"""Function from rows and labels to the gradients, rows first, by parameter; and the losses."""


def clip_factors(squares: Tensor, clip: float) -> Tensor:
    """Return min(1, clip / norm) for each row, from the squared norms; 1 where the norm is 0."""
    clip *= 1 - SLACK * torch.finfo(squares.dtype).eps
    # clip / 0 is inf, and the smaller of it and 1 is 1.
    return squares.sqrt().reciprocal_().mul_(clip).clamp_(max=1)


class ClippedGradients:
    """Sums of clipped gradients of any model, a micro-batch of rows' gradients at a time."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self.module, self.loss = module, loss
        self.parameters = list(module.parameters())
        bytes_a_row = sum(p.numel() * p.element_size() for p in self.parameters)
        self.rows_at_once = max(1, ROOM // bytes_a_row)
        self._at_once: RowGradients | None = self._by_vmap()

    @torch.no_grad()
    def add(
        self, x: Tensor, y: Tensor, weights: RowWeights, clip: float, into: list[Tensor]
    ) -> None:
        """Add the sum of weight × clipped gradient to `into`, a tensor for each parameter.

        `weights` is asked once, when the losses of all rows are there.
        """
        if len(x) <= self.rows_at_once:
            gradients, losses = self._of_rows(x, y)
            add_clipped(gradients, weights(losses), clip, into)
            return
        parts = list(zip(x.split(self.rows_at_once), y.split(self.rows_at_once), strict=True))
        # The weights may need the losses of all rows before the first gradient is weighted.
        losses = torch.cat([self.loss(self.module(a), b) for a, b in parts])
        for (a, b), weight in zip(parts, weights(losses).split(self.rows_at_once), strict=True):
            add_clipped(self._of_rows(a, b)[0], weight, clip, into)

    def _of_rows(self, x: Tensor, y: Tensor) -> tuple[list[Tensor], Tensor]:
        if self._at_once:
            try:
                return self._at_once(x, y)
            except (RuntimeError, TypeError, ValueError):
                # What vmap cannot take: branches on values, some recurrent layers. If the model
                # itself is wrong, the loop says so.
                self._at_once = None
        return self._one_by_one(x, y)

    def _by_vmap(self) -> RowGradients:
        """Return the gradients of all rows at once, by one pass of batched operations."""
        from torch.func import functional_call, grad_and_value, vmap

        names = [name for name, _ in self.module.named_parameters()]

        def loss_of_row(parameters: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
            by_name = dict(zip(names, parameters, strict=True))
            logits = functional_call(self.module, by_name, (x[None],))
            return self.loss(logits, y[None])[0]

        of_rows = vmap(grad_and_value(loss_of_row), in_dims=(None, 0, 0))

        def gradients(x: Tensor, y: Tensor) -> tuple[list[Tensor], Tensor]:
            return of_rows([p.detach() for p in self.parameters], x, y)

        return gradients

    def _one_by_one(self, x: Tensor, y: Tensor) -> tuple[list[Tensor], Tensor]:
        gradients = [p.new_empty(len(x), *p.shape) for p in self.parameters]
        losses = []
        for i in range(len(x)):
            with torch.enable_grad():
                loss = self.loss(self.module(x[i : i + 1]), y[i : i + 1])[0]
            of_row = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
            for of_all, gradient in zip(gradients, of_row, strict=True):
                of_all[i] = gradient
            losses.append(loss.detach())
        return gradients, torch.stack(losses)


def add_clipped(gradients: list[Tensor], weights: Tensor, clip: float, into: list[Tensor]) -> None:
    """Add the rows' gradients, each clipped over all parameters together, times their weights."""
    norms = [torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients]
    factors = clip_factors(torch.stack(norms).square_().sum(0), clip).mul_(weights)
    for gradient, total in zip(gradients, into, strict=True):
        total.add_((factors @ gradient.flatten(1)).view(total.shape))
