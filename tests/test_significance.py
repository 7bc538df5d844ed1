"""Student's t, the two variances of a mean over seeds, and Holm's correction."""

import numpy as np
import pytest
from scipy import stats

from fedmpi.significance import Spread, holm, spread_of, t_quantile, t_tail


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 30])
def test_students_t_is_scipys(degrees):
    for t in (-3.0, -0.5, 0.0, 0.1, 1.0, 2.5, 10.0):
        assert t_tail(t, degrees) == pytest.approx(stats.t.sf(t, degrees), abs=1e-11)
    for alpha in (0.4, 0.025, 0.001, 1e-6):
        assert t_quantile(alpha, degrees) == pytest.approx(stats.t.isf(alpha, degrees), rel=1e-6)


def test_seeds_alone_are_a_t_test_and_rows_alone_are_a_z_test():
    x = np.array([0.3, 0.1, 0.45])
    of_seeds = spread_of(x, np.zeros((3, 10)))
    assert of_seeds.p_value(x.mean()) == pytest.approx(
        stats.ttest_1samp(x, 0, alternative="greater").pvalue, abs=1e-9
    )
    assert Spread(0.0, 0, 0.04).p_value(0.5) == pytest.approx(stats.norm.sf(2.5), abs=1e-9)
    assert Spread(0.0, 2, 0.04).p_value(-0.5) == pytest.approx(stats.norm.cdf(2.5), abs=1e-9)


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.002])
def test_the_p_value_of_the_reach_is_alpha(alpha):
    for spread in (Spread(0.04, 2, 0.09), Spread(0.04, 2, 0.0), Spread(0.0, 0, 0.09)):
        assert spread.p_value(spread.reach(alpha)) == pytest.approx(alpha, rel=1e-6)


def test_the_variance_of_the_mean_is_split_without_a_rest():
    """s²/S + C has the expectation of the variance, whatever part of the errors is shared."""
    rng = np.random.default_rng(0)
    for between, shared, own in ((0.0, 1.0, 0.0), (0.5, 0.3, 0.4), (0.0, 0.0, 1.0)):
        e = shared * rng.normal(size=(20_000, 1)) + own * rng.normal(size=(20_000, 3))
        d = between * rng.normal(size=(20_000, 3)) + e
        parts = spread_of(d[0], e.T)  # 20,000 replicates of the errors
        seeds = d.var(axis=1, ddof=1).mean() / 3
        assert seeds + parts.rows == pytest.approx(d.mean(axis=1).var(), rel=0.05)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_the_mean_passes_its_reach_no_more_often_than_alpha(share):
    """Three seeds: with the rows' share of the variance from none to all of it."""
    rng, alpha = np.random.default_rng(1), 0.025
    t, z = stats.t.isf(alpha, 2), stats.norm.isf(alpha)
    seeds = np.sqrt(1 - share) * rng.normal(size=(100_000, 3))
    mean = seeds.mean(axis=1) + np.sqrt(share / 3) * rng.normal(size=100_000)
    reach = np.sqrt(t**2 * seeds.var(axis=1, ddof=1) / 3 + z**2 * share / 3)
    passed = (mean > reach).mean()
    assert passed < alpha + 3 * np.sqrt(alpha / 100_000)
    if share in (0, 1):
        assert passed > alpha - 3 * np.sqrt(alpha / 100_000)
    known = Spread(float(seeds[0].var(ddof=1) / 3), 2, share / 3)
    assert known.reach(alpha) == pytest.approx(reach[0])


def test_nothing_varies():
    exact = Spread(0.0, 2, 0.0)
    assert exact.p_value(0.0) == 0.5 and exact.p_value(0.1) < 1e-9 and exact.p_value(-0.1) > 0.999
    assert np.isnan(exact.p_value(float("nan")))


def test_holm_by_hand():
    """Smallest times 4, next times 3, ...; never below one before; the order stays."""
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.5, 0.9]), [1.0, 1.0])
    np.testing.assert_allclose(holm([0.02]), [0.02])
    np.testing.assert_allclose(holm([0.02, np.nan, 0.01]), [0.02, np.nan, 0.02])
    assert holm([]).size == 0


def test_holm_is_rarely_wrong_about_any():
    """Ten null hypotheses and two false ones: some null is rejected in 5% of 4,000 cases."""
    rng = np.random.default_rng(2)
    p = rng.uniform(size=(4000, 12))
    p[:, :2] *= 1e-4
    adjusted = np.array([holm(case) for case in p])
    wrong = (adjusted[:, 2:] <= 0.05).any(axis=1).mean()
    assert 0.03 < wrong < 0.05 + 3 * np.sqrt(0.05 / 4000)
    assert (adjusted[:, :2] <= 0.05).all()
