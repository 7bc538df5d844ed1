"""Sums over scored rows, by group: all that risks, accuracies, rates and intervals need."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

RANKS = 4096
"""Bins of the log-odds of the second class, by which rows are ranked: between -16 and 16, so that
scores which differ by less than 1/128 may be ties. What is beyond is in the outermost bins."""
MOST_ODDS = 16.0
CALIBRATION_BINS = 15
"""Bins of the probability, equally wide (Guo et al. 2017)."""


class Scores:
    """Sums by group over rows. What ranks add up is `sums`, one buffer; rows leave no rank.

    With `histograms` there are also those of the scores: `calibration`, and for two classes
    `ranking`.
    """

    def __init__(self, groups: int, classes: int, histograms: bool = False) -> None:
        self.shape = groups, classes, histograms
        bins = CALIBRATION_BINS if histograms else 0
        ranks = RANKS if histograms and classes == 2 else 0
        # First sums of numbers, then counts: evaluation.ExactScores scales each kind.
        shapes = [(groups,), (groups,), (groups, bins)]
        shapes += [(groups, classes, classes), (groups, bins, 2), (groups, 2, ranks)]
        sizes = [math.prod(shape) for shape in shapes]
        self.sums = np.zeros(sum(sizes))
        parts = np.split(self.sums, np.cumsum(sizes)[:-1])
        parts = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        self.losses, self.squares, self.probabilities = parts[:3]
        self._cells, self._in_bins, self._ranks = parts[3:]

    def add(
        self, losses: torch.Tensor, logits: torch.Tensor, y: torch.Tensor, group: torch.Tensor
    ) -> None:
        """Add rows: their losses, logits, true classes and groups."""
        groups, classes, histograms = self.shape
        losses, predicted = losses.double(), logits.argmax(1)
        self.losses += torch.bincount(group, losses, groups).cpu().numpy()
        self.squares += torch.bincount(group, losses.square(), groups).cpu().numpy()
        _count(self._cells, (group * classes + y) * classes + predicted)
        if not histograms:
            return
        logits = logits.double().nan_to_num()  # a model that diverged is refused for its losses
        share = logits.softmax(1)
        # Of two classes the second one's probability counts, of more that of the predicted class.
        sure, right = (share[:, 1], y) if classes == 2 else (share.amax(1), (predicted == y).long())
        edges = torch.linspace(0, 1, CALIBRATION_BINS + 1, dtype=sure.dtype, device=sure.device)
        place = group * CALIBRATION_BINS + torch.bucketize(sure.contiguous(), edges[1:-1])
        whole = torch.bincount(place, sure, self.probabilities.size).cpu().numpy()
        self.probabilities += whole.reshape(self.probabilities.shape)
        _count(self._in_bins, place * 2 + right)
        if classes == 2:
            odds = (logits[:, 1] - logits[:, 0]).clamp(-MOST_ODDS, MOST_ODDS) + MOST_ODDS
            rank = (odds * (RANKS / (2 * MOST_ODDS))).long().clamp(max=RANKS - 1)
            _count(self._ranks, (group * 2 + y) * RANKS + rank)

    @property
    def ranking(self) -> np.ndarray:
        """Numbers of rows, groups × true classes × bins of the log-odds of the second class."""
        return self._ranks.round().astype(np.int64)

    @property
    def calibration(self) -> np.ndarray:
        """Groups × bins of the probability × (rows, sum of the probabilities, rows it is right of).

        It is right of a row of the second class; with more than two classes, of a row whose
        predicted class is the true one.
        """
        wrong, right = np.moveaxis(self._in_bins.round(), -1, 0)
        return np.stack([wrong + right, self.probabilities, right], axis=-1)

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


def _count(cells: np.ndarray, cell_of_row: torch.Tensor) -> None:
    """Add the number of rows of each cell to `cells`."""
    counts = torch.bincount(cell_of_row, minlength=cells.size).cpu().numpy()
    cells += counts.reshape(cells.shape)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    result = np.full(len(numerator), np.nan)
    return np.divide(numerator, denominator, out=result, where=denominator > 0)
