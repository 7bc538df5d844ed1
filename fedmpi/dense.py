"""The passes through a perceptron by hand: at a hundred rows autograd costs as much as the products.

Measured by benchmarks/passes.py, which holds the numbers of docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Goal = Callable[[Tensor], Tensor]
"""A number that is made of the logits of some rows."""


def layers_of(module: nn.Module) -> list[nn.Linear] | None:
    """The linear layers of a perceptron with ReLUs between them; None of any other model."""
    layers = list(module) if type(module) is nn.Sequential else []
    if layers and type(layers[0]) is nn.Flatten:
        layers = layers[1:]
    linear, between = layers[::2], layers[1::2]
    if len(layers) % 2 == 0 or any(type(layer) is not nn.ReLU for layer in between):
        return None
    if any(type(layer) is not nn.Linear or layer.bias is None for layer in linear):
        return None
    return linear


class Dense:
    """Forward and backward passes on kept buffers: nothing of the size of the rows is allocated."""

    def __init__(self, layers: list[nn.Linear]) -> None:
        self.layers = [(layer.weight.detach(), layer.bias.detach()) for layer in layers]
        self.buffers: list[tuple[Tensor, Tensor]] = []

    def __call__(self, x: Tensor) -> Tensor:
        """The logits of `x`, as a copy."""
        return self._forward(x)[0][-1].clone()

    def _forward(self, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The inputs of the layers, the logits last; and room for the gradients of the outputs."""
        if not self.buffers or len(self.buffers[0][0]) < len(x):
            self.buffers = [
                (b.new_empty(len(x), len(b)), b.new_empty(len(x), len(b))) for _, b in self.layers
            ]
        outputs = [output[: len(x)] for output, _ in self.buffers]
        inputs = [x.flatten(1), *outputs]
        with torch.no_grad():
            for i, (weight, bias) in enumerate(self.layers):
                torch.addmm(bias, inputs[i], weight.t(), out=outputs[i])
                if i + 1 < len(self.layers):
                    outputs[i].relu_()
        return inputs, [gradient[: len(x)] for _, gradient in self.buffers]

    def add_gradient(self, x: Tensor, goal: Goal, into: list[Tensor]) -> None:
        """Add the gradient of `goal` to `into`, a tensor for each parameter: these may be theta's.

        A layer's own step is made when its weights have been used for the last time.
        """
        inputs, gradients = self._forward(x)
        logits = inputs[-1].detach().requires_grad_()
        goal(logits).backward()
        gradient = logits.grad
        assert gradient is not None
        with torch.no_grad():
            for i in reversed(range(len(self.layers))):
                below = None
                if i:
                    below = torch.mm(gradient, self.layers[i][0], out=gradients[i - 1])
                    # What autograd's own ReLU calls: 0 where the output is 0.
                    torch.ops.aten.threshold_backward(below, inputs[i], 0, grad_input=below)
                into[2 * i].addmm_(gradient.t(), inputs[i])
                into[2 * i + 1].add_(gradient.sum(0))
                if below is not None:
                    gradient = below
