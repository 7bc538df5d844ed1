import numpy as np
import pytest
from game import risks_and_slopes, write_game
from scipy.optimize import minimize
from statements import ascend, rho
from weighted import weighted_rounds

from fedmpi import methods
from fedmpi.errors import UserError
from fedmpi.methods.attribute import Attribute
from fedmpi.run.arguments import resolve

LOCAL = {"local_epochs": 2, "batch_size": 16}
ROWS = {"target": "rich", "group": "sex,rich"}
CASES = [("ESG", 4, ROWS), ("PSG", 5, ROWS), ("SSG", 9, ROWS | {"group": "place,rich"})]


def eominmax(f, rounds, lr, lr_mu, epsilon, adversary="projected", **local):
    positive = list(range(1, f.groups, 2))
    share = sum(rho(f)[a] for a in positive)
    nu = [rho(f)[a] / share for a in positive]

    def weigh(risks):
        nu[:] = ascend(nu, [risks[a] for a in positive], lr_mu, epsilon, adversary)
        w = [1.0] * f.groups
        for a, of_class in zip(positive, nu, strict=True):
            w[a] = share * of_class / rho(f)[a]
        return w

    return weighted_rounds(f, rounds, lr, weigh, **local)


# The second pair drives some groups to the floor.
@pytest.mark.parametrize(("lr_mu", "epsilon"), [(0.5, 0.001), (5.0, 0.05)])
@pytest.mark.parametrize(("setting", "clients", "rows"), CASES)
def test_statement(agree, setting, clients, rows, lr_mu, epsilon):
    agree("eominmax", setting, clients, eominmax, lr_mu=lr_mu, epsilon=epsilon, **rows)


def test_multiplicative_with_local_epochs(agree):
    steps = {"lr_mu": 1.0, "epsilon": 0.05, "adversary": "multiplicative"}
    agree("eominmax", "PSG", 5, eominmax, **steps, **LOCAL, **ROWS)


def test_without_adversary_it_is_fedavg(run, same):
    found = run("eominmax", "PSG", 5, lr_mu=0, epsilon=0, **ROWS)
    fedavg = run("fedavg", "PSG", 5, local_epochs=1, batch_size=1000, **ROWS)
    same(found.theta(), fedavg.theta(), **ROWS)


@pytest.fixture
def started():
    """The server's part, of four groups of which `positive` are of the second class."""

    def start(positive: list[bool]):
        options = "--dataset adult --method eominmax --clients 3 --lr-mu 0.5 --solver paper"
        method = methods.find("eominmax")(resolve(options.split(), 1, one_process=True))
        method.attribute = Attribute(np.array([0, 0, 1, 1]), np.array(positive))
        method.start(np.array([[30, 10, 0], [0, 10, 20], [0, 0, 20], [5, 5, 0]]))
        return method

    return start


def test_if_all_groups_are_of_the_class_it_is_fedminmax(started):
    method, risks = started([True] * 4), np.array([0.9, 0.2, 0.4, 1.3])
    fedminmax = methods.find("fedminmax")(method.config)
    fedminmax.start(np.array([[30, 10, 0], [0, 10, 20], [0, 0, 20], [5, 5, 0]]))
    for _ in range(3):
        method.update_weights(risks)
        fedminmax.update_weights(risks)
    np.testing.assert_allclose(method.weights(), fedminmax.weights(), rtol=1e-12)


def test_the_other_groups_keep_their_share_also_after_a_death(started):
    method = started([False, True, False, True])
    method.update_weights(np.array([9.0, 0.2, 9.0, 0.9]))
    np.testing.assert_allclose(method.mu[[0, 2]], [0.4, 0.2])
    assert method.mu[3] > 0.1 and method.mu.sum() == pytest.approx(1)
    before = method.mu[1] / method.mu[3]
    method.lose(np.array([[0, 10, 0], [0, 10, 20], [0, 0, 20], [0, 5, 0]]))
    np.testing.assert_allclose(method.mu[[0, 2]], [10 / 65, 20 / 65])
    assert method.mu[1] / method.mu[3] == pytest.approx(before)
    assert method.mu.sum() == pytest.approx(1)


def test_the_solution_of_a_convex_game(train, tmp_path):
    """Mean risk of the no's, and the worst of the two groups of yes's, by SLSQP."""
    options, rows = write_game(tmp_path, "g,y")
    run = "--method eominmax --clients 3 --lr 1 --lr-mu 0.5 --epsilon 0 --average tail"
    found = train(*options, *run.split(), "--rounds", 1500).theta("averaged")
    share = rows[1].mean()

    def objective(v):
        risks, slopes = risks_and_slopes(rows, v[:-1])
        others = np.bincount(rows[2])[[0, 2]] / len(rows[2])
        slope = others @ slopes[[0, 2]]
        return others @ risks[[0, 2]] + share * v[-1], np.append(slope, share)

    bound = {"type": "ineq", "fun": lambda v: v[-1] - risks_and_slopes(rows, v[:-1])[0][[1, 3]]}
    done = minimize(objective, np.append(np.zeros(len(found)), 1.0), jac=True, constraints=bound)
    assert done.success
    expected, _ = risks_and_slopes(rows, done.x[:-1])
    np.testing.assert_allclose(risks_and_slopes(rows, found)[0], expected, atol=2e-3)


def test_newton_is_of_another_game():
    logistic = ["--dataset", "adult", "--model", "logistic", "--method", "eominmax"]
    assert resolve(logistic, 1, one_process=True).optimizer == "nesterov"
    with pytest.raises(UserError, match="--optimizer newton is for"):
        resolve([*logistic, "--optimizer", "newton"], 1, one_process=True)
