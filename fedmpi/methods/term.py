"""TERM: an exponential tilt towards the clients, or the rows, with a high loss.

Li, Beirami, Sanjabi, Smith, "Tilted Empirical Risk Minimization" (2021). With F_k the mean loss of
client k at the theta received, and theta_k after its local epochs:

    theta <- sum_k v_k theta_k,   v_k proportional to (n_k / n) exp(t F_k)

The weights v are used in the same round: the losses are gathered before the local training, and the
weights have arrived when the training is done. t = 0 is FedAvg, a large t follows the worst client.

`--tilt-level sample` tilts over rows instead: the local objective of a batch is
(1/t) log mean exp(t loss), and the models are averaged as in FedAvg. Where all clients are alike
(ESG) a tilt over clients can do nothing, but a tilt over rows can.

In a cohort S whose client k is drawn with probability pi_k, v is normalised over S:

    v_k proportional to (n_k / pi_k) exp(t F_k), k in S

The normaliser sum_k (n_k / n) exp(t F_k) of all clients has an unbiased estimate in S, but v, a
quotient, has not: a cohort of one client has no tilt at all. To divide by an estimate from former
rounds instead, as the source's stochastic solver for rows does, would be of an older theta.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients
    from fedmpi.run.config import Config


class TERM(Method):
    """Tilt over clients, taken by the server, or over rows, taken by the clients."""

    title = "TERM"
    options = (
        Option(
            "tilt",
            default=1.0,
            at_least=0,
            grid=(0.01, 0.1, 0.5, 0.8, 1.0),
            label="t = {}",
            variant="t={}",
            help="TERM's t (1)",
        ),
        Option(
            "tilt_level",
            str,
            "client",
            choices=("client", "sample"),
            label="{} tilt",
            variant={"sample": "rows"},
            help="what TERM tilts: client or sample (client)",
        ),
        *LOCAL_TRAINING,
    )
    trains_locally = True
    under_cohorts = True
    weighs_next_round = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.reports = "clients" if config.tilt_level == "client" else None

    def start(self, counts: np.ndarray) -> None:
        sizes = counts.sum(axis=0)
        self.share = sizes / sizes.sum()
        self.tilted = self.share

    def update_weights(self, risks: np.ndarray) -> None:
        share = self.unbiased(self.share)
        with np.errstate(divide="ignore"):  # a client that is dead, or absent, has share 0
            exponent = np.log(share) + self.config.tilt * np.where(share > 0, risks, 0.0)
        unscaled = np.exp(exponent - exponent.max())  # the maximum out, so that none overflows
        self.tilted = unscaled / unscaled.sum()

    def weights(self) -> np.ndarray:
        return self.tilted

    def client_weights(self) -> np.ndarray | None:
        return self.tilted if self.reports else None

    def client_round(self, clients: Clients, now: Round) -> None:
        if self.reports or now.evaluate:
            now.report(clients.loss_sums())
        if self.reports:
            clients.add_local_changes(now.t, self.config, lambda: now.weights()[:, 0])
            return
        for i, change in clients.local_changes(now.t, self.config, self.tilted_loss):
            clients.add(change, now.shares[i])

    def tilted_loss(self, losses: Tensor, cell: Tensor) -> Tensor:
        """Tilted loss (1/t) log mean exp(t loss) of a batch; the batch's mean loss at t = 0."""
        t = self.config.tilt
        if t == 0:
            return losses.mean()
        return ((t * losses).logsumexp(dim=0) - math.log(len(losses))) / t
