import numpy as np
import pytest
import torch
from game import risks_and_slopes, solved, write_game
from statements import Trace, ascend, combine, group_risks, local, rho, shares
from weighted import weighted_mean

LOCAL = {"local_epochs": 2, "batch_size": 16}


def scaffpd(
    f, rounds, lr, lr_mu, epsilon, extrapolation, local_epochs, batch_size, adversary="projected"
):
    """Local epochs on the weighted loss plus (c - c_k) · theta, whose gradient is c - c_k."""
    clients = range(len(f.clients))
    zero = [torch.zeros_like(p) for p in f.theta]
    mu, before, c, own = rho(f), None, zero, [zero for _ in clients]
    trace = Trace(f.theta)
    for t in range(1, rounds + 1):
        theta = trace.theta
        risks = group_risks(f, theta)
        pairs = zip(risks, before or risks, strict=True)
        ahead = [r + extrapolation * (r - r0) for r, r0 in pairs]
        mu, before = ascend(mu, ahead, lr_mu, epsilon, adversary), risks
        w = [m / r for m, r in zip(mu, rho(f), strict=True)]
        models, new = [], []
        for k in clients:
            pull = [a - b for a, b in zip(c, own[k], strict=True)]

            def objective(p, batch, pull=pull, w=w):
                return weighted_mean(f, p, batch, w) + sum(
                    (a * b).sum() for a, b in zip(pull, p, strict=True)
                )

            models.append(local(f, theta, k, t, lr, local_epochs, batch_size, objective))
            steps = local_epochs * -(-len(f.clients[k]) // batch_size)
            went = [(a - b) / (lr * steps) for a, b in zip(theta, models[k], strict=True)]
            new.append([a - b for a, b in zip(went, pull, strict=True)])
        own, c = new, combine(shares(f), new)
        trace.add(combine(shares(f), models), risks, mu)
    return trace


@pytest.mark.parametrize("extrapolation", [0.0, 1.0])
def test_statement(agree, case, extrapolation):
    setting, clients, options = case
    steps = {"lr": 0.2, "lr_mu": 0.5, "epsilon": 0.01, "extrapolation": extrapolation}
    agree("scaffpd", setting, clients, scaffpd, rounds=4, **steps, **LOCAL, **options)


def test_multiplicative(agree):
    steps = {"lr_mu": 1.0, "epsilon": 0.05, "extrapolation": 1.0, "adversary": "multiplicative"}
    agree("scaffpd", "PSG", 7, scaffpd, **steps, **LOCAL)


@pytest.mark.parametrize(("setting", "clients"), [("ESG", 4), ("PSG", 7), ("SSG", 7)])
def test_with_one_full_batch_it_is_one_machine(run, same, setting, clients):
    one = {"local_epochs": 1, "batch_size": 1000, "lr_mu": 0.5, "rounds": 5}
    found = run("scaffpd", setting, clients, **one)
    same(found.theta(), run("scaffpd", "ESG", 1, **one).theta())


def test_many_local_steps_end_where_one_step_does(train, tmp_path):
    """At the minimax solution, with a client for each group; FedMinMax's local epochs do not."""
    options, rows = write_game(tmp_path)
    local = "--setting SSG --clients 2 --local-epochs 10 --batch-size 100 --lr 0.5 --lr-mu 0.5"
    options = [*options, *local.split(), "--epsilon", 0, "--rounds", 150]
    minimax = solved(rows, 0, 1)
    found, drifted = (
        risks_and_slopes(rows, train(*options, "--method", name, output=name).theta())[0]
        for name in ("scaffpd", "fedminmax")
    )
    np.testing.assert_allclose(found, minimax, atol=1e-5)
    assert drifted.max() - minimax.max() > 0.01
