"""The floor: the same work in plain torch, in one thread, without messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedmpi import data as datasets
from fedmpi.data.options import options_from
from fedmpi.data.partition import partition
from fedmpi.data.prepare import prepare
from fedmpi.data.store import Prepared
from fedmpi.models.losses import LOSSES
from fedmpi.run.config import Config

Shard = tuple[Tensor, Tensor]
Order = Callable[[int], np.ndarray]
"""Function of a client's number: the order in which this client goes through its rows."""


def shards(config: Config) -> tuple[Prepared, list[Shard]]:
    """Rows and targets of every client, as fedmpi.train allocates them."""
    dataset = datasets.find(config.dataset)
    prepared = prepare(dataset, Path(config.data_dir), options_from(config))
    groups = np.asarray(prepared.array("train_group"))
    dealt = partition(
        groups,
        prepared.groups,
        config.clients,
        config.setting,
        dataset,
        skew=config.skew,
        seed=config.seed,
    )

    def shard(k: int) -> Shard:
        rows = dealt.rows_of(k)
        x, y = (torch.from_numpy(prepared.take(f"train_{part}", rows)) for part in "xy")
        return x.to(getattr(torch, config.dtype)), y.long()

    return prepared, [shard(k) for k in range(config.clients)]


class PlainLoop:
    """FedAvg as in a tutorial: client after client, an optimizer, a sum for each tensor.

    Batches are views of the rows, which cost less than a DataLoader. Without a batch size, a
    client takes one step on all its rows.
    """

    def __init__(
        self, module: nn.Module, clients: list[Shard], loss: str, lr: float, batch: int | None
    ) -> None:
        self.module, self.clients, self.loss, self.batch = module, clients, LOSSES[loss], batch
        self.parameters = list(module.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=lr)
        self.total = sum(len(y) for _, y in clients)

    def round(self, order: Order | None = None) -> None:
        """Do one round; batches are consecutive rows, unless `order` is given."""
        start = [p.detach().clone() for p in self.parameters]
        sums = [torch.zeros_like(p) for p in start]
        for k, (x, y) in enumerate(self.clients):
            with torch.no_grad():
                for p, s in zip(self.parameters, start, strict=True):
                    p.copy_(s)
            if order:
                rows = torch.from_numpy(order(k))
                x, y = x[rows], y[rows]
            size = self.batch or len(y)
            for xs, ys in zip(x.split(size), y.split(size), strict=True):
                self.optimizer.zero_grad()
                self.loss(self.module(xs), ys).mean().backward()
                self.optimizer.step()
            with torch.no_grad():
                for s, p in zip(sums, self.parameters, strict=True):
                    s.add_(p, alpha=len(y) / self.total)
        with torch.no_grad():
            for p, s in zip(self.parameters, sums, strict=True):
                p.copy_(s)

    def theta(self) -> Tensor:
        """The model as one vector, a copy."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters])


class PieceLoop(PlainLoop):
    """One step on all rows of all clients, in micro-batches of `batch` rows across clients."""

    def __init__(self, module: nn.Module, clients: list[Shard], loss: str, lr: float, batch: int):
        rows = [torch.cat(part) for part in zip(*clients, strict=True)]
        super().__init__(module, [(rows[0], rows[1])], loss, lr, batch)

    def round(self, order: Order | None = None) -> None:
        """Do one step of theta."""
        (x, y), size = self.clients[0], self.batch
        self.optimizer.zero_grad()
        for xs, ys in zip(x.split(size), y.split(size), strict=True):
            (self.loss(self.module(xs), ys).sum() / self.total).backward()
        self.optimizer.step()
