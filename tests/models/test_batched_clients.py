"""Small clients trained together against the same clients one by one, in float64."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedmpi import models
from fedmpi.federation.clients import Clients, Rows, batch_order
from fedmpi.models.batched_clients import FEW, batch_clients
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import LOSSES
from fedmpi.models.perceptron import perceptron

SIZES = np.array([3, 1, 16, 9, 8, 24, 1, 17, 140, 10, 8, 2, 23, 64, 5])
SHARES = np.random.default_rng(4).random(len(SIZES))


def clients(hidden: int | str, shape: tuple[int, ...], loss: str, micro_batch: int = 50) -> Clients:
    """Of a narrow perceptron, which is as good as a wide one here, or of a model by its name."""
    draw = torch.Generator().manual_seed(2)
    total = int(SIZES.sum())
    x = torch.randn(total, *shape, dtype=torch.float64, generator=draw)
    y = torch.randint(0, 3, (total,), generator=draw)
    if isinstance(hidden, str):
        module = models.build(hidden, shape, 3, seed=1)
    else:
        torch.manual_seed(1)
        module = perceptron(shape, 3, hidden, width=11)
    model = FlatModel(module, torch.float64, torch.device("cpu"), 1)
    rows = Rows(x, y, torch.zeros(total, dtype=torch.int64))
    numbers = np.arange(len(SIZES)) * 3
    return Clients(numbers, SIZES[None], rows, model, LOSSES[loss], micro_batch, seed=5)


def one_by_one(
    some: Clients, config: SimpleNamespace, t: int = 7
) -> tuple[torch.Tensor, list[float]]:
    squares = []
    some.model.change.zero_()
    for i, change in some.local_changes(t, config):
        squares.append(float(change.square().sum()))
        some.add(change, SHARES[i])
    return some.model.change, squares


@pytest.mark.parametrize(("epochs", "batch"), [(1, 8), (1, 100), (3, 8), (2, 5)])
@pytest.mark.parametrize(
    ("hidden", "shape", "loss"),
    [(1, (5,), "cross-entropy"), (4, (2,), "brier"), (0, (1, 3, 3), "cross-entropy")],
)
def test_the_sum_is_that_of_clients_one_by_one(hidden, shape, loss, epochs, batch):
    config = SimpleNamespace(local_epochs=epochs, batch_size=batch, lr=0.3)
    ours, theirs = (clients(hidden, shape, loss) for _ in range(2))
    start = ours.model.theta.clone()
    for t in (7, 8):
        squares = np.full(len(SIZES), np.nan)
        ours.model.new_sums()  # as after a loss of ranks: other memory
        ours.add_local_changes(t, config, lambda: SHARES, squares)
        expected, norms = one_by_one(theirs, config, t)
        assert expected.abs().max() > 1e-3
        assert torch.allclose(ours.model.change, expected, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(squares, norms, rtol=1e-10)
        assert torch.equal(ours.model.theta, start)
    together = sum(len(some.places) for some in ours._client_batches or ())
    small = (SIZES * epochs <= FEW).sum()
    assert together == small and 0 < small < len(SIZES)


def test_models_without_passes_by_hand_train_alone():
    config = SimpleNamespace(local_epochs=1, batch_size=50, lr=0.3)
    ours, theirs = (clients("cnn", (1, 8, 8), "brier") for _ in range(2))
    ours.add_local_changes(7, config, lambda: SHARES)
    assert torch.equal(ours.model.change, one_by_one(theirs, config)[0])
    assert not ours._client_batches


def test_one_step_is_taken_together_by_clients_of_any_size():
    """And the shares are asked for when something has been trained, not before."""
    config = SimpleNamespace(local_epochs=1, batch_size=1000, lr=0.3)
    ours, theirs = (clients(1, (5,), "cross-entropy", micro_batch=200) for _ in range(2))
    asked = []

    def shares() -> np.ndarray:
        asked.append(ours._batched_training and bool(ours._batched_training.room))
        return SHARES

    ours.add_local_changes(7, config, shares)
    assert asked and all(asked)
    assert sum(len(some.places) for some in ours._client_batches or ()) == len(SIZES)
    assert torch.allclose(ours.model.change, one_by_one(theirs, config)[0], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("epochs", [1, 3])
def test_batches_have_every_row_of_every_epoch_once(epochs):
    starts = np.cumsum(SIZES) - SIZES
    batches = batch_clients(np.arange(len(SIZES)), starts, SIZES, epochs, batch_size=8, rows=60)
    assert sorted(i for some in batches for i in some.places) == list(range(len(SIZES)))
    for some in batches:
        assert len(some.places) == 1 or some.rows.size <= 60
        before = some.rows.copy()
        some.shuffle(lambda i, epoch: batch_order(int(SIZES[i]), 0, i, 1, epoch))
        for column, i in enumerate(some.places):
            held = some.weights[:, column] > 0
            every = np.tile(starts[i] + np.arange(SIZES[i]), epochs)
            assert sorted(some.rows[held, column]) == sorted(every)
            # A batch's weights are a mean's.
            sums = [some.weights[step, column].sum() for step in some.steps()]
            np.testing.assert_allclose(sums, 1)
        assert (some.rows != before).any() == (len(some.ends) > 1)


def test_a_client_that_diverges_is_named():
    some = clients(1, (5,), "cross-entropy")
    some.x[SIZES[:3].sum()] = torch.inf  # a row of the fourth
    config = SimpleNamespace(local_epochs=1, batch_size=8, lr=0.3)
    some.add_local_changes(7, config, lambda: SHARES)
    assert not torch.isfinite(some.model.change.sum())
    assert some.diverged == [9]
