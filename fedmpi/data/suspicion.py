"""Signs that a table is not what its user takes it for: found before anything is trained."""

from __future__ import annotations

import numpy as np
import pandas as pd

FEW_ROWS = 20
"""Rows below which a column tells nothing of itself."""
SHARE = 0.01
"""Share of the rows, and of the errors without the column, that a giveaway gets wrong at most."""


def looks_like_id(values: np.ndarray | pd.Series, in_test: np.ndarray) -> bool:
    """Return whether these are whole numbers, another one in each row, that count the rows."""
    if isinstance(values, pd.Series):
        return False  # of text the number of values decides: see encoding.names_rows
    known = values[~np.isnan(values)]
    if len(known) < FEW_ROWS or np.isinf(known).any() or (known != np.trunc(known)).any():
        return False
    if len(np.unique(known)) < len(known):
        return False
    dense = known.max() - known.min() < 2 * len(known)
    ascending = (np.diff(values[~in_test & ~np.isnan(values)]) > 0).all()
    return bool(dense or ascending)


def errors_by(values: np.ndarray | pd.Series, y: np.ndarray) -> int:
    """Return how many rows a rule from this column's values to classes gets wrong.

    A text has the class that most of its rows have; numbers have classes by intervals. A text of
    one row, and an interval, explain nothing by themselves, so each costs a row.
    """
    classes = len(np.unique(y))
    if isinstance(values, pd.Series):
        codes = pd.factorize(values.fillna(""))[0]
    else:
        codes = np.unique(values, return_inverse=True)[1]  # ascending, a missing one last
    pairs, rows = np.unique(codes.astype(np.int64) * (y.max() + 1) + y, return_counts=True)
    value, of_class = np.divmod(pairs, y.max() + 1)
    order = np.lexsort((rows, value))
    last = order[np.append(np.diff(value[order]) > 0, True)]  # the largest class of each value
    if isinstance(values, pd.Series):
        pieces = np.count_nonzero(np.bincount(codes) == 1)
    else:
        pieces = 1 + np.count_nonzero(np.diff(of_class[last]))
    return int(len(y) - rows[last].sum() + max(0, pieces - classes))


def gives_away(errors: int, classes: np.ndarray) -> bool:
    """Return whether a column with so many errors tells the class, given the rows of each."""
    rows, without = classes.sum(), classes.sum() - classes.max()
    return bool(rows > FEW_ROWS) and errors <= SHARE * min(rows, without)
