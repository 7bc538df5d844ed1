"""FedAvg: E local epochs, then the mean of the models by rows.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks
from Decentralized Data" (2017), with every client in every round:

    theta_k = E epochs of minibatch SGD from theta on client k's mean loss
    theta  <- sum_k (n_k / n) theta_k

In a cohort S the mean is over its clients, as there: theta <- sum_{k in S} (n_k / n_S) theta_k. It
has weights that sum to one, so it is no unbiased estimate of the mean over all clients, but nearly
one if S is large. If clients are drawn with unequal probabilities pi_k, n_k / pi_k takes the place
of n_k, unless --availability-correction is no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from fedmpi.federation.clients import Clients


class FedAvg(Method):
    """The baseline without fairness."""

    title = "FedAvg"
    options: ClassVar[tuple[Option, ...]] = LOCAL_TRAINING
    trains_locally = True
    under_cohorts = True

    def client_round(self, clients: Clients, now: Round) -> None:
        if now.evaluate:
            now.report(clients.loss_sums())
        clients.add_local_changes(now.t, self.config, lambda: now.shares)
