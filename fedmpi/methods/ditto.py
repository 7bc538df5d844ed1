"""Ditto: FedAvg, and beside it a model of each client's own, held near the global one.

Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization" (2021),
Algorithm 1, with FedAvg for the global theta. Client k minimises F_k(v) + pull / 2 ||v - theta||^2:

    theta_k = E epochs of minibatch SGD from theta on client k's mean loss
    v_k    <- E epochs on the same batches, v <- v - lr (gradient + pull (v - theta)), from v_k
    theta  <- sum_k (n_k / n) theta_k

v_k starts at the first theta, and moves in the rounds in which client k takes part. The global
model is FedAvg's, bit for bit. At pull = 0 every client trains alone; the larger the pull, the
nearer are the personal models to the global one (lr × pull must stay below 2).

A personal model is a vector of theta's size that its client's rank keeps, and that checkpoints
have. At the end the personal models are scored by group, each on rows of its own client:
docs/methods.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedmpi.methods.fedavg import FedAvg
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients
    from fedmpi.methods.method import Round
    from fedmpi.models.flat import FlatModel


class Ditto(FedAvg):
    """FedAvg, and the personal models as state of the clients."""

    title = "Ditto"
    options = (
        Option(
            "personal_pull",
            default=1.0,
            at_least=0,
            grid=(0.1, 1.0, 2.0),
            label="λ = {}",
            variant="λ={}",
            help="Ditto's lambda, the pull of a client's own model to the global one (1)",
        ),
        *LOCAL_TRAINING,
    )
    personal = "v"

    def client_state(self, model: FlatModel) -> dict[str, Tensor]:
        return {"v": model.theta.detach().clone()}

    def client_round(self, clients: Clients, now: Round) -> None:
        super().client_round(clients, now)
        theta = clients.model.theta
        received = theta.clone()
        for i, place in enumerate(clients.places):
            self.train_own(clients, now.t, i, self.of_clients["v"][place], received)
        theta.copy_(received)

    def train_own(self, clients: Clients, t: int, i: int, own: Tensor, received: Tensor) -> None:
        """Train the `own` model of the i-th client, in place; the model's theta is then another."""
        pull, away = self.config.personal_pull, own - received
        clients.model.theta.copy_(own)
        trained = clients.local_changes(
            t, self.config, places=[i], correction=lambda i, drift: drift.add_(away).mul_(pull)
        )
        for _, change in trained:
            own.add_(change)
