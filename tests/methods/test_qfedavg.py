import numpy as np
import pytest
import torch
from statements import combine, flat, local

from fedmpi import models

LOCAL = {"local_epochs": 2, "batch_size": 16}


@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 5.0])
def test_algorithm_2(agree, case, q):
    setting, clients, options = case
    agree("qfedavg", setting, clients, q=q, **LOCAL, **options)


@pytest.mark.parametrize("setting", ["PSG", "SSG"])
def test_at_q_0_it_is_the_uniform_mean(people, run, same, setting):
    f = people.federation(setting, 7)
    theta = f.theta
    for t in range(1, 4):
        trained = [local(f, theta, k, t, 0.5, 2, 16, f.risk) for k in range(7)]
        theta = combine([1 / 7] * 7, trained)
    found = run("qfedavg", setting, 7, q=0, **LOCAL)
    same(found.theta(), flat(theta))
    fedavg = run("fedavg", setting, 7, **LOCAL)
    assert np.abs(fedavg.theta() - found.theta()).max() > 1e-3, "the clients are unequal"


@pytest.mark.parametrize("q", [0.2, 0.9])
def test_a_client_whose_loss_is_0(train, tmp_path, monkeypatch, q):
    """F^(q-1) is infinite there; the limit is that the client takes no part.

    A start that is so sure of `no` that softmax gives 1: the loss and the gradient of the client
    that has only `no` are 0 to the last bit, and the other client has a loss of 2000.
    """

    def sure(*arguments):
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            model.weight.zero_()
            model.bias.copy_(torch.tensor([1000.0, -1000.0]))
        return model

    monkeypatch.setattr(models, "build", sure)
    rows = [("-1,a,no", "1,b,yes")[i % 2] for i in range(60)]
    (tmp_path / "sure.csv").write_text("\n".join(["v,g,y", *rows]))
    data = ["--dataset", f"csv:{tmp_path / 'sure.csv'}", "--target", "y", "--group", "g"]
    options = ["--setting", "SSG", "--clients", 2, "--rounds", 1, "--dtype", "float64"]
    steps = ["--q", q, "--lr", 1, "--local-epochs", 1]
    found = train(*data, *options, *steps, "--method", "qfedavg", "--loss", "cross-entropy")
    risks = {name: value for name, value in found.history[0].items() if name.startswith("risk/")}
    assert {name: float(value) for name, value in risks.items()} == {"risk/a": 0, "risk/b": 2000}

    # Client b alone: one step of size 1 on p - onehot = (1, -1), with features v = 1, g = b.
    features, F = np.array([1.0, 0.0, 1.0]), 2000.0
    g = np.concatenate([features, -features, [1.0, -1.0]])
    limit = -(F**q) * g / (q * F ** (q - 1) * g @ g + F**q)
    change = found.theta() - np.array([0.0] * 6 + [1000.0, -1000.0])
    assert np.isfinite(change).all()
    np.testing.assert_allclose(change, limit, rtol=0.01)


def test_every_loss_is_0(train, tmp_path, monkeypatch):
    """Then nothing moves, and nothing is divided by 0."""

    def sure(*arguments):
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[-1000.0, 0, 0], [1000.0, 0, 0]]))
            model.bias.zero_()
        return model

    monkeypatch.setattr(models, "build", sure)
    rows = [("-1,a,no", "1,b,yes")[i % 2] for i in range(60)]
    (tmp_path / "sure.csv").write_text("\n".join(["v,g,y", *rows]))
    data = ["--dataset", f"csv:{tmp_path / 'sure.csv'}", "--target", "y", "--group", "g"]
    options = ["--setting", "SSG", "--clients", 2, "--rounds", 2, "--loss", "brier", "--q", 0.2]
    found = train(*data, *options, "--method", "qfedavg", "--lr", 1, "--local-epochs", 1)
    np.testing.assert_array_equal(found.theta(), [-1000, 0, 0, 1000, 0, 0, 0, 0])
    assert found.result["worst_risk"] == 0
