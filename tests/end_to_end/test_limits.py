"""--limit-train and --limit-test: fewer rows, of every group its share."""

import numpy as np
import pytest

from fedmpi.errors import UserError


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(3)
    values, group = rng.normal(size=400), rng.choice(list("pqr"), size=400, p=[0.6, 0.3, 0.1])
    lines = [f"{x:.3f},{g},{'yes' if x > 0 else 'no'}" for x, g in zip(values, group, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["v,g,y", *lines]))
    return (
        "--dataset",
        f"csv:{tmp_path / 't.csv'}",
        "--target",
        "y",
        "--group",
        "g",
        "--rounds",
        2,
    )


def test_a_run_on_fewer_rows(train, table):
    limits = ("--limit-train", 90, "--limit-test", 30)
    found = train(*table, "--clients", 4, *limits, output="found").result["groups"]
    assert sum(group["n_train"] for group in found.values()) == 90
    assert sum(group["n_test"] for group in found.values()) == 30
    whole = train(*table, "--clients", 4, output="whole").result["groups"]
    for name, group in found.items():
        assert group["n_train"] == pytest.approx(whole[name]["n_train"] * 90 / 320, abs=1)


def test_the_prepared_rows_stay_whole_and_the_subset_is_what_is_trained_on(train, table, tmp_path):
    """Lemma 2 on the subset: who holds it changes nothing, so it is the same rows."""
    same = (*table, "--limit-train", 80, "--dtype", "float64")
    one = train(*same, "--method", "centralized", output="one")
    for setting in ("ESG", "SSG"):
        found = train(*same, "--clients", 5, "--setting", setting, output=setting)
        np.testing.assert_allclose(found.theta(), one.theta(), rtol=0, atol=1e-9)
    other = train(*same, "--clients", 5, "--seed", 0, "--limit-test", 10, output="other")
    np.testing.assert_allclose(other.theta(), one.theta(), rtol=0, atol=1e-9)
    (prepared,) = (tmp_path / "data/prepared").iterdir()
    assert len(np.load(prepared / "train_y.npy")) > 300


def test_more_than_there_are_is_all_with_a_note(train, table):
    found = train(*table, "--clients", 4, "--limit-train", 10**6)
    assert any("--limit-train 1000000" in note for note in found.config["notes"])


@pytest.mark.parametrize(
    "limit, message",
    [
        (("--limit-train", 2), "--limit-train: 2 rows are fewer than the 3 groups"),
        (("--limit-test", 1), "--limit-test: 1 rows are fewer"),
        (("--limit-train", 0), "--limit-train 0: must be at least 1"),
        (("--limit-train", 12), "group 'r' has 1 row to train"),
    ],
)
def test_too_few(train, table, limit, message):
    with pytest.raises(UserError, match=message):
        train(*table, "--clients", 4, *limit)


@pytest.mark.launch
@pytest.mark.once
def test_limits_on_three_ranks(mpirun, train, table, tmp_path):
    limits = ("--limit-train", 60, "--limit-test", 20, "--clients", 4, "--dtype", "float64")
    limits += ("--solver", "fast", "--rounds", 10)
    options = (*table, *limits, "--progress", "none")
    folder = ("--output", tmp_path / "three", "--data-dir", tmp_path / "data")
    done = mpirun(3, "-m", "fedmpi.train", *options, *folder)
    assert done.returncode == 0, done.stderr
    from runs import Run

    three, one = Run(tmp_path / "three"), train(*table, *limits, output="one")
    np.testing.assert_allclose(three.theta(), one.theta(), rtol=0, atol=1e-9)
    assert three.result["groups"]["p"]["n_test"] == one.result["groups"]["p"]["n_test"]
