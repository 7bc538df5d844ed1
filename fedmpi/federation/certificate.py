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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedmpi.methods.simplex import worst_weighted
from fedmpi.run.until import can_be_certified

if TYPE_CHECKING:
    from fedmpi.methods.method import Method
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
        self.upper = worst_weighted(risks, self.epsilon) + penalty
        if (mu < self.epsilon * (1 - 1e-9)).any():
            return  # the priors, with which the weights begin, may be below the floor
        gradient = change / -self.lr + d * theta
        lower = float(mu @ risks) + penalty - float(gradient @ gradient) / (2 * d)
        self.lower = max(self.lower, lower)

    def saved(self) -> dict[str, float]:
        return {"upper": self.upper, "lower": self.lower, "gap": self.gap}


class Residual:
    """How far the last quarter of the rounds is from a solution, for any model; no certificate.

    At a local solution (theta, mu) the gradient of f_mu is 0, and no weights make more of the risks
    than mu does. So from the means over these rounds of mu, r and the gradient g of f_mu:

        stationarity   |mean g|
        regret         max over mu   sum_a mu_a mean r_a   -   mean sum_a mu_a r_a

    With batches, whose gradients and risks are noisy, the noise is in the means, too.
    """

    def __init__(self, weight_decay: float, epsilon: float, lr: float) -> None:
        self.weight_decay, self.epsilon, self.lr = weight_decay, epsilon, lr
        self.rounds = 0
        self.gradient = torch.zeros(0)
        self.risks = np.zeros(0)
        self.played = 0.0
        """Mean of the weighted risk, as mu was in each round."""

    def look(
        self, mu: np.ndarray, risks: np.ndarray, theta: torch.Tensor, change: torch.Tensor
    ) -> None:
        """Take a round into the means: weights and risks of its gradient, theta, and the sum."""
        gradient = change.detach().cpu() / -self.lr
        if self.weight_decay:
            gradient.add_(theta.detach().cpu(), alpha=self.weight_decay)
        risks = np.nan_to_num(risks)
        if not self.rounds:
            self.gradient, self.risks = torch.zeros_like(gradient), np.zeros_like(risks)
        self.rounds += 1
        share = 1 / self.rounds
        self.gradient.lerp_(gradient, share)
        self.risks += share * (risks - self.risks)
        self.played += share * (float(mu @ risks) - self.played)

    def saved(self) -> dict[str, float]:
        """The residual, as result.json has it."""
        # A group without rows has 0; the noise of --dp-epsilon may take the others below.
        risks = self.risks[self.risks != 0]
        best_reply = worst_weighted(risks, self.epsilon) if len(risks) else 0.0
        norm = float(self.gradient.double().norm())
        return {"stationarity": norm, "regret": best_reply - self.played, "rounds": self.rounds}

    def state(self) -> dict[str, Any]:
        """The part of a checkpoint, from which `restore` goes on."""
        risks = torch.from_numpy(self.risks.copy())
        return {
            "rounds": self.rounds,
            "gradient": self.gradient,
            "risks": risks,
            "played": self.played,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.rounds, self.played = state["rounds"], state["played"]
        self.gradient, self.risks = state["gradient"], state["risks"].numpy()


def residual_for(config: Config, method: Method) -> Residual | None:
    """A residual, where the weights are of groups, and a round's sum is a gradient of all."""
    if method.has_cohorts() or config.partial:
        return None
    known = "epsilon" in config.options and getattr(method, "whole_simplex", True)
    if method.reports != "groups" or config.local_epochs or not known:
        return None
    return Residual(config.decay, config.options["epsilon"], config.lr)


def certificate_for(config: Config) -> Certificate | None:
    """A certificate, where one can be had."""
    if not can_be_certified(config):
        return None
    return Certificate(config.decay, config.options["epsilon"], config.lr)
