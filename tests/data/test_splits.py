"""Some of the rows, rows to test on, and folds: every group in its share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmpi.data.splits import choose_rows, hold_out, read_fold, split_fold
from fedmpi.errors import UserError

GROUPS = ("a", "b", "c")


@pytest.fixture
def group_of_row():
    return np.random.default_rng(0).choice(3, size=1000, p=[0.7, 0.295, 0.005])


@pytest.mark.parametrize("limit", [3, 10, 100, 999, 1000])
def test_every_group_has_its_share(group_of_row, limit):
    rows = choose_rows(group_of_row, GROUPS, limit, seed=0)
    assert len(rows) == limit
    assert (np.diff(rows) > 0).all()
    counts = np.bincount(group_of_row[rows], minlength=3)
    shares = np.bincount(group_of_row) * limit / 1000
    assert counts.min() >= 1
    assert (np.abs(counts - shares) <= 2).all()


def test_seeded_and_nested(group_of_row):
    rows = choose_rows(group_of_row, GROUPS, 100, seed=0)
    np.testing.assert_array_equal(rows, choose_rows(group_of_row, GROUPS, 100, seed=0))
    assert set(rows) != set(choose_rows(group_of_row, GROUPS, 100, seed=1))
    assert set(rows) < set(choose_rows(group_of_row, GROUPS, 200, seed=0))


def test_a_group_without_rows_gets_none():
    group_of_row = np.array([0, 2, 2, 2])
    rows = choose_rows(group_of_row, GROUPS, 2, seed=0)
    assert sorted(group_of_row[rows]) == [0, 2]


def test_fewer_rows_than_groups(group_of_row):
    with pytest.raises(UserError, match="2 rows are fewer than the 3 groups"):
        choose_rows(group_of_row, GROUPS, 2, seed=0)


@given(
    group=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
    data=st.data(),
)
@settings(max_examples=100, deadline=None)
def test_rows_held_out_leave_every_group_and_class_to_train_on(group, share, seed, data):
    group = np.unique(group, return_inverse=True)[1]
    y = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(group), max_size=len(group))))
    in_test = hold_out(group, y, share, seed)
    np.testing.assert_array_equal(in_test, hold_out(group, y, share, seed))
    assert set(group[~in_test]) == set(group)
    assert set(y[~in_test]) == set(y)
    for code in set(group):
        held, size = in_test[group == code].sum(), (group == code).sum()
        assert held <= max(1, round(share * size))


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
