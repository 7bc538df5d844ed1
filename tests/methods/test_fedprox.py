import numpy as np
import pytest
from statements import Trace, combine, group_risks, local, shares

LOCAL = {"local_epochs": 2, "batch_size": 16}


def fedprox(f, rounds, lr, local_epochs, batch_size, mu_prox) -> Trace:
    """FedProx (Li et al. 2020): autograd of the batch's loss and the proximal term together."""
    trace = Trace(f.theta)
    for t in range(1, rounds + 1):
        theta = trace.theta

        def proximal(w, batch, theta=theta):
            distance = sum(((p - q) ** 2).sum() for p, q in zip(w, theta, strict=True))
            return f.risk(w, batch) + mu_prox / 2 * distance

        trained = [
            local(f, theta, k, t, lr, local_epochs, batch_size, proximal)
            for k in range(len(f.clients))
        ]
        trace.add(combine(shares(f), trained), group_risks(f, theta))
    return trace


@pytest.mark.parametrize("mu", [0.1, 1.5])
def test_statement(agree, case, mu):
    setting, clients, options = case
    agree("fedprox", setting, clients, fedprox, mu_prox=mu, **LOCAL, **options)


@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_at_0_it_is_fedavg_bit_for_bit(run, model):
    found, fedavg = (
        run(method, "PSG", 7, model=model, **LOCAL, **options)
        for method, options in (("fedprox", {"mu_prox": 0}), ("fedavg", {}))
    )
    np.testing.assert_array_equal(found.theta(), fedavg.theta())


def test_the_first_step_feels_no_pull(run, same):
    """One full step from the model received is at no distance from it, whatever mu."""
    one = {"local_epochs": 1, "batch_size": 1000}
    same(
        run("fedprox", "SSG", 7, mu_prox=0.9, **one).theta(), run("fedavg", "SSG", 7, **one).theta()
    )
