"""Named bundles of options for the methods that take one step a round: --solver paper|fast.

`paper` is Algorithm 1 with the fixed steps of the paper. `fast` has momentum, a multiplicative
adversary and, for models of images, batches of the federation; for logistic regression, Newton's
step. All solve the same problem. An option that is given wins over the bundle's. The constants of
`fast` were chosen on validation folds of training rows: docs/convergence.md.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fedmpi.errors import UserError
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.method import Method

if TYPE_CHECKING:
    from fedmpi.run.config import Config

SOLVERS = ("paper", "fast")
PERCEPTRONS = ("mlp", "mlp4", "logistic")

AUTO = "auto"
"""The weight decay that follows from the number of rows: see decay_for."""

FAST: dict[str, Any] = {
    "optimizer": "nesterov",
    "adversary": "multiplicative",
    "lr": 0.2,
    "lr_mu": 0.3,
    "rounds": 100,
    "average": "tail",
    "weight_decay": AUTO,
}
"""Perceptrons: full batches."""

FAST_LOGISTIC: dict[str, Any] = {
    "optimizer": "newton",
    "weight_decay": AUTO,
    "rounds": 15,
    "average": "last",
}
"""Logistic regression with cross entropy, if the weights are of groups."""

FAST_IMAGES: dict[str, Any] = FAST | {
    "weight_decay": None,
    "lr": 0.05,
    "lr_mu": 0.05,
    "rounds": 1500,
    "schedule": "cosine",
    "batch_rows": 250,
    "max_norm": 1.0,
}
"""All other models."""

FACTORS = (1 / 4, 1 / 2, 1, 2, 4)
"""Multiples of the steps of `fast` that tuning tries: as many as the paper's grid has steps."""

OF_GRADIENTS = ("lr", "lr_mu", "adversary", "momentum", "schedule", "batch_rows", "max_norm")
"""Options of steps along gradients, of which Newton's step has none."""


def bundle(
    solver: str,
    model: str,
    loss: str,
    method: type[Method],
    given: set[str],
    paper_rounds: int,
) -> dict[str, Any]:
    """The defaults that `solver` has for a method with one step a round, in place of a preset's.

    An option in `given` that only a step along a gradient has asks for such a step. Perceptrons
    take at most a tenth of the `paper_rounds`.
    """
    if solver == "paper":
        return {}
    chosen = FAST_IMAGES
    if model in PERCEPTRONS:
        chosen = FAST | {"rounds": min(FAST["rounds"], max(1, paper_rounds // 10))}
    by_gradients = given & {*OF_GRADIENTS, "optimizer"}
    if convex_game(model, loss, method) and not by_gradients:
        chosen = FAST_LOGISTIC
    return {
        name: value
        for name, value in chosen.items()
        if name in ("lr", "rounds") or method.option(name)
    }


def grid_for(config: Config, grid: dict[str, tuple]) -> dict[str, tuple]:
    """Values to tune a run over, of the `grid` that its method declares for the paper's steps.

    Steps of `fast` that the paper's grid would not even hold are varied around themselves; Newton's
    step has no length.
    """
    if config.solver == "paper" or config.local_epochs:
        return grid
    if config.options.get("optimizer") == "newton":
        return {name: values for name, values in grid.items() if name not in OF_GRADIENTS}
    around = {n: tuple(f * getattr(config, n) for f in FACTORS) for n in grid if n in FAST}
    return grid | around


def decay_for(rows: int) -> float:
    """The brake of `fast`: 30 / n, at most .03.

    A table of few rows is learnt by heart within a hundred long steps; the more rows, the less
    there is to brake (docs/convergence.md has the search).
    """
    return min(0.03, 30 / rows)


def convex_game(model: str, loss: str, method: type[Method]) -> bool:
    """Whether the weighted risks of groups are convex in theta, and a Newton step is known."""
    known = issubclass(method, FedMinMax) and method.whole_simplex
    return model == "logistic" and loss == "cross-entropy" and known


def check_newton(a: argparse.Namespace, method: type[Method], given: set[str]) -> None:
    """Raise a UserError for --optimizer newton where it cannot be, or with what it does not use."""
    if getattr(a, "optimizer", None) != "newton":
        return
    if not convex_game(a.model, a.loss, method) or getattr(a, "local_epochs", None):
        raise UserError(
            "--optimizer newton is for --method fedminmax and centralized with --model logistic, "
            "--loss cross-entropy and without --local-epochs: use nesterov."
        )
    for name in OF_GRADIENTS:
        if name in given:
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} does nothing with --optimizer newton: leave it out.")
