"""FairFed: clients whose own fairness is near that of the whole federation weigh more.

Ezzeldin, Yan, He, Ferrara, Avestimehr, "FairFed: Enabling Group Fairness in Federated Learning"
(2021). A group is a value of an attribute and a class. With F_k the fairness of theta on the rows
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
it has. The paper does not say what a negative omega_k is to do; here it is 0. In its experiments
clients also take bias out of their rows before they train; here they train as in FedAvg.
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
        return np.repeat(self.omega[:, None], self.counts.shape[1], axis=1)

    def client_weights(self) -> np.ndarray:
        return self.omega

    def state(self) -> dict[str, np.ndarray]:
        return {"omega": self.omega}

    def client_round(self, clients: Clients, now: Round) -> None:
        losses = clients.loss_sums() if now.evaluate else None
        now.report(losses, clients.count_predicted(POSITIVE))
        clients.add_local_changes(now.t, self.config, lambda: now.weights()[:, 0])


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
