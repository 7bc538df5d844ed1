"""Adult against a second reading of the raw files, by the csv module and plain Python."""

import csv
from collections import Counter
from statistics import fmean, pstdev

import numpy as np
import pandas as pd
import pytest

from fedmpi.data import find
from fedmpi.data.datasets.adult import COLUMNS
from fedmpi.data.encoding import Encoding
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError

NUMERIC = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
ADULT = find("adult")


@pytest.fixture(scope="module")
def adult(adult_dir):
    return prepare(ADULT, adult_dir, DataOptions())


@pytest.fixture(scope="module")
def raw(adult_dir):
    rows = {}
    for split, name in (("train", "adult.data"), ("test", "adult.test")):
        with open(adult_dir / "raw/adult" / name, newline="") as file:
            lines = csv.reader(file, skipinitialspace=True)
            rows[split] = [dict(zip(COLUMNS, row, strict=True)) for row in lines if len(row) == 15]
    return rows


def group_of(row):
    over = row["income"].startswith(">")
    return f"{row['sex']}s earning {'>' if over else '<='} 50K"


def test_rows_groups_and_targets(adult, raw):
    assert (len(raw["train"]), len(raw["test"])) == (32_561, 16_281)
    for split in ("train", "test"):
        expected = [group_of(row) for row in raw[split]]
        assert [adult.groups[code] for code in adult.array(f"{split}_group")] == expected
        assert Counter(expected) == adult.counts[split]
        over = [row["income"].startswith(">") for row in raw[split]]
        np.testing.assert_array_equal(adult.array(f"{split}_y"), over)


def test_columns_to_split_by_are_those_of_the_file(adult, raw):
    """Also those that are no inputs; a column of thousands of numbers is counted."""
    kept = [name for name, values in adult.by_values.items() if isinstance(values, list)]
    assert adult.by_values["fnlwgt"] == len({row["fnlwgt"] for row in raw["train"]}) > 1000
    assert set(kept) == set(COLUMNS) - {"fnlwgt"}
    codes = adult.array("train_by")
    for j, name in enumerate(kept):
        values = adult.by_values[name]
        assert [values[code] for code in codes[:, j]] == [row[name] for row in raw["train"]]


def test_twelve_features_make_91_inputs(adult):
    columns = {name.partition("=")[0] for name in adult.features}
    assert columns == set(COLUMNS) - {"fnlwgt", "education", "income"}
    assert len(columns) == 12
    assert len(adult.features) == adult.array("train_x").shape[1] == 91
    assert {f"{c}=?" for c in ("workclass", "occupation", "native-country")} < set(adult.features)
    assert not any("missing" in name for name in adult.features)


@pytest.mark.parametrize("split", ["train", "test"])
def test_inputs_are_standardised_by_training_statistics(adult, raw, split):
    expected = np.zeros(adult.array(f"{split}_x").shape)
    for j, feature in enumerate(adult.features):
        column, _, value = feature.partition("=")
        if column in NUMERIC:
            train = [float(row[column]) for row in raw["train"]]
            mean, deviation = fmean(train), pstdev(train)
            expected[:, j] = [(float(row[column]) - mean) / deviation for row in raw[split]]
        else:
            expected[:, j] = [row[column] == value for row in raw[split]]
    np.testing.assert_allclose(adult.array(f"{split}_x"), expected, rtol=1e-5, atol=1e-6)


def test_raw_rows_become_the_prepared_arrays(adult, adult_dir):
    encoding = Encoding.from_json(adult.encoding)
    path = adult_dir / "raw/adult/adult.test"
    rows = pd.read_csv(path, names=COLUMNS, skiprows=1, dtype=str, keep_default_na=False)
    np.testing.assert_array_equal(encoding.encode(rows), adult.array("test_x"))
    np.testing.assert_array_equal(encoding.labels.y(rows), adult.array("test_y"))
    np.testing.assert_array_equal(encoding.labels.group(rows), adult.array("test_group"))


def test_who_holds_what():
    males, females = ADULT.psg_blocks(ADULT.groups)
    assert all(ADULT.groups[code].startswith("Males") for code in males)
    assert all(ADULT.groups[code].startswith("Females") for code in females)
    assert ADULT.ssg_clients(ADULT.groups, 40) == [10, 10, 10, 10]


def test_a_damaged_raw_file_is_not_read(adult_dir, tmp_path):
    for file in ADULT.files:
        content = (adult_dir / "raw/adult" / file.name).read_bytes()
        (tmp_path / file.name).write_bytes(content.replace(b"39", b"93", 1))
    with pytest.raises(UserError, match=r"adult\.data is damaged"):
        prepare(ADULT, tmp_path, DataOptions())
    assert not (tmp_path / "prepared").exists()
