"""FedProx: FedAvg whose clients are held near the model that they received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks"
(2020), Algorithm 2, with E local epochs as every client's inexact solver:

    theta_k = E epochs of minibatch SGD from theta on F_k(w) + mu_prox / 2 ||w - theta||^2
    theta  <- sum_k (n_k / n) theta_k

A step is w <- w - lr (gradient of the batch + mu_prox (w - theta)). At mu_prox = 0 it is FedAvg,
bit for bit. The paper's stragglers, who do fewer epochs than the others, are not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients


class FedProx(Method):
    """Local epochs with a pull back to the model that the clients received."""

    title = "FedProx"
    options = (
        Option(
            "mu_prox",
            default=0.1,
            at_least=0,
            grid=(0.001, 0.01, 0.1, 1.0),
            label="μ_prox = {}",
            variant="μ={}",
            help="FedProx's pull of local models to the model received (.1)",
        ),
        *LOCAL_TRAINING,
    )
    trains_locally = True
    under_cohorts = True

    def client_round(self, clients: Clients, now: Round) -> None:
        if now.evaluate:
            now.report(clients.loss_sums())
        pull = self.pull if self.config.mu_prox else None
        clients.add_local_changes(now.t, self.config, lambda: now.shares, correction=pull)

    def pull(self, i: int, drift: Tensor) -> Tensor:
        """Gradient of mu_prox / 2 ||drift||^2."""
        return drift.mul_(self.config.mu_prox)
