"""The adversary's step: more weight to groups or clients whose risk is high, on the simplex."""

import numpy as np

from fedmpi.methods.option import STEPS, Option
from fedmpi.methods.simplex import exponentiated_weights, project_to_simplex

ADVERSARIES = ("projected", "multiplicative")

LR_MU = Option(
    "lr_mu",
    preset="lr_mu",
    at_least=0,
    grid=STEPS,
    label="η_μ = {}",
    help="step size of the adversary's weights",
)
EPSILON = Option(
    "epsilon",
    default=0.001,
    at_least=0,
    below=1,
    label="ε = {}",
    help="floor of the group weights (.001)",
)
ADVERSARY = Option(
    "adversary",
    str,
    "projected",
    choices=ADVERSARIES,
    label="{}",
    help=f"{' or '.join(ADVERSARIES)} step of the weights",
)


def ascend(
    weights: np.ndarray, risks: np.ndarray, lr: float, floor: float, adversary: str
) -> np.ndarray:
    """Take one ascent step on <weights, risks>: projected (the paper's), or exponentiated."""
    if adversary == "multiplicative":
        return exponentiated_weights(weights, lr * risks, floor)
    return project_to_simplex(weights + lr * risks, floor)
