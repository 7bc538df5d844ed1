import pytest

SETTINGS = [("ESG", 4), ("PSG", 7), ("SSG", 7), ("SSG", 4), ("PSG", 2)]

@pytest.mark.parametrize(("setting", "clients"), SETTINGS)
@pytest.mark.parametrize("adversary", ["projected", "multiplicative"])
def test_one_step(agree, setting, clients, adversary):
    agree("fedminmax", setting, clients, lr_mu=0.5, epsilon=0.01, adversary=adversary)


@pytest.mark.parametrize(("setting", "clients"), SETTINGS)
def test_local(agree, setting, clients):
    agree("fedminmax", setting, clients, lr_mu=0.5, epsilon=0.01, local_epochs=2, batch_size=16)

@pytest.mark.parametrize(("setting", "clients"), SETTINGS)
@pytest.mark.parametrize("method", ["centralized", "localfedminmax"])
def test_o(agree, setting, clients, method):
    agree(method, setting, clients, lr_mu=0.5, epsilon=0.01)

@pytest.mark.parametrize(("setting", "clients"), SETTINGS)
def test_afl(agree, setting, clients):
    agree("afl", setting, clients, lr_mu=0.5)

@pytest.mark.parametrize(("setting", "clients"), SETTINGS)
@pytest.mark.parametrize(("method", "o"), [("fedavg", {}), ("qfedavg", {"q":.7}),("qfedavg", {"q":2}),("term", {"tilt": 2, "tilt_level": "client"}),("term", {"tilt": 2, "tilt_level": "sample"})])
def test_l(agree, setting, clients, method, o):
    agree(method, setting, clients, local_epochs=2, batch_size=16,**o)
