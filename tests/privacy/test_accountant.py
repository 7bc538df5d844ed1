"""The privacy spent, against two other libraries, an integral, and the definition."""

import math
import subprocess
import sys
from itertools import pairwise

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp

from fedmpi.errors import UserError
from fedmpi.privacy import accountant
from fedmpi.privacy.accountant import Accountant, epsilon_of, log_delta, multiplier_for

FULL = [(1e-5, 20.0, 200), (1e-6, 1.0, 1), (1e-5, 300.0, 50), (1e-9, 5.0, 100), (1e-3, 0.5, 3)]
SAMPLED = [
    (1e-5, 10.0, 0.1, 200),
    (1e-6, 2.0, 0.05, 500),
    pytest.param(1e-5, 1.0, 0.01, 1000, marks=pytest.mark.slow),
    pytest.param(1e-5, 20.0, 0.5, 200, marks=pytest.mark.slow),
    pytest.param(1e-8, 0.7, 0.01, 100, marks=pytest.mark.slow),
]


def event(multiplier: float, rounds: int, sampling: float = 1.0) -> dp_accounting.DpEvent:
    one: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(multiplier)
    if sampling < 1:
        one = dp_accounting.PoissonSampledDpEvent(sampling, one)
    return dp_accounting.SelfComposedDpEvent(one, rounds)


def by_integral(epsilon: float, mu: float) -> float:
    """The integral of max(0, N(mu, 1) - e^epsilon N(0, 1)), by the trapezoidal rule."""
    x = np.linspace(epsilon / mu + mu / 2, epsilon / mu + mu / 2 + 40, 2_000_001)
    excess = np.exp(-((x - mu) ** 2) / 2) - np.exp(epsilon - x**2 / 2)
    return np.trapezoid(excess, x) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 1.0, 8.0])
def test_delta_is_the_integral_of_the_excess(epsilon, mu):
    expected = by_integral(epsilon, mu)
    if expected > 1e-300:
        assert math.exp(log_delta(epsilon, mu)) == pytest.approx(expected, rel=1e-8)


def test_the_least_noise_of_one_release_is_the_published_one():
    """Sensitivity 1, epsilon 1, delta 1e-5: the analytic Gaussian mechanism's deviation."""
    assert 3.730631 <= multiplier_for(1, 1e-5, rounds=1) <= 3.730631 * (1 + 1e-4)


def test_without_mpmath_s_digits_nothing_is_lost():
    """Also for tiny and huge epsilon and delta, where the two terms cancel or overflow."""
    from mpmath import mp

    with mp.workdps(80):
        for delta in (1e-12, 1e-9, 1e-5, 0.1):
            for mu in (2e-4, 1e-2, 0.5, 3.0, 13.0, 50.0):
                epsilon = epsilon_of(mu, delta)
                if not epsilon:
                    assert 2 * mp.ncdf(mu / 2) - 1 <= delta
                    continue
                e, m = mp.mpf(epsilon), mp.mpf(mu)
                spent = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
                assert float(spent) == pytest.approx(delta, rel=1e-8)


@pytest.mark.parametrize(("delta", "multiplier", "rounds"), FULL)
def test_full_batches_cost_what_dp_accounting_says(delta, multiplier, rounds):
    """Its grid is a bound from above, and Renyi's a looser one."""
    here = Accountant(delta, multiplier).epsilon(rounds)
    fine = pld.PLDAccountant(value_discretization_interval=1e-3 / multiplier)
    fine.compose(event(multiplier, rounds))
    assert here <= fine.get_epsilon(delta) <= here * 1.001
    loose = rdp.RdpAccountant()
    loose.compose(event(multiplier, rounds))
    assert here <= loose.get_epsilon(delta) <= here * 1.5 + 1e-2


@pytest.mark.parametrize(("delta", "multiplier", "sampling", "rounds"), SAMPLED)
def test_sampled_batches_cost_what_dp_accounting_says(delta, multiplier, sampling, rounds):
    here = Accountant(delta, multiplier, sampling).epsilon(rounds)
    fine = pld.PLDAccountant(value_discretization_interval=1e-4)
    fine.compose(event(multiplier, rounds, sampling))
    assert here == pytest.approx(fine.get_epsilon(delta), rel=2e-3)
    loose = rdp.RdpAccountant()
    loose.compose(event(multiplier, rounds, sampling))
    assert here <= loose.get_epsilon(delta) <= here * 1.6
    assert here < Accountant(delta, multiplier).epsilon(rounds)


@pytest.mark.parametrize(("delta", "multiplier", "sampling", "rounds"), SAMPLED)
def test_opacus_agrees(delta, multiplier, sampling, rounds):
    """Its own Renyi and PRV accountants share no code with dp-accounting's."""
    accountants = pytest.importorskip("opacus.accountants", reason="opacus is not installed")
    here = Accountant(delta, multiplier, sampling).epsilon(rounds)
    second = accountants.PRVAccountant()
    second.history = [(multiplier, sampling, rounds)]
    assert here == pytest.approx(second.get_epsilon(delta, eps_error=0.002), rel=2e-3, abs=4e-3)
    loose = accountants.RDPAccountant()
    loose.history = [(multiplier, sampling, rounds)]
    assert here <= loose.get_epsilon(delta) <= here * 1.6


@pytest.mark.parametrize(("delta", "multiplier", "sampling", "rounds"), SAMPLED[:3])
def test_a_finer_grid_lowers_epsilon_by_less_than_a_thousandth(
    monkeypatch, delta, multiplier, sampling, rounds
):
    here = Accountant(delta, multiplier, sampling).epsilon(rounds)
    monkeypatch.setattr(accountant, "GRID", 4 * accountant.GRID)
    finer = Accountant(delta, multiplier, sampling).epsilon(rounds)
    assert finer <= here <= finer * 1.001


@pytest.mark.parametrize("sampling", [1.0, 0.1])
def test_epsilon_grows_with_rounds_and_falls_with_noise(sampling):
    counter = Accountant(1e-5, 4.0, sampling)
    spent = [counter.epsilon(rounds) for rounds in (0, 1, 2, 3, 10, 50, 51)]
    assert spent[0] == 0 and all(a < b for a, b in pairwise(spent))
    noisier = [Accountant(1e-5, z, sampling).epsilon(50) for z in (2.0, 4.0, 4.01, 40.0)]
    assert all(a > b for a, b in pairwise(noisier))
    assert Accountant(1e-6, 4.0, sampling).epsilon(50) > counter.epsilon(50)


def test_without_noise_nothing_is_private():
    assert Accountant(1e-5, 0).epsilon(1) == math.inf
    assert Accountant(1e-5, 0).epsilon(0) == 0 and Accountant(1e-5, 0).rounds_within(100) == 0


@pytest.mark.parametrize("sampling", [1.0, 0.1])
@pytest.mark.parametrize(("epsilon", "delta", "rounds"), [(3, 1e-5, 200), (0.5, 1e-6, 40)])
def test_the_budget_is_met_and_never_passed(epsilon, delta, rounds, sampling):
    z = multiplier_for(epsilon, delta, rounds, sampling)
    counter = Accountant(delta, z, sampling)
    assert counter.epsilon(rounds) <= epsilon < counter.epsilon(rounds + 1)
    assert counter.rounds_within(epsilon) == rounds
    assert counter.rounds_within(epsilon, most=rounds - 1) == rounds - 1
    assert Accountant(delta, z * (1 - 1e-4), sampling).epsilon(rounds) > epsilon


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 100.0])
def test_extreme_budgets_are_met(epsilon, delta):
    z = multiplier_for(epsilon, delta, 7)
    assert epsilon * 0.998 <= Accountant(delta, z).epsilon(7) <= epsilon


def test_rounds_within_is_the_last_that_fits():
    counter = Accountant(1e-5, 20.0)
    rounds = counter.rounds_within(3)
    assert counter.epsilon(rounds) <= 3 < counter.epsilon(rounds + 1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Accountant(0, 1), "delta of 0"),
        (lambda: Accountant(1.5, 1), "delta of 1.5"),
        (lambda: Accountant(1e-5, -1), "multiplier of -1"),
        (lambda: Accountant(1e-5, math.nan), "multiplier of nan"),
        (lambda: Accountant(1e-5, 1, 0), "probability of 0"),
        (lambda: multiplier_for(0, 1e-5, 10), "epsilon of 0"),
        (lambda: multiplier_for(math.inf, 1e-5, 10), "epsilon of inf"),
        (lambda: multiplier_for(1, 1e-5, 0), "0 rounds"),
    ],
)
def test_what_makes_no_sense_is_refused(call, said):
    with pytest.raises(UserError, match=said):
        call()


PROGRAM = """
import sys
sys.modules["dp_accounting"] = None
from fedmpi.privacy.accountant import Accountant
print(Accountant(1e-5, 20.0).rounds_within(3), "scipy" in sys.modules, "numpy" in sys.modules)
try:
    Accountant(1e-5, 20.0, 0.1).epsilon(3)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_only_sampled_batches_need_another_package():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    full, sampled = done.stdout.splitlines()
    assert full.split()[1:] == ["False", "False"]
    assert sampled.startswith("UserError") and "pip install '.[private]'" in sampled
