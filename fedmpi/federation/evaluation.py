"""Risk and accuracy of a model on the test rows, of which every client rank holds a part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedmpi.federation.clients import Rows
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import Loss
from fedmpi.mpi.ranks import Ranks


@dataclass
class Scores:
    """Sums over all test rows, by group, on the server. Only sums leave a rank."""

    losses: np.ndarray
    confusion: np.ndarray
    """Numbers of rows, groups × true classes × predicted classes."""

    @property
    def rows(self) -> np.ndarray:
        """Test rows of each group."""
        return self.confusion.sum(axis=(1, 2))

    @property
    def risk(self) -> np.ndarray:
        """Mean loss of each group; NaN for a group without test rows."""
        return _ratio(self.losses, self.rows)

    @property
    def accuracy(self) -> np.ndarray:
        """Share of each group's rows that are classified right; NaN without rows."""
        return _ratio(np.trace(self.confusion, axis1=1, axis2=2), self.rows)


def evaluate(
    ranks: Ranks,
    model: FlatModel,
    loss: Loss,
    rows: Rows | None,
    groups: int,
    classes: int,
    micro_batch: int,
) -> Scores:
    """Score the model at its theta; on the server, the Scores are summed over all ranks."""
    sums = np.zeros(groups * (1 + classes * classes))
    losses, confusion = sums[:groups], sums[groups:].reshape(groups, classes, classes)
    if rows is not None:
        cells = np.zeros(confusion.size, dtype=np.int64)
        with torch.no_grad():
            for start in range(0, len(rows.x), micro_batch):
                batch = slice(start, start + micro_batch)
                y, group = rows.y[batch], rows.group[batch]
                logits = model(rows.x[batch])
                row_losses = loss(logits, y).double()
                losses += torch.bincount(group, row_losses, groups).cpu().numpy()
                cell = (group * classes + y) * classes + logits.argmax(1)
                cells += torch.bincount(cell, minlength=confusion.size).cpu().numpy()
        confusion += cells.reshape(confusion.shape)
    ranks.wait(ranks.Ireduce(sums))
    return Scores(losses, confusion.round().astype(np.int64))


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    result = np.full(len(numerator), np.nan)
    return np.divide(numerator, denominator, out=result, where=denominator > 0)
