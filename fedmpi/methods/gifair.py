"""GIFAIR-FL: the mean risk, and a penalty on how far the risks of groups, or of clients, are apart.

Yue, Nouiehed, Al Kontar, "GIFAIR-FL: A Framework for Group and Individual Fairness in Federated
Learning" (2021). With p_k = n_k / n and F_k the mean loss of client k, it minimises

    sum_k p_k F_k(theta) + lambda sum_{i<j} |L_i(theta) - L_j(theta)|

The gradient of the penalty needs ranks alone: r_i = sum_j sign(L_i - L_j) is d - 1 for the worst of
the d terms L_i and -(d - 1) for the best. In a round each client trains E local epochs on its loss
times a factor, and theta <- sum_k p_k theta_k. With the losses at the theta of the round:

--gifair-level client   L_k = F_k: individual fairness, the paper's case of a group for each client.
                        The factor of client k is 1 + lambda r_k / p_k
--gifair-level group    L_a, the risk of a demographic group over the federation: the factor of a
                        row of group a is 1 + lambda r_a / rho_a, with rho_a = n_a / n

In the paper groups are of clients, and L_i is the mean of the F_k of a group; that of demographic
groups is our reading. For factors above 0 lambda has to be below lambda_max = min_k p_k / (d - 1),
or min_a rho_a / (d - 1): --spread-penalty is lambda / lambda_max, .5 in the authors' code. At 0 it
is FedAvg, and one full-batch step is a (sub)gradient step on the objective above. The authors' code
ranks by the mean loss during the last local training; here the ranks are of the same round.

In a cohort the ranks are among its clients, or by the estimates of the groups' risks, and models
are averaged as FedAvg averages them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from fedmpi.federation.clients import Clients
    from fedmpi.run.config import Config


class GIFAIR(Method):
    """Factors of clients' or groups' losses, by the rank of their risk."""

    title = "GIFAIR-FL"
    options = (
        Option(
            "spread_penalty",
            default=0.5,
            at_least=0,
            below=1,
            grid=(0.1, 0.3, 0.5, 0.7, 0.9),
            label="λ = {} λ_max",
            help="GIFAIR's lambda, as a share of the largest that is possible (.5)",
        ),
        Option(
            "gifair_level",
            str,
            "client",
            choices=("client", "group"),
            label={"client": "spread of clients", "group": "spread of groups"},
            variant={"group": "groups"},
            help="whose spread GIFAIR penalises: client or group (client)",
        ),
        *LOCAL_TRAINING,
    )
    trains_locally = True
    under_cohorts = True
    weighs_next_round = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.reports = "clients" if config.gifair_level == "client" else "groups"

    def start(self, counts: np.ndarray) -> None:
        sizes = counts.sum(axis=0 if self.reports == "clients" else 1)
        self.p = sizes / sizes.sum()
        self.factors = np.ones(len(sizes))

    def update_weights(self, risks: np.ndarray) -> None:
        known = (self.p > 0) & ~np.isnan(risks)
        if self.counts_for is not None:
            known &= risks > 0  # a group that no client of the cohort has is estimated to be 0
        L, p = risks[known], self.p[known]
        self.factors = np.ones(len(risks))
        if len(L) > 1:
            ranks = np.sign(L[:, None] - L).sum(axis=1)
            penalty = self.config.spread_penalty * p.min() / (len(L) - 1)
            self.factors[known] += penalty * ranks / p

    def weights(self) -> np.ndarray:
        return self.factors

    def client_weights(self) -> np.ndarray | None:
        return self.p * self.factors if self.reports == "clients" else None

    def group_weights(self) -> np.ndarray | None:
        return self.p * self.factors if self.reports == "groups" else None

    def client_round(self, clients: Clients, now: Round) -> None:
        now.report(clients.loss_sums())
        objective = clients.weighted_mean(now.weights())
        clients.add_local_changes(now.t, self.config, lambda: now.shares, objective=objective)
