"""Intervals from sums, against scipy on the rows themselves."""

import numpy as np
import pytest
from scipy import stats

from fedmpi.intervals import pair, risk_interval, simultaneous, standard_error, wilson


@pytest.mark.parametrize("rows", [2, 7, 1000])
def test_a_risks_interval_is_that_of_the_mean_of_its_losses(rows):
    losses = 3 + np.random.default_rng(rows).exponential(size=(2, rows))
    sums = losses.sum(1), (losses**2).sum(1), [rows, rows]
    assert standard_error(*sums) == pytest.approx(stats.sem(losses, axis=1))
    low, high = stats.norm.interval(0.95, losses.mean(1), stats.sem(losses, axis=1))
    assert risk_interval(*sums) == pytest.approx(np.stack([np.maximum(low, 0), high], axis=1))


def test_losses_that_are_equal_have_no_spread_and_none_is_below_zero():
    low, high = risk_interval(3 * 0.1, 3 * 0.1**2, 3)
    assert low == pytest.approx(0.1) and high == pytest.approx(0.1)
    assert risk_interval(1.0, 1.0, 2)[0] == 0  # losses 0 and 1


@pytest.mark.parametrize("rows", [0, 1])
def test_no_interval_of_fewer_than_two_losses(rows):
    assert np.isnan(risk_interval(0.5 * rows, 0.25 * rows, rows)).all()


@pytest.mark.parametrize(("hits", "rows"), [(0, 1), (0, 7), (5, 7), (7, 7), (300, 1000)])
def test_a_rates_interval_is_wilsons(hits, rows):
    expected = stats.binomtest(hits, rows).proportion_ci(method="wilson")
    assert wilson(hits, rows) == pytest.approx([expected.low, expected.high], abs=1e-12)
    assert wilson([hits, 0], [rows, 0])[0] == pytest.approx(wilson(hits, rows))


def test_no_rate_of_no_rows():
    assert np.isnan(wilson([0], [0])).all()


def test_the_worst_of_many_groups_is_within_the_intervals_that_hold_for_all():
    """The group that looks worst by chance is outside of an interval of its own too often."""
    groups, rows, draws = 10, 100, 2000
    losses = np.random.default_rng(0).exponential(size=(draws, groups, rows))
    sums = losses.sum(2), (losses**2).sum(2), rows

    def covered(ends: np.ndarray) -> float:
        return float(np.mean((ends[:, 0] <= 1) & (ends[:, 1] >= 1)))

    worst = losses.sum(2).argmax(axis=1)
    assert covered(risk_interval(*sums)[np.arange(draws), worst]) < 0.9
    assert covered(risk_interval(*sums, simultaneous(groups)).max(axis=1)) > 0.95
    assert simultaneous(1) == pytest.approx(stats.norm.ppf(0.975))


def test_what_is_no_interval_is_null_in_json():
    assert pair(wilson(0, 0)) is None and pair(wilson(1, 1))[1] == 1.0
