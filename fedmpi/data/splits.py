"""Choices among rows: some of them (--limit-train), those to test on, and folds of a validation."""

from __future__ import annotations

import hashlib
import re
from types import ModuleType

import numpy as np

from fedmpi.data.partition import largest_remainder
from fedmpi.errors import UserError

# Keep these generators apart from others made of a seed and a small number (partition.STREAM).
LIMIT = int.from_bytes(b"limit", "big")
HOLD_OUT = int.from_bytes(b"hold", "big")
VALIDATE = int.from_bytes(b"valid", "big")


def choose_rows(
    group_of_row: np.ndarray, groups: tuple[str, ...], limit: int, seed: int
) -> np.ndarray:
    """Return `limit` rows, ascending: of every group its share, at random, but at least one row.

    With the same seed, the rows of a smaller limit are among those of a larger one.
    """
    sizes = np.bincount(group_of_row, minlength=len(groups))
    present = np.flatnonzero(sizes)
    if limit < len(present):
        raise UserError(
            f"{limit} rows are fewer than the {len(present)} groups, and each needs one."
        )
    counts = np.zeros(len(groups), dtype=np.int64)
    counts[present] = largest_remainder(sizes[present].astype(np.float64), limit)
    chosen = []
    for a in present.tolist():
        rng = np.random.default_rng([LIMIT, seed, a])
        chosen.append(rng.permutation(np.flatnonzero(group_of_row == a))[: counts[a]])
    return np.sort(np.concatenate(chosen))


def hold_out(
    group: np.ndarray,
    y: np.ndarray,
    share: float,
    seed: int,
    owner: str = "",
    stream: int = HOLD_OUT,
) -> np.ndarray:
    """Return which rows to hold out: `share` of each group, at random, but never all of its rows.

    An `owner` has random numbers of its own, so that others' rows do not change the choice; so has
    each `stream`: the rows to test on, and those to VALIDATE on.
    """
    entropy = [stream, seed]
    if owner:
        entropy.append(int.from_bytes(hashlib.sha256(owner.encode()).digest()[:8], "big"))
    rng = np.random.default_rng(entropy)
    in_test = np.zeros(len(group), dtype=bool)
    for code in np.unique(group):
        rows = rng.permutation(np.flatnonzero(group == code))
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        in_test[rows[: max(0, count)]] = True
    # A class of which no row is left to train on goes back to training.
    return in_test & np.isin(y, y[~in_test])


def read_fold(text: str) -> tuple[int, int]:
    """Return the two numbers of `I/N`: part I of N, from 1."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    number, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= parts or parts < 2:
        raise UserError(f"--fold {text}: give the part and the number of parts, as 1/3, 2/3, 3/3.")
    return number, parts


def model_selection() -> ModuleType:
    """Import scikit-learn's folds and grids, which only the server needs."""
    try:
        import sklearn.model_selection
    except ImportError:
        raise UserError(
            "cross-validation needs scikit-learn: ./launch/setup.sh tune, or pip install '.[tune]'."
        ) from None
    return sklearn.model_selection


def split_fold(
    rows: np.ndarray, group_of_row: np.ndarray, groups: tuple[str, ...], fold: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the `rows` to train on and those to validate on, every group in its share; ascending.

    The test rows have no part in a fold. The mean and deviation by which inputs were standardised
    are of all training rows, also of those that validate; no label is in them.
    """
    StratifiedKFold = model_selection().StratifiedKFold
    number, parts = read_fold(fold)
    group = group_of_row[rows]
    sizes = np.bincount(group, minlength=len(groups))
    if sizes.min() < parts:
        a = int(sizes.argmin())
        raise UserError(
            f"--fold {fold}: group {groups[a]!r} has {sizes[a]} rows to train on, and each of "
            f"{parts} parts needs one: use fewer parts, or more rows."
        )
    split = StratifiedKFold(parts, shuffle=True, random_state=seed).split(rows, group)
    train, validate = list(split)[number - 1]
    return rows[train], rows[validate]
