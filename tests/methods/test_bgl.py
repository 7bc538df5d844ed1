import numpy as np
import pytest
import quadprog
from scipy.optimize import minimize
from weighted import weighted_rounds

from fedmpi import data as datasets
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
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


# A convex game of two groups: logistic regression with cross entropy, whose groups disagree.

LONG = "--model logistic --dtype float64 --lr 1 --lr-mu 0.5 --average tail --rounds 1500"


@pytest.fixture
def game(train, tmp_path):
    """Options of runs on a small table, and its rows: inputs, targets and groups."""
    rng = np.random.default_rng(3)
    group = np.repeat(["a", "b"], [45, 15])
    x = rng.normal(size=60)
    y = x * np.where(group == "a", 1, -1) + rng.normal(size=60) > 0
    lines = [f"{v},{g},{int(t)}" for v, g, t in zip(x, group, y, strict=True)]
    (tmp_path / "game.csv").write_text("\n".join(["x,g,y", *lines]) + "\n")
    data = ["--dataset", f"csv:{tmp_path / 'game.csv'}", "--target", "y", "--group", "g"]
    options = [*data, "--clients", 3, "--eval-every", 1500, *LONG.split()]
    held = prepare(datasets.find(data[1]), tmp_path / "data", DataOptions(target="y", group=("g",)))
    rows = [np.array(held.array(f"train_{part}")) for part in ("x", "y", "group")]
    return options, rows


def risks_and_slopes(rows, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cross entropy of each group and its gradient in theta: weights of both classes, biases."""
    x, y, group = rows
    inputs = np.c_[x, np.ones(len(x))]
    width = x.shape[1]
    matrix = np.c_[theta[: 2 * width].reshape(2, width), theta[2 * width :]]
    logits = inputs @ matrix.T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    losses, slopes = -np.log(p[np.arange(len(y)), y]), p - np.eye(2)[y]
    risks, gradients = [], []
    for a in (0, 1):
        mine = group == a
        g = slopes[mine].T @ inputs[mine] / mine.sum()
        risks.append(losses[mine].mean())
        gradients.append(np.concatenate([g[:, :width].ravel(), g[:, width]]))
    return np.array(risks), np.array(gradients)


def solved(rows, mean: float, worst: float, gamma: float | None = None) -> np.ndarray:
    """Group risks at the minimum of mean * (mean risk) + worst * s, by SLSQP.

    Every risk is at most s, or at most gamma, where one is given.
    """
    rho = np.bincount(rows[2]) / len(rows[2])

    def objective(v):
        risks, slopes = risks_and_slopes(rows, v[:-1])
        return mean * rho @ risks + worst * v[-1], np.append(mean * rho @ slopes, worst)

    bound = {
        "type": "ineq",
        "fun": lambda v: (gamma or v[-1]) - risks_and_slopes(rows, v[:-1])[0],
        "jac": lambda v: np.c_[-risks_and_slopes(rows, v[:-1])[1], [0 if gamma else 1] * 2],
    }
    size = 2 * rows[0].shape[1] + 2
    start = np.append(np.zeros(size), 1.0)
    done = minimize(objective, start, jac=True, constraints=bound, options={"ftol": 1e-12})
    assert done.success, done.message
    return risks_and_slopes(rows, done.x[:-1])[0]


def test_between_it_is_the_constrained_optimum(train, game):
    """The worse group is at the bound, and no model within it has a lower mean risk."""
    options, rows = game
    free, minimax = solved(rows, 1, 0, 100.0), solved(rows, 0, 1)
    assert free.max() - minimax.max() > 0.1
    gamma = (free.max() + minimax.max()) / 2
    run = train(*options, "--method", "bgl", "--gamma", gamma)
    found, _ = risks_and_slopes(rows, run.theta("averaged"))
    np.testing.assert_allclose(found, solved(rows, 1, 0, gamma), atol=1e-3)
    assert found.max() == pytest.approx(gamma, abs=1e-3)


def test_below_the_minimax_risk_it_is_fedminmax(train, game):
    """The mean risk plus B times the worst, which for a large B is the worst alone."""
    options, rows = game
    run = train(*options, "--method", "bgl", "--gamma", 0.1, "--budget", 20)
    found, _ = risks_and_slopes(rows, run.theta("averaged"))
    np.testing.assert_allclose(found, solved(rows, 1 / 21, 20 / 21), atol=1e-3)
    fedminmax = train(*options, "--epsilon", 0, output="fedminmax")
    best, _ = risks_and_slopes(rows, fedminmax.theta("averaged"))
    np.testing.assert_allclose(best, solved(rows, 0, 1), atol=1e-3)
    assert found.max() == pytest.approx(best.max(), abs=0.01)
