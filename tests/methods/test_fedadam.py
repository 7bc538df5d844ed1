"""FedAdam and FedYogi, of Reddi et al. (2021): FedAvg and others with --optimizer fedadam, yogi."""

import numpy as np
import pytest
from runs import cut_off_after
from statements import Trace, combine, flat, gradient, group_risks, local, shares, step

from fedmpi.errors import UserError

LOCAL = {"local_epochs": 2, "batch_size": 16}


def server_step(theta, change, mean, square, lr, tau, optimizer):
    """Algorithm 2, an entry at a time in numpy; return the three that follow."""
    mean = 0.9 * mean + 0.1 * change
    if optimizer == "yogi":
        square = square - 0.01 * change**2 * np.sign(square - change**2)
    else:
        square = 0.99 * square + 0.01 * change**2
    return theta + lr * mean / (np.sqrt(square) + tau), mean, square


def in_shape(vector, theta):
    parts = np.split(vector, np.cumsum([p.numel() for p in theta])[:-1])
    return [p.new_tensor(part).reshape(p.shape) for part, p in zip(parts, theta, strict=True)]


def fedopt(f, rounds, lr, optimizer, tau, local_epochs=None, batch_size=None, server_lr=None):
    trace = Trace(f.theta)
    mean, square = np.zeros(flat(f.theta).size), np.full(flat(f.theta).size, tau**2)
    for t in range(1, rounds + 1):
        theta = trace.theta
        if local_epochs:
            trained = [
                local(f, theta, k, t, lr, local_epochs, batch_size, f.risk)
                for k in range(len(f.clients))
            ]
            change = flat(combine(shares(f), trained)) - flat(theta)
        else:  # the gradient of all rows
            change = -flat(gradient(theta, lambda p: f.risk(p, range(f.n))))
        by = server_lr or lr
        new, mean, square = server_step(flat(theta), change, mean, square, by, tau, optimizer)
        trace.add(in_shape(new, theta), group_risks(f, theta))
    return trace


@pytest.mark.parametrize("tau", [0.1, 1e-3])
@pytest.mark.parametrize("optimizer", ["fedadam", "yogi"])
def test_algorithm_2(agree, case, optimizer, tau):
    setting, clients, options = case
    steps = {"optimizer": optimizer, "tau": tau, "server_lr": 0.05}
    agree("fedavg", setting, clients, fedopt, rounds=5, **steps, **LOCAL, **options)


@pytest.mark.parametrize("optimizer", ["fedadam", "yogi"])
def test_one_step_a_round_is_the_optimizer_on_the_gradient_of_all_rows(
    run, people, same, optimizer
):
    """With weights that do not move: FedMinMax's change is lr × that gradient."""
    steps = {"optimizer": optimizer, "tau": 0.01, "lr": 0.05, "rounds": 6}
    found = run("fedminmax", "PSG", 7, lr_mu=0, epsilon=0, **steps)
    same(found.theta(), fedopt(people.federation("PSG", 7), **steps).thetas[-1])


def test_a_large_tau_is_momentum(run, people, same):
    """Then the squares play no part: of u, which starts at tau^2, .99^t is left after t rounds."""
    f = people.federation("PSG", 7)
    theta, mean = f.theta, [p * 0 for p in f.theta]
    for t in range(1, 4):
        trained = [local(f, theta, k, t, 0.5, 2, 16, f.risk) for k in range(7)]
        change = combine([*shares(f), -1.0], [*trained, theta])
        mean = combine([0.9, 0.1], [mean, change])
        theta = step(theta, -2 / (0.99 ** (t / 2) + 1), mean)
    steps = {"optimizer": "fedadam", "tau": 1e12, "server_lr": 2e12}
    same(run("fedavg", "PSG", 7, **steps, **LOCAL).theta(), flat(theta))


def test_yogi_is_resumed_bit_for_bit(people, train):
    steps = "--method fedavg --optimizer yogi --rounds 5 --local-epochs 2 --batch-size 16"
    given = [*people.arguments("job"), *steps.split(), "--clients", 4, "--checkpoint-every", 1]
    whole = train(*given, output="whole")
    with cut_off_after(3):
        train(*given, output="cut")
    resumed = train(*given, "--resume", output="cut")
    np.testing.assert_array_equal(resumed.theta(), whole.theta())


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"tau": 0.1}, "--tau does nothing with --optimizer sgd: use fedadam or yogi"),
        ({"tau": 0.1, "optimizer": "adam"}, "--tau does nothing with --optimizer adam"),
        ({"tau": 0, "optimizer": "yogi"}, "--tau 0.0: must be above 0"),
        ({"momentum": 0.5, "optimizer": "yogi"}, "--momentum does nothing with --optimizer yogi"),
    ],
)
def test_what_is_refused(run, steps, message):
    with pytest.raises(UserError, match=message):
        run("fedavg", "ESG", 4, **steps)
