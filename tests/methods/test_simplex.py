"""The projections against a quadratic-programming solver, a numeric optimiser, and KKT."""

import numpy as np
import pytest
import quadprog
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmpi.methods.simplex import exponentiated_weights, project_to_simplex

QP_TOLERANCE = 1e-10
KKT_TOLERANCE = 1e-14


def assert_optimal(v: np.ndarray, x: np.ndarray, floor: float) -> None:
    """KKT in extended precision: v - x is one constant above the floor, and no more than it there.

    Relative to the maximum of v, where an entry that matters is never larger than 1.
    """
    assert abs(float(np.sum(x.astype(np.longdouble))) - 1) <= KKT_TOLERANCE
    assert x.min() >= floor
    with np.errstate(over="ignore"):
        gap = v.astype(np.longdouble) - np.longdouble(v.max()) - x.astype(np.longdouble)
    above = x > floor + KKT_TOLERANCE
    if above.any():
        constant = gap[above].max()
        assert constant - gap[above].min() <= KKT_TOLERANCE
        assert (gap[~above] <= constant + KKT_TOLERANCE).all()


def solve_qp(v: np.ndarray, floor: float) -> np.ndarray:
    n = len(v)
    with np.errstate(over="ignore"):
        # The answer depends on v - max(v) only, and the solver needs numbers of its own size:
        # an entry 4 below the maximum is at the floor as surely as one 1e300 below.
        v = np.maximum(v - v.max(), -4.0)
    constraints = np.hstack([np.ones((n, 1)), np.eye(n)])
    bounds = np.concatenate([[1.0], np.full(n, floor)])
    return quadprog.solve_qp(np.eye(n), v, constraints, bounds, meq=1)[0]


def draw_vector(rng: np.random.Generator, n: int) -> np.ndarray:
    match rng.integers(8):
        case 0:  # a step of the training: weights plus risks
            return rng.dirichlet(np.ones(n)) + rng.choice([0.01, 0.1, 1]) * rng.random(n)
        case 1:  # ties
            return rng.integers(0, 4, n) / 4
        case 2:  # all equal
            return np.full(n, rng.normal() * 10.0 ** rng.integers(-300, 300))
        case 3:  # huge
            return rng.normal(size=n) * 10.0 ** rng.integers(10, 308)
        case 4:  # tiny
            return rng.normal(size=n) * 10.0 ** rng.integers(-320, -10)
        case 5:  # small differences on a large offset
            return 10.0 ** rng.integers(1, 12) + rng.normal(size=n)
        case 6:  # many orders of magnitude, with ties at the maximum
            v = rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-300, 300, n)
            v[rng.integers(n, size=1 + n // 3)] = v.max()
            return v
        case _:
            return rng.normal(size=n) * 10.0 ** rng.uniform(-6, 3)


def draw_floor(rng: np.random.Generator, n: int) -> float:
    return rng.choice([0.0, min(0.001, 0.4 / n), rng.random() / n, 1 / n], p=[0.4, 0.3, 0.25, 0.05])


@pytest.mark.parametrize(
    ("draws", "smallest", "largest"),
    [(8500, 2, 30), (1100, 31, 100), (300, 101, 200), (100, 201, 400)],
)
def test_projection_agrees_with_a_qp_solver(draws, smallest, largest):
    rng = np.random.default_rng([draws, largest])
    for _ in range(draws):
        n = int(rng.integers(smallest, largest + 1))
        v, floor = draw_vector(rng, n), draw_floor(rng, n)
        x = project_to_simplex(v, floor)
        assert_optimal(v, x, floor)
        if n * floor < 1:  # for the solver, a feasible set of one point may be empty by rounding
            np.testing.assert_allclose(x, solve_qp(v, floor), rtol=0, atol=QP_TOLERANCE)


@pytest.mark.parametrize(
    ("v", "floor", "expected"),
    [
        ([0.3], 0.0, [1]),
        ([2, 0, 0], 0.0, [1, 0, 0]),
        ([2, 0, 0], 0.1, [0.8, 0.1, 0.1]),
        ([0.5, 0.5, -9], 0.001, [0.4995, 0.4995, 0.001]),
        ([1e300, 1e300, -1e300], 0.0, [0.5, 0.5, 0]),
        ([1e308, -1.7e308], 0.25, [0.75, 0.25]),
        ([5e-324, 0], 0.0, [0.5, 0.5]),
        ([3, 1, 2], 1 / 3, [1 / 3, 1 / 3, 1 / 3]),
        (np.arange(49), 1 / 49, np.full(49, 1 / 49)),  # 49 * (1/49) < 1 in float64
    ],
)
def test_projection_known_answers(v, floor, expected):
    x = project_to_simplex(np.array(v), floor)
    assert x.dtype == np.float64
    np.testing.assert_allclose(x, expected, rtol=1e-15)


def test_projection_of_many_has_sum_one():
    v = np.random.default_rng(0).normal(size=40_000) * 1e-6
    assert abs(np.sum(project_to_simplex(v, 1e-6), dtype=np.longdouble) - 1) < 1e-14


def test_projection_leaves_its_argument_alone():
    v = np.array([3.0, 1.0, 2.0])
    project_to_simplex(v, 0.1)
    assert v.tolist() == [3, 1, 2]


@pytest.mark.parametrize("floor", [0.51, -0.1, np.nan, np.inf])
def test_impossible_floor(floor):
    for move in (
        lambda v: project_to_simplex(v, floor),
        lambda v: exponentiated_weights(v, v, floor),
    ):
        with pytest.raises(ValueError, match="floor"):
            move(np.array([0.5, 0.5]))


@pytest.mark.parametrize("v", [[np.nan, 0], [np.inf, 0], [0, -np.inf], [], [[0.5, 0.5]]])
def test_what_is_not_a_finite_vector(v):
    with pytest.raises(ValueError):
        project_to_simplex(np.array(v))
    with pytest.raises(ValueError):
        exponentiated_weights(np.array(v), np.array(v))


vectors = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40)
floor_parts = st.one_of(st.just(0.0), st.floats(0, 1))


@settings(deadline=None)
@given(vectors, floor_parts, st.randoms(use_true_random=False))
def test_projection_properties(values, floor_part, random):
    v = np.array(values)
    floor = floor_part / len(v)
    x = project_to_simplex(v, floor)
    assert_optimal(v, x, floor)
    np.testing.assert_allclose(project_to_simplex(x, floor), x, rtol=0, atol=1e-15)
    order = np.array(random.sample(range(len(v)), len(v)))
    np.testing.assert_array_equal(project_to_simplex(v[order], floor), x[order])


@pytest.mark.parametrize("floor_part", [0.0, 0.2, 0.9])
def test_exponentiated_weights_minimise_kl(floor_part):
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(1)
    clamped = 0
    for _ in range(20):
        n = int(rng.integers(2, 9))
        floor = floor_part / n
        mu, step = rng.dirichlet(np.ones(n)), 2 * rng.normal(size=n)
        w = mu * np.exp(step) / np.sum(mu * np.exp(step))
        found = optimize.minimize(
            lambda x, w: np.sum(x * np.log(x / w)),
            np.full(n, 1 / n),
            args=(w,),
            jac=lambda x, w: np.log(x / w) + 1,
            method="SLSQP",
            bounds=[(max(floor, 1e-9), 1)] * n,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        x = exponentiated_weights(mu, step, floor)
        clamped += np.count_nonzero(x == floor)
        np.testing.assert_allclose(x, found.x, rtol=0, atol=1e-5)
    assert clamped > 0 or floor == 0


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(allow_nan=False, allow_infinity=False)),
        min_size=1,
        max_size=40,
    ).filter(lambda pairs: any(mu > 0 for mu, _ in pairs)),
    floor_parts,
)
def test_exponentiated_weights_properties(pairs, floor_part):
    mu, step = np.array(pairs).T
    floor = floor_part / len(mu)
    x = exponentiated_weights(mu, step, floor)
    assert x.min() >= floor
    assert abs(x.sum() - 1) <= 1e-14
    # Without a step, a point that is already allowed stays where it is.
    again = exponentiated_weights(x, np.zeros(len(x)), floor)
    np.testing.assert_allclose(again, x, rtol=0, atol=1e-14)


def test_exponentiated_weights_of_huge_steps():
    mu = np.array([0.1, 0.3, 0.6])
    x = exponentiated_weights(mu, np.array([1e300, 1e300, -1e300]), 0.0)
    np.testing.assert_allclose(x, [0.25, 0.75, 0], atol=1e-15)
    x = exponentiated_weights(mu, np.array([1e300, 0, -1e300]), 0.01)
    np.testing.assert_allclose(x, [0.98, 0.01, 0.01], atol=1e-15)
    x = exponentiated_weights(np.array([0.0, 1.0]), np.array([1e308, -1.7e308]), 0.01)
    np.testing.assert_allclose(x, [0.01, 0.99], atol=1e-15)


@pytest.mark.parametrize("mu", [[0, 0], [-0.1, 1.1], [1]])
def test_exponentiated_weights_need_weights(mu):
    with pytest.raises(ValueError, match="mu"):
        exponentiated_weights(np.array(mu), np.zeros(2))
