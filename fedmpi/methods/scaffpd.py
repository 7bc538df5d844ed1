"""Scaff-PD: FedMinMax with many local steps that do not drift.

Yu, Karimireddy, Ma, Jordan, "Scaff-PD: Communication Efficient Fair and Robust Federated Learning"
(2023), for the weights of groups. In a round the adversary steps first, with the risks r at the
theta of the round. Then, with w_a = mu_a / rho_a and r_k(theta, w) as in FedMinMax, client k takes
J_k steps, E epochs of batches, from theta_k = theta:

    mu      <- project(mu + lr_mu * (r + kappa (r - r'))),  r' the risks of the round before
    theta_k <- theta_k - lr * (grad r_k(theta_k, w) + c - c_k)
    theta   <- sum_k (n_k / n) theta_k
    c_k     <- mean of the gradients of the J_k steps,    c <- sum_k (n_k / n) c_k

c_k says where client k pulls and c where all pull, so c - c_k takes the client's own pull out of
its steps: where all clients together are at rest, each of them is, however many steps it takes.
FedMinMax with --local-epochs rests elsewhere. The step of mu is extrapolated by kappa, as in
accelerated primal-dual methods: the paper's theta_r, which is 1 for constant steps of mu. c_k and c
start at 0.

Where we differ: in the paper c_k is the gradient at the theta of the round, for which a round needs
two exchanges of vectors. Here it is that of the round before, by SCAFFOLD's option II, and a round
has one. In the paper lambda weighs clients: their steps are on their own loss, and their changes
and c_k are summed by lambda. Here mu weighs groups, of which a client may have many, so that the
weights are inside of r_k, and sums are by n_k / n. The paper has a regulariser of lambda (chi^2 in
its experiments); here mu has a floor.

With one full batch a client the c - c_k of all clients cancel in the sum: the step of one machine
with all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedmpi.methods.adversary import ADVERSARY, EPSILON, LR_MU
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.method import Round, among_the_rest
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients
    from fedmpi.models.flat import FlatModel
    from fedmpi.run.config import Config

EXTRAPOLATION = Option(
    "extrapolation",
    default=1.0,
    at_least=0,
    label="κ = {}",
    help="how far scaffpd extrapolates the groups' risks (1)",
)


class ScaffPD(FedMinMax):
    """Local epochs on the weighted risk, each step corrected by control variates."""

    title = "Scaff-PD"
    options: ClassVar[tuple[Option, ...]] = (
        EXTRAPOLATION,
        replace(LR_MU, preset="", default=0.1),  # the presets are for a hundred times the rounds
        EPSILON,
        ADVERSARY,
        *LOCAL_TRAINING,
    )
    trains_locally = True
    averages_theta = False
    whole_simplex = False
    vectors = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.weighs_next_round = False

    def start(self, counts: np.ndarray) -> None:
        super().start(counts)
        self.last = np.full(len(counts), np.nan)

    def update_weights(self, risks: np.ndarray) -> None:
        change = np.nan_to_num(risks - self.last)  # 0 in the first round
        self.last = risks.copy()
        super().update_weights(risks + self.config.extrapolation * change)

    def state(self) -> dict[str, np.ndarray]:
        return {"mu": self.mu, "last": self.last}

    def lose(self, counts: np.ndarray) -> None:
        before = self.mu
        self.start(counts)
        self.mu = among_the_rest(before, self.mu)

    def shared_state(self, model: FlatModel) -> dict[str, Tensor]:
        return {"c": model.theta.detach().new_zeros(model.size)}

    def client_state(self, model: FlatModel) -> dict[str, Tensor]:
        return {"c": model.theta.detach().new_zeros(model.size)}

    def client_round(self, clients: Clients, now: Round) -> None:
        now.report(clients.loss_sums())
        weighted_mean = clients.weighted_mean(now.weights())
        config, c, variates = self.config, self.shared["c"], self.of_clients["c"]
        sampled = self.counts_for is not None
        steps = config.local_epochs * np.maximum(1, -(-clients.sizes // config.batch_size))
        trained = clients.local_changes(
            now.t,
            config,
            weighted_mean,
            correction=lambda i, drift: c - variates[clients.places[i]],
        )
        for i, change in trained:
            share, mine = clients.sizes[i] / now.total_rows, variates[clients.places[i]]
            clients.add(change, now.shares[i])
            new = mine - c - change / (config.lr * int(steps[i]))
            # new - c sums up to the same if all take part, and forgets clients of dead ranks.
            clients.model.vectors[0].add_(new - (mine if sampled else c), alpha=share)
            mine.copy_(new)

    def update(self, model: FlatModel) -> Tensor:
        self.shared["c"].add_(model.vectors[0])
        return model.change
