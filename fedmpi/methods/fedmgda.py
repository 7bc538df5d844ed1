"""FedMGDA+: the direction that harms no client, near given weights of the clients.

Hu, Shaloudegi, Zhang, Yu, "Federated Learning Meets Multi-objective Optimization" (2020),
Algorithm 1. With theta_k after the local epochs of client k:

    u_k     = (theta_k - theta) / ||theta_k - theta||
    lambda  = argmin ||sum_k lambda_k u_k||^2  over the simplex, |lambda_k - lambda0_k| <= eps
    theta  <- theta + global_lr sum_k lambda_k u_k

The shortest combination of all convex ones (eps = 1) has no negative product with any u_k: to first
order no client's loss rises. At eps = 0 it is the mean of the normalised changes by lambda0, which
is n_k / n here, and of a cohort n_k over its rows (n_k / pi_k, normalised, if its clients are drawn
with unequal probabilities pi_k). The normalised changes make the length of a
round's step a number of its own, at most global_lr; the paper lets it fall over the rounds, as
--schedule cosine does.

The minimum needs the inner products of all pairs of clients' changes, which no sum over clients
has. So every change goes to the server, k × P numbers from a rank with k clients, and a rank keeps
the changes of its clients until the server has answered with lambda.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import LOCAL_TRAINING, Option
from fedmpi.methods.simplex import shortest_combination

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients
    from fedmpi.models.flat import FlatModel


class FedMGDA(Method):
    """The server's weights are for the changes of the same round."""

    title = "FedMGDA+"
    options = (
        Option(
            "radius",
            default=0.1,
            at_least=0,
            grid=(0.01, 0.1, 1.0),
            label="ε = {}",
            variant="ε={}",
            help="FedMGDA+'s eps, how far its weights may be from n_k / n (.1)",
        ),
        Option(
            "global_lr",
            default=1.0,
            above=0,
            grid=(0.5, 1.0, 2.0),
            label="η_g = {}",
            help="length of FedMGDA+'s step, factor of SCAFFOLD's (1)",
        ),
        *LOCAL_TRAINING,
    )
    trains_locally = True
    compares_changes = True
    under_cohorts = True

    def start(self, counts: np.ndarray) -> None:
        self.sizes = counts.sum(axis=0)
        self.lambda_ = self.sizes / self.sizes.sum()

    def weigh_changes(self, gram: np.ndarray) -> np.ndarray:
        sizes = self.unbiased(self.sizes)
        among = sizes > 0  # a client of a dead rank, or that is not there, has none
        self.lambda_ = sizes / sizes.sum()
        gram = gram[np.ix_(among, among)]
        if np.isfinite(gram).all():  # else the run has diverged, and the sum will tell
            centre = self.lambda_[among]
            self.lambda_[among] = shortest_combination(gram, centre, self.config.radius)
        return self.lambda_

    def client_weights(self) -> np.ndarray:
        return self.lambda_

    def client_round(self, clients: Clients, now: Round) -> None:
        if now.evaluate:
            now.report(clients.loss_sums())
        units = clients.model.theta.new_empty(len(clients.numbers), clients.model.size)
        for i, change in clients.local_changes(now.t, self.config):
            norm = float(torch.linalg.vector_norm(change, dtype=torch.float64))
            units[i] = change / (norm or 1.0)
            if not np.isfinite(norm):
                clients.diverged.append(int(clients.numbers[i]))
        for unit, weight in zip(units, now.weigh(units).tolist(), strict=True):
            clients.add(unit, weight)

    def update(self, model: FlatModel) -> Tensor:
        return model.change.mul_(self.config.global_lr)
