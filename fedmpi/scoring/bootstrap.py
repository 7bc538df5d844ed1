"""The Poisson bootstrap over test rows: sums in which row i counts w_b(i) times, b = 1 ... B.

w_b(i) is a Poisson number of mean 1 from a hash of (i, b) alone. So a row has the same weights on
any rank, in any order and for any B, and two runs that are tested on the same rows have the same
replicates: what they have in common cancels in the difference of their figures.

A Poisson number takes 16 bits, a fourth of a hash of 64 (SplitMix64, Steele et al. 2014). For
16,281 rows and B = 1000 all sums take 0.06 seconds of one core, spread over the ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
COUNTS = (24107, 24113, 12055, 4017, 1004, 201, 33, 5, 1)
"""How many of the 2^16 numbers of 16 bits give the weight 0, 1, ... 8.

These are 2^16 times the probabilities of Poisson numbers, rounded such that mean and variance are
exactly 1. Numbers above 8 have a probability of 10^-6.
"""
ENDS = np.cumsum(COUNTS)[:-1].astype(np.uint16)
MOST = len(COUNTS) - 1
CHUNK = 64
"""Rows whose weights are made at a time: 64 × 1000 numbers stay in the cache."""
LARGEST_LOSS = 16
"""log2 of the largest loss of a row whose sums are exact."""


def mix(z: np.ndarray) -> np.ndarray:
    """Mix the bits of each number, in place: the function of SplitMix64."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def row_keys(rows: np.ndarray, owner: str = "") -> np.ndarray:
    """Number of 64 bits for each row, by its place among the test rows (of its owner, if apart)."""
    first = hashlib.blake2b(owner.encode(), digest_size=8).digest()
    start = np.uint64(int.from_bytes(first, "little"))
    return mix(start + rows.astype(np.uint64) * GOLDEN)


def owners_keys(owners: Sequence[str], sizes: Sequence[int]) -> np.ndarray:
    """Keys of the rows of several owners, one owner after the other."""
    parts = [row_keys(np.arange(n), name) for name, n in zip(owners, sizes, strict=True)]
    return np.concatenate([np.empty(0, dtype=np.uint64), *parts])


def poisson_weights(keys: np.ndarray, replicates: int) -> np.ndarray:
    """Return how often each row is in each replicate, rows × replicates."""
    steps = np.arange(1, -(-replicates // 4) + 1, dtype=np.uint64) * GOLDEN
    parts = mix(keys[:, None] + steps).astype("<u8", copy=False).view("<u2")
    weights = np.zeros(parts.shape, dtype=np.uint8)
    for end in ENDS:
        weights += parts >= end
    return weights[:, :replicates]


class Bootstrap:
    """Sums by group and replicate over the rows of a rank; `sums` is what the ranks add up.

    Losses are rounded to a multiple of 2^-bits, such that float64 has room for the sum over all
    rows in every replicate: so sums are exact, and the same in any order. For Adult the multiples
    are of 2^-20.
    """

    def __init__(self, replicates: int, groups: int, keys: np.ndarray, all_rows: int) -> None:
        """Set up for the rows of these `keys`, of `all_rows` that the ranks have together."""
        self.keys, self.count = keys, replicates
        self.sums = np.zeros(groups * 3 * replicates + 2)
        self._table = self.sums[:-2].reshape(groups, 3, replicates)
        self._losses, self._right = np.zeros(len(keys)), np.zeros(len(keys))
        bits = 53 - LARGEST_LOSS - (MOST * max(1, all_rows) - 1).bit_length()
        self._scale = 2.0**bits

    def keep(self, batch: slice, losses: torch.Tensor, right: torch.Tensor) -> None:
        """Keep the losses of a batch of the rows, and which of them are classified right."""
        exact = losses.double().mul(self._scale).round().div(self._scale)
        self._losses[batch], self._right[batch] = exact.cpu().numpy(), right.cpu().numpy()

    def add_up(self, group: np.ndarray) -> None:
        """Fill in the sums over the rows, whose groups these are."""
        columns = np.stack([self._losses, self._right, np.ones(len(self.keys))])
        for a in range(len(self._table)):
            mine = np.flatnonzero(group == a)
            for start in range(0, len(mine), CHUNK):
                rows = mine[start : start + CHUNK]
                weights = torch.from_numpy(poisson_weights(self.keys[rows], self.count)).double()
                self._table[a] += (torch.from_numpy(columns[:, rows]) @ weights).numpy()
        # Of which rows of which groups these are: two sums of numbers of 24 bits, exact as well.
        marks = mix(self.keys + (group.astype(np.uint64) + np.uint64(1)) * GOLDEN)
        low, high = marks & np.uint64(0xFFFFFF), marks >> np.uint64(40)
        self.sums[-2:] += [low.sum(dtype=np.uint64), high.sum(dtype=np.uint64)]

    @property
    def losses(self) -> np.ndarray:
        """Sums of losses, replicates × groups."""
        return self._table[:, 0].T

    @property
    def right(self) -> np.ndarray:
        """Numbers of rows that are classified right, replicates × groups."""
        return self._table[:, 1].T

    @property
    def rows(self) -> np.ndarray:
        """Numbers of rows, replicates × groups."""
        return self._table[:, 2].T

    @property
    def fingerprint(self) -> str:
        """Digits that tell which rows were summed, and of which groups they are."""
        low, high = (int(x) for x in self.sums[-2:])
        return f"{high:x}-{low:x}"
