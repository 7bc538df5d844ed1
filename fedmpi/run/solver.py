"""Named bundles of options for the methods that take one step a round: --solver paper|fast.

`paper` is Algorithm 1 with the fixed steps of the paper. `fast` has momentum, a multiplicative
adversary and, for models of images, batches of the federation. Both solve the same problem, with
the same three messages a round. An option that is given wins over the bundle's. The step sizes of
`fast` were chosen on validation folds of training rows, the rest was not searched:
docs/convergence.md.
"""

from __future__ import annotations

from typing import Any

from fedmpi.methods.method import Method

SOLVERS = ("paper", "fast")
PERCEPTRONS = ("mlp", "mlp4", "logistic")

FAST: dict[str, Any] = {
    "optimizer": "nesterov",
    "adversary": "multiplicative",
    "lr": 0.2,
    "lr_mu": 0.3,
    "rounds": 100,
    "average": "tail",
}
"""Perceptrons: full batches."""

FAST_IMAGES: dict[str, Any] = FAST | {
    "lr": 0.05,
    "lr_mu": 0.05,
    "rounds": 1500,
    "schedule": "cosine",
    "batch_rows": 250,
}
"""All other models."""


def bundle(solver: str, model: str, method: type[Method]) -> dict[str, Any]:
    """The defaults that `solver` has for a method with one step a round, in place of a preset's."""
    if solver == "paper":
        return {}
    chosen = FAST if model in PERCEPTRONS else FAST_IMAGES
    return {
        name: value
        for name, value in chosen.items()
        if name in ("lr", "rounds") or method.option(name)
    }
