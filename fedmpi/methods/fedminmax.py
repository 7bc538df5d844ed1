"""FedMinMax: the worst group of the whole federation, wherever this group's rows are.

Papadaki, Martinez, Bertran, Sapiro, Rodrigues, "Minimax Demographic Group Fairness in Federated
Learning", Algorithm 1:

    w_a = mu_a / rho_a,                         rho_a = n_a / n
    theta_k = theta - lr * grad r_k(theta, w),  r_k = sum_a (n_{a,k} / n_k) w_a r_{a,k}(theta)
    theta  <- sum_k (n_k / n) theta_k
    mu     <- project(mu + lr_mu * r),          r_a = sum_k (n_{a,k} / n_a) r_{a,k}(theta)

A round is one step from a common theta, so the sum of the clients' changes is -lr times the
gradient of (1/n) sum over rows of w_a * loss: the step that one machine with all rows would take
(Lemma 2). Only sums over a rank's clients leave the rank.

With --local-epochs each client takes many steps on minibatches of r_k(theta, w) instead. This
variant saves communication, is no longer the centralized algorithm, and is not in the paper.

In a cohort S whose client k is drawn with probability pi_k, both players have unbiased estimates:

    r_a   = sum_{k in S} (n_{a,k} / n_a) r_{a,k}(theta) / pi_k
    theta <- theta + sum_{k in S} (n_k / n)(theta_k - theta) / pi_k

The models after local epochs are averaged as FedAvg averages them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedmpi.methods.adversary import ADVERSARY, EPSILON, LR_MU, ascend
from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import BATCH_ROWS, LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from fedmpi.federation.clients import Clients
    from fedmpi.run.config import Config


class FedMinMax(Method):
    """Ascent on the group weights mu, one full-batch step on theta."""

    title = "FedMinMax"
    options: ClassVar[tuple[Option, ...]] = (
        LR_MU,
        EPSILON,
        ADVERSARY,
        BATCH_ROWS,
        *LOCAL_TRAINING,
    )
    aim = "worst"
    reports = "groups"
    averages_theta = True
    under_cohorts = True
    whole_simplex: ClassVar[bool] = True
    """Whether the adversary may take any weights above the floor. If not, Newton's step and the
    bounds of federation/certificate.py are of another game than the method's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        # Newton's weights follow from the sums of a round, and are for the next round's Hessian.
        self.weighs_next_round = not self.optimizer.second_order

    def start(self, counts: np.ndarray) -> None:
        self.sizes = counts.sum(axis=1)
        self.rho = self.sizes / counts.sum()
        self.mu = self.rho.copy()
        self.held = self.rho > 0  # all groups, until a rank dies

    def weights(self) -> np.ndarray:
        return np.divide(self.mu, self.rho, out=np.zeros_like(self.mu), where=self.held)

    def update_weights(self, risks: np.ndarray) -> None:
        c, self.risks = self.config, risks
        if self.optimizer.second_order:
            return  # with theta, by the sums that close the round
        self.mu[self.held] = ascend(
            self.mu[self.held], risks[self.held], c.lr_mu, c.epsilon, c.adversary
        )

    def group_weights(self) -> np.ndarray:
        return self.mu

    def state(self) -> dict[str, np.ndarray]:
        return {"mu": self.mu}

    def lose(self, counts: np.ndarray) -> None:
        super().lose(counts)
        self.optimizer.begin_again()

    def client_round(self, clients: Clients, now: Round) -> None:
        if self.config.local_epochs:
            self.local_round(clients, now)
            return

        def cell_weights() -> np.ndarray:
            return now.weights() / now.total_rows

        if self.optimizer.second_order:
            clients.second_order_sums(cell_weights, self.config.lr, now.report)
        else:
            clients.full_batch_step(cell_weights, self.config.lr, now.report, now.t)

    def local_round(self, clients: Clients, now: Round) -> None:
        """Train local epochs instead of one step: more steps a round, so fewer messages."""
        weighted_mean = clients.weighted_mean(now.weights())  # the report's answer is for the next
        now.report(clients.loss_sums())
        for i, change in clients.local_changes(now.t, self.config, weighted_mean):
            clients.add(change, now.shares[i])
