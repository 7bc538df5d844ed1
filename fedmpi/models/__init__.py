"""The models by name, and their start. Importing this is light; building a model imports torch.

A model is a function of the shape of a row and the number of classes that returns an nn.Module,
which turns rows into logits: `--model package.module:function` takes one of your own. Each row's
logits must be its own affair, and all that training changes must be parameters: only these are
averaged. So there is no batch normalisation here, nor dropout, and `check` refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fedmpi.errors import UserError, said_by, unknown_name
from fedmpi.plugins import load

if TYPE_CHECKING:
    from torch import nn


class Entry(NamedTuple):
    """Place of a model's function, and the rows of a pass that suit it best, as measured.

    The measurements are in benchmarks/README.md. Perceptrons have no such number: the rows of their
    passes follow from the cache, in micro_batch.py.
    """

    function: str
    micro_batch: int | None = None


MODELS = {
    "mlp": Entry("fedmpi.models.perceptron:mlp"),
    "mlp4": Entry("fedmpi.models.perceptron:mlp4"),
    "logistic": Entry("fedmpi.models.perceptron:logistic"),
    "cnn": Entry("fedmpi.models.cnn:cnn", 128),
    "resnet18": Entry("fedmpi.models.resnet:resnet18", 128),
    "resnet18-cifar": Entry("fedmpi.models.resnet:resnet18_cifar", 16),
}
PERCEPTRONS = ("mlp", "mlp4", "logistic")
OF_ONES_OWN = 128
"""Rows of one pass through a model that we do not know."""


def check_name(name: str) -> None:
    """Raise a UserError unless `name` is one of ours, or looks like package.module:function."""
    if name not in MODELS and ":" not in name:
        raise unknown_name("--model", name, (*MODELS, "package.module:function"))


def usual_micro_batch(name: str) -> int:
    """The rows of one pass that suit a model which is no perceptron."""
    return (MODELS[name].micro_batch if name in MODELS else None) or OF_ONES_OWN


def find(name: str) -> Callable[[tuple[int, ...], int], nn.Module]:
    """The function that makes the model called `name`."""
    check_name(name)
    place = MODELS[name].function if name in MODELS else name
    found = load("--model", place, given=name, form="package.module:function")
    if not callable(found):
        raise UserError(f"--model {name}: it is not a function of (row_shape, classes).")
    return found


def build(name: str, row_shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The model with its seeded start: the same on every rank of every layout."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        make = find(name)
        try:
            return make(row_shape, classes)
        except UserError:
            raise
        except Exception as error:  # whatever somebody's function raises
            raise UserError(
                f"--model {name} fails for row_shape {row_shape} and {classes} classes: "
                f"{said_by(error)}."
            ) from error


def check(name: str, module: nn.Module, row_shape: tuple[int, ...], classes: int) -> None:
    """Raise a UserError for a model that does not fit the rows, or cannot be trained in parts."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise UserError(f"--model {name} made a {type(module).__name__}, not an nn.Module.")
    if not any(True for _ in module.parameters()):
        raise UserError(f"--model {name} has no parameters to train.")
    if buffers := [buffer for buffer, _ in module.named_buffers()]:
        raise UserError(
            f"--model {name} has buffers such as {buffers[0]!r}, which are not averaged over the "
            "clients: leave batch normalisation out, or use nn.GroupNorm."
        )
    dtype = next(module.parameters()).dtype
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        rows = torch.randn(3, *row_shape, dtype=dtype)
        try:
            together, apart = module(rows), torch.cat([module(rows[:1]), module(rows[1:])])
        except Exception as error:  # whatever somebody's forward raises
            shape = " × ".join(map(str, row_shape))
            raise UserError(
                f"--model {name} fails on rows of {shape}: {said_by(error)}."
            ) from error
    if together.shape != (3, classes):
        raise UserError(
            f"--model {name} makes {tuple(together.shape)} of 3 rows, not (3, {classes}): logits."
        )
    if not torch.allclose(together, apart, rtol=1e-3, atol=1e-4):
        raise UserError(
            f"--model {name}: what it makes of a row depends on chance or on the other rows; leave "
            "dropout and batch normalisation out."
        )
