import numpy as np
import pytest
import quadprog
from hypothesis import example, given
from hypothesis import strategies as st
from statements import Trace, combine, flat, group_risks, local, shares

from fedmpi.errors import UserError
from fedmpi.methods.simplex import shortest_combination
from fedmpi.mpi.ranks import AgreedError

LOCAL = {"local_epochs": 2, "batch_size": 16}


def shortest(vectors: np.ndarray, centre: np.ndarray, radius: float) -> np.ndarray:
    """Weights of the shortest vector, by a quadratic-programming solver, which needs a ridge."""
    size = len(vectors)
    limits = np.hstack([np.ones((size, 1)), np.eye(size), -np.eye(size)])
    bounds = [1.0, *np.maximum(centre - radius, 0), *-(centre + radius)]
    matrix = vectors @ vectors.T + 1e-12 * np.eye(size)
    return quadprog.solve_qp(matrix, np.zeros(size), limits, np.array(bounds), meq=1)[0]


def fedmgda(f, rounds, lr, local_epochs, batch_size, radius, global_lr, cohort=None) -> Trace:
    """Algorithm 1 of Hu et al. (2020)."""
    trace, clients = Trace(f.theta), len(f.clients)
    for t in range(1, rounds + 1):
        theta, chosen = trace.theta, cohort(t) if cohort else range(clients)
        units = []
        for k in chosen:
            trained = local(f, theta, k, t, lr, local_epochs, batch_size, f.risk)
            change = combine([1, -1], [trained, theta])
            units.append(combine([1 / np.linalg.norm(flat(change))], [change]))
        centre = np.array([len(f.clients[k]) for k in chosen], dtype=float)
        weights = shortest(np.array([flat(u) for u in units]), centre / centre.sum(), radius)
        new = combine([1, *(global_lr * weights)], [theta, *units])
        recorded = np.zeros(clients)
        recorded[list(chosen)] = weights
        trace.add(new, group_risks(f, theta), client_weights=recorded)
    return trace


@pytest.mark.parametrize("radius", [0.05, 1.0])
def test_algorithm_1(agree, case, radius):
    """A radius of .05 holds some weights at both of their bounds."""
    setting, clients, options = case
    steps = {"radius": radius, "global_lr": 0.3, "rounds": 4}
    agree("fedmgda", setting, clients, fedmgda, **steps, **LOCAL, **options)


def test_of_a_cohort_the_shares_are_those_of_its_rows(people, run, same):
    def cohort(t):
        return np.sort(np.random.default_rng([0, t]).choice(7, 3, replace=False)).tolist()

    steps = {"radius": 0.1, "global_lr": 0.3, "rounds": 4}
    found = run("needy:SampledFedMGDA", "PSG", 7, eval_every=4, **steps, **LOCAL)
    stated = fedmgda(people.federation("PSG", 7), lr=0.5, cohort=cohort, **steps, **LOCAL)
    same(found.theta(), stated.thetas[-1])


def test_without_a_radius_it_is_the_mean_of_normalised_changes(people, run, same):
    f = people.federation("SSG", 7)
    theta = f.theta
    for t in range(1, 4):
        changes = [combine([1, -1], [local(f, theta, k, t, 0.5, 2, 16, f.risk), theta])
                   for k in range(7)]  # fmt: skip
        by = [p / np.linalg.norm(flat(c)) for p, c in zip(shares(f), changes, strict=True)]
        theta = combine([1, *by], [theta, *changes])
    same(run("fedmgda", "SSG", 7, radius=0, **LOCAL).theta(), flat(theta))


def test_no_client_is_harmed_to_first_order(people, run):
    """With all convex combinations to choose from, d·u_k >= |d|^2 for every client."""
    f = people.federation("SSG", 7)
    units = []
    for k in range(7):
        change = flat(local(f, f.theta, k, 1, 0.5, 2, 16, f.risk)) - flat(f.theta)
        units.append(change / np.linalg.norm(change))
    step = run("fedmgda", "SSG", 7, radius=1, rounds=1, **LOCAL).theta() - flat(f.theta)
    assert step @ step > 1e-3
    assert (np.array(units) @ step).min() >= step @ step - 1e-9
    mean = np.array(shares(f)) @ np.array(units)
    assert (np.array(units) @ mean).min() < mean @ mean - 0.01, "which the mean has not"


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([0.01, 0.1, 0.3, 1.0]))
@example(5193923, 8, 0.01)  # all weights are at a bound
@example(0, 60, 0.02)
def test_the_shortest_combination_is_that_of_a_quadratic_solver(seed, size, radius):
    """Of more vectors than dimensions, too, where many weights give the same vector."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(size, int(rng.integers(1, 9)))) + rng.normal()
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    centre = rng.dirichlet(np.ones(size))
    found = shortest_combination(vectors @ vectors.T, centre, radius)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert found.min() >= 0 and np.abs(found - centre).max() <= radius + 1e-12
    expected = shortest(vectors, centre, radius)
    np.testing.assert_allclose(found @ vectors, expected @ vectors, rtol=0, atol=1e-5)
    assert np.linalg.norm(found @ vectors) <= np.linalg.norm(expected @ vectors) + 1e-8


@pytest.mark.parametrize("radius", [0.01, 1.0])
def test_equal_vectors_are_no_trouble(radius):
    found = shortest_combination(np.ones((5, 5)), np.full(5, 0.2), radius)
    assert found.sum() == pytest.approx(1) and found.min() >= 0


def test_a_client_that_diverges_is_named(run):
    with pytest.raises(AgreedError, match=r"the model of client \d is not finite"):
        run("fedmgda", "PSG", 4, model="mlp", rounds=50, lr=1e3, dtype="float32", **LOCAL)


def test_every_change_goes_to_the_server_so_secure_sums_are_refused(run):
    with pytest.raises(UserError, match="each client's own changes"):
        run("fedmgda", "PSG", 4, sums="exact", **LOCAL)
