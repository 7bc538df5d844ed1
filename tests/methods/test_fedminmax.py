import numpy as np
import pytest

LOCAL = {"local_epochs": 2, "batch_size": 16}


# The second pair drives some groups to the floor.
@pytest.mark.parametrize(("lr_mu", "epsilon"), [(0.5, 0.001), (5.0, 0.05)])
def test_algorithm_1(agree, case, lr_mu, epsilon):
    setting, clients, options = case
    agree("fedminmax", setting, clients, lr_mu=lr_mu, epsilon=epsilon, **options)


def test_weights_reach_the_floor(run):
    weights = run("fedminmax", "PSG", 7, lr_mu=5, epsilon=0.05).history[-1]
    floored = [name for name, value in weights.items() if name.startswith("weight/")]
    assert min(float(weights[name]) for name in floored) == pytest.approx(0.05, rel=1e-12)


def test_local_epochs(agree, case):
    setting, clients, options = case
    agree("fedminmax", setting, clients, lr_mu=0.5, epsilon=0.01, **LOCAL, **options)


def test_local_epochs_of_one_client_use_the_weights_of_their_round(agree):
    agree("fedminmax", "ESG", 1, lr_mu=0.5, epsilon=0.01, **LOCAL)


def test_one_epoch_of_one_batch_is_the_one_step(run, same):
    one_step = run("fedminmax", "PSG", 7, lr_mu=0.5)
    local = run("fedminmax", "PSG", 7, lr_mu=0.5, local_epochs=1, batch_size=1000)
    same(local.theta(), one_step.theta())


@pytest.mark.parametrize(("setting", "clients"), [("ESG", 7), ("PSG", 7), ("SSG", 7)])
def test_without_adversary_it_is_fedavg(run, same, setting, clients):
    found = run("fedminmax", setting, clients, lr_mu=0, epsilon=0)
    fedavg = run("fedavg", setting, clients, local_epochs=1, batch_size=1000)
    same(found.theta(), fedavg.theta())


def test_a_group_below_the_floor_keeps_its_weight_until_the_first_step(people, run, agree):
    """mu starts at rho, also where rho_a < epsilon (west has 16 rows of 240)."""
    f = people.federation("SSG", 4)
    assert min(f.n_a(a) for a in range(f.groups)) / f.n < 0.1
    agree("fedminmax", "SSG", 4, lr_mu=0.01, epsilon=0.1)
    first = run("fedminmax", "SSG", 4, lr_mu=0.01, epsilon=0.1, rounds=1).theta()
    without = run("fedminmax", "SSG", 4, lr_mu=0.01, epsilon=0, rounds=1).theta()
    np.testing.assert_array_equal(first, without)
