import pytest
import torch
from statements import Trace, fedavg, gradient, shares, step

LOCAL = {"local_epochs": 2, "batch_size": 16}


def propfair(f, rounds, lr, local_epochs, batch_size, baseline, log_floor) -> Trace:
    """Algorithm 1 of Zhang et al. (2022): the factor of a step by hand, of the loss by autograd."""

    def weighted(theta, batch):
        loss = f.risk(theta, batch)
        return loss / max(baseline - loss.item(), log_floor)

    return fedavg(f, rounds, lr, local_epochs, batch_size, weighted)


# Of the first two pairs, some batches have a loss above M - eps; of the third none has.
@pytest.mark.parametrize(("baseline", "log_floor"), [(0.9, 0.2), (1.5, 0.9), (5.0, 0.2)])
def test_statement(agree, case, baseline, log_floor):
    setting, clients, options = case
    steps = {"baseline": baseline, "log_floor": log_floor, "lr": 0.2}
    agree("propfair", setting, clients, propfair, **steps, **LOCAL, **options)


def test_a_large_baseline_is_fedavg(run, same):
    """-log(M - F) is F / M and a constant, to F^2 / M^2."""
    found = run("propfair", "PSG", 7, baseline=1e11, lr=0.5e11, **LOCAL)
    same(found.theta(), run("fedavg", "PSG", 7, lr=0.5, **LOCAL).theta())


def test_one_full_step_ascends_on_the_sum_of_logarithms(people, run, same):
    """The objective itself, of all clients together, by autograd."""
    f = people.federation("SSG", 7)
    theta = f.theta

    def objective(theta):
        utilities = [5.0 - f.risk(theta, rows) for rows in f.clients]
        return -sum(p * torch.log(u) for p, u in zip(shares(f), utilities, strict=True))

    for _ in range(3):
        theta = step(theta, 0.5, gradient(theta, objective))
    found = run("propfair", "SSG", 7, local_epochs=1, batch_size=1000)
    same(found.theta(), torch.cat([p.reshape(-1) for p in theta]).numpy())
