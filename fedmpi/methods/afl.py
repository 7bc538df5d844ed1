"""AFL, agnostic federated learning: the worst client, not the worst group.

Mohri, Sivek, Suresh, "Agnostic Federated Learning" (2019), in the paper's form: all clients, all
rows, one step a round.

    theta_k = theta - lr * grad r_k(theta),  r_k the mean loss of client k
    theta  <- sum_k lambda_k theta_k
    lambda <- project(lambda + lr_mu * r),   lambda starts at n_k / n, and has no floor

By Lemma 1 the group weights that AFL plays are mu = P_A lambda: in SSG every mu can be reached, in
ESG none but the priors, up to a row.

In a cohort S whose client k is drawn with probability pi_k, both players have unbiased estimates:

    theta  <- theta + sum_{k in S} lambda_k (theta_k - theta) / pi_k
    lambda <- project(lambda + lr_mu * v),  v_k = r_k / pi_k in S, and 0 elsewhere
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedmpi.methods.adversary import ADVERSARY, LR_MU, ascend
from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import BATCH_ROWS

if TYPE_CHECKING:
    from fedmpi.federation.clients import Clients


class AFL(Method):
    """Ascent on the client weights lambda, one full-batch step on theta."""

    title = "AFL"
    options = (LR_MU, ADVERSARY, BATCH_ROWS)
    aim = "worst"
    reports = "clients"
    averages_theta = True
    under_cohorts = True

    def start(self, counts: np.ndarray) -> None:
        sizes = counts.sum(axis=0)
        self.shares = counts / np.maximum(sizes, 1)
        self.lambda_ = sizes / sizes.sum()
        self.held = sizes > 0  # all clients, until a rank dies

    def weights(self) -> np.ndarray:
        return self.lambda_

    def update_weights(self, risks: np.ndarray) -> None:
        c, risks = self.config, self.unbiased(risks)
        self.lambda_[self.held] = ascend(
            self.lambda_[self.held], risks[self.held], c.lr_mu, 0.0, c.adversary
        )

    def group_weights(self) -> np.ndarray:
        return self.shares @ self.lambda_

    def client_weights(self) -> np.ndarray:
        return self.lambda_

    def state(self) -> dict[str, np.ndarray]:
        return {"lambda_": self.lambda_}

    def client_round(self, clients: Clients, now: Round) -> None:
        def cell_weights() -> np.ndarray:
            return now.weights() / clients.sizes[:, None]

        clients.full_batch_step(cell_weights, self.config.lr, now.report, now.t)
