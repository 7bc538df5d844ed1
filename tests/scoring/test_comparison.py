"""Intervals and paired tests over seeds and rows: known answers, level, power, verdicts."""

import dataclasses

import numpy as np
import pytest
from resampled import SampleRows
from scipy import stats

from fedmpi.errors import UserError
from fedmpi.scoring.comparison import Bound, Difference, decide, difference, estimate
from fedmpi.scoring.replicates import Replicates, read_replicates
from fedmpi.significance import Spread

SEEDS = (0, 1, 2)


def test_one_group_has_the_paired_interval_of_its_rows():
    rng = np.random.default_rng(0)
    rows = SampleRows([400], 1000)
    a, b = rng.exponential(size=(2, 400)) + rng.normal(size=400)
    found = difference({0: rows.run(a)}, {0: rows.run(b)})
    assert found.value == pytest.approx((a - b).mean()) and found.seeds == 1
    theirs = stats.bootstrap((a - b,), np.mean, method="basic", rng=1, n_resamples=4000)
    width = found.high - found.low
    assert (found.low, found.high) == pytest.approx(theirs.confidence_interval, abs=0.06 * width)
    assert found.p_lower == pytest.approx(
        stats.ttest_rel(a, b, alternative="less").pvalue, abs=0.02
    )
    alone = estimate({0: rows.run(a)})
    assert (alone.low + alone.high) / 2 == pytest.approx(a.mean())
    assert alone.high - a.mean() == pytest.approx(1.96 * stats.sem(a), rel=0.08)


def test_the_figures_are_of_means_over_the_seeds():
    rng = np.random.default_rng(1)
    rows = SampleRows([50, 60, 70], 20)
    losses = {seed: rng.exponential(size=180) + rows.group * 0.1 * (seed - 1) for seed in SEEDS}
    runs = {seed: rows.run(x) for seed, x in losses.items()}
    risks = np.array([[losses[s][rows.group == g].mean() for g in range(3)] for s in SEEDS])
    right = np.array([[(losses[s][rows.group == g] > 1).mean() for g in range(3)] for s in SEEDS])
    for figure, pick in (("worst", np.max), ("best", np.min), ("average", np.mean)):
        assert estimate(runs, figure).value == pytest.approx(pick(risks.mean(axis=0)))
    assert estimate(runs, "worst", "accuracy").value == pytest.approx(right.mean(axis=0).min())
    assert estimate(runs, "best", "accuracy").value == pytest.approx(right.mean(axis=0).max())
    assert estimate(runs, "b").value == pytest.approx(risks[:, 1].mean())


def test_accuracy_is_the_mirror_of_error():
    rng = np.random.default_rng(2)
    rows = SampleRows([80, 80, 80], 100)
    right = [rng.random(240) < 0.7 for _ in range(6)]
    a, b = (
        {s: rows.run(1.0 - r, r) for s, r in enumerate(part)} for part in (right[:3], right[3:])
    )
    for figure in ("worst", "best"):
        error, accuracy = difference(a, b, figure), difference(a, b, figure, "accuracy")
        mirrored = -accuracy.value, -accuracy.high, -accuracy.low, accuracy.p_higher
        assert mirrored == pytest.approx((error.value, error.low, error.high, error.p_lower))


def test_a_against_b_is_the_mirror_of_b_against_a():
    rng = np.random.default_rng(3)
    rows = SampleRows([40, 40, 40], 100)
    a, b = ({s: rows.run(rng.exponential(size=120)) for s in SEEDS} for _ in range(2))
    one, other = difference(a, b), difference(b, a)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert one.p_lower == pytest.approx(other.p_higher) and one.low < one.value < one.high
    assert one.p_equal(100.0) < 1e-4 and one.p_equal(1e-6) > 0.4


TIE, CLEAR = [1.0] * 6, [1.0] + [0.2] * 5


def simulated(rows, rng, a, b, between, shared):
    """Two methods of three seeds on the same rows; their errors are shared to this part."""
    common, *own = rng.normal(size=(3, len(rows.group)))
    runs: tuple[dict, dict] = ({}, {})
    for risks, mine, found in zip((a, b), own, runs, strict=True):
        noise = np.sqrt(shared) * common + np.sqrt(1 - shared) * mine
        for seed in SEEDS:
            seeds = between * rng.normal()
            found[seed] = rows.run(np.array(risks)[rows.group] + noise + seeds)
    return runs


@pytest.mark.parametrize(
    ("a", "b", "between", "shared"),
    [(TIE, CLEAR, 0.0, 0.0), (CLEAR, CLEAR, 0.1, 0.5), (TIE, TIE, 0.05, 0.9)],
)
def test_methods_that_are_equal_are_rarely_told_apart(a, b, between, shared):
    """140 comparisons at 5%: at most 7, and three standard deviations of that number."""
    rows, rng = SampleRows([60] * 6, 100), np.random.default_rng(4)
    wrong, naive, missed = 0, 0, 0
    for _ in range(140):
        one, other = simulated(rows, rng, a, b, between, shared)
        found, alone = difference(one, other), estimate(one)
        wrong += not found.low <= 0 <= found.high
        missed += not alone.low <= 1 <= alone.high
        plain = np.mean(
            [one[s].risk.max(axis=1) - other[s].risk.max(axis=1) for s in SEEDS], axis=0
        )
        low, high = np.quantile(plain[1:], [0.025, 0.975])
        naive += not low <= 0 <= high
    assert max(wrong, missed) <= 7 + 3 * np.sqrt(7 * 0.95)
    if a != b:
        assert naive > 28  # percentiles of the difference of the largest: the bias is in twice


def test_methods_that_differ_are_told_apart():
    """By .7, where a difference has a standard error of .13 from the rows, and seeds .05."""
    rows, rng = SampleRows([60] * 6, 100), np.random.default_rng(5)
    found = 0
    for _ in range(50):
        a, b = simulated(rows, rng, [0.3] * 6, CLEAR, 0.05, 0.5)
        found += decide({0: difference(a, b)})[0] == "lower"
    assert found >= 20


def of_own_rows(rng, a, b, seeds):
    """Two methods on rows that each seed has by itself, of which more seeds bring more."""
    runs: tuple[dict, dict] = ({}, {})
    for seed in range(seeds):
        rows = SampleRows([60] * 6, 60)
        noise = rng.normal(size=360)
        for risks, found in zip((a, b), runs, strict=True):
            mine = np.sqrt(0.5) * (noise + rng.normal(size=360))
            found[seed] = rows.run(
                np.array(risks)[rows.group] + mine + 0.05 * rng.normal(size=6)[rows.group]
            )
    return runs


def test_rows_of_each_seeds_own_tell_more_with_more_seeds():
    """The groups of one method tie, so each run's worst is too large by .15: not their means."""
    rng = np.random.default_rng(8)
    for seeds in (3, 8):
        level = [difference(*of_own_rows(rng, TIE, CLEAR, seeds)) for _ in range(100)]
        assert sum(d.p_higher <= 0.05 for d in level) <= 5 + 3 * np.sqrt(5 * 0.95)
    shifted = [x + 0.1 for x in TIE]
    margin = [difference(*of_own_rows(rng, shifted, CLEAR, 8)).p_equal(0.1) for _ in range(100)]
    assert sum(p <= 0.05 for p in margin) <= 5 + 3 * np.sqrt(5 * 0.95)
    lower = [x - 0.25 for x in TIE]
    found = [difference(*of_own_rows(rng, lower, CLEAR, 8)).p_lower <= 0.05 for _ in range(20)]
    assert sum(found) >= 16


def test_seeds_that_scatter_far_more_than_rows():
    """Each seed moves each group by itself; to take the least of six is to take its small s²."""
    rng, rows = np.random.default_rng(9), SampleRows([60] * 6, 60)
    for seeds in (2, 3, 5):
        wrong = 0
        for _ in range(100):
            runs: tuple[dict, dict] = ({}, {})
            for risks, found in zip((CLEAR, TIE), runs, strict=True):
                for seed in range(seeds):
                    moved = 10 * np.array(risks) + rng.normal(size=6)
                    found[seed] = rows.run(moved[rows.group] + rng.normal(size=360))
            wrong += difference(*runs).p_lower <= 0.05
        assert wrong <= 5 + 3 * np.sqrt(5 * 0.95)


def test_rounding_is_no_difference():
    """On another layout a run's numbers differ in the last digits: no test may see that."""
    rows, rng = SampleRows([60] * 6, 100), np.random.default_rng(6)
    one, _ = simulated(rows, rng, CLEAR, CLEAR, 0.1, 0.5)
    for error in (0.0, 1e-15, -1e-12):
        other = {s: dataclasses.replace(r, losses=r.losses * (1 + error)) for s, r in one.items()}
        found = difference(one, other)
        assert (found.p_lower, found.p_higher, found.p_different) == (0.5, 0.5, 1.0)
        assert found.p_equal() < 1e-9


def test_methods_that_are_nearly_the_same_are_equal():
    """Groups tie, and their risks are uncertain by .13; yet the two models make the same errors."""
    rows, rng = SampleRows([60] * 6, 100), np.random.default_rng(6)
    noise = rng.normal(size=360)
    a = {s: rows.run(1 + noise + 1e-4 * rng.normal(size=360)) for s in SEEDS}
    b = {s: rows.run(1 + noise + 1e-4 * rng.normal(size=360)) for s in SEEDS}
    assert decide({0: difference(a, b)})[0] == "equal"
    same = difference(a, a)
    assert same.value == same.low == same.high == 0 and decide({0: same})[0] == "equal"


def of(value: float, error: float) -> Difference:
    spread = Spread(0.0, 0, error**2)
    upper, mirrored = (Bound((((sign * value, spread),),)) for sign in (1, -1))
    return Difference(value, upper, mirrored, 1)


def test_verdicts():
    cases = {
        "equal": of(0.001, 0.001),
        "equal, though lower": of(-0.004, 0.001),
        "lower": of(-0.02, 0.005),
        "higher": of(0.02, 0.005),
        "not decided": of(0.02, 0.02),
    }
    for name, case in cases.items():
        assert decide({name: case})[name] == name.partition(",")[0]
    assert of(0.02, 0.01).p_different == pytest.approx(2 * stats.norm.sf(2))
    assert of(0.002, 0.004).p_equal() == pytest.approx(stats.norm.sf(2))
    assert of(0.002, 0.004).p_not_above() == pytest.approx(stats.norm.sf(2))
    assert of(0.002, 0.004).p_not_below() == pytest.approx(stats.norm.sf(3))


def test_verdicts_count_how_many_there_are():
    """A p-value of .03 is enough alone, and not beside nine others of which none is found."""
    found = of(0.0217, 0.01)
    assert found.p_different == pytest.approx(0.03, abs=0.001)
    assert decide({0: found}) == {0: "higher"}
    many = {i: of(0.0217 if i == 3 else 0.01, 0.01) for i in range(10)}
    assert set(decide(many).values()) == {"not decided"}
    assert decide({i: of(0.05, 0.01) for i in range(10)}) == dict.fromkeys(range(10), "higher")


def test_a_group_of_one_row_leaves_the_worst_undecided():
    rng = np.random.default_rng(7)
    rows = SampleRows([1, 50], 50)
    for seeds in (1, 2, 3):
        a, b = ({s: rows.run(rng.exponential(size=51)) for s in range(seeds)} for _ in range(2))
        found = difference(a, b)
        assert np.isfinite(found.value) and np.isnan(found.high) and np.isnan(found.p_different)
        assert decide({0: found}) == {0: "not decided"}
        assert np.isfinite(difference(a, b, "b").p_different)


def test_groups_without_test_rows_have_no_part():
    rows = SampleRows([0, 50, 50], 50)
    run = rows.run(np.random.default_rng(8).exponential(size=100))
    assert np.isfinite([estimate({0: run}, f).high for f in ("worst", "best", "average")]).all()


def test_runs_that_cannot_be_paired_are_refused():
    rows = SampleRows([30, 30], 10)
    run = rows.run(np.ones(60))
    other = Replicates(run.groups, run.losses, run.right, run.rows, "others")
    renamed = Replicates(("x", "y"), run.losses, run.right, run.rows, "rows")
    for a, b, says in (
        ({0: run}, {1: run}, "no seed is common"),
        ({0: run}, {0: other}, "other rows"),
        ({0: run}, {0: renamed}, "other groups"),
    ):
        with pytest.raises(UserError, match=says):
            difference(a, b)
    with pytest.raises(UserError, match="unknown figure"):
        difference({0: run}, {0: run}, "wurst")
    with pytest.raises(UserError, match="unknown kind"):
        estimate({0: run}, kind="loss")


def test_the_file_is_read_back(tmp_path):
    run = SampleRows([3, 4], 5).run(np.arange(7.0))
    assert read_replicates(tmp_path) is None
    np.savez(tmp_path / "bootstrap.npz", **run.arrays())
    found = read_replicates(tmp_path)
    assert found and found.groups == run.groups and found.test_rows == "rows"
    np.testing.assert_array_equal(found.risk, run.risk)
    np.testing.assert_array_equal(found.accuracy, run.accuracy)
    (tmp_path / "bootstrap.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match="cannot be read as a bootstrap"):
        read_replicates(tmp_path)
