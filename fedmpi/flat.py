"""A model whose parameters are one vector, and whose gradients are another."""

import numpy as np
import torch
from torch import nn


class FlatModel:
    """theta, ONE contiguous vector that the module's parameters are views of.

    `change` is what a rank adds to the round's sum, followed by a few scalars that are summed with
    it; the parameters' gradients are views of it, so a backward pass writes where the Allreduce
    reads, and a round of one-step clients allocates nothing of theta's size.
    """

    def __init__(
        self,
        module: nn.Module,
        dtype: torch.dtype,
        device: torch.device,
        scalars: int,
        scale: dict[str, list[float]] | None = None,
    ) -> None:
        self.module = module.to(device=device, dtype=dtype)
        self.scale = scale and tuple(
            torch.tensor(scale[name], dtype=dtype, device=device)[:, None, None]
            for name in ("mean", "std")
        )
        parameters = list(module.parameters())
        self.size = sum(p.numel() for p in parameters)
        self.theta = torch.empty(self.size, dtype=dtype, device=device)
        self.sums = torch.zeros(self.size + scalars, dtype=dtype, device=device)
        self.change, self.scalars = self.sums[: self.size], self.sums[self.size :]
        # MPI reads host memory: on a GPU the sums are staged through a pinned copy.
        self.host_sums = self.sums if device.type == "cpu" else self.sums.cpu().pin_memory()
        self.buffer: np.ndarray = self.host_sums.numpy()
        offset = 0
        for p in parameters:
            piece = slice(offset, offset + p.numel())
            self.theta[piece].view_as(p).copy_(p.data)
            p.data = self.theta[piece].view_as(p)
            p.grad = self.change[piece].view_as(p)
            offset += p.numel()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The module's logits of rows as they are stored.

        Images are stored as bytes, and standardised here, a piece at a time: not in the module,
        whose state_dict is what users load.
        """
        if self.scale:
            mean, std = self.scale
            x = x.to(self.theta.dtype).sub_(mean).div_(std)
        return self.module(x)

    def to_host(self) -> None:
        """Bring the sums to where MPI reads them (on a CPU they are there)."""
        if self.host_sums is not self.sums:
            self.host_sums.copy_(self.sums)

    def from_host(self) -> None:
        """Bring what MPI has summed back to the device."""
        if self.host_sums is not self.sums:
            self.sums.copy_(self.host_sums)

    def checksum(self) -> int:
        """A sum of theta's bits: equal on all ranks, if theta is."""
        # As 64-bit integers, which are summed as fast as memory gives them: 32-bit ones are not.
        theta = self.theta.detach()
        pairs = self.size - self.size % (8 // theta.element_size())
        bits = int(theta[:pairs].view(torch.int64).sum())
        odd = int(theta[pairs:].view(torch.int32).sum())  # of an odd number of float32, the last
        return (bits ^ odd) if pairs < self.size else bits

    def state_dict(self, theta: torch.Tensor) -> dict[str, torch.Tensor]:
        """`theta` cut into the module's named tensors, as copies."""
        offset, state = 0, {}
        for name, p in self.module.named_parameters():
            piece = theta[offset : offset + p.numel()]
            state[name] = piece.view_as(p).detach().to("cpu", p.dtype, copy=True)
            offset += p.numel()
        return state
