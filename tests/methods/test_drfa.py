import numpy as np
import pytest
from statements import (
    Trace,
    combine,
    gradient,
    group_risks,
    of_groups,
    project,
    shares,
    step,
)

from fedmpi import methods
from fedmpi.federation.clients import batch_order
from fedmpi.run.arguments import resolve

LOCAL = {"local_epochs": 2, "batch_size": 16}


def stream(name: bytes, f, t: int) -> np.random.Generator:
    """Random numbers of a purpose, of the seed and the round."""
    return np.random.default_rng([int.from_bytes(name, "big"), f.seed, t])


def local_path(f, theta, k, t, lr, epochs, batch_size):
    """All theta of client k's local steps: before the first, between them, after the last."""
    rows, path = f.clients[k], [theta]
    for epoch in range(epochs):
        order = batch_order(len(rows), f.seed, k, t, epoch)
        for first in range(0, len(rows), batch_size):
            batch = [rows[i] for i in order[first : first + batch_size]]
            path.append(step(path[-1], lr, gradient(path[-1], lambda p, b=batch: f.risk(p, b))))
    return path


def drfa(f, rounds, lr, lr_mu, draws, local_epochs, batch_size):
    """Algorithm 1: its two averages, and the losses at the second one of them."""
    K, lambda_, snapshot, trace = len(f.clients), shares(f), None, Trace(f.theta)
    m = min(draws or K, K)
    for t in range(1, rounds + 1):
        theta = trace.theta
        if snapshot is not None:
            asked = stream(b"asked", f, t).choice(K, m, replace=False)
            v = [K / m * float(f.risk(snapshot, f.clients[k])) if k in asked else 0.0
                 for k in range(K)]  # fmt: skip
            lambda_ = project([a + lr_mu * b for a, b in zip(lambda_, v, strict=True)], 0.0)
        weights = lambda_
        if draws:
            drawn = stream(b"drawn", f, t).choice(K, m, p=np.maximum(lambda_, 0)).tolist()
            weights = [drawn.count(k) / m for k in range(K)]
        place = stream(b"shot", f, t).random()
        ends, shots = [], []
        for k in range(K):
            path = local_path(f, theta, k, t, lr, local_epochs, batch_size)
            ends.append(path[-1])
            shots.append(path[int(place * (len(path) - 1))])
        snapshot = combine(weights, shots)
        risks = group_risks(f, theta)
        trace.add(combine(weights, ends), risks, of_groups(f, lambda_), lambda_)
    return trace


@pytest.mark.parametrize("draws", [0, 3, 10])
def test_algorithm_1(agree, case, draws):
    setting, clients, options = case
    agree("drfa", setting, clients, drfa, rounds=4, lr_mu=0.3, draws=draws, **LOCAL, **options)


@pytest.mark.parametrize(("setting", "clients"), [("ESG", 4), ("PSG", 7), ("SSG", 7)])
def test_all_clients_and_one_step_are_afl(run, same, setting, clients):
    one = {"local_epochs": 1, "batch_size": 1000, "draws": 0}
    found = run("drfa", setting, clients, lr_mu=0.3, rounds=5, **one)
    afl = run("afl", setting, clients, lr_mu=0.3, rounds=5)
    same(found.theta(), afl.theta())


def test_without_an_adversary_it_is_fedavg(run, same):
    found = run("drfa", "PSG", 7, lr_mu=0, draws=0, **LOCAL)
    same(found.theta(), run("fedavg", "PSG", 7, **LOCAL).theta())


def test_draws_are_by_lambda_and_losses_uniform():
    """Of 1,000 rounds: weights have the mean lambda, and v that of the losses."""
    options = ["--dataset", "synthetic", "--method", "drfa", "--draws", "2", "--clients", "4"]
    config = resolve([*options, "--lr-mu", "0"], 1, one_process=True)
    method = methods.find("drfa")(config)
    method.start(np.array([[50, 30, 15, 5]]))
    drawn, asked = [], np.zeros(4)
    for t in range(1, 1001):
        method.update_weights(np.ones(4))
        drawn.append(method.weights())
        asked[method.asked(t, 4)] += 1
    lambda_ = np.array([0.5, 0.3, 0.15, 0.05])
    np.testing.assert_allclose(method.lambda_, lambda_, rtol=1e-9)
    error = np.sqrt(lambda_ * (1 - lambda_) / (2 * 1000))
    assert (np.abs(np.mean(drawn, axis=0) - lambda_) < 4 * error).all()
    assert (np.abs(asked / 1000 - 0.5) < 4 * np.sqrt(0.25 / 1000)).all()
