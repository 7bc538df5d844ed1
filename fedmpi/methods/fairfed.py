"""FairFed: clients whose own fairness is near that of the whole federation weigh more.

Ezzeldin, Yan, He, Ferrara, Avestimehr, "FairFed: Enabling Group Fairness in Federated Learning"
(AAAI 2023; arXiv 2110.00857v3, whose first versions had exp(-beta Delta_k) n_k in place of
omega_k). A group is a value of an attribute and a class. With F_k the fairness of theta on the rows
of client k, and F on all rows, from sums; and likewise the accuracies Acc_k and Acc:

    Delta_k = |F - F_k|,  or |Acc - Acc_k| where client k has no rows that F_k is made of
    omega_k <- omega_k - beta (Delta_k - mean of Delta),   then max(omega_k, 0), normalised
    theta   <- sum_k omega_k theta_k,   theta_k after E local epochs from theta

omega starts at n_k / n, so beta = 0 is FedAvg. F is the difference between the two values of the
attribute in how many rows are predicted to be of the second class:

--fairness opportunity  of the rows that are of it: EOD, the equal opportunity difference
--fairness parity       of all rows: SPD, the statistical parity difference
--fairness odds         the mean of the differences among the rows of either class; not in the paper

With more than two values F is the largest rate minus the smallest, at a client of the values that
it has. The paper does not say what a negative omega_k is to do; here it is 0. Others take beta = 1
for some 5 clients, where omega_k is .2 in the mean; with the 40 that are usual here most omega_k
would be 0 at once, so --beta is .1.

In the paper's experiments clients also take bias out of their rows, by weights of Kamiran and
Calders (2012): --debias reweigh. A row with value z and class y at client k then weighs

    n_{k,z} n_{k,y} / (n_k n_{k,z,y}),   over the mean of this over the rows of client k

so that at each client the class does not depend on the value. Without it they train as in FedAvg.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.methods.attribute import FAIRNESS, ODDS, OPPORTUNITY, PARITY, Attribute
from fedmpi.methods.method import Method, Round
from fedmpi.methods.option import LOCAL_TRAINING, Option

if TYPE_CHECKING:
    from fedmpi.federation.clients import Clients

NONE, REWEIGH = "none", "reweigh"

POSITIVE = 1
"""The class whose predictions are counted: the second."""


class FairFed(Method):
    """Weights of clients that follow their gap in fairness, local epochs."""

    title = "FairFed"
    options = (
        Option(
            "beta",
            default=0.1,
            at_least=0,
            grid=(0.01, 0.05, 0.1, 0.5, 1.0),
            label="β = {}",
            help="FairFed's step of the clients' weights (.1)",
        ),
        replace(FAIRNESS, default=OPPORTUNITY, variant={PARITY: "parity", ODDS: "odds"}),
        Option(
            "debias",
            str,
            NONE,
            choices=(NONE, REWEIGH),
            label={NONE: "rows as they are", REWEIGH: "reweighed rows"},
            variant={REWEIGH: "reweighed"},
            help="what FairFed's clients do about bias in their own rows: none or reweigh (none)",
        ),
        *LOCAL_TRAINING,
    )
    trains_locally = True
    reports = "cells"
    weighs_next_round = False
    needs_attribute = True

    def start(self, counts: np.ndarray) -> None:
        self.counts = counts.T
        self.sizes = counts.sum(axis=0)
        self.omega = self.sizes / self.sizes.sum()

    def update_weights(self, rates: np.ndarray) -> None:
        """Step omega, given the share of each cell's rows that are predicted to be positive."""
        held = self.sizes > 0
        chosen = np.where(self.counts > 0, rates, 0.0) * self.counts
        gaps = self._gaps(chosen[held])
        self.omega[held] -= self.config.beta * (gaps - gaps.mean())
        self.omega = np.maximum(self.omega, 0.0)
        self.omega /= self.omega.sum()

    def _gaps(self, chosen: np.ndarray) -> np.ndarray:
        """Delta_k, from the rows of each cell that are predicted to be positive."""
        counts = self.counts[self.sizes > 0]
        kind, attribute = self.config.fairness, self.attribute
        right = np.where(attribute.positive, chosen, counts - chosen).sum(axis=1)
        rows = counts.sum(axis=1)
        gaps = np.abs(right / rows - right.sum() / rows.sum())
        of_clients = fairness(kind, attribute, chosen, counts)
        of_all = fairness(kind, attribute, chosen.sum(axis=0), counts.sum(axis=0))
        known = ~np.isnan(of_clients - of_all)
        gaps[known] = np.abs(of_clients - of_all)[known]
        return gaps

    def weights(self) -> np.ndarray:
        """Weight of a row of each cell in the sum over clients, times the client's rows."""
        factors = np.ones(self.counts.shape)
        if self.config.debias == REWEIGH:
            factors = independence(self.attribute, self.counts)
        return self.omega[:, None] * factors

    def client_weights(self) -> np.ndarray:
        return self.omega

    def state(self) -> dict[str, np.ndarray]:
        return {"omega": self.omega}

    def client_round(self, clients: Clients, now: Round) -> None:
        losses = clients.loss_sums() if now.evaluate else None
        now.report(losses, clients.count_predicted(POSITIVE))
        if self.config.debias == NONE:
            clients.add_local_changes(now.t, self.config, lambda: now.weights()[:, 0])
            return
        weights = now.weights()
        omega = (weights * clients.counts.T).sum(axis=1) / np.maximum(clients.sizes, 1)
        rows = weights / np.where(omega > 0, omega, 1)[:, None]
        objective = clients.weighted_mean(rows)
        clients.add_local_changes(now.t, self.config, lambda: omega, objective=objective)


def independence(attribute: Attribute, counts: np.ndarray) -> np.ndarray:
    """Weights of the rows of each cell (clients × groups) that make value and class independent.

    The mean over the rows of a client is 1.
    """
    of_value = attribute.sums(counts)[:, attribute.value]
    positive = (counts * attribute.positive).sum(axis=1, keepdims=True)
    sizes = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    of_class = np.where(attribute.positive, positive, sizes - positive)
    factors = np.where(counts > 0, of_value * of_class / (sizes * np.maximum(counts, 1)), 0.0)
    means = (factors * counts).sum(axis=1, keepdims=True) / sizes
    return factors / np.where(means > 0, means, 1)


def fairness(kind: str, attribute: Attribute, chosen: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """F of the numbers of rows by group (last axis) that are predicted positive, and of all rows.

    NaN where there are not rows of two values.
    """
    if kind == ODDS:
        classes = (attribute.positive, ~attribute.positive)
        return np.mean([spread(attribute, chosen * c, counts * c) for c in classes], axis=0)
    of = attribute.positive if kind == OPPORTUNITY else np.ones(len(attribute.positive))
    return spread(attribute, chosen * of, counts * of)


def spread(attribute: Attribute, chosen: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How far the rates of the attribute's values are apart; NaN with rows of fewer than two."""
    chosen, counts = attribute.sums(chosen), attribute.sums(counts)
    rates = np.full(counts.shape, np.nan)
    np.divide(chosen, counts, out=rates, where=counts > 0)
    if attribute.values == 2:
        return rates[..., 0] - rates[..., 1]
    several = (counts > 0).sum(axis=-1) > 1
    largest = np.where(counts > 0, rates, -np.inf).max(axis=-1)
    smallest = np.where(counts > 0, rates, np.inf).min(axis=-1)
    return np.where(several, largest - smallest, np.nan)
