"""Weights that sum to one and stay above a floor: two steps, and a quadratic maximum."""

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


def worst_weighted(risks: np.ndarray, floor: float) -> float:
    """Maximum of mu·risks over the weights mu that sum to one and are at least the floor."""
    return floor * float(risks.sum()) + (1 - len(risks) * floor) * float(risks.max())


def maximize_on_simplex(
    linear: np.ndarray, quadratic: np.ndarray, floor: float = 0.0
) -> np.ndarray:
    """Maximum of linear·x - x'Qx / 2 over {x: sum x = 1, every x_i >= floor}, for a convex Q."""
    linear, n = _finite_vector(linear, "linear"), len(linear)
    if _free_mass(n, floor) == 0:
        return np.full(n, max(1 / n, floor))
    low, high = np.full(n, floor), np.full(n, np.inf)
    return _maximize(linear, quadratic, low, high, np.full(n, 1 / n))


def shortest_combination(gram: np.ndarray, centre: np.ndarray, radius: float) -> np.ndarray:
    """Weights whose combination of vectors is the shortest, from the vectors' inner products.

    The weights sum to one, are at least 0, and within `radius` of the weights `centre`.
    """
    centre = _finite_vector(centre, "centre")
    if radius == 0:
        return centre.copy()
    low, high = np.maximum(centre - radius, 0), centre + radius
    return _maximize(np.zeros(len(centre)), gram, low, high, centre)


def _maximize(
    linear: np.ndarray, quadratic: np.ndarray, low: np.ndarray, high: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Maximum of linear·x - x'Qx / 2 over {x: sum x = 1, low <= x <= high}, for a convex Q.

    A primal active-set method: the maximum with some weights fixed at a bound is one linear
    system. A step towards it ends where the next weight meets a bound; a fixed weight is let go
    where the gradient asks for more, or less, of it. `start` is within the bounds.
    """
    n = len(linear)
    # So that flat directions, as of two groups with the same rows, do not make it singular.
    quadratic = quadratic + np.eye(n) * (1e-12 * np.trace(quadratic) / n + 1e-300)
    x, fixed, at_high = start.copy(), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    for _ in range(100 * n):
        free = ~fixed
        system = np.ones((free.sum() + 1,) * 2)
        system[:-1, :-1], system[-1, -1] = quadratic[np.ix_(free, free)], 0
        right = linear[free] - quadratic[np.ix_(free, fixed)] @ x[fixed]
        *wanted, level = _solve(system, np.append(right, 1 - x[fixed].sum()))
        step = np.zeros(n)
        step[free] = np.array(wanted) - x[free]
        down, up = free & (x + step < low), free & (x + step > high)
        reach = np.full(n, 1.0)
        reach[down] = (x[down] - low[down]) / -step[down]
        reach[up] = (high[up] - x[up]) / step[up]
        x = x + reach.min() * step
        if reach.min() < 1:
            met = int(np.argmin(reach))
            fixed[met], at_high[met] = True, up[met]
            x[met] = high[met] if up[met] else low[met]
            continue
        asks = linear - quadratic @ x
        least = int(np.argmin(np.where(at_high, asks, np.inf)))
        if not free.any():  # no weight sets the level: one that falls does, for one that rises
            level = asks[least] if at_high[least] else np.inf
        gains = np.where(fixed, np.where(at_high, level - asks, asks - level), -np.inf)
        if gains.max() <= 1e-12 * (1 + abs(level)):
            break
        fixed[least] &= bool(free.any())
        fixed[np.argmax(gains)] = False
        at_high &= fixed
    return x


def _solve(system: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solution of a linear system; the shortest of its best ones, where it is singular.

    Not least squares at once: of 200 weights they take 5 ms, this .5 ms, and about as many systems
    are solved as weights are fixed.
    """
    try:
        return np.linalg.solve(system, right)
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(system, right)[0]


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
