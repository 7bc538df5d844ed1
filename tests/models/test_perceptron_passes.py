"""The passes by hand against autograd's, in float64."""

import pytest
import torch
from torch import nn

from fedmpi import models
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import LOSSES
from fedmpi.models.perceptron_passes import layers_of

LR = 0.05


def flat(name: str, shape: tuple[int, ...]) -> FlatModel:
    module = models.build(name, shape, 3, seed=1)
    return FlatModel(module, torch.float64, torch.device("cpu"), scalars=1)


def rows(shape: tuple[int, ...], number: int = 37) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(number, *shape, dtype=torch.float64, generator=draw)
    return x, torch.randint(0, 3, (number,), generator=draw)


def named(model: FlatModel, vector: torch.Tensor) -> torch.Tensor:
    """A vector that is ordered as theta is, in the order of the module's parameters."""
    return torch.cat([tensor.reshape(-1) for tensor in model.state_dict(vector).values()])


def by_autograd(model: FlatModel, x, y, loss: str, weights: torch.Tensor) -> torch.Tensor:
    goal = LOSSES[loss](model.module(x), y).dot(weights)
    gradients = torch.autograd.grad(goal, list(model.module.parameters()))
    return torch.cat([g.reshape(-1) for g in gradients])


CASES = [("mlp", (5,)), ("mlp4", (2,)), ("logistic", (7,)), ("mlp", (1, 4, 4)), ("cnn", (1, 8, 8))]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_gradient_is_autograds(name, shape, loss):
    model, (x, y) = flat(name, shape), rows(shape)
    assert (layers_of(model.module) is None) == (name == "cnn")
    weights = torch.rand(len(y), dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    seen = []

    def weigh(losses: torch.Tensor) -> torch.Tensor:
        seen.append(losses.clone())
        return weights[: len(losses)]

    expected = by_autograd(model, x, y, loss, weights)
    expected += by_autograd(model, x[:20], y[:20], loss, weights[:20])
    model.add_gradient(x, y, LOSSES[loss], weigh)
    model.add_gradient(x[:20], y[:20], LOSSES[loss], weigh)  # part of the buffers; and it adds
    assert torch.allclose(named(model, model.change), expected, rtol=1e-12, atol=1e-14)
    assert torch.allclose(seen[0], LOSSES[loss](model.module(x), y), rtol=1e-12)
    assert model.scalars == 0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_to_theta_it_is_a_step(name, shape, loss):
    """Every layer's gradient must be that of the weights before the step."""
    model, (x, y) = flat(name, shape), rows(shape)
    weights = torch.full((len(y),), -LR / len(y), dtype=torch.float64)
    for _ in range(3):
        expected = named(model, model.theta) + by_autograd(model, x, y, loss, weights)
        model.add_gradient(x, y, LOSSES[loss], lambda losses: weights, to_theta=True)
        assert torch.allclose(named(model, model.theta), expected, rtol=1e-12, atol=1e-14)
    assert not torch.equal(model.theta, flat(name, shape).theta) and not model.change.any()


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_logits_are_the_modules(name, shape):
    model, (x, _) = flat(name, shape), rows(shape)
    with torch.no_grad():
        first, second = model(x), model(x[:5] + 1)
        assert torch.allclose(first, model.module(x), rtol=1e-12)
        assert torch.allclose(second, model.module(x[:5] + 1), rtol=1e-12)


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(3, 2),
        nn.Sequential(nn.Linear(3, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(3, 2, bias=False)),
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        nn.Sequential(),
    ],
)
def test_other_models_are_left_to_autograd(module):
    assert layers_of(module) is None
