"""Multilayer perceptrons, and logistic regression, which is one without a hidden layer."""

import math

from torch import nn


def mlp(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Perceptron with one hidden layer of 512 (Adult, ACS Employment)."""
    return perceptron(row_shape, classes, hidden=1)


def mlp4(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Perceptron with four hidden layers of 512 (synthetic)."""
    return perceptron(row_shape, classes, hidden=4)


def logistic(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Logistic regression (ACS Employment, nine races)."""
    return perceptron(row_shape, classes, hidden=0)


def perceptron(row_shape: tuple[int, ...], classes: int, hidden: int, width: int = 512):
    """Linear layers with ReLUs between; an image is taken as one long row."""
    inputs = math.prod(row_shape)
    layers: list[nn.Module] = [nn.Flatten()] if len(row_shape) > 1 else []
    for _ in range(hidden):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))
