"""Scores by group, against a plain count."""

import numpy as np
import pytest
import torch
from mpi4py import MPI
from scipy import stats
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss
from torch import nn

from fedmpi.federation.clients import Rows
from fedmpi.federation.evaluation import evaluate
from fedmpi.intervals import risk_interval
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import cross_entropy
from fedmpi.mpi.ranks import Ranks

GROUPS, CLASSES = 3, 4


@pytest.fixture
def rows() -> Rows:
    """50 rows of two groups; the third has none."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 2)), rng.integers(CLASSES, size=50)
    return Rows(*map(torch.from_numpy, (x, y, rng.integers(2, size=50))))


@pytest.mark.parametrize("micro_batch", [7, 1000])
def test_risk_accuracy_and_confusion_by_group(rows, micro_batch):
    torch.manual_seed(1)
    model = FlatModel(nn.Linear(2, CLASSES), torch.float64, torch.device("cpu"), scalars=1)
    ranks = Ranks(MPI.COMM_SELF)
    scores = evaluate(ranks, model, cross_entropy, rows, GROUPS, CLASSES, micro_batch)
    p = torch.softmax(model.module(rows.x), dim=1).detach().numpy()
    y, group = rows.y.numpy(), rows.group.numpy()
    intervals = risk_interval(scores.losses, scores.squares, scores.rows)
    for a in range(2):
        mine = group == a
        labels = range(CLASSES)
        assert scores.rows[a] == mine.sum()
        assert scores.risk[a] == pytest.approx(log_loss(y[mine], p[mine], labels=labels))
        losses = -np.log(p[mine, y[mine]])
        ends = stats.norm.interval(0.95, losses.mean(), stats.sem(losses))
        assert intervals[a] == pytest.approx(ends)
        assert scores.accuracy[a] == accuracy_score(y[mine], p[mine].argmax(1))
        expected = confusion_matrix(y[mine], p[mine].argmax(1), labels=labels)
        assert np.array_equal(scores.confusion[a], expected)
    assert np.isnan(intervals[2]).all()
    assert scores.rows[2] == 0 and np.isnan(scores.risk[2]) and np.isnan(scores.accuracy[2])
