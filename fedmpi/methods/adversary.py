"""The adversary's step: more weight to those whose risk is high, within the simplex."""

import numpy as np

from fedmpi.methods.simplex import exponentiated_weights, project_to_simplex

ADVERSARIES = ("projected", "multiplicative")


def ascend(
    weights: np.ndarray, risks: np.ndarray, lr: float, floor: float, adversary: str
) -> np.ndarray:
    """One ascent step on <weights, risks>: projected (the paper's), or exponentiated."""
    if adversary == "multiplicative":
        return exponentiated_weights(weights, lr * risks, floor)
    return project_to_simplex(weights + lr * risks, floor)
