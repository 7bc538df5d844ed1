"""Rows that are equal in inputs and class have the same loss: they go through the model once.

Tables of categories repeat themselves (a third of ACS Employment in one state), and a full-batch
step asks for no more than the sum over the rows. `benchmarks/equal_rows.py` measures what it saves.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

WORTH = 0.9
"""Merge only if at most this share of the rows remains."""
CHUNK = 4096
FACTOR = 0x9E3779B97F4A7C15
"""Factor whose powers a row's numbers are multiplied with: odd, with its bits spread evenly."""


class Distinct:
    """Distinct rows `x` and `y`, each once; `place` has the one that each original row equals."""

    def __init__(self, x: Tensor, y: Tensor, place: Tensor) -> None:
        self.x, self.y, self.place = x, y, place

    def sum_up(self, of_rows: Tensor) -> Tensor:
        """Sum a number of each row over the rows that are equal."""
        return of_rows.new_zeros(len(self.x)).index_add_(0, self.place, of_rows)


def find_equal(x: Tensor, y: Tensor) -> Distinct | None:
    """Find equal rows; None for images, and where hardly a row equals another."""
    if x.dim() != 2 or not len(x):
        return None
    device = x.device
    table, classes = x.cpu().numpy(), y.cpu().numpy()
    _, first, place = np.unique(_hashes(table, classes), return_index=True, return_inverse=True)
    if len(first) > WORTH * len(table):
        return None
    if not _are_equal(table, classes, first[place]):  # two rows with one hash
        return None
    chosen = torch.from_numpy(first).to(device)
    return Distinct(x[chosen], y[chosen], torch.from_numpy(place).to(device))


def _hashes(table: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return a number of 64 bits for each row, from the bits of its inputs and its class."""
    # The other way round in memory: the last bits of 1.0, of which tables are full, are all 0.
    bits = np.ascontiguousarray(table).view(f">u{table.itemsize}")
    factors = np.cumprod(np.full(bits.shape[1] + 1, FACTOR, dtype=np.uint64))
    hashes = classes.astype(np.uint64) * factors[-1]
    for start in range(0, len(bits), CHUNK):
        chunk = slice(start, start + CHUNK)
        hashes[chunk] += bits[chunk].astype(np.uint64) @ factors[:-1]
    return hashes


def _are_equal(table: np.ndarray, classes: np.ndarray, other: np.ndarray) -> bool:
    """Return whether each row is the same as the other one that its hash says it equals."""
    return all(
        np.array_equal(table[chunk], table[other[chunk]])
        and np.array_equal(classes[chunk], classes[other[chunk]])
        for chunk in (slice(i, i + CHUNK) for i in range(0, len(table), CHUNK))
    )
