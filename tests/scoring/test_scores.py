"""Sums by group and intervals, against scipy and a plain count."""

import numpy as np
import pytest
import torch
from scipy import stats

from fedmpi.scoring.scores import LEVEL, Scores, normal, wilson


def test_sums_in_parts_are_the_statistics_of_all_rows():
    rng = np.random.default_rng(0)
    losses, group = rng.exponential(size=50), rng.integers(2, size=50)
    y, predicted = rng.integers(3, size=(2, 50))
    scores = Scores(3, 3)
    for rows in (slice(0, 20), slice(20, 50)):
        scores.add(*(torch.from_numpy(a[rows]) for a in (losses, predicted, y, group)))
    for a in range(2):
        mine = group == a
        assert scores.risk[a] == pytest.approx(losses[mine].mean())
        assert scores.risk_error[a] == pytest.approx(stats.sem(losses[mine]))
        assert scores.right[a] == (y == predicted)[mine].sum()
    assert scores.rows.tolist() == [*np.bincount(group), 0]
    assert np.isnan(scores.risk_error[2]) and np.isnan(scores.risk[2])


@pytest.mark.parametrize(("part", "whole"), [(0, 7), (7, 7), (3, 10), (480, 1000)])
def test_wilson_is_scipy_s(part, whole):
    expected = stats.binomtest(part, whole).proportion_ci(LEVEL, method="wilson")
    low, high = wilson(np.array([part]), np.array([whole]))
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_intervals_without_rows_are_not_numbers():
    assert np.isnan(wilson(np.array([0]), np.array([0]))).all()
    assert np.isnan(normal(np.array([np.nan]), np.array([np.nan]))).all()


def test_the_normal_interval_is_scipy_s_and_a_loss_is_not_negative():
    low, high = normal(np.array([1.0, 0.1]), np.array([0.2, 0.2]))
    assert (low[0], high[0]) == pytest.approx(stats.norm.interval(LEVEL, 1.0, 0.2))
    assert low[1] == 0
