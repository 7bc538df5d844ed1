"""PropFair: proportional fairness between clients, by the logarithm of what each has gained.

Zhang, Malekmohammadi, Chen, Yu, "Proportional Fairness in Federated Learning" (2022), Algorithm 1.
A client's utility is how far its loss is below a baseline M; the product of all utilities, each to
the power of its share, is to be largest:

    max sum_k (n_k / n) log(M - F_k(theta))

    theta_k = E epochs of minibatch SGD from theta on -log_eps(M - F), F the batch's mean loss
    theta  <- sum_k (n_k / n) theta_k

log_eps(u) is log u where u >= eps, and below that its tangent at eps, log eps + (u - eps) / eps: a
batch whose loss comes near M, or is above it, has a finite gradient. A step is that of FedAvg times
1 / max(M - F, eps), so a client with a higher loss takes longer steps. A large M is FedAvg with a
step of lr / M.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients


class PropFair(Method):
    """FedAvg whose clients descend on minus the logarithm of their utility."""

    title = "PropFair"
    options = (
        Option(
            "baseline",
            default=5.0,
            above=0,
            grid=(2.0, 3.0, 4.0, 5.0),
            label="M = {}",
            variant="M={}",
            help="PropFair's M, the loss of which a client has no use (5)",
        ),
        Option(
            "log_floor",
            default=0.2,
            above=0,
            label="ε_log = {}",
            help="PropFair's eps, below which its logarithm goes on straight (.2)",
        ),
        *LOCAL_TRAINING,
    )
    trains_locally = True
    under_cohorts = True

    def client_round(self, clients: Clients, now: Round) -> None:
        if now.evaluate:
            now.report(clients.loss_sums())
        clients.add_local_changes(now.t, self.config, lambda: now.shares, objective=self.disutility)

    def disutility(self, losses: Tensor, cell: Tensor) -> Tensor:
        """Minus log_eps(M - F) of a batch."""
        eps = self.config.log_floor
        utility = self.config.baseline - losses.mean()
        if utility < eps:
            return (eps - utility) / eps - math.log(eps)
        return -utility.log()
