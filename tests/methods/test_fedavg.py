import numpy as np
import pytest
from statements import combine, flat, gradient, step

from fedmpi.federation.clients import batch_order


# 300 rows are more than any client has; of 7 clients, some have fewer than 40.
@pytest.mark.parametrize("batch_size", [16, 40, 300])
def test_statement(agree, case, batch_size):
    setting, clients, options = case
    agree("fedavg", setting, clients, local_epochs=2, batch_size=batch_size, **options)


def test_the_short_last_batch_is_kept(people, run, same):
    """All rows but one, then the one that is left."""
    f = people.federation("ESG", 1)
    order = batch_order(f.n, f.seed, 0, 1, 0).tolist()
    theta = f.theta
    for batch in (order[:-1], order[-1:]):
        theta = step(theta, 0.5, gradient(theta, lambda p, batch=batch: f.risk(p, batch)))
    found = run("fedavg", "ESG", 1, rounds=1, local_epochs=1, batch_size=f.n - 1)
    same(found.theta(), flat(theta))


def test_batches_larger_than_every_client_are_one_full_step(people, run, same):
    f = people.federation("SSG", 7)
    models = [
        step(f.theta, 0.5, gradient(f.theta, lambda p, rows=rows: f.risk(p, rows)))
        for rows in f.clients
    ]
    mean = combine([len(rows) / f.n for rows in f.clients], models)
    found = run("fedavg", "SSG", 7, rounds=1, local_epochs=1, batch_size=1000)
    same(found.theta(), flat(mean))


@pytest.mark.parametrize("rows", [1, 2, 57])
def test_an_epoch_is_a_permutation(rows):
    for t, epoch in ((1, 0), (1, 1), (30, 14)):
        assert sorted(batch_order(rows, 0, 3, t, epoch)) == list(range(rows))


@pytest.mark.parametrize("differing", ["seed", "client", "t", "epoch"])
def test_the_order_differs_between(differing):
    of = {"seed": 0, "client": 0, "t": 1, "epoch": 0}
    orders = [batch_order(50, **(of | {differing: value})).tolist() for value in range(1, 21)]
    assert len({tuple(order) for order in orders}) == len(orders)


def test_the_order_is_always_the_same():
    np.testing.assert_array_equal(batch_order(50, 1, 2, 3, 4), batch_order(50, 1, 2, 3, 4))
