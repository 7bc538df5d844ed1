"""Who is masked with whom, and the chance that colluders part the others."""

import hashlib
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from fedmpi.privacy.graph import ALL_PAIRS, chance_of_a_split, degree, neighbours, on_circle


def seed(*some: int) -> bytes:
    return hashlib.sha256(repr(some).encode()).digest()


def edges(numbers: list[int], k: int, of: bytes) -> dict[int, set[int]]:
    return {number: set(neighbours(number, numbers, of, k)) for number in numbers}


def parts(joined: dict[int, set[int]], among: list[int]) -> int:
    """Number of connected parts of the graph on `among`, by scipy."""
    matrix = [[int(j in joined[i]) for j in among] for i in among]
    return connected_components(csr_matrix(np.array(matrix)), directed=False)[0]


@pytest.mark.parametrize("n", [ALL_PAIRS + 1, 100, 151])
def test_many_ranks_have_a_regular_simple_symmetric_connected_graph(n):
    numbers, k = list(range(1, n + 1)), degree(n)
    joined = edges(numbers, k, seed(n))
    assert k % 2 == 0 and k < n - 1
    assert all(len(others) == k and number not in others for number, others in joined.items())
    assert all(number in joined[other] for number in numbers for other in joined[number])
    assert parts(joined, numbers) == 1


def test_the_graph_is_the_seeds_and_does_not_depend_on_the_order_of_the_ranks():
    numbers = list(range(1, 101))
    first = edges(numbers, 26, seed(1))
    assert edges(numbers[::-1], 26, seed(1)) == first
    other = edges(numbers, 26, seed(2))
    # Of 26 neighbours, 26 · 26/99 = 6.8 are expected to be the same.
    shared = np.mean([len(first[i] & other[i]) for i in numbers])
    assert 5 < shared < 9


def test_up_to_some_tens_of_ranks_all_pairs_have_masks():
    numbers = [2, 3, 5, *range(7, ALL_PAIRS + 4)]
    assert len(numbers) == ALL_PAIRS
    for number, others in edges(numbers, degree(len(numbers)), seed(0)).items():
        assert others == set(numbers) - {number}


def test_ranks_that_are_joined_stay_joined_whoever_leaves():
    """So colluders do not gain by leaving; down to few ranks, which are all joined."""
    rng = np.random.default_rng(0)
    numbers, of = list(range(1, 121)), seed(3)
    joined = edges(numbers, 26, of)
    for left in (119, 100, 70, 64, 20, 2):
        numbers = sorted(rng.choice(numbers, left, replace=False).tolist())
        now = edges(numbers, 26, of)
        assert all(joined[i] & set(numbers) <= now[i] for i in numbers)
        assert all(len(now[i]) == (26 if left > ALL_PAIRS else left - 1) for i in numbers)
        joined = now


def exact_chance(n: int, k: int, colluding: int) -> Fraction:
    """Chance of a split over all places of the colluders on a circle, one by one."""
    circle = {i: {(i + d) % n for d in range(-k // 2, k // 2 + 1)} - {i} for i in range(n)}
    places = [set(some) for some in combinations(range(n), colluding)]
    split = [parts(circle, [i for i in range(n) if i not in some]) > 1 for some in places]
    return Fraction(sum(split), len(split))


@pytest.mark.parametrize(
    ("n", "k", "colluding"), [(9, 2, 3), (12, 4, 4), (12, 2, 4), (11, 4, 6), (13, 6, 6)]
)
def test_the_bound_holds_and_is_near(n, k, colluding):
    exact, bound = exact_chance(n, k, colluding), chance_of_a_split(n, k, colluding)
    assert 0 < exact <= bound
    if bound < Fraction(1, 5):  # where more than two cuts are rare
        assert bound <= exact * Fraction(11, 10)


def test_without_enough_colluders_nothing_is_parted():
    assert chance_of_a_split(12, 4, 3) == exact_chance(12, 4, 3) == 0


def test_random_circles_are_parted_as_often_as_expected():
    """The graph as the ranks draw it; 6 standard deviations either way."""
    n, k, colluding, draws = 12, 4, 4, 4000
    numbers, honest = list(range(1, n + 1)), list(range(colluding + 1, n + 1))
    split = 0
    for draw in range(draws):
        joined = {i: on_circle(i, numbers, seed(draw), k) for i in numbers}
        split += parts(joined, honest) > 1
    p = float(exact_chance(n, k, colluding))
    assert abs(split - draws * p) < 6 * (draws * p * (1 - p)) ** 0.5


@pytest.mark.parametrize("n", [*range(ALL_PAIRS + 1, 70), 100, 300, 1000, 5000])
def test_the_degree_is_the_least_that_is_safe(n):
    """The bound once more, as a sum over pairs of places in logarithms."""

    def log2_chance(k: int) -> float:
        c = n // 3
        if c < k:
            return -np.inf
        i = np.arange(k)
        honest = np.log2(n - c) + np.log2(n - c - 1) - np.log2(n - k) - np.log2(n - k - 1)
        pairs = np.log2(n) + np.log2(n - k - 1) - 1
        return np.sum(np.log2(c - i) - np.log2(n - i)) + honest + pairs

    k = degree(n)
    assert log2_chance(k) <= -40 < log2_chance(k - 2)
