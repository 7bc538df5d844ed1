"""q-FedAvg: clients with a higher loss pull harder, by the power q.

Li, Sanjabi, Beirami, Smith, "Fair Resource Allocation in Federated Learning" (2020), Algorithm 2.
With F_k the mean loss of client k at the theta received, and theta_k after its local epochs:

    g_k     = (theta - theta_k) / lr
    Delta_k = F_k^q g_k
    h_k     = q F_k^(q-1) ||g_k||^2 + F_k^q / lr
    theta  <- theta - sum_k Delta_k / sum_k h_k

At q = 0 the new theta is the uniform mean of the clients' models, whatever the clients' sizes.

In a cohort both sums are over its clients, as in the source, which draws clients by their sizes and
not uniformly; with unequal probabilities pi_k the sums are of Delta_k / pi_k and h_k / pi_k. Each
sum is unbiased, but for a factor of both; their quotient is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients
    from fedmpi.models.flat import FlatModel


class QFedAvg(Method):
    """Sums over the clients of Delta_k, in the change, and of h_k, in the scalar beside it."""

    title = "q-FedAvg"
    options = (
        Option(
            "q",
            default=0.2,
            at_least=0,
            grid=(0.2, 0.5, 1.0, 2.0, 5.0),
            label="q = {}",
            variant="q={}",
            help="q-FedAvg's exponent (.2)",
        ),
        *LOCAL_TRAINING,
    )
    trains_locally = True
    under_cohorts = True
    scalars = 1

    def client_round(self, clients: Clients, now: Round) -> None:
        losses = clients.loss_sums()
        now.report(losses)
        q, lr = self.config.q, self.config.lr
        F = losses.sum(axis=1) / clients.sizes
        weights, squares = F**q * clients.counts_for, np.empty(len(F))
        clients.add_local_changes(now.t, self.config, lambda: weights / lr, squares)
        h = weights / lr
        some = F > 0  # else the limit is 0, though below q = 1 F^(q-1) is infinite
        squares *= clients.counts_for
        h[some] += q * F[some] ** (q - 1) * squares[some] / lr**2
        clients.model.scalars[0] = float(h.sum())

    def update(self, model: FlatModel) -> Tensor:
        if model.scalars[0] > 0:  # 0 only where no client has a loss
            return model.change.div_(model.scalars[0])
        return model.change.zero_()
