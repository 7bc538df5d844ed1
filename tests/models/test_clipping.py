"""Clipped gradients of rows, against plain loops through autograd, in float64."""

import pytest
import torch
from test_perceptron_passes import by_autograd, flat, named, rows
from torch import nn

from fedmpi.models import clipping
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import LOSSES, brier, cross_entropy

CLOSE = 1e-10


class Normed(nn.Module):
    """Somebody's own: normalised layers, an operation in place, and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 9), nn.LayerNorm(9), nn.Linear(9, 3)
        self.again = nn.Linear(9, 9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(x)).relu_()
        return self.last(hidden + torch.tanh(self.again(hidden)))


class Branching(nn.Module):
    """A branch on a value, which vmap cannot take, and a parameter that is not always used."""

    def __init__(self) -> None:
        super().__init__()
        self.high, self.low = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = [self.high(row) if row[0].item() > 0 else self.low(row) for row in x]
        return torch.stack(chosen)


def own(module: nn.Module) -> FlatModel:
    return FlatModel(module, torch.float64, torch.device("cpu"), scalars=1)


def make(name: str) -> tuple[FlatModel, tuple[int, ...]]:
    torch.manual_seed(0)
    if name == "normed":
        return own(Normed()), (6,)
    if name == "branching":
        return own(Branching()), (6,)
    shape = {"mlp": (5,), "mlp4": (2,), "logistic": (7,), "cnn": (1, 8, 8)}[name]
    return flat(name, shape), shape


MODELS = ["mlp", "mlp4", "logistic", "cnn", "normed", "branching"]


def gradients_of_rows(model: FlatModel, x, y, loss) -> torch.Tensor:
    """Rows × parameters, one backward pass a row."""
    found = []
    for i in range(len(x)):
        goal = loss(model.module(x[i : i + 1]), y[i : i + 1]).sum()
        parts = torch.autograd.grad(goal, list(model.module.parameters()), materialize_grads=True)
        found.append(torch.cat([part.reshape(-1) for part in parts]))
    return torch.stack(found)


def clipped_sum(gradients: torch.Tensor, weights: torch.Tensor, clip: float) -> torch.Tensor:
    total = torch.zeros_like(gradients[0])
    for gradient, weight in zip(gradients, weights, strict=True):
        norm = float(gradient.norm())
        total += weight * gradient * (clip / norm if norm > clip else 1.0)
    return total


def some_weights(number: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(3)
    return torch.rand(number, dtype=torch.float64, generator=draw) - 0.3


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("clipped", ["all", "some", "none"])
def test_the_sum_is_that_of_rows_clipped_one_by_one(name, loss, clipped):
    (model, shape), of_loss = make(name), LOSSES[loss]
    x, y = rows(shape)
    gradients = gradients_of_rows(model, x, y, of_loss)
    norms = gradients.norm(dim=1)
    clip = {"all": norms.min() / 3, "some": norms.median(), "none": 2 * norms.max()}[clipped]
    weights = some_weights(len(y))
    asked = []

    def weigh(losses: torch.Tensor) -> torch.Tensor:
        asked.append(losses.clone())
        return weights[: len(losses)]

    expected = clipped_sum(gradients, weights, float(clip))
    expected += clipped_sum(gradients[:20], weights[:20], float(clip))
    model.add_clipped_gradient(x, y, of_loss, weigh, float(clip))
    model.add_clipped_gradient(x[:20], y[:20], of_loss, weigh, float(clip))  # and it adds
    found = named(model, model.change)
    assert (found - expected).norm() <= CLOSE * expected.norm()
    assert len(asked) == 2 and model.scalars == 0
    assert torch.allclose(asked[0], of_loss(model.module(x), y), rtol=1e-12)
    by_vmap = name in ("cnn", "normed")
    assert (model._clipped is not None and model._clipped._at_once is not None) == by_vmap


@pytest.mark.parametrize("name", MODELS)
def test_a_bound_that_no_row_reaches_changes_nothing(name):
    (plain, shape), (model, _) = make(name), make(name)
    x, y = rows(shape)
    weights = some_weights(len(y))
    plain.add_gradient(x, y, cross_entropy, lambda losses: weights)
    model.add_clipped_gradient(x, y, cross_entropy, lambda losses: weights, 1e6)
    assert (model.change - plain.change).norm() <= 1e-12 * plain.change.norm()


@pytest.mark.parametrize("name", MODELS)
def test_one_row_is_worth_the_bound_and_no_more(name):
    """Also in float32: rounding must not pass the sensitivity."""
    model, shape = make(name)
    x, y = rows(shape)
    model = FlatModel(model.module, torch.float32, torch.device("cpu"), scalars=1)
    for i in range(len(y)):
        model.change.zero_()
        row, label = 100 * x[i : i + 1].float(), y[i : i + 1]
        norm = float(gradients_of_rows(model, row, label, cross_entropy).double().norm())
        model.add_clipped_gradient(row, label, cross_entropy, torch.ones_like, 0.5)
        of_row = float(model.change.double().norm())
        assert of_row <= 0.5 and of_row == pytest.approx(min(norm, 0.5), rel=1e-4)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_parts_that_fit_in_memory_give_the_same(name, monkeypatch):
    """37 rows in passes of 5; a perceptron with a loss of one's own is like any other model."""

    def own_loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return brier(logits, y)

    model, shape = make(name)
    x, y = rows(shape)
    weights = some_weights(len(y))
    expected = clipped_sum(gradients_of_rows(model, x, y, brier), weights, 0.3)
    asked = []

    def weigh(losses: torch.Tensor) -> torch.Tensor:
        asked.append(losses)
        return weights

    monkeypatch.setattr(clipping, "ROOM", 5 * 8 * model.size + 1)
    model.add_clipped_gradient(x, y, own_loss, weigh, 0.3)
    assert model._clipped.rows_at_once == 5
    assert (named(model, model.change) - expected).norm() <= CLOSE * expected.norm()
    assert len(asked) == 1
    assert torch.allclose(asked[0], brier(model.module(x), y), rtol=1e-12)


@pytest.mark.parametrize("name", ["logistic", "normed"])
def test_rows_without_a_gradient_add_nothing(name):
    """Logits so far apart that p is 1[y=c] to the last bit."""
    model, shape = make(name)
    x, y = rows(shape, 6)
    last = [p for p in model.module.parameters() if p.shape == (3,)][-1]
    with torch.no_grad():
        last.copy_(torch.tensor([1e5, 0.0, 0.0]))
    y = torch.zeros_like(y)
    assert not gradients_of_rows(model, x, y, cross_entropy).any()
    model.add_clipped_gradient(x, y, cross_entropy, torch.ones_like, 0.5)
    assert not model.change.any()  # and no NaN, which is true
    y[3] = 1
    expected = clipped_sum(gradients_of_rows(model, x, y, cross_entropy), torch.ones(6), 0.5)
    model.add_clipped_gradient(x, y, cross_entropy, torch.ones_like, 0.5)
    assert (named(model, model.change) - expected).norm() <= CLOSE * expected.norm()


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_images_are_standardised_first(name):
    model = flat(name, (3, 8, 8))
    scale = {"mean": [100.0, 120.0, 90.0], "std": [60.0, 50.0, 70.0]}
    model = FlatModel(model.module, torch.float64, torch.device("cpu"), 1, scale)
    draw = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (9, 3, 8, 8), dtype=torch.uint8, generator=draw)
    y = torch.randint(0, 3, (9,), generator=draw)
    mean, std = (torch.tensor(scale[k], dtype=torch.float64)[:, None, None] for k in scale)
    gradients = gradients_of_rows(model, (x.double() - mean) / std, y, cross_entropy)
    weights = some_weights(9)
    expected = clipped_sum(gradients, weights, 1.0)
    model.add_clipped_gradient(x, y, cross_entropy, lambda losses: weights, 1.0)
    assert (named(model, model.change) - expected).norm() <= CLOSE * expected.norm()


def test_clipping_reads_theta_as_it_is_now():
    """The functions of rows are made once: they must not keep the first theta."""
    model, shape = make("normed")
    x, y = rows(shape)
    model.add_clipped_gradient(x, y, cross_entropy, torch.ones_like, 1e6)
    model.theta.add_(0.1)
    model.change.zero_()
    model.add_clipped_gradient(x, y, cross_entropy, torch.ones_like, 1e6)
    ones = torch.ones(len(y), dtype=torch.float64)
    expected = by_autograd(model, x, y, "cross-entropy", ones)
    assert torch.allclose(named(model, model.change), expected, rtol=1e-10, atol=1e-12)
