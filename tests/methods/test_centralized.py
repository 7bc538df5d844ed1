import pytest


@pytest.mark.parametrize("options", [{}, {"model": "mlp"}, {"loss": "brier", "target": "rich"}])
def test_algorithm_2(agree, options):
    agree("centralized", "ESG", 1, lr_mu=0.5, epsilon=0.01, **options)


@pytest.mark.parametrize(("setting", "clients"), [("ESG", 4), ("PSG", 7), ("SSG", 4), ("SSG", 9)])
@pytest.mark.parametrize("adversary", ["projected", "multiplicative"])
def test_lemma_2(run, same, setting, clients, adversary):
    """The federation gives the model of one machine that holds all rows."""
    options = {"lr_mu": 0.5, "epsilon": 0.01, "adversary": adversary, "rounds": 5}
    federated = run("fedminmax", setting, clients, **options)
    centralized = run("centralized", setting, clients, **options)
    same(federated.theta("last"), centralized.theta("last"))
    same(federated.theta("averaged"), centralized.theta("averaged"))
