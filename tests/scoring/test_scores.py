"""Sums by group, against scipy and a plain count."""

import numpy as np
import pytest
import torch
from scipy import stats

from fedmpi.scoring.scores import Scores


def test_sums_in_parts_are_the_statistics_of_all_rows():
    rng = np.random.default_rng(0)
    losses, group = rng.exponential(size=50), rng.integers(2, size=50)
    y, predicted = rng.integers(3, size=(2, 50))
    logits = np.eye(3)[predicted]
    scores = Scores(3, 3)
    for rows in (slice(0, 20), slice(20, 50)):
        scores.add(*(torch.from_numpy(a[rows]) for a in (losses, logits, y, group)))
    for a in range(2):
        mine = group == a
        assert scores.risk[a] == pytest.approx(losses[mine].mean())
        assert scores.risk_error[a] == pytest.approx(stats.sem(losses[mine]))
        assert scores.right[a] == (y == predicted)[mine].sum()
    assert scores.rows.tolist() == [*np.bincount(group), 0]
    assert np.isnan(scores.risk_error[2]) and np.isnan(scores.risk[2])
