"""The encoding that preparation leaves makes the same arrays of raw rows."""

import json

import numpy as np
import pandas as pd
import pytest

from fedmpi.data import find
from fedmpi.data.encoding import Encoding, as_text
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError

ROWS = 60


def table(seed: int = 0) -> pd.DataFrame:
    """Numbers, whole numbers, text with missing cells, and a group of numbers."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 9, ROWS).round(3),
            "visits": rng.integers(0, 5, ROWS),
            "smokes": rng.integers(0, 2, ROWS),
            "job": rng.choice(["cook", "nurse", "pilot"], ROWS),
            "ward": rng.choice([1, 2, 10], ROWS),
            "ill": rng.choice(["no", "yes"], ROWS),
        }
    )
    frame.loc[3:9, "age"] = np.nan
    frame.loc[7:12, "job"] = None
    return frame


def prepared(folder, **options):
    table().to_csv(folder / "people.csv", index=False)
    table(1).to_csv(folder / "test.csv", index=False)
    given = {"target": "ill", "group": ("ward", "ill"), "test": str(folder / "test.csv")}
    options = DataOptions(**given | options)
    return prepare(find(f"csv:{folder / 'people.csv'}"), folder, options)


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "text"])
def test_raw_rows_become_the_prepared_arrays(tmp_path, typed):
    data = prepared(tmp_path)
    encoding = Encoding.from_json(json.loads(json.dumps(data.encoding)))
    assert encoding.features == data.features
    for split, path in (("train", "people.csv"), ("test", "test.csv")):
        dtype = None if typed else str
        rows = pd.read_csv(tmp_path / path, dtype=dtype, keep_default_na=typed)
        rows = rows[rows.columns[::-1]].assign(more="extra")  # in any order, with others
        np.testing.assert_array_equal(encoding.encode(rows), data.array(f"{split}_x"))
        np.testing.assert_array_equal(encoding.labels.y(rows), data.array(f"{split}_y"))
        np.testing.assert_array_equal(encoding.labels.group(rows), data.array(f"{split}_group"))
    assert (encoding.labels.classes, encoding.labels.groups) == (data.classes, data.groups)


def test_labels_that_nobody_trained_on_are_none(tmp_path):
    labels = Encoding.from_json(prepared(tmp_path).encoding).labels
    rows = pd.DataFrame({"ward": ["1", "1.0", "3", "", "1"], "ill": ["no", "no", "no", "no", "?"]})
    assert labels.y(rows).tolist() == [0, 0, 0, 0, -1]
    first = labels.groups.index("1 / no")
    assert labels.group(rows).tolist() == [first, first, -1, -1, -1]


def test_a_missing_column_is_named(tmp_path):
    encoding = Encoding.from_json(prepared(tmp_path).encoding)
    with pytest.raises(UserError, match=r"lack 2 of the 5 columns .*: 'age', 'ward'"):
        encoding.encode(table().drop(columns=["age", "ward"]))


def test_cells_as_text():
    cells = as_text(pd.Series([1.0, 2.5, None]))
    assert cells.tolist() == ["1", "2.5", None]
    assert as_text(pd.Series([" a ", "", None, 3])).tolist() == ["a", None, None, "3"]
    assert as_text(pd.Series([True, False])).tolist() == ["True", "False"]
    assert as_text(pd.Series(["x", None], dtype="category")).tolist() == ["x", None]
