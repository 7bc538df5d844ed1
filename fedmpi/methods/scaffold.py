"""SCAFFOLD: local steps that are corrected for what a client's rows want beside all others'.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning" (2020), Algorithm 1. Each client keeps a control variate c_k, all ranks keep
c = sum_k p_k c_k. With S the clients of the round, and tau_k the local steps of client k:

    w       <- w - lr (gradient of a batch of client k at w + c - c_k),   from theta to theta_k
    c_k'     = c_k - c + (theta - theta_k) / (lr tau_k)        --variate II (less to compute)
    c_k'     = grad F_k(theta), over all its rows              --variate I
    theta   <- theta + global_lr sum_S p_k (theta_k - theta) / sum_S p_k
    c       <- c + sum_S p_k (c_k' - c_k),   c_k <- c_k'

The paper weighs clients alike, p_k = 1 / K (--shares clients): c then moves by |S| / K times the
mean over S. By default p_k = n_k / n, so that the minimum is that of FedAvg's objective, the mean
over all rows. If clients are drawn with unequal probabilities pi_k, theta moves by p_k / pi_k in
place of p_k; c stays the sum over all clients. With one full-batch step and all clients a round is
a step of one machine with all rows. Where all clients take part, c <- c + sum_k p_k (c_k' - c),
which is the same, but forgets clients whose ranks have died.
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


class Scaffold(Method):
    """Sums of p_k × change, in the change, and of p_k × (change of c_k) and of p_k beside it."""

    title = "SCAFFOLD"
    options = (
        Option(
            "variate",
            str,
            "II",
            choices=("II", "I"),
            label="variate {}",
            help="SCAFFOLD's control variate: II, from the local steps, or I, the gradient (II)",
        ),
        Option(
            "shares",
            str,
            "rows",
            choices=("rows", "clients"),
            label="shares by {}",
            help="SCAFFOLD's weights of clients: by their rows, or all clients alike (rows)",
        ),
        Option(
            "global_lr",
            default=1.0,
            above=0,
            label="η_g = {}",
            help="factor of the summed change (1)",
        ),
        *LOCAL_TRAINING,
    )
    trains_locally = True
    under_cohorts = True
    scalars = 1
    vectors = 1

    def shared_state(self, model: FlatModel) -> dict[str, Tensor]:
        return {"c": model.theta.detach().new_zeros(model.size)}

    def client_state(self, model: FlatModel) -> dict[str, Tensor]:
        return {"c": model.theta.detach().new_zeros(model.size)}

    def client_round(self, clients: Clients, now: Round) -> None:
        if now.evaluate:
            now.report(clients.loss_sums())
        config, c, variates = self.config, self.shared["c"], self.of_clients["c"]
        shares = np.full(len(clients.sizes), 1 / config.clients)
        if config.shares == "rows":
            shares = clients.sizes / now.total_rows
        sampled = self.counts_for is not None
        gradients = clients.gradients() if config.variate == "I" else None
        steps = config.local_epochs * np.maximum(1, -(-clients.sizes // config.batch_size))
        trained = clients.local_changes(
            now.t, config, correction=lambda i, drift: c - variates[clients.places[i]]
        )
        for i, change in trained:
            mine, share = variates[clients.places[i]], float(shares[i])
            clients.add(change, share * clients.counts_for[i])
            if gradients is None:
                new = mine - c - change / (config.lr * float(steps[i]))
            else:
                new = gradients[i]
            clients.model.vectors[0].add_(new - (mine if sampled else c), alpha=share)
            mine.copy_(new)
        clients.model.scalars[0] = float((shares * clients.counts_for).sum())

    def update(self, model: FlatModel) -> Tensor:
        self.shared["c"].add_(model.vectors[0])
        return model.change.mul_(self.config.global_lr / model.scalars[0])
