"""q-FedAvg: clients with a higher loss pull harder, by the power q.

Li, Sanjabi, Beirami, Smith, "Fair Resource Allocation in Federated Learning" (2020), Algorithm 2.
With F_k client k's mean loss at the theta it received, and theta_k after its local epochs:

    g_k     = (theta - theta_k) / lr
    Delta_k = F_k^q g_k
    h_k     = q F_k^(q-1) ||g_k||^2 + F_k^q / lr
    theta  <- theta - sum_k Delta_k / sum_k h_k

At q = 0 this is the uniform mean of the clients' models, whatever their sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedmpi.methods.method import Method

if TYPE_CHECKING:
    from fedmpi.clients import Clients
    from fedmpi.exchange import Exchange
    from fedmpi.flat import FlatModel


class QFedAvg(Method):
    """The sums over clients are of Delta_k and of h_k, which travels beside it."""

    options = ("q", "local_epochs", "batch_size")
    local_epochs = True
    scalars = 1

    def client_round(self, clients: Clients, exchange: Exchange) -> None:
        losses = clients.loss_sums()
        exchange.report(losses)
        q, lr, sum_h = self.config.q, self.config.lr, 0.0
        F = losses.sum(axis=1) / clients.sizes
        for i, change in clients.local_changes(exchange.round, self.config):
            if F[i] == 0 and q > 0:
                continue  # the limit: Delta and h are 0, though below q = 1 F^(q-1) is infinite
            g_squared = float(change.double().square().sum()) / lr**2
            sum_h += q * F[i] ** (q - 1) * g_squared + F[i] ** q / lr
            clients.add(change, F[i] ** q / lr)
        clients.model.scalars[0] = sum_h

    def apply(self, model: FlatModel) -> None:
        if model.scalars[0] > 0:  # 0 only where no client has a loss
            model.theta.add_(model.change.div_(model.scalars[0]))
