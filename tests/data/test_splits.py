"""Parts of the training rows: disjoint, every group in its share, and no test row among them."""

import numpy as np
import pytest

from fedmpi.data.splits import read_fold, split_fold
from fedmpi.errors import UserError

GROUPS = ("a", "b", "c")


def test_the_parts_are_a_partition_with_every_group_in_its_share():
    of_row = np.repeat([0, 1, 2], [60, 30, 9])
    rows = np.arange(0, 99)
    parts = [split_fold(rows, of_row, GROUPS, f"{i}/3", seed=4) for i in (1, 2, 3)]
    together = np.sort(np.concatenate([validate for _, validate in parts]))
    assert np.array_equal(together, rows)
    for train, validate in parts:
        assert np.array_equal(np.sort(np.concatenate([train, validate])), rows)
        assert np.bincount(of_row[validate]).tolist() == [20, 10, 3]
        assert np.array_equal(train, np.sort(train))
    again = split_fold(rows, of_row, GROUPS, "1/3", seed=4)
    other = split_fold(rows, of_row, GROUPS, "1/3", seed=5)
    assert np.array_equal(again[1], parts[0][1]) and not np.array_equal(other[1], parts[0][1])


def test_only_the_rows_in_use_are_split():
    of_row = np.repeat([0, 1, 2], 20)
    rows = np.arange(0, 60, 2)
    train, validate = split_fold(rows, of_row, GROUPS, "2/3", seed=0)
    assert np.array_equal(np.sort(np.concatenate([train, validate])), rows)


def test_a_group_with_fewer_rows_than_parts_is_refused():
    of_row = np.repeat([0, 1, 2], [60, 30, 2])
    with pytest.raises(UserError, match="group 'c' has 2 rows"):
        split_fold(np.arange(92), of_row, GROUPS, "1/3", seed=0)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/1", "a/b", "-1/3"])
def test_what_is_no_part_is_refused(text):
    with pytest.raises(UserError, match="1/3, 2/3, 3/3"):
        read_fold(text)


def test_a_run_of_a_fold_validates_on_training_rows(train, tmp_path):
    """A label that test rows alone have wrong: a model that saw or scored them would show it."""
    rows = [f"{i % 2},{'ab'[i // 2 % 2]},{i % 2}" for i in range(120)]
    wrong = [f"{i % 2},{'ab'[i // 2 % 2]},{1 - i % 2}" for i in range(40)]
    (tmp_path / "p.csv").write_text("\n".join(["u,g,y", *rows]) + "\n")
    (tmp_path / "t.csv").write_text("\n".join(["u,g,y", *wrong]) + "\n")
    options = ["--dataset", f"csv:{tmp_path / 'p.csv'}", "--target", "y", "--group", "g"]
    options += ["--test", tmp_path / "t.csv", "--clients", "2", "--rounds", "40", "--lr", "5"]
    options += ["--model", "logistic"]
    fold = train(*options, "--fold", "2/3", output="fold").result
    assert sum(g["n_train"] for g in fold["groups"].values()) == 80
    assert sum(g["n_test"] for g in fold["groups"].values()) == 40
    assert fold["worst_accuracy"] == 1
    assert train(*options, output="whole").result["best_accuracy"] == 0
