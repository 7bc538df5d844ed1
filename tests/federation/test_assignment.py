import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmpi.errors import UserError
from fedmpi.federation.assignment import BATCH, assign_clients, costs, spread_rows


def loads(sizes: np.ndarray, hosted: list[np.ndarray]) -> list[int]:
    return [int(sizes[mine].sum()) for mine in hosted]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.data())
def test_each_client_on_one_rank_and_no_rank_empty(sizes, data):
    sizes = np.array(sizes)
    ranks = data.draw(st.integers(1, len(sizes)))
    hosted = assign_clients(sizes, ranks)
    assert len(hosted) == ranks
    assert sorted(itertools.chain(*hosted)) == list(range(len(sizes)))
    for mine in hosted:
        assert len(mine) >= 1
        assert (np.diff(mine) > 0).all()
    # What a list scheduler guarantees: the last client of the fullest rank went to the emptiest.
    assert max(loads(sizes, hosted)) <= sizes.sum() / ranks + sizes.max()


@given(st.lists(st.integers(1, 50), min_size=2, max_size=7), st.integers(2, 3))
def test_close_to_the_best_possible(sizes, ranks):
    sizes = np.array(sizes)
    if len(sizes) < ranks:
        return
    best = min(
        max(np.bincount(places, weights=sizes, minlength=ranks))
        for places in itertools.product(range(ranks), repeat=len(sizes))
    )
    assert (
        max(loads(sizes, assign_clients(sizes, ranks))) <= (4 / 3 - 1 / (3 * ranks)) * best + 1e-9
    )


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.data())
def test_with_speeds_too_each_client_is_on_one_rank_and_no_rank_is_empty(sizes, data):
    ranks = data.draw(st.integers(1, len(sizes)))
    speeds = data.draw(st.lists(st.floats(0.1, 1e6), min_size=ranks, max_size=ranks))
    hosted = assign_clients(np.array(sizes), ranks, speeds)
    assert sorted(itertools.chain(*hosted)) == list(range(len(sizes)))
    assert all(len(mine) >= 1 and (np.diff(mine) > 0).all() for mine in hosted)


def test_a_rank_that_is_three_times_as_fast_has_three_times_the_rows():
    sizes = np.random.default_rng(0).integers(1, 2000, 400)
    slow, fast, other = loads(sizes, assign_clients(sizes, 3, [10.0, 30.0, 10.0]))
    assert fast / slow == pytest.approx(3, rel=0.01) and other / slow == pytest.approx(1, rel=0.01)


def test_with_a_client_each_the_fastest_rank_has_the_largest():
    hosted = assign_clients(np.array([5, 9, 1]), 3, [1.0, 2.0, 4.0])
    assert [mine.tolist() for mine in hosted] == [[2], [0], [1]]


def test_as_many_ranks_as_clients_is_the_identity():
    hosted = assign_clients(np.array([1, 9, 5, 9]), 4)
    assert [mine.tolist() for mine in hosted] == [[0], [1], [2], [3]]


def test_ties_go_by_client_number():
    hosted = assign_clients(np.full(7, 10), 3)
    assert [mine.tolist() for mine in hosted] == [[0, 3, 6], [1, 4], [2, 5]]


def test_thousands_of_clients_are_even():
    sizes = np.random.default_rng(0).integers(1, 2000, 4000)
    rows = loads(sizes, assign_clients(sizes, 40))
    assert max(rows) - min(rows) <= 20


def test_a_batch_costs_more_than_its_rows():
    """So a client's last row, if it makes a batch of its own, is the dearest."""
    sizes = np.array([0, 1, 100, 101, 200])
    assert costs(sizes, None).tolist() == sizes.tolist()
    one, two = costs(sizes, 100)[[2, 3]]
    assert two - one > 10
    assert costs(sizes, 100).tolist() == [0, 1 + BATCH, 100 + BATCH, 101 + 2 * BATCH, two + 99]
    sizes = np.array([99, 201, 200, 10, 100])
    batches = -(-sizes // 100)
    by_rows, by_costs = (assign_clients(c, 2) for c in (sizes, costs(sizes, 100)))
    assert sorted(batches[mine].sum() for mine in by_rows) == [3, 5]
    assert sorted(batches[mine].sum() for mine in by_costs) == [4, 4]


def test_more_ranks_than_clients():
    with pytest.raises(UserError, match=r"40 client ranks.*10 clients.*-n 11.*--clients 40"):
        assign_clients(np.ones(10), 40)


@given(st.integers(0, 10_000), st.integers(1, 100))
def test_blocks_of_rows_are_even_and_in_order(total, ranks):
    blocks = spread_rows(total, ranks)
    assert len(blocks) == ranks
    rows = np.arange(total)
    np.testing.assert_array_equal(np.concatenate([rows[block] for block in blocks]), rows)
    lengths = [len(rows[block]) for block in blocks]
    assert max(lengths) - min(lengths) <= 1
