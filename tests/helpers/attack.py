"""Whether a row was in the federation: the best attack, by somebody who knows all but that.

The attacker knows every other row, the code, and the state before each round, which follows from
what was released; so also the sums with and without the row. The likelihood ratio of what was
released is then the best test that there is (Neyman and Pearson), and no test may do better than
(epsilon, delta) allow: P(it says "in" | in) <= e^epsilon P(it says "in" | out) + delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np


class Seen(NamedTuple):
    """What one round released, as one vector, and what the attacker works out of it."""

    released: np.ndarray
    with_row: np.ndarray
    """The sums without noise, if the row is in the batch."""
    without_row: np.ndarray
    deviation: np.ndarray
    """Of the noise on each number; 0 for none."""


Play = Callable[[bool, int], Iterable[Seen]]
"""Function of whether the row is in, and of the number of the repetition, to a run's rounds."""


def score(rounds: Iterable[Seen], sampling: float = 1.0) -> float:
    """Log of the likelihood ratio of "in" to "out"; infinite if a number without noise decides."""
    total = 0.0
    for seen in rounds:
        # Integers are subtracted as such, modulo 2^64; their squares would not fit.
        near = (seen.released - seen.without_row).astype(np.float64)
        far = (seen.released - seen.with_row).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = (near**2 - far**2) / (2 * seen.deviation**2)
        ratio = float(np.where(near**2 == far**2, 0.0, terms).sum())
        if sampling < 1:  # a batch drawn in secret has the row with this probability only
            ratio = float(np.logaddexp(math.log1p(-sampling), math.log(sampling) + ratio))
        total += ratio
    return total


class Excess(NamedTuple):
    """Estimate of P("in" | in) - e^epsilon P("in" | out), at most delta; and its standard error."""

    value: float
    error: float


class Attack:
    """Scores of repeated runs with the row and without."""

    def __init__(self, play: Play, repetitions: int, sampling: float = 1.0) -> None:
        self.present, self.absent = (
            np.array([score(play(present, i), sampling) for i in range(repetitions)])
            for present in (True, False)
        )

    def excess(self, epsilon: float = 0.0) -> Excess:
        """Estimate the least delta that this attack leaves for `epsilon`: the larger direction's.

        With an epsilon of 0 it is the attack's advantage. The best test says "in" where the
        likelihood ratio is above e^epsilon.
        """
        return max(
            self._one_way(self.present, self.absent, epsilon),
            self._one_way(-self.absent, -self.present, epsilon),
        )

    @staticmethod
    def _one_way(true: np.ndarray, false: np.ndarray, epsilon: float) -> Excess:
        p, q, e = (true > epsilon).mean(), (false > epsilon).mean(), math.exp(epsilon)
        # One more hit and one more miss than counted: no error is 0.
        n = len(true)
        a, b = (p * n + 1) / (n + 2), (q * n + 1) / (n + 2)
        error = math.sqrt((a * (1 - a) + e * e * b * (1 - b)) / n)
        return Excess(float(p - e * q), error)
