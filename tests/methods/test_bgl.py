import numpy as np
import pytest
import quadprog
from game import risks_and_slopes, solved, write_game
from weighted import weighted_rounds

from fedmpi.methods.bgl import project_to_budget

LOCAL = {"local_epochs": 2, "batch_size": 16}


def nearest(v, budget: float) -> list[float]:
    """Nearest point of {x >= 0, sum x <= budget}, by a quadratic-programming solver."""
    size = len(v)
    constraints = np.hstack([-np.ones((size, 1)), np.eye(size)])
    bounds = np.concatenate([[-budget], np.zeros(size)])
    return quadprog.solve_qp(np.eye(size), np.array(v), constraints, bounds)[0].tolist()


def bgl(f, rounds, lr, lr_mu, gamma, budget=100.0, **local):
    """Dual ascent on the multipliers; rows of group a weigh (1 + lambda_a / rho_a) / (1 + sum)."""
    multipliers = [0.0] * f.groups

    def weigh(risks):
        moved = [m + lr_mu * (r - gamma) for m, r in zip(multipliers, risks, strict=True)]
        multipliers[:] = nearest(moved, budget)
        above = 1 + sum(multipliers)
        return [(1 + m * f.n / f.n_a(a)) / above for a, m in enumerate(multipliers)]

    return weighted_rounds(f, rounds, lr, weigh, **local)


# The bound is between the groups' risks; the second budget is used up.
@pytest.mark.parametrize(("gamma", "budget"), [(0.9, 100.0), (0.2, 0.7)])
def test_statement(agree, case, gamma, budget):
    setting, clients, options = case
    agree("bgl", setting, clients, bgl, lr_mu=2.0, gamma=gamma, budget=budget, **options)


def test_local_epochs(agree):
    agree("bgl", "PSG", 7, bgl, lr_mu=2.0, gamma=0.9, **LOCAL)


@pytest.mark.parametrize("seed", range(5))
def test_the_projection(seed):
    rng = np.random.default_rng(seed)
    for budget in (0.3, 1.0, 50.0):
        v = rng.normal(size=6) * 2
        found = project_to_budget(v, budget)
        np.testing.assert_allclose(found, nearest(v, budget), atol=1e-12)


@pytest.mark.parametrize(("setting", "clients"), [("ESG", 4), ("SSG", 7)])
def test_a_bound_that_no_group_reaches_is_fedavg(run, same, setting, clients):
    found = run("bgl", setting, clients, lr_mu=2.0, gamma=1000)
    fedavg = run("fedavg", setting, clients, local_epochs=1, batch_size=1000)
    same(found.theta(), fedavg.theta())


LONG = "--clients 3 --lr 1 --lr-mu 0.5 --average tail --rounds 1500"


def test_between_it_is_the_constrained_optimum(train, tmp_path):
    """The worse group is at the bound, and no model within it has a lower mean risk."""
    options, rows = write_game(tmp_path)
    options = [*options, *LONG.split()]
    free, minimax = solved(rows, 1, 0, 100.0), solved(rows, 0, 1)
    assert free.max() - minimax.max() > 0.1
    gamma = (free.max() + minimax.max()) / 2
    run = train(*options, "--method", "bgl", "--gamma", gamma)
    found, _ = risks_and_slopes(rows, run.theta("averaged"))
    np.testing.assert_allclose(found, solved(rows, 1, 0, gamma), atol=1e-3)
    assert found.max() == pytest.approx(gamma, abs=1e-3)


def test_below_the_minimax_risk_it_is_fedminmax(train, tmp_path):
    """The mean risk plus B times the worst, which for a large B is the worst alone."""
    options, rows = write_game(tmp_path)
    options = [*options, *LONG.split()]
    run = train(*options, "--method", "bgl", "--gamma", 0.1, "--budget", 20)
    found, _ = risks_and_slopes(rows, run.theta("averaged"))
    np.testing.assert_allclose(found, solved(rows, 1 / 21, 20 / 21), atol=1e-3)
    fedminmax = train(*options, "--epsilon", 0, output="fedminmax")
    best, _ = risks_and_slopes(rows, fedminmax.theta("averaged"))
    np.testing.assert_allclose(best, solved(rows, 0, 1), atol=1e-3)
    assert found.max() == pytest.approx(best.max(), abs=0.01)
