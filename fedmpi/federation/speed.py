"""Speed of a rank: rows per second through the model, measured before clients are assigned."""

from __future__ import annotations

import time

import torch

from fedmpi import models
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import LOSSES
from fedmpi.models.micro_batch import rows_of_a_pass
from fedmpi.run.config import Config

SECONDS = 0.1


def rows_per_second(
    config: Config, row_shape: tuple[int, ...], classes: int, device: torch.device
) -> float:
    """Rows per second of forward and backward passes over made-up rows, on this rank's device.

    All ranks measure at the same time, so that ranks that share a GPU or a core measure their share
    of it.
    """
    dtype = getattr(torch, config.dtype)
    module = models.build(config.model, row_shape, classes, config.seed)
    rows = config.micro_batch or rows_of_a_pass(config.model, module, dtype.itemsize)
    autocast = getattr(torch, config.autocast) if config.autocast else None
    model = FlatModel(module, dtype, device, 0, autocast=autocast)
    x = torch.zeros(rows, *row_shape, dtype=dtype, device=device)
    y = torch.zeros(rows, dtype=torch.int64, device=device)
    weights = torch.full((rows,), 1 / rows, dtype=dtype, device=device)

    def one_pass() -> None:
        model.add_gradient(x, y, LOSSES[config.loss], lambda losses: weights)
        model.change[:1].cpu()  # a GPU is done when one of its results has been copied here

    one_pass()  # the first pass also makes buffers and chooses kernels
    passes, began = 0, time.perf_counter()
    while (seconds := time.perf_counter() - began) < SECONDS or not passes:
        one_pass()
        passes += 1
    return rows * passes / seconds
