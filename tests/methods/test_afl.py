import pytest


# The second drives the lambda of some clients to 0.
@pytest.mark.parametrize("lr_mu", [0.2, 3.0])
def test_statement(agree, case, lr_mu):
    setting, clients, options = case
    agree("afl", setting, clients, lr_mu=lr_mu, **options)


def test_with_a_client_for_each_group_it_is_fedminmax(run, same):
    afl = run("afl", "SSG", 4, lr_mu=0.5, rounds=5)
    fedminmax = run("fedminmax", "SSG", 4, lr_mu=0.5, epsilon=0, rounds=5)
    same(afl.theta(), fedminmax.theta())


@pytest.mark.parametrize(("setting", "clients"), [("ESG", 7), ("PSG", 7), ("SSG", 7)])
def test_without_adversary_it_is_fedavg(run, same, setting, clients):
    afl = run("afl", setting, clients, lr_mu=0)
    fedavg = run("fedavg", setting, clients, local_epochs=1, batch_size=1000)
    same(afl.theta(), fedavg.theta())


@pytest.mark.parametrize("adversary", ["projected", "multiplicative"])
def test_one_client_has_all_the_weight(agree, adversary):
    agree("afl", "ESG", 1, lr_mu=0.5, adversary=adversary)
