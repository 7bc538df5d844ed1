"""The noise of a round: how far one row can move what is released, and the split of the budget.

A round releases two things, with the weights mu_a and the counts n_a of the groups public:

    the gradient, sum over rows of (mu_a / n_a) clip(g_i, C): one row moves it by C max mu_a / n_a,
    the losses, for each group the sum over its rows of min(loss, L): it moves one of these by L,

in L2 norms, for federations that differ in that one row's contribution is zero. Divided by the
deviations of their noises, z_g and z_l times these numbers, the two are one Gaussian mechanism of
multiplier z, 1/z^2 = 1/z_g^2 + 1/z_l^2. The losses have a `share` of it: 1/z_l^2 = share / z^2.

Why a share of 0.1. Over T rounds z = sqrt(T) / m, where m is what (epsilon, delta) allow, 0.72 for
(3, 1e-5). The ascent adds up T noisy risks of each group, so what steers it is the mean of these,
with a noise of deviation

    z_l L / (n_a sqrt(T)) = L / (n_a m sqrt(share)),

whatever T is. For the smallest group of Adult, 1,179 rows, and L = 2, it is 0.0075 with a share of
0.1: half of the standard error that a risk over 1,179 rows has anyway, 0.5 / sqrt(1179) = 0.015 if
the losses' deviation is 0.5. With a share of 0.01 it is 0.024, above that error. The cost is
1 / sqrt(1 - share), 5% more noise on the gradient. A share of 0.5 costs 41%, for a precision of the
risks (0.003) that their own sampling error hides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedmpi.errors import UserError

SHARE = 0.1
"""Of the privacy budget, the share that is spent on losses."""


@dataclass(frozen=True)
class Mechanism:
    """Gaussian noise on the two sums that a round releases."""

    multiplier: float
    """z, which the accountant counts."""
    clip: float
    """C, the largest norm of a row's gradient."""
    loss_bound: float
    """L, the largest loss of a row; losses are never below 0."""
    share: float = SHARE
    sampling: float = 1.0
    """q, with which a row is in a batch, whose sums are divided by q."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise UserError(
                f"a share of {self.share} of the privacy budget for losses: give one between 0 "
                f"and 1, such as {SHARE}."
            )
        for what, bound in (("norm of a row's gradient", self.clip), ("loss", self.loss_bound)):
            if not 0 < bound < math.inf:
                raise UserError(f"a largest {what} of {bound}: give a number above 0.")

    @property
    def gradient_multiplier(self) -> float:
        """z_g, the noise of the gradient over its sensitivity."""
        return self.multiplier / math.sqrt(1 - self.share)

    @property
    def loss_multiplier(self) -> float:
        """z_l, the noise of the losses over their sensitivity."""
        return self.multiplier / math.sqrt(self.share)

    def gradient_deviation(self, row_weights: np.ndarray, unit: float = 0, size: int = 0) -> float:
        """Return the deviation of the noise of each number of the gradient.

        `row_weights` are the weights of a row of each group, mu_a / n_a, times the step if this is
        in what is released. If `size` numbers are rounded to multiples of `unit`, on one rank, that
        counts as well: each moves by up to a unit more than before it was rounded.
        """
        sensitivity = self.clip * float(np.abs(row_weights).max()) / self.sampling
        return self.gradient_multiplier * (sensitivity + unit * math.sqrt(size))

    def loss_deviation(self, unit: float = 0) -> float:
        """Return the deviation of the noise of each group's sum of losses.

        One row is in one sum alone: rounded to multiples of `unit`, this moves by a unit more.
        """
        return self.loss_multiplier * (self.loss_bound / self.sampling + unit)
