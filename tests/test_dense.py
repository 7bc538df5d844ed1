"""The passes by hand against autograd's, in float64."""

import pytest
import torch
from torch import nn

from fedmpi import models
from fedmpi.dense import layers_of
from fedmpi.flat import FlatModel
from fedmpi.losses import LOSSES

LR = 0.05


def flat(name: str, shape: tuple[int, ...]) -> FlatModel:
    module = models.build(name, shape, 3, seed=1)
    return FlatModel(module, torch.float64, torch.device("cpu"), scalars=1)


def rows(shape: tuple[int, ...], number: int = 37) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(number, *shape, dtype=torch.float64, generator=draw)
    return x, torch.randint(0, 3, (number,), generator=draw)


def by_autograd(model: FlatModel, x: torch.Tensor, goal) -> torch.Tensor:
    gradients = torch.autograd.grad(goal(model.module(x)), list(model.module.parameters()))
    return torch.cat([g.reshape(-1) for g in gradients])


CASES = [("mlp", (5,)), ("mlp4", (2,)), ("logistic", (7,)), ("mlp", (1, 4, 4)), ("cnn", (1, 8, 8))]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_gradient_is_autograds(name, shape, loss):
    model, (x, y) = flat(name, shape), rows(shape)
    assert (layers_of(model.module) is None) == (name == "cnn")
    weights = torch.rand(len(y), dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def goal(logits):
        return LOSSES[loss](logits, y[: len(logits)]).dot(weights[: len(logits)])

    expected = by_autograd(model, x, goal) + by_autograd(model, x[:20], goal)
    model.add_gradient(x, goal)
    model.add_gradient(x[:20], goal)  # fewer rows than the buffers have, and it adds
    assert torch.allclose(model.change, expected, rtol=1e-12, atol=1e-14)
    assert model.scalars == 0


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_goal_of_minus_lr_times_the_loss_is_a_step(name, shape):
    """Into theta itself: every layer's gradient must be that of the weights before the step."""
    model, (x, y) = flat(name, shape), rows(shape)
    expected = model.theta.detach().clone()
    for _ in range(3):
        gradient = by_autograd(model, x, lambda logits: LOSSES["brier"](logits, y).mean())
        stepped = expected - LR * gradient
        model.add_gradient(
            x, lambda logits: LOSSES["brier"](logits, y).mean() * -LR, to_theta=True
        )
        assert torch.allclose(model.theta, stepped, rtol=1e-12, atol=1e-14)
        expected = stepped
    assert not torch.equal(expected, flat(name, shape).theta) and not model.change.any()


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
