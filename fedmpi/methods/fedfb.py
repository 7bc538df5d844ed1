"""FedFB: FairBatch over the federation, which weighs groups until their rates are equal.

Zeng, Chen, Lee, "Improving Fairness via Federated Learning" (2021), after Roh, Lee, Whang, Suh,
"FairBatch: Batch Selection for Model Fairness" (2021). A group is a value z of an attribute and a
class y. Each client trains E local epochs on the mean of w_{y,z} * loss over its batches, and
theta <- sum_k (n_k / n) theta_k. The weights w start at 1, which is FedAvg, and then follow the
groups' risks r_{y,z} over the federation, at the theta of the round. With n_{y,z} rows of a group,
n_z of a value and n of all:

--fairness parity: demographic parity, the paper's own. Losses stand for errors, so that

    q_z = (n_{0,z} r_{0,z} - n_{1,z} r_{1,z} + n_{1,z}) / n_z

stands for P(predicted 1 | z). With 0 the first value of the attribute, and z the others,

    w_{0,z} <- w_{0,z} + lr_mu (n / n_z) (q_z - q_0)
    w_{0,0} <- w_{0,0} - lr_mu (n / n_0) sum_z (q_z - q_0)

within [0, 2], and w_{1,z} = 2 - w_{0,z}: what one class of a value loses the other gets.

--fairness opportunity: equal opportunity. The rows of class 1 keep their share n_1 / n, which moves
between the values of the attribute, to those with the higher risk:

    lambda <- project(lambda + lr_mu * r_{1,.})   onto {lambda >= 0, sum lambda = n_1 / n}

with w_{1,z} = lambda_z n / n_{1,z}; w_{0,z} stays 1. --fairness odds: equalized odds, the same for
both classes, each with its own share.

The rates are as equal at the end as the losses can stand for them, which may be far from equal:
docs/methods.md has figures.

Where we differ: the paper steps by the signs or the normalised differences of losses, its code by
the differences over the square root of the round. Here steps are the differences, and --lr-mu, the
paper's alpha, is constant. Its code adds n_{1,z} / n_z to q_z once for every client, here once: so
its weights go on past equal rates, and the round and alpha at which it stops decide; it bounds all
w by the share of the first value; and in its mean over clients the first client has weight 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedmpi.methods.adversary import LR_MU
from fedmpi.methods.attribute import FAIRNESS, ODDS, PARITY
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.option import LOCAL_TRAINING, Option
from fedmpi.methods.simplex import project_to_simplex


class FedFB(FedMinMax):
    """Weights of groups that follow their risks, local epochs on the weighted loss."""

    title = "FedFB"
    aim = "average"
    options: ClassVar[tuple[Option, ...]] = (
        FAIRNESS,
        replace(LR_MU, preset="", default=0.1),  # the presets are for a hundred times the rounds
        *LOCAL_TRAINING,
    )
    trains_locally = True
    averages_theta = False
    whole_simplex = False
    needs_attribute = True

    def start(self, counts: np.ndarray) -> None:
        super().start(counts)
        self.w = self.held.astype(float)

    def weights(self) -> np.ndarray:
        return self.w

    def update_weights(self, risks: np.ndarray) -> None:
        if self.config.fairness == PARITY:
            self._towards_parity(np.where(self.held, risks, 0.0))
            return
        positive = self.attribute.positive
        self._towards_the_worst(positive, risks)
        if self.config.fairness == ODDS:
            self._towards_the_worst(~positive, risks)

    def _towards_parity(self, risks: np.ndarray) -> None:
        """Move weight between the classes of each value of the attribute."""
        attribute, positive = self.attribute, self.attribute.positive
        rows = attribute.sums(self.sizes)
        errors = self.sizes * np.where(positive, 1 - risks, risks)
        q = attribute.sums(errors) / np.maximum(rows, 1)
        first = int(np.argmax(rows > 0))  # 0, until a rank dies
        gap = np.where(rows > 0, q - q[first], 0.0)
        gap[first] = -gap.sum()
        step = self.config.lr_mu * gap * self.sizes.sum() / np.maximum(rows, 1)
        of_groups = np.where(positive, -1, 1) * step[attribute.value]
        self.w = np.where(self.held, np.clip(self.w + of_groups, 0, 2), 0.0)

    def _towards_the_worst(self, mine: np.ndarray, risks: np.ndarray) -> None:
        """Move weight between the groups of one class; their share of all rows stays."""
        mine = mine & self.held
        if not mine.any():
            return
        rho = self.rho[mine]
        moved = (rho * self.w[mine] + self.config.lr_mu * risks[mine]) / rho.sum()
        self.w[mine] = project_to_simplex(moved) * rho.sum() / rho

    def group_weights(self) -> np.ndarray:
        return self.rho * self.w

    def state(self) -> dict[str, np.ndarray]:
        return {"w": self.w}

    def lose(self, counts: np.ndarray) -> None:
        before = self.w
        self.start(counts)
        self.w = np.where(self.held, before, 0.0)
