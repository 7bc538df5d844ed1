"""Bounds of the minimax risk, for convex models: how far theta can be from the best there is.

With logistic regression, cross entropy and a weight decay d > 0, the weighted risk

    f_mu(theta) = sum_a mu_a r_a(theta) + d / 2 |theta|^2

is d-strongly convex for any weights mu, so f_mu is nowhere below

    f_mu(theta) - |grad f_mu(theta)|^2 / 2d.

For mu in the simplex with floor epsilon this is a lower bound of the minimax risk

    min over theta   max over mu   f_mu(theta),

and the best of all rounds is kept. The maximum over mu at a theta is an upper bound. Both bounds
are made of what the server has in a round anyway: the weights, the risks, and the sum of the
changes, which is -lr times the gradient. No message is added. In float32 the bounds are as exact as
the sums are: for very small gaps use --dtype float64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.run.until import can_be_certified

if TYPE_CHECKING:
    from fedmpi.run.config import Config


class Certificate:
    """The bounds, on the server, as the rounds go on."""

    def __init__(self, weight_decay: float, epsilon: float, lr: float) -> None:
        self.weight_decay, self.epsilon, self.lr = weight_decay, epsilon, lr
        self.lower, self.upper = -math.inf, math.inf
        """The best lower bound so far; the upper bound at the theta of the last round."""

    @property
    def gap(self) -> float:
        """How far the worst weighted risk of theta can be above the minimax risk."""
        return self.upper - self.lower

    def look(
        self, mu: np.ndarray, risks: np.ndarray, theta: torch.Tensor, change: torch.Tensor
    ) -> None:
        """Take a round into the bounds: weights and risks of its gradient, theta, and the sum."""
        theta, change = theta.detach().double(), change.detach().double()
        held = ~np.isnan(risks)
        mu, risks, d = mu[held], risks[held], self.weight_decay
        penalty = d / 2 * float(theta @ theta)
        free = 1 - len(risks) * self.epsilon
        self.upper = self.epsilon * float(risks.sum()) + free * float(risks.max()) + penalty
        if (mu < self.epsilon * (1 - 1e-9)).any():
            return  # the priors, with which the weights begin, may be below the floor
        gradient = change / -self.lr + d * theta
        lower = float(mu @ risks) + penalty - float(gradient @ gradient) / (2 * d)
        self.lower = max(self.lower, lower)

    def saved(self) -> dict[str, float]:
        return {"upper": self.upper, "lower": self.lower, "gap": self.gap}


def certificate_for(config: Config) -> Certificate | None:
    """A certificate, where one can be had."""
    if not can_be_certified(config):
        return None
    options = config.options
    return Certificate(options["weight_decay"], options["epsilon"], config.lr)
