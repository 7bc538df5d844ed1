import numpy as np
import pytest
from statements import Trace, combine, flat, gradient, group_risks, step

from fedmpi.federation.clients import batch_order

LOCAL = {"local_epochs": 2, "batch_size": 16}
VARIANTS = [("II", "rows"), ("II", "clients"), ("I", "rows"), ("I", "clients")]


def scaffold(
    f, rounds, lr, local_epochs, batch_size, variate="II", shares="rows", global_lr=1.0, cohort=None
) -> Trace:
    """Algorithm 1 of Karimireddy et al. (2020), with weights p_k of the clients."""
    trace, clients = Trace(f.theta), len(f.clients)
    zero = [p * 0 for p in f.theta]
    c, c_of = zero, [zero] * clients
    p = [len(rows) / f.n if shares == "rows" else 1 / clients for rows in f.clients]
    for t in range(1, rounds + 1):
        theta, chosen = trace.theta, cohort(t) if cohort else range(clients)
        trained, moved = [], []
        for k in chosen:
            rows, w, steps = f.clients[k], theta, 0
            for epoch in range(local_epochs):
                order = batch_order(len(rows), f.seed, k, t, epoch)
                for first in range(0, len(rows), batch_size):
                    batch = [rows[i] for i in order[first : first + batch_size]]
                    g = gradient(w, lambda q, batch=batch: f.risk(q, batch))
                    w, steps = step(w, lr, combine([1, 1, -1], [g, c, c_of[k]])), steps + 1
            if variate == "I":
                new = gradient(theta, lambda q, rows=rows: f.risk(q, rows))
            else:
                by = 1 / (steps * lr)
                new = combine([1, -1, by, -by], [c_of[k], c, theta, w])
            trained.append(w)
            moved.append(combine([1, -1], [new, c_of[k]]))
            c_of[k] = new
        weights = [p[k] for k in chosen]
        mean = combine([weight / sum(weights) for weight in weights], trained)
        c = combine([1, *weights], [c, *moved])
        trace.add(combine([1 - global_lr, global_lr], [theta, mean]), group_risks(f, theta))
    return trace


@pytest.mark.parametrize(("variate", "shares"), VARIANTS)
def test_algorithm_1(agree, case, variate, shares):
    setting, clients, options = case
    steps = {"variate": variate, "shares": shares, "global_lr": 0.8, "rounds": 4}
    agree("scaffold", setting, clients, scaffold, **steps, **LOCAL, **options)


@pytest.mark.parametrize(("variate", "shares"), VARIANTS)
def test_a_cohort_moves_c_by_its_share(people, run, same, variate, shares):
    """c <- c + |S| / K times the mean over S; those who are not in S keep their variates."""

    def cohort(t):
        return np.sort(np.random.default_rng([0, t]).choice(7, 3, replace=False)).tolist()

    steps = {"variate": variate, "shares": shares, "rounds": 5, "lr": 0.5}
    found = run("needy:SampledScaffold", "PSG", 7, eval_every=5, **steps, **LOCAL)
    stated = scaffold(people.federation("PSG", 7), cohort=cohort, **steps, **LOCAL)
    same(found.theta(), stated.thetas[-1])


@pytest.mark.parametrize("variate", ["II", "I"])
@pytest.mark.parametrize("setting", ["PSG", "SSG"])
def test_one_full_step_is_that_of_one_machine_with_all_rows(people, run, same, variate, setting):
    f = people.federation(setting, 7)
    theta = f.theta
    for _ in range(4):
        theta = step(theta, 0.5, gradient(theta, lambda p: f.risk(p, range(f.n))))
    one = {"local_epochs": 1, "batch_size": 1000, "rounds": 4}
    same(run("scaffold", setting, 7, variate=variate, **one).theta(), flat(theta))


def test_the_first_round_is_fedavg(run, same):
    found, fedavg = (run(m, "SSG", 7, rounds=1, **LOCAL) for m in ("scaffold", "fedavg"))
    same(found.theta(), fedavg.theta())


def test_many_local_steps_end_at_the_minimum_of_all_rows(people, run):
    """Where clients differ, FedAvg's fixed point is another; the variates take that away."""
    f = people.federation("SSG", 4, target="rich")

    def slope(theta: np.ndarray) -> float:
        parts = [p.new_tensor(v).reshape(p.shape) for p, v in
                 zip(f.theta, np.split(theta, [f.theta[0].numel()]), strict=True)]  # fmt: skip
        return float(np.abs(flat(gradient(parts, lambda p: f.risk(p, range(f.n))))).max())

    many = {"local_epochs": 10, "batch_size": 1000, "rounds": 400, "lr": 0.3, "eval_every": 400}
    scaffold, fedavg = (
        run(m, "SSG", 4, target="rich", **many).theta() for m in ("scaffold", "fedavg")
    )
    assert slope(scaffold) < 1e-6 < 1e-3 < slope(fedavg)
