"""Runs that were never trained: losses of test rows, summed over replicates in plain numpy."""

import numpy as np

from fedmpi.scoring.bootstrap import poisson_weights, row_keys
from fedmpi.scoring.replicates import Replicates


class SampleRows:
    """Test rows of some groups, and their replicates."""

    def __init__(self, sizes: list[int], replicates: int) -> None:
        self.group = np.repeat(np.arange(len(sizes)), sizes)
        weights = poisson_weights(row_keys(np.arange(len(self.group))), replicates)
        self.weights = np.vstack([np.ones(len(self.group)), weights.T.astype(float)])
        self.rows = self.sums(np.ones(len(self.group)))

    def sums(self, values: np.ndarray) -> np.ndarray:
        groups = range(self.group[-1] + 1)
        mine = [self.group == a for a in groups]
        return np.stack([self.weights[:, m] @ values[m] for m in mine], axis=1)

    def run(self, losses: np.ndarray, right: np.ndarray | None = None) -> Replicates:
        names = tuple("abcdefghij"[: self.rows.shape[1]])
        counts = self.sums(losses > 1 if right is None else right)
        return Replicates(names, self.sums(losses), counts, self.rows, "rows")
