"""A model whose parameters are one vector, and whose gradients are another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from fedmpi.models.batched_clients import BatchedTraining
from fedmpi.models.fixed_point import ExactSum, FixedPoint
from fedmpi.models.losses import GRADIENTS, Loss
from fedmpi.models.perceptron_passes import Dense, RowWeights, layers_of

if TYPE_CHECKING:
    from fedmpi.models.clipping import ClippedGradients

Sums = Literal["host", "staged", "device"]
"""Place where MPI reads a rank's change of theta: where the CPU writes the change, in a copy of
what is on the device, or on the device itself, which takes an MPI that can (--cuda-aware)."""


def sums_length(size: int, vectors: int, scalars: int) -> int:
    """How many numbers a round sums, of a theta of `size`."""
    return size * (1 + vectors) + scalars


class FlatModel:
    """theta, ONE contiguous vector that the module's parameters are views of.

    `change` is what a rank adds to the round's sum, followed by the `vectors` of theta's length and
    the few `scalars` that are summed with it, if a method has some. A backward pass adds to where
    the Allreduce reads (`add_gradient`), so a round of one-step clients allocates nothing of that
    length.
    """

    buffer: Any
    """Memory that MPI sums: an array on the host, or a tensor on the device."""

    def __init__(
        self,
        module: nn.Module,
        dtype: torch.dtype,
        device: torch.device,
        scalars: int,
        scale: dict[str, list[float]] | None = None,
        buffer: np.ndarray | None = None,
        sums: Sums | None = None,
        vectors: int = 0,
        fixed: FixedPoint | None = None,
        secret: bool = False,
        autocast: torch.dtype | None = None,
    ) -> None:
        """Take over the parameters of `module` as theta.

        `buffer` is host memory for the sums, of `sums_length`, if it matters where the sums are.
        `sums` says how MPI comes to the sums. By default these are in host memory if `device`
        is the CPU, and staged if it is another. With `fixed` MPI sums integers: see `close_unit`.
        If these are `secret`, whoever masks them writes them to the buffer.
        `autocast` is the dtype of the products in training passes, if it is not `dtype`; what is
        added up over rows, clients and rounds is of `dtype`, and so are passes that do not train.
        """
        self.module = module.to(device=device, dtype=dtype)
        self.scale = scale and tuple(
            torch.tensor(scale[name], dtype=dtype, device=device)[:, None, None]
            for name in ("mean", "std")
        )
        self._parameters = parameters = list(module.parameters())
        self.size = sum(p.numel() for p in parameters)
        self.theta = torch.empty(self.size, dtype=dtype, device=device)
        layers = layers_of(module) or []
        # The gradient of weights, a product that sums over rows, is the faster the longer the
        # lines of memory that it is added to: to 512 × 91 numbers in lines of 512 by a third.
        wide = {id(layer.weight) for layer in layers if layer.out_features > layer.in_features}
        self._lies_across = [id(p) in wide for p in parameters]
        for p, theta in zip(parameters, self.cut(self.theta), strict=True):
            theta.copy_(p.data)
            p.data = theta
        self._sums_kind = sums or ("host" if device.type == "cpu" else "staged")
        self._beside, self._fixed, self._secret = (vectors, scalars), fixed, secret
        self.exact: ExactSum | None = None
        self.new_sums(buffer)
        self._into_theta = [p.data for p in parameters]
        self._autocast = autocast
        self._dense = Dense(layers) if layers and not autocast else None
        self._clipped: ClippedGradients | None = None

    def new_sums(self, buffer: np.ndarray | None = None) -> None:
        """Take other memory for the change and what is summed beside it: `buffer`, on the host."""
        vectors, scalars = self._beside
        length, kind = sums_length(self.size, vectors, scalars), self._sums_kind
        if self._fixed:
            self.buffer = np.zeros(length, dtype=np.uint64) if buffer is None else buffer
            self.sums = self.theta.new_zeros(length)
            self.exact = ExactSum(self.buffer, self._fixed, self._secret)
        elif kind == "device":
            self.sums = self.buffer = self.theta.new_zeros(length)
        else:
            if buffer is None:
                # Pinned: the GPU copies to it and from it by itself.
                pinned = self.theta.device.type != "cpu"
                buffer = torch.zeros(length, dtype=self.theta.dtype, pin_memory=pinned).numpy()
            self.buffer = buffer
            self._host_sums = torch.from_numpy(buffer)
            self.sums = self._host_sums if kind == "host" else self.theta.new_zeros(length)
        self.change = self.sums[: self.size]
        self.vectors = self.sums[self.size : length - scalars].view(vectors, self.size)
        self.scalars = self.sums[length - scalars :]
        self.into_change = self.cut(self.change)
        """The change, in the shapes of the parameters."""
        for p, change in zip(self._parameters, self.into_change, strict=True):
            p.grad = change

    def clear_sums(self) -> None:
        """Set the change, and what is summed beside it, to zero: a round begins."""
        self.sums.zero_()
        if self.exact:
            self.exact.clear()

    def close_unit(self) -> None:
        """End what one client adds, whose change has the same bits on any layout.

        Exact sums round it now, and add it as integers. Floats go on adding to the change.
        """
        if self.exact:
            self.exact.add(self.change)
            self.change.zero_()

    def change_is_finite(self) -> bool:
        """Return whether all that this rank's clients have added so far is finite."""
        if self.exact:
            return not self.exact.not_finite
        return bool(torch.isfinite(self.change.sum()))

    def add_gradient(
        self,
        x: torch.Tensor,
        y: torch.Tensor,
        loss: Loss,
        weights: RowWeights,
        to_theta: bool = False,
    ) -> None:
        """Add the sum over the rows of weight × gradient of the loss to `change`.

        `weights` is asked when the losses are there. To theta itself, with weights of -lr / rows,
        this is a whole step of SGD: there is no gradient to be zeroed, kept or added. That is safe
        because a parameter's gradient is added when all that needs the parameter has run.
        """
        into = self._into_theta if to_theta else self.into_change
        if self._dense and loss in GRADIENTS:
            self._dense.add_gradient(self.standardised(x), y, loss, weights, into)
            return
        for p, gradient in zip(self._parameters, into, strict=True):
            p.grad = gradient
        losses = loss(self._logits_to_train_on(x), y)
        # Not losses.backward(weights), for which torch imports sympy: 45 MB and a second.
        losses.dot(weights(losses.detach())).backward()

    def add_clipped_gradient(
        self, x: torch.Tensor, y: torch.Tensor, loss: Loss, weights: RowWeights, clip: float
    ) -> None:
        """Add the sum over the rows of weight × clipped gradient of the loss to `change`.

        A row's gradient in all parameters together is scaled to a norm of at most `clip`. `weights`
        is asked once, when the losses, which are not clipped, are there.
        """
        x = self.standardised(x)
        if self._dense and loss in GRADIENTS:
            self._dense.add_clipped_gradient(x, y, loss, weights, clip, self.into_change)
            return
        if self._clipped is None or self._clipped.loss is not loss:
            from fedmpi.models.clipping import ClippedGradients  # which other steps do without

            self._clipped = ClippedGradients(self.module, loss)
        self._clipped.add(x, y, weights, clip, self.into_change)

    def batched_training(self, loss: Loss) -> BatchedTraining | None:
        """Return local training of small clients at once; None if this is no perceptron."""
        if not self._dense or loss not in GRADIENTS:
            return None
        return BatchedTraining(self._dense.layers, GRADIENTS[loss])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the module's logits of rows as they are stored.

        Images are stored as bytes, and standardised here, a micro-batch at a time: not in the
        module, whose state_dict is what users load.
        """
        x = self.standardised(x)
        if self._dense and not torch.is_grad_enabled():
            return self._dense(x)
        return self.module(x)

    def _logits_to_train_on(self, x: torch.Tensor) -> torch.Tensor:
        """Return the module's logits of rows as they are stored, for a backward pass."""
        if not self._autocast:
            return self(x)
        with torch.autocast(x.device.type, self._autocast):
            return self.module(self.standardised(x)).to(self.theta.dtype)

    def standardised(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows as the module takes them."""
        if self.scale:
            mean, std = self.scale
            x = x.to(self.theta.dtype).sub_(mean).div_(std)
        return x

    def to_mpi(self) -> None:
        """Bring the sums to where MPI reads them."""
        if self.exact:
            self.exact.put_flag(float(self.scalars[-1]))
        elif self._sums_kind == "staged":
            self._host_sums.copy_(self.sums)
        elif self.sums.device.type == "cuda":
            torch.cuda.synchronize(self.sums.device)  # MPI knows nothing of torch's queue

    def from_mpi(self) -> None:
        """Bring what MPI has summed to where the model is."""
        if self.exact:
            self.exact.read(self.change)
            self.scalars[-1] = self.exact.flag()
        elif self._sums_kind == "staged":
            self.sums.copy_(self._host_sums)

    def flag(self) -> float:
        """Return the last scalar, the exchange's own, of what MPI has summed."""
        return self.exact.flag() if self.exact else float(self.buffer[-1])

    def drop_sums(self) -> None:
        """Let go of the memory of the sums: there are no more rounds."""
        self.sums = self._host_sums = self.change = self.scalars = self.theta[:0]
        self.buffer, self.exact = np.empty(0), None
        self.into_change = []
        for p in self._parameters:
            p.grad = None

    def checksum(self) -> int:
        """Return a sum of theta's bits, which is equal on all ranks if theta is."""
        # As 64-bit integers, which are summed as fast as memory gives them: 32-bit ones are not.
        theta = self.theta.detach()
        pairs = self.size - self.size % (8 // theta.element_size())
        bits = int(theta[:pairs].view(torch.int64).sum())
        odd = int(theta[pairs:].view(torch.int32).sum())  # of an odd number of float32, the last
        return (bits ^ odd) if pairs < self.size else bits

    def state_dict(self, theta: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return `theta` cut into the module's named tensors, as copies."""
        named = self.module.named_parameters()
        return {
            name: torch.empty(p.shape, dtype=p.dtype).copy_(part)
            for (name, p), part in zip(named, self.cut(theta.detach()), strict=True)
        }

    def cut(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Return views of `vector`, ordered as theta is, in the shapes of the parameters."""
        parts = vector.split([p.numel() for p in self._parameters])
        return [
            part.view(p.shape[::-1]).t() if across else part.view(p.shape)
            for part, p, across in zip(parts, self._parameters, self._lies_across, strict=True)
        ]
