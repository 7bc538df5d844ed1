"""Cross-validation: the training rows in N parts, of which one is kept to validate on."""

from __future__ import annotations

import re
from types import ModuleType

import numpy as np

from fedmpi.errors import UserError


def read_fold(text: str) -> tuple[int, int]:
    """`I/N` as two numbers; part I of N, from 1."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    number, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= parts or parts < 2:
        raise UserError(f"--fold {text}: give the part and the number of parts, as 1/3, 2/3, 3/3.")
    return number, parts


def model_selection() -> ModuleType:
    """scikit-learn's folds and grids; imported here, because only the server needs them."""
    try:
        import sklearn.model_selection
    except ImportError:
        raise UserError(
            "cross-validation needs scikit-learn: pip install 'fedmpi[tune]'."
        ) from None
    return sklearn.model_selection


def split_fold(
    rows: np.ndarray, group_of_row: np.ndarray, groups: tuple[str, ...], fold: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The `rows` to train on and those to validate on, every group in its share; ascending.

    The test rows have no part in it. What the inputs were standardised with is of all training
    rows, also of those that validate: their mean and deviation, and no label.
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
