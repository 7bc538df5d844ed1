"""The models by name, each a function of the shape of a row and the number of classes."""

import torch
from torch import nn


def mlp(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """One hidden layer of 512 (Adult, ACS Employment)."""
    return _perceptron(row_shape, classes, hidden=1)


def mlp4(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Four hidden layers of 512 (synthetic)."""
    return _perceptron(row_shape, classes, hidden=4)


def logistic(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Logistic regression (ACS Employment, nine races)."""
    return _perceptron(row_shape, classes, hidden=0)


def _perceptron(row_shape: tuple[int, ...], classes: int, hidden: int, width: int = 512):
    (inputs,) = row_shape
    layers: list[nn.Module] = []
    for _ in range(hidden):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


MODELS = {"mlp": mlp, "mlp4": mlp4, "logistic": logistic}


def build(name: str, row_shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The model with its seeded start: the same on every rank of every layout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name](row_shape, classes)
