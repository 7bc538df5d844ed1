"""The passes through a perceptron by hand: with a hundred rows autograd's own time counts.

`benchmarks/passes.py` measures what this saves. All other models go through autograd.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedmpi.models.losses import GRADIENTS, Loss

RowWeights = Callable[[Tensor], Tensor]
"""Function from the losses of some rows to the weight of each row's gradient."""


def layers_of(module: nn.Module) -> list[nn.Linear] | None:
    """The linear layers of a perceptron with ReLUs between them; None of any other model."""
    layers = list(module) if type(module) is nn.Sequential else []
    if layers and type(layers[0]) is nn.Flatten:
        layers = layers[1:]
    if len(layers) % 2 == 0 or any(type(layer) is not nn.ReLU for layer in layers[1::2]):
        return None
    linear = [layer for layer in layers[::2] if type(layer) is nn.Linear and layer.bias is not None]
    return linear if len(linear) == len(layers[::2]) else None


class Dense:
    """Forward and backward passes on kept buffers: nothing of the size of the rows is allocated."""

    def __init__(self, layers: list[nn.Linear]) -> None:
        self.layers = [(layer.weight.detach(), layer.bias.detach()) for layer in layers]
        self.rows = 0
        self.parts: dict[int, tuple[list[Tensor], list[Tensor]]] = {}

    def _room(self, rows: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return room for each layer's output of so many rows, and for that output's gradient."""
        if rows > self.rows:
            self.rows, self.parts = rows, {}
            self.buffers = [[b.new_empty(rows, len(b)) for _, b in self.layers] for _ in range(2)]
        if rows not in self.parts:
            outputs, gradients = ([b[:rows] for b in buffers] for buffers in self.buffers)
            self.parts[rows] = outputs, gradients
        return self.parts[rows]

    def _forward(self, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The inputs of the layers, the logits last; and room for the gradients of the outputs."""
        outputs, gradients = self._room(len(x))
        inputs = [x.flatten(1), *outputs]
        for i, (weight, bias) in enumerate(self.layers):
            torch.addmm(bias, inputs[i], weight.t(), out=outputs[i])
            if i + 1 < len(self.layers):
                outputs[i].relu_()
        return inputs, gradients

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The logits of `x`, as a copy."""
        return self._forward(x)[0][-1].clone()

    @torch.no_grad()
    def add_gradient(
        self, x: Tensor, y: Tensor, loss: Loss, weights: RowWeights, into: list[Tensor]
    ) -> None:
        """Add sum of weight × gradient over the rows to `into`, a tensor for each parameter.

        `into` may be theta's own: a layer changes when its weights have been used the last time.
        """
        inputs, gradients = self._forward(x)
        losses, gradient = GRADIENTS[loss](inputs[-1], y)
        gradient.mul_(weights(losses)[:, None])
        for i in reversed(range(len(self.layers))):
            if i:
                below = torch.mm(gradient, self.layers[i][0], out=gradients[i - 1])
                # What autograd's ReLU calls: 0 where the output is 0.
                torch.ops.aten.threshold_backward(below, inputs[i], 0, grad_input=below)
            into[2 * i].addmm_(gradient.t(), inputs[i])
            into[2 * i + 1].add_(gradient.sum(0))
            if i:
                gradient = below

    @torch.no_grad()
    def add_clipped_gradient(
        self,
        x: Tensor,
        y: Tensor,
        loss: Loss,
        weights: RowWeights,
        clip: float,
        into: list[Tensor],
    ) -> None:
        """Add sum of weight × gradient over the rows, each of these scaled to a norm of `clip`.

        A row's gradient of a layer is an outer product, d of the layer's output times its input,
        and of the bias d itself: so the squared norm is |d|^2 (|input|^2 + 1), without the product.
        """
        from fedmpi.models.clipping import clip_factors  # which other steps do without

        inputs, gradients = self._forward(x)
        losses, gradient = GRADIENTS[loss](inputs[-1], y)
        weight = weights(losses)
        of_outputs = [*gradients[:-1], gradient]
        squares = torch.zeros_like(losses)
        for i in reversed(range(len(self.layers))):
            squares.addcmul_(row_squares(of_outputs[i]), row_squares(inputs[i]).add_(1))
            if i:
                below = torch.mm(of_outputs[i], self.layers[i][0], out=of_outputs[i - 1])
                torch.ops.aten.threshold_backward(below, inputs[i], 0, grad_input=below)
        factors = clip_factors(squares, clip).mul_(weight)[:, None]
        for i, of_output in enumerate(of_outputs):
            of_output.mul_(factors)
            into[2 * i].addmm_(of_output.t(), inputs[i])
            into[2 * i + 1].add_(of_output.sum(0))


def row_squares(rows: Tensor) -> Tensor:
    """Squared norms of the rows."""
    return torch.linalg.vector_norm(rows, dim=1).square_()
