"""Tests and intervals of a mean over seeds whose rows are shared: Student's t, p-values, Holm.

A figure d_s is known of S runs that differ in their seed. It varies with the seed (start, shards,
batches) and with the test rows, which the runs may share: d_s = D + u_s + e_s, with u_s
independent of variance σ², and e_s the error of the rows, whose covariances the bootstrap gives.
With s² the sample variance of the d_s, and C the mean covariance of e_s and e_t over pairs s ≠ t,

    Var(mean d) = E[s²] / S + C.

(Both sides are (1/S²) ΣΣ cov(d_s, d_t): in s² the covariances that all runs share cancel, in C they
are all there is.) The first part is estimated with S - 1 degrees of freedom, the second by
thousands of rows, so it counts as known. With t and z the quantiles of both at 1 - α, the bound

    reach² = t² s²/S + z² C

is passed by mean d - D with a probability of at most α, whatever the share of the two parts is
(Banerjee 1960). For u_s and e_s normal, s² is independent of the mean, and with shares p + q = 1

    P(|mean d - D| <= reach) = E F(p t² χ²/(S-1) + q z²) >= p E F(t² χ²/(S-1)) + q F(z²) = 1 - 2α,

as the distribution function F of a squared normal number is concave: one of Student's t exceeds t,
and a normal number z, with the same probability. One side is half of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

SMALLEST = 1e-12
"""Smallest p-value that is told apart from others: a smaller one is this."""


def t_tail(t: float, degrees: int) -> float:
    """Probability that Student's t with `degrees` of freedom, a whole number, exceeds `t`.

    The finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan(abs(t) / math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    if degrees % 2:
        terms, term = 0.0, math.cos(angle)
        for k in range(1, degrees - 1, 2):
            terms, term = terms + term, term * square * (k + 1) / (k + 2)
        within = (angle + sine * terms) * 2 / math.pi
    else:
        terms, term = 0.0, 1.0
        for k in range(0, degrees, 2):
            terms, term = terms + term, term * square * (k + 1) / (k + 2)
        within = sine * terms
    tail = max((1 - within) / 2, SMALLEST)
    return tail if t >= 0 else 1 - tail


@cache
def t_quantile(alpha: float, degrees: int) -> float:
    """Number that Student's t exceeds with probability `alpha`, which is at most 1/2."""
    high = 1.0
    while t_tail(high, degrees) > max(alpha, SMALLEST):
        high *= 2
    return _solve(lambda t: t_tail(t, degrees) <= alpha, high)


def _solve(holds: Callable[[float], bool], high: float) -> float:
    """Smallest number up to `high` for which `holds`, which stays true once it is."""
    low = 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Spread:
    """Variance of a mean over seeds: s²/S with its degrees of freedom S - 1, and C, of the rows.

    One run has no variance between seeds (0 degrees): what is said is then of that model alone.
    """

    seeds: float
    degrees: int
    rows: float

    def reach(self, alpha: float) -> float:
        """How far the mean may be off to one side, but for a probability of `alpha`."""
        square = NormalDist().inv_cdf(alpha) ** 2 * self.rows
        if self.degrees:
            square += t_quantile(alpha, self.degrees) ** 2 * self.seeds
        return math.sqrt(square)

    def p_value(self, excess: float) -> float:
        """Probability that a mean of zero is exceeded by this much or more: one-sided."""
        p = self._tail(abs(excess))
        return p if excess >= 0 else 1 - p

    def _tail(self, excess: float) -> float:
        if not excess or math.isnan(excess):
            return excess + 0.5
        of_seeds = self.seeds if self.degrees else 0.0
        if not of_seeds:
            z = excess / math.sqrt(self.rows) if self.rows else math.inf
            return max(NormalDist().cdf(-z), SMALLEST)

        def beyond(t: float) -> bool:
            z = NormalDist().inv_cdf(t_tail(t, self.degrees))
            return t * t * of_seeds + z * z * self.rows >= excess * excess

        return t_tail(_solve(beyond, excess / math.sqrt(of_seeds)), self.degrees)


def spread_of(values: np.ndarray, replicates: np.ndarray) -> Spread:
    """Variance of the mean of `values`, one for each seed, with their replicates, seeds × B.

    s² of a few seeds may be far too small by chance. Its mean is at least what the rows alone give,
    the mean variance of e_s less C, so it counts as no less.
    """
    count = len(values)
    covariances = np.atleast_2d(np.cov(replicates))
    if count == 1:
        return Spread(0.0, 0, float(covariances[0, 0]))
    own = np.trace(covariances)
    shared = np.maximum(0.0, (covariances.sum() - own) / (count * (count - 1)))  # NaN stays NaN
    square = np.maximum(np.var(values, ddof=1), own / count - shared)
    return Spread(float(square) / count, count - 1, float(shared))


def holm(p_values: Sequence[float]) -> np.ndarray:
    """P-values that count how many were looked at (Holm 1979), in the order given.

    To call those up to α significant is wrong about any of them with a probability of at most α.
    NaN, a test that could not be made, stays NaN and does not count.
    """
    p = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted
