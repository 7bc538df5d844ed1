"""FedAvg: E local epochs, then the mean of the models by rows.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks
from Decentralized Data" (2017), with every client in every round:

    theta_k = E epochs of minibatch SGD from theta on client k's mean loss
    theta  <- sum_k (n_k / n) theta_k
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

    def client_round(self, clients: Clients, now: Round) -> None:
        if now.evaluate:
            now.report(clients.loss_sums())
        shares = clients.sizes / now.total_rows
        clients.add_local_changes(now.t, self.config, lambda: shares)
