"""LocalFedMinMax: every group of every client is a group of its own.

The paper's ablation of FedMinMax (in the appendix on local against global groups): mu ranges over
the cells (a, k) that have rows, with rho_{a,k} = n_{a,k} / n, so that the step of theta is

    theta <- theta - lr * grad sum_{a,k} mu_{a,k} r_{a,k}(theta)

The floor is epsilon / K: with epsilon itself, 400 cells would pin 0.4 of the mass.

In a cohort S whose client k is drawn with probability pi_k, the gradient is of the terms of S, each
divided by pi_k, and so are the risks of the adversary's step, which are 0 for clients elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedmpi.methods.adversary import ADVERSARY, EPSILON, LR_MU, ascend
from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import BATCH_ROWS

if TYPE_CHECKING:
    from fedmpi.federation.clients import Clients


class LocalFedMinMax(Method):
    """Ascent on a weight for each cell, one full-batch step on theta."""

    title = "LocalFedMinMax"
    options = (LR_MU, EPSILON, ADVERSARY, BATCH_ROWS)
    aim = "worst"
    reports = "cells"
    averages_theta = True
    under_cohorts = True

    def start(self, counts: np.ndarray) -> None:
        self.mu = counts.T / counts.sum()
        self.held = self.mu > 0

    def weights(self) -> np.ndarray:
        return self.mu

    def update_weights(self, risks: np.ndarray) -> None:
        c, risks = self.config, self.unbiased(risks)
        floor = c.epsilon / np.count_nonzero(self.held.any(axis=1))
        self.mu[self.held] = ascend(
            self.mu[self.held], risks[self.held], c.lr_mu, floor, c.adversary
        )

    def group_weights(self) -> np.ndarray:
        return self.mu.sum(axis=0)

    def client_weights(self) -> np.ndarray:
        return self.mu

    def state(self) -> dict[str, np.ndarray]:
        return {"mu": self.mu}

    def client_round(self, clients: Clients, now: Round) -> None:
        def cell_weights() -> np.ndarray:
            return now.weights() / np.maximum(clients.counts.T, 1)

        clients.full_batch_step(cell_weights, self.config.lr, now.report, now.t)
