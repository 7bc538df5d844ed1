"""A convex game of two groups that disagree: logistic regression, and its solutions by SLSQP."""

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from fedmpi import data as datasets
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare

Rows = list[np.ndarray]
"""Inputs, targets and groups of the training rows."""


def write_game(folder: Path, group: str = "g") -> tuple[list[str], Rows]:
    """Write the table; return the options that a run on it needs, and its rows.

    With the `group` g,y they are of four groups: class by class of each.
    """
    rng = np.random.default_rng(3)
    side = np.repeat(["a", "b"], [45, 15])
    x = rng.normal(size=60)
    y = x * np.where(side == "a", 1, -1) + rng.normal(size=60) > 0
    lines = [f"{v},{g},{int(t)}" for v, g, t in zip(x, side, y, strict=True)]
    (folder / "game.csv").write_text("\n".join(["x,g,y", *lines]) + "\n")
    data = ["--dataset", f"csv:{folder / 'game.csv'}", "--target", "y", "--group", group]
    read = DataOptions(target="y", group=tuple(group.split(",")))
    held = prepare(datasets.find(data[1]), folder / "data", read)
    options = [*data, "--model", "logistic", "--dtype", "float64", "--eval-every", "5000"]
    return options, [np.array(held.array(f"train_{part}")) for part in ("x", "y", "group")]


def risks_and_slopes(rows: Rows, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cross entropy of each group and its gradient in theta: weights of both classes, biases."""
    x, y, group = rows
    inputs = np.c_[x, np.ones(len(x))]
    width = x.shape[1]
    matrix = np.c_[theta[: 2 * width].reshape(2, width), theta[2 * width :]]
    logits = inputs @ matrix.T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    losses, slopes = -np.log(p[np.arange(len(y)), y]), p - np.eye(2)[y]
    risks, gradients = [], []
    for a in range(group.max() + 1):
        mine = group == a
        g = slopes[mine].T @ inputs[mine] / mine.sum()
        risks.append(losses[mine].mean())
        gradients.append(np.concatenate([g[:, :width].ravel(), g[:, width]]))
    return np.array(risks), np.array(gradients)


def solved(rows: Rows, mean: float, worst: float, gamma: float | None = None) -> np.ndarray:
    """Group risks at the minimum of mean * (mean risk) + worst * s, by SLSQP.

    Every risk is at most s, or at most gamma, where one is given.
    """
    rho = np.bincount(rows[2]) / len(rows[2])

    def objective(v):
        risks, slopes = risks_and_slopes(rows, v[:-1])
        return mean * rho @ risks + worst * v[-1], np.append(mean * rho @ slopes, worst)

    bound = {
        "type": "ineq",
        "fun": lambda v: (gamma or v[-1]) - risks_and_slopes(rows, v[:-1])[0],
        "jac": lambda v: np.c_[-risks_and_slopes(rows, v[:-1])[1], [0 if gamma else 1] * 2],
    }
    size = 2 * rows[0].shape[1] + 2
    start = np.append(np.zeros(size), 1.0)
    done = minimize(objective, start, jac=True, constraints=bound, options={"ftol": 1e-12})
    assert done.success, done.message
    return risks_and_slopes(rows, done.x[:-1])[0]
