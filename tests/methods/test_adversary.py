import pytest


@pytest.mark.parametrize("method", ["fedminmax", "localfedminmax"])
@pytest.mark.parametrize(("lr_mu", "epsilon"), [(0.5, 0.0), (2.0, 0.06)])
def test_multiplicative(agree, case, method, lr_mu, epsilon):
    """mu exp(lr_mu r), then the nearest point above the floor in KL divergence."""
    setting, clients, options = case
    steps = {"lr_mu": lr_mu, "epsilon": epsilon, "adversary": "multiplicative"}
    agree(method, setting, clients, **steps, **options)


def test_multiplicative_afl(agree, case):
    setting, clients, options = case
    agree("afl", setting, clients, lr_mu=1.0, adversary="multiplicative", **options)


def test_multiplicative_with_local_epochs(agree):
    local = {"local_epochs": 2, "batch_size": 16}
    agree("fedminmax", "PSG", 7, lr_mu=1.0, epsilon=0.06, adversary="multiplicative", **local)
