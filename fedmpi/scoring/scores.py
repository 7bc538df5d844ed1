"""Sums over scored rows, by group: all that risks, accuracies, rates and intervals need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch


class Scores:
    """Sums by group over rows. What ranks add up is `sums`, one buffer; rows leave no rank."""

    def __init__(self, groups: int, classes: int) -> None:
        self.sums = np.zeros(groups * (2 + classes * classes))
        self.losses, self.squares, cells = np.split(self.sums, [groups, 2 * groups])
        self._cells = cells.reshape(groups, classes, classes)

    def add(
        self, losses: torch.Tensor, predicted: torch.Tensor, y: torch.Tensor, group: torch.Tensor
    ) -> None:
        """Add rows: their losses, and their predicted classes, true classes and groups."""
        groups, classes, _ = self._cells.shape
        losses = losses.double()
        self.losses += torch.bincount(group, losses, groups).cpu().numpy()
        self.squares += torch.bincount(group, losses.square(), groups).cpu().numpy()
        cell = (group * classes + y) * classes + predicted
        count = torch.bincount(cell, minlength=self._cells.size).cpu().numpy()
        self._cells += count.reshape(self._cells.shape)

    @property
    def confusion(self) -> np.ndarray:
        """Numbers of rows, groups × true classes × predicted classes."""
        return self._cells.round().astype(np.int64)

    @property
    def rows(self) -> np.ndarray:
        """Rows of each group."""
        return self.confusion.sum(axis=(1, 2))

    @property
    def risk(self) -> np.ndarray:
        """Mean loss of each group; NaN for a group without rows."""
        return _ratio(self.losses, self.rows)

    @property
    def risk_error(self) -> np.ndarray:
        """Standard error of each group's risk; NaN for a group of fewer than two rows."""
        from fedmpi.intervals import standard_error  # which the ranks of clients do without

        return standard_error(self.losses, self.squares, self.rows)

    @property
    def right(self) -> np.ndarray:
        """Rows of each group that are classified right."""
        return np.trace(self.confusion, axis1=1, axis2=2)

    @property
    def accuracy(self) -> np.ndarray:
        """Share of each group's rows that are classified right; NaN without rows."""
        return _ratio(self.right, self.rows)


class PersonalScores(NamedTuple):
    """Scores of the clients' own models on rows of their own, and of the global model on those."""

    split: str
    """What the rows are: `test`, or `train` where no test rows are a client's own."""
    own: Scores
    of_global: Scores


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    result = np.full(len(numerator), np.nan)
    return np.divide(numerator, denominator, out=result, where=denominator > 0)
