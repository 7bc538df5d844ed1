"""DRFA, distributionally robust federated averaging: the worst client, with local epochs.

Deng, Kamani, Mahdavi, "Distributionally Robust Federated Averaging" (2020), Algorithm 1. In a round

    D       m clients, drawn by the probabilities lambda, with replacement
    theta_k E local epochs from theta, for the clients of D;  theta'_k is theta_k before one of its
            steps: at the same random place of every client's steps
    theta  <- (1/m) sum_{k in D} theta_k,   theta' <- (1/m) sum_{k in D} theta'_k
    U       m clients, drawn uniformly, without replacement
    lambda <- project(lambda + lr_mu * v),  v_k = (K/m) r_k(theta') for k in U, and 0 for the others

lambda starts at n_k / n and has no floor. The losses at the snapshot theta' stand for those along
all local steps. The server draws D and sends each client its number of draws over m; a client with
0 does no work. U and the place of the snapshot follow from the seed and the round. The losses of U
are sent at the start of the next round: three messages, as in every round here.

--draws is m (10, or K if that is less). --draws 0 draws nobody: all clients train, client k weighs
lambda_k, and all tell their losses. With one full-batch step a round that is AFL.

Where we differ: --lr-mu is the paper's tau gamma, the step of a whole round. Our clients take E
epochs, so larger clients take more steps; in the paper all take tau. Its t' counts from 1 to tau;
here, as in the authors' code, the snapshot is before step t'. r_k is over all rows of the client,
not over a batch. The authors' code also draws D without replacement, and lets gamma, which begins
at .1, fall by a tenth in every round, so that lambda comes to rest after some 40; here it is
constant, as in the paper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.methods.adversary import LR_MU
from fedmpi.methods.method import Method, Round, among_the_rest
from fedmpi.methods.option import LOCAL_TRAINING, Option
from fedmpi.methods.simplex import project_to_simplex

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.federation.clients import Clients
    from fedmpi.models.flat import FlatModel

BY_LAMBDA, UNIFORM, SNAPSHOT = (int.from_bytes(b, "big") for b in (b"drawn", b"asked", b"shot"))
"""Streams of random numbers, so that what is drawn does not depend on what else is."""


class DRFA(Method):
    """Ascent on the client weights lambda at a snapshot, local epochs of clients drawn by them."""

    title = "DRFA"
    options = (
        Option(
            "draws",
            int,
            10,
            at_least=0,
            label="m = {}",
            help="clients that DRFA draws in a round (10); 0: all, weighed by lambda itself",
        ),
        replace(LR_MU, preset="", default=0.1),  # the presets are for a hundred times the rounds
        *LOCAL_TRAINING,
    )
    trains_locally = True
    aim = "worst"
    reports = "clients"
    weighs_next_round = False
    vectors = 1

    def start(self, counts: np.ndarray) -> None:
        sizes = counts.sum(axis=0)
        self.shares = counts / np.maximum(sizes, 1)
        self.lambda_ = sizes / sizes.sum()
        self.held = sizes > 0  # all clients, until a rank dies
        self.t = np.array(0)

    def update_weights(self, risks: np.ndarray) -> None:
        self.t = self.t + 1
        if self.t > 1:  # there is no snapshot before the first round
            asked = self.held & self.asked(int(self.t), len(risks))
            v = np.where(asked, risks, 0.0) * self.held.sum() / max(asked.sum(), 1)
            moved = self.lambda_[self.held] + self.config.lr_mu * v[self.held]
            self.lambda_[self.held] = project_to_simplex(moved)

    def weights(self) -> np.ndarray:
        m, lambda_ = self.config.draws, self.lambda_ / self.lambda_.sum()
        if not m:
            return lambda_
        m = min(m, int(self.held.sum()))
        drawn = self.random(BY_LAMBDA, int(self.t)).choice(len(lambda_), m, p=lambda_)
        return np.bincount(drawn, minlength=len(lambda_)) / m

    def random(self, stream: int, t: int) -> np.random.Generator:
        return np.random.default_rng([stream, self.config.seed, t])

    def asked(self, t: int, clients: int) -> np.ndarray:
        """Whether each client tells its loss at the snapshot in round `t`: is in U."""
        m = min(self.config.draws or clients, clients)
        asked = np.zeros(clients, dtype=bool)
        asked[self.random(UNIFORM, t).choice(clients, m, replace=False)] = True
        return asked

    def group_weights(self) -> np.ndarray:
        return self.shares @ self.lambda_

    def client_weights(self) -> np.ndarray:
        return self.lambda_

    def state(self) -> dict[str, np.ndarray]:
        return {"lambda_": self.lambda_, "t": self.t}

    def lose(self, counts: np.ndarray) -> None:
        before, t = self.lambda_, self.t
        self.start(counts)
        self.lambda_, self.t = among_the_rest(before, self.lambda_), t

    def shared_state(self, model: FlatModel) -> dict[str, Tensor]:
        return {"snapshot": model.theta.detach().clone()}

    def client_round(self, clients: Clients, now: Round) -> None:
        losses = clients.loss_sums() if now.evaluate else None
        now.report(losses, self.losses_at_snapshot(clients, now.t))
        shares = now.weights()[:, 0].copy()
        config, sum_of_snapshots = self.config, clients.model.vectors[0]
        steps = config.local_epochs * -(-clients.sizes // config.batch_size)
        places = (self.random(SNAPSHOT, now.t).random() * steps).astype(int)
        done = np.zeros(len(steps), dtype=int)

        def look(i: int, drift: Tensor) -> None:
            if done[i] == places[i]:
                sum_of_snapshots.add_(drift, alpha=float(shares[i]))
            done[i] += 1

        drawn = np.flatnonzero(shares).tolist()
        for i, change in clients.local_changes(now.t, config, places=drawn, correction=look):
            clients.add(change, float(shares[i]))

    def losses_at_snapshot(self, clients: Clients, t: int) -> np.ndarray:
        """Loss sums of U's clients at the snapshot, hosted clients × groups; 0 for the others."""
        losses = np.zeros(clients.counts.T.shape)
        some = clients.among(self.asked(t, self.config.clients).astype(float))
        if some and t > 1:
            theta = clients.model.theta
            received = theta.clone()
            theta.copy_(self.shared["snapshot"])
            losses[np.isin(clients.numbers, some.numbers)] = some.loss_sums()
            theta.copy_(received)
        return losses

    def update(self, model: FlatModel) -> Tensor:
        self.shared["snapshot"].copy_(model.theta).add_(model.vectors[0])
        return model.change
