"""Two steps for weights that sum to one and stay above a floor: projected and exponentiated."""

import numpy as np


def project_to_simplex(v: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Point of {x: sum x = 1, every x_i >= floor} nearest to `v` (Duchi et al. 2008, Fig. 1).

    The floor is taken off first: y = x - floor lies on the simplex of total 1 - n * floor.
    """
    v = _finite_vector(v, "v")
    total = _free_mass(len(v), floor)
    if total == 0:
        return np.full(len(v), max(1 / len(v), floor))
    with np.errstate(over="ignore"):
        v = v - v.max()
    # The threshold is at least max(v) - total, so values below get nothing. Clipping these values
    # keeps huge ones out of the running sums, where they would drown the values that matter.
    v = np.maximum(v, -total)
    u = np.sort(v)[::-1]
    thresholds = (np.cumsum(u) - total) / np.arange(1, len(u) + 1)
    rho = max(1, int(np.count_nonzero(u > thresholds)))
    theta = thresholds[rho - 1]
    # A second pass removes the rounding of the running sum; on the sorted values, so that the
    # order of v has no influence.
    theta += (np.sum(u[:rho] - theta) - total) / rho
    return floor + np.maximum(v - theta, 0)


def exponentiated_weights(
    mu: np.ndarray, gradient_step: np.ndarray, floor: float = 0.0
) -> np.ndarray:
    """Normalise mu_i exp(step_i), then project onto {x_i >= floor} in KL divergence.

    Minimising sum x log(x/w) under sum x = 1 and x_i >= floor gives log(x_i/w_i) = const + nu_i
    with nu_i > 0 only where x_i = floor, so x = max(floor, c w): the j smallest are at the floor
    and the others share 1 - j * floor in proportion to w, with the smallest j for which they
    stay above it.
    """
    mu = _finite_vector(mu, "mu")
    gradient_step = _finite_vector(gradient_step, "gradient_step")
    if mu.shape != gradient_step.shape:
        raise ValueError(f"mu has {len(mu)} entries, gradient_step {len(gradient_step)}")
    if mu.min() < 0 or mu.max() == 0:
        raise ValueError("mu must be non-negative and not all zero")
    n = len(mu)
    if _free_mass(n, floor) == 0:
        return np.full(n, max(1 / n, floor))
    live = mu > 0
    logits = np.full(n, -np.inf)
    with np.errstate(over="ignore"):
        # The step is shifted first: added to a huge step, log(mu) would be rounded away.
        logits[live] = np.log(mu[live]) + (gradient_step[live] - gradient_step[live].max())
    w = np.exp(logits - logits.max())
    ascending = np.sort(w)
    tails = np.cumsum(ascending[::-1])[::-1]
    scales = (1 - floor * np.arange(n)) / tails
    clamped = np.argmax(scales * ascending >= floor)
    return np.maximum(scales[clamped] * w, floor)


def _finite_vector(values: np.ndarray, name: str) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"{name} must be a non-empty vector, not of shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has values that are not finite")
    return values


def _free_mass(n: int, floor: float) -> float:
    """Mass left of 1 when each of `n` weights has the floor; exactly 0 if within rounding of 0."""
    free = 1 - n * floor
    if abs(free) <= 4 * np.finfo(float).eps:
        return 0.0
    if not (floor >= 0 and free > 0):
        raise ValueError(f"the floor must be in [0, 1/{n}] for {n} weights, not {floor}")
    return free
