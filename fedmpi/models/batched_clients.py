"""Local epochs of many small clients at once, without a theta for each of them.

A step of SGD changes the weights W of a layer by G'A: A are the inputs of the batch's rows, and G
the gradients of their outputs times -lr / rows. So after some steps from the common W a client's
weights are W + sum G'A over the rows it has seen, and with the next batch's inputs a they make

    (W + sum G'A) a = W a + sum G' (A a)

The first term is one product for all clients, the others are products of some rows by some rows.
In exact arithmetic that is the same training; and where a client sees few rows it is less work than
a W of its own, which every batch would read and write. What is to be summed over the clients, share
× change, is one product again, over everybody's rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Gradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""A loss and its gradient, as in losses.GRADIENTS."""

FEW = 128
"""Rows that a client may see in a round to be trained here. With twice as many most are faster
alone, by benchmarks/small_clients.py, of our perceptrons and batches of 8 to 100."""

Layer = tuple[Tensor, Tensor]
"""Weights and bias."""

Order = Callable[[int, int], np.ndarray]
"""The order in which a client, given by its place, goes through its rows in an epoch."""


@dataclass
class ClientBatch:
    """Clients with the same number of steps in an epoch, which take their steps together.

    Tables are steps' rows × clients: a column is what a client goes through, one step after the
    other, epoch after epoch. Where a client has fewer rows than the largest of the batch, rows of
    weight 0 stand in.
    """

    places: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    epochs: int
    batch_size: int

    def __post_init__(self) -> None:
        self.longest = int(self.sizes.max())
        self.ends = [
            min(end, self.longest)
            for end in range(self.batch_size, self.longest + self.batch_size, self.batch_size)
        ]
        row = np.arange(self.longest)[:, None]
        held = row < self.sizes
        of_batch = np.minimum(
            self.sizes - row // self.batch_size * self.batch_size, self.batch_size
        )
        self.weights = np.tile(np.where(held, 1 / np.maximum(of_batch, 1), 0), (self.epochs, 1))
        self.rows = np.tile(np.where(held, self.starts + row, self.starts), (self.epochs, 1))

    def steps(self) -> list[slice]:
        """Return the rows of each step."""
        begins = [0, *self.ends[:-1]]
        return [
            slice(epoch * self.longest + begin, epoch * self.longest + end)
            for epoch in range(self.epochs)
            for begin, end in zip(begins, self.ends, strict=True)
        ]

    def shuffle(self, order: Order) -> None:
        """Draw the rows of each step; with one step an epoch there is nothing to draw."""
        if len(self.ends) == 1:
            return
        for column, (place, start, size) in enumerate(
            zip(self.places.tolist(), self.starts.tolist(), self.sizes.tolist(), strict=True)
        ):
            for epoch in range(self.epochs):
                at = epoch * self.longest
                self.rows[at : at + size, column] = start + order(place, epoch)


def batch_clients(
    places: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    epochs: int,
    batch_size: int,
    rows: int,
) -> list[ClientBatch]:
    """Put clients of about the same size together, up to about `rows` rows in all epochs."""
    batches = []
    order = np.argsort(sizes, kind="stable")
    steps = -(-sizes // batch_size)
    begin = 0
    for end in range(1, len(order) + 1):
        if end < len(order):
            largest = sizes[order[end]]
            fits = (end + 1 - begin) * largest * epochs <= rows
            if fits and steps[order[end]] == steps[order[begin]]:
                continue
        mine = np.sort(order[begin:end])
        batches.append(ClientBatch(places[mine], starts[mine], sizes[mine], epochs, batch_size))
        begin = end
    return batches


class BatchedTraining:
    """Local epochs of a batch of clients, on kept buffers."""

    def __init__(self, layers: list[Layer], gradient_of: Gradient) -> None:
        self.layers, self.gradient_of = layers, gradient_of
        self.room: list[list[Tensor]] = []

    def _make_room(self, rows: int, clients: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return room for each layer's outputs and for their gradients: rows × clients × width."""
        biases = [bias for _, bias in self.layers]
        if not self.room or rows * clients > len(self.room[0][0]):
            self.room = [[b.new_empty(rows * clients, len(b)) for b in biases] for _ in range(2)]
        outputs, gradients = (
            [room[: rows * clients].view(rows, clients, -1) for room in rooms]
            for rooms in self.room
        )
        return outputs, gradients

    @torch.no_grad()
    def add_changes(
        self,
        x: Tensor,
        y: Tensor,
        batch: ClientBatch,
        lr: float,
        shares: Callable[[], Tensor],
        into: list[Tensor],
        squares: np.ndarray | None = None,
    ) -> None:
        """Train the clients of a batch, and add share × change of each to `into`, by parameter.

        `x` and `y` are the rows of the batch, one line of its table after the other. `squares` is
        filled with the squared norms of the changes, by the clients' places.
        """
        inputs, gradients = self._train(x, y, batch, lr)
        if squares is not None:
            squares[batch.places] = self._squares(inputs, gradients).cpu().numpy()
        share = shares()[:, None]
        for i in range(len(self.layers)):
            gradient = gradients[i].mul_(share).flatten(0, 1)
            into[2 * i].addmm_(gradient.t(), inputs[i].flatten(0, 1))
            into[2 * i + 1].add_(gradient.sum(0))

    def _squares(self, inputs: list[Tensor], gradients: list[Tensor]) -> Tensor:
        """Return the squared norm of each client's change: that of G'A is the sum of GG' × AA'."""
        total = torch.zeros(inputs[0].shape[1], dtype=torch.float64, device=inputs[0].device)
        for a, g in zip(inputs, gradients, strict=False):
            a, g = by_client(a), by_client(g)
            total += (torch.bmm(g, g.mT).double() * torch.bmm(a, a.mT).add_(1)).sum((1, 2))
        return total

    def _train(
        self, x: Tensor, y: Tensor, batch: ClientBatch, lr: float
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return A and G of each layer, for all rows that the clients go through."""
        rows, clients = batch.rows.shape
        x, y = x.view(rows, clients, -1), y.view(rows, clients)
        outputs, gradients = self._make_room(rows, clients)
        inputs = [x, *outputs]
        weights = -lr * torch.from_numpy(batch.weights).to(x)[:, :, None]
        weight, bias = self.layers[0]  # whose inputs are known for all steps
        torch.addmm(bias, x.flatten(0, 1), weight.t(), out=outputs[0].flatten(0, 1))
        for step in batch.steps():
            self._forward(inputs, outputs, gradients, step)
            self._backward(inputs, gradients, step, y[step], weights[step])
        return inputs, gradients

    def _forward(
        self, inputs: list[Tensor], outputs: list[Tensor], gradients: list[Tensor], step: slice
    ) -> None:
        """Compute the outputs of a step's rows."""
        for i, (weight, bias) in enumerate(self.layers):
            out, ins = outputs[i][step], inputs[i][step]
            if i:
                torch.addmm(bias, ins.flatten(0, 1), weight.t(), out=out.flatten(0, 1))
            if step.start:
                seen = slice(0, step.start)
                # Client by client; the 1 is the bias's own part.
                alike = torch.bmm(by_client(ins), by_client(inputs[i][seen]).mT).add_(1)
                by_client(out).baddbmm_(alike, by_client(gradients[i][seen]))
            if i + 1 < len(self.layers):
                out.relu_()

    def _backward(
        self,
        inputs: list[Tensor],
        gradients: list[Tensor],
        step: slice,
        y: Tensor,
        weights: Tensor,
    ) -> None:
        """Compute the gradients of the outputs of a step's rows, times `weights`."""
        last = len(self.layers) - 1
        _, gradient = self.gradient_of(inputs[-1][step].flatten(0, 1), y.flatten())
        torch.mul(gradient.view_as(gradients[last][step]), weights, out=gradients[last][step])
        for i in range(last, 0, -1):
            gradient, below = gradients[i][step], gradients[i - 1][step]
            torch.mm(gradient.flatten(0, 1), self.layers[i][0], out=below.flatten(0, 1))
            if step.start:
                seen = slice(0, step.start)
                alike = torch.bmm(by_client(gradient), by_client(gradients[i][seen]).mT)
                by_client(below).baddbmm_(alike, by_client(inputs[i][seen]))
            # As in Dense: 0 where the output is 0.
            torch.ops.aten.threshold_backward(below, inputs[i][step], 0, grad_input=below)


def by_client(table: Tensor) -> Tensor:
    """Return a view of rows × clients × width as clients × rows × width."""
    return table.transpose(0, 1)
