"""Bounded group loss: every group's risk at most gamma, and then the lowest mean risk.

Agarwal, Dudík, Wu, "Fair Regression: Quantitative Definitions and Reduction-Based Algorithms"
(2019); Hu, Wu, Smith, "Fair Federated Learning via Bounded Group Loss" (2022) for federations:

    min over theta   sum_a rho_a r_a(theta)   so that   r_a(theta) <= gamma for every group a

by its Lagrangian, with a multiplier lambda_a >= 0 for each group, and a budget B for their sum:

    theta  <- theta - lr * grad sum_a mu_a r_a(theta),  mu_a = (rho_a + lambda_a) / (1 + sum lambda)
    lambda <- project(lambda + lr_mu * (r - gamma)),    onto {lambda >= 0, sum lambda <= B}

lambda starts at 0. Agarwal et al. step multiplicatively, lambda_a = B exp(s_a) / (1 + sum exp(s))
with s <- s + lr_mu * (r - gamma), and their theta is a best reply; here both are gradients. The
saddle points are the same. The weights rho + lambda are divided by their sum, so that --lr is that
of FedMinMax for any B: this changes the length of a step of theta, and no saddle point.

The relaxed minimax: a gamma that no group reaches leaves lambda at 0, which is one-step FedAvg.
Where gamma is below the minimax risk no model is good enough, the budget is used up, and theta
minimises the mean risk plus B times the worst: FedMinMax with a floor of rho_a / (1 + B) for each
weight.

With --local-epochs each client takes many steps, as in FedMinMax.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedmpi.methods.adversary import LR_MU
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.option import BATCH_ROWS, LOCAL_TRAINING, Option
from fedmpi.methods.simplex import project_to_simplex

GAMMA = Option(
    "gamma",
    default=0.5,
    at_least=0,
    grid=(0.3, 0.4, 0.5, 0.6, 0.7),
    label="γ = {}",
    variant="γ={}",
    help="bound of every group's risk, of bgl (.5)",
)
BUDGET = Option(
    "budget",
    default=100.0,
    above=0,
    label="budget {}",
    help="largest sum of the multipliers of bgl (100)",
)


class BoundedGroupLoss(FedMinMax):
    """Ascent on the multipliers of the groups that are above the bound."""

    title = "Bounded group loss"
    options: ClassVar[tuple[Option, ...]] = (GAMMA, BUDGET, LR_MU, BATCH_ROWS, *LOCAL_TRAINING)
    whole_simplex = False

    def start(self, counts: np.ndarray) -> None:
        super().start(counts)
        self.lambda_ = np.zeros_like(self.rho)

    def update_weights(self, risks: np.ndarray) -> None:
        c = self.config
        known = self.held & ~np.isnan(risks)
        self.lambda_[known] += c.lr_mu * (risks[known] - c.gamma)
        self.lambda_ = project_to_budget(self.lambda_, c.budget)
        self._weigh()

    def _weigh(self) -> None:
        self.mu = (self.rho + self.lambda_) / (1 + self.lambda_.sum())

    def state(self) -> dict[str, np.ndarray]:
        return {"lambda_": self.lambda_}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        super().restore(state)
        if state:  # a client's rank has none, and knows no weights
            self._weigh()

    def lose(self, counts: np.ndarray) -> None:
        """Keep the multipliers of the groups that still have rows."""
        before = self.lambda_
        self.start(counts)
        self.lambda_ = np.where(self.held, before, 0.0)
        self._weigh()


def project_to_budget(v: np.ndarray, budget: float) -> np.ndarray:
    """Point of {x: every x_i >= 0, sum x <= budget} nearest to `v`."""
    positive = np.maximum(v, 0.0)
    return positive if positive.sum() <= budget else budget * project_to_simplex(v / budget)
