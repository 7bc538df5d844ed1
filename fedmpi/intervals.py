"""95% intervals of a mean loss and of a rate, from sums over rows: no row has to be seen again.

Sums may be numbers or arrays of them; the intervals have the same shape, with (low, high) last.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
"""Confidence of the intervals."""
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
"""Standard errors on each side of an interval."""
FEW = 30
"""Number of rows below which a group's figures are said to rest on few rows.

The normal interval of a mean is too narrow there, so it is a hint of the spread, not a promise.
"""


def simultaneous(groups: int) -> float:
    """Standard errors on each side of intervals that hold for all groups at once (Bonferroni).

    So they hold for whichever group is the worst: the largest risk is between the largest of the
    low ends and the largest of the high ends.
    """
    return NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / groups)


def standard_error(total: ArrayLike, squares: ArrayLike, rows: ArrayLike) -> np.ndarray:
    """Standard error of the mean loss, from the sums of losses and of squared losses.

    NaN for fewer than two rows, which have no spread.
    """
    total, squares, rows = (np.asarray(x, dtype=np.float64) for x in (total, squares, rows))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        variance = (squares - total * total / rows) / (rows - 1)  # rounding may leave it below 0
        error = np.sqrt(np.maximum(variance, 0.0) / rows)
    return np.where(rows > 1, error, np.nan)


def risk_interval(
    total: ArrayLike, squares: ArrayLike, rows: ArrayLike, z: float = Z
) -> np.ndarray:
    """Normal intervals of the mean loss, ... × (low, high); low is not below 0, as no loss is."""
    total, rows = np.asarray(total, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / rows
    reach = z * standard_error(total, squares, rows)
    return np.stack([np.maximum(mean - reach, 0.0), mean + reach], axis=-1)


def wilson(hits: ArrayLike, rows: ArrayLike, z: float = Z) -> np.ndarray:
    """Wilson's intervals of the rate hits/rows, ... × (low, high); NaN without rows.

    Unlike the normal interval it stays within 0 and 1, and has a width where all rows are hits.
    """
    hits, rows = np.asarray(hits, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, shrink = hits / rows, 1 + z * z / rows
        centre = (rate + z * z / (2 * rows)) / shrink
        reach = z * np.sqrt(rate * (1 - rate) / rows + (z / (2 * rows)) ** 2) / shrink
    low = np.where(hits == 0, 0.0, centre - reach)  # exact there, but for rounding
    high = np.where(hits == rows, 1.0, centre + reach)
    return np.where(rows[..., None] > 0, np.stack([low, high], axis=-1), np.nan)


def pair(interval: np.ndarray) -> list[float] | None:
    """Return (low, high) as JSON has them: a list, or None where there is no interval."""
    return None if np.isnan(interval).any() else interval.tolist()
