"""What looks wrong in a table, and what does not."""

import numpy as np
import pandas as pd
import pytest

from fedmpi.data.suspicion import errors_by, gives_away, looks_like_id

ROWS = 400
RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=ROWS)
TRAIN = np.zeros(ROWS, dtype=bool)


def suspected(values, y=Y) -> bool:
    return gives_away(errors_by(values, y), np.bincount(y))


@pytest.mark.parametrize(
    "column, y",
    [
        (pd.Series(np.array(["no", "yes", "perhaps"])[Y]), Y),
        (pd.Series(np.array(["a", "b", "c"])[Y] + RNG.integers(9, size=ROWS).astype(str)), Y),
        (Y * 10.0, Y),
        (np.where(Y == 2, RNG.uniform(5, 6, ROWS), RNG.uniform(0, 5, ROWS)), (Y == 2).astype(int)),
    ],
    ids=["the target", "a finer target", "a number for each class", "above a limit"],
)
def test_a_column_that_tells_the_class_is_found(column, y):
    assert suspected(column, y)


@pytest.mark.parametrize(
    "column",
    [
        RNG.normal(size=ROWS),
        np.arange(ROWS, dtype=float),
        Y + RNG.normal(size=ROWS),
        pd.Series(RNG.choice(["a", "b"], ROWS)),
        pd.Series([f"person {i}" for i in range(ROWS)]),
        np.full(ROWS, np.nan),
    ],
    ids=["noise", "an id", "a good input", "two words", "names", "nothing"],
)
def test_other_columns_are_not(column):
    assert not suspected(column)


def test_a_rare_class_is_not_told_by_guessing_the_other():
    y = (np.arange(ROWS) < 2).astype(int)
    assert not suspected(RNG.normal(size=ROWS), y)


def test_numbers_that_count_rows_look_like_an_id():
    shuffled = RNG.permutation(np.arange(1000.0, 1000 + ROWS))
    sparse = np.sort(RNG.choice(10**6, ROWS, replace=False)).astype(float)
    assert looks_like_id(shuffled, TRAIN) and looks_like_id(sparse, TRAIN)
    assert not looks_like_id(RNG.permutation(sparse), TRAIN)  # amounts, say
    assert not looks_like_id(shuffled + 0.5, TRAIN)
    assert not looks_like_id(shuffled // 2, TRAIN)
    assert not looks_like_id(shuffled[:9], TRAIN[:9])
