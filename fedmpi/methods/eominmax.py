"""Equal-opportunity minimax: FedMinMax among the groups of the favourable class alone.

FedMinMax makes the worst of all groups as good as can be. Equal opportunity (Hardt, Price, Srebro,
"Equality of Opportunity in Supervised Learning", 2016) asks for less: that those who should get the
favourable answer get it, whatever their value of an attribute. So here the adversary weighs the
groups P of the second class alone, and all other rows keep their share rho_a = n_a / n:

    min over theta   max over mu   sum_{a not in P} rho_a r_a(theta) + sum_{a in P} mu_a r_a(theta)

over the mu with sum_{a in P} mu_a = pi, the share of the rows of P, and mu_a >= epsilon * pi. With
nu = mu / pi on P, which starts at rho / pi,

    theta <- theta - lr * grad sum_a mu_a r_a(theta)
    nu    <- project(nu + lr_mu * r),   mu = pi * nu   on P

and all else as in FedMinMax: one step is that of one machine with all rows, --local-epochs and
cohorts are its own. A group is a value of the attribute and a class; the risks of the groups of P
stand for false negative rates. If all groups are of P it is FedMinMax.
"""

from __future__ import annotations

import numpy as np

from fedmpi.methods.adversary import ascend
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.method import among_the_rest


class EqualOpportunityMinMax(FedMinMax):
    """Ascent on the weights of the groups of the second class, within that class's share."""

    title = "Equal-opportunity minimax"
    whole_simplex = False
    needs_attribute = True

    def update_weights(self, risks: np.ndarray) -> None:
        c, mine = self.config, self.held & self.attribute.positive
        if mine.any():
            share = self.rho[mine].sum()
            nu = self.mu[mine] / share
            self.mu[mine] = share * ascend(nu, risks[mine], c.lr_mu, c.epsilon, c.adversary)

    def lose(self, counts: np.ndarray) -> None:
        before, mine = self.mu, self.attribute.positive
        self.start(counts)
        share = self.rho[mine].sum()
        if share:
            self.mu[mine] = share * among_the_rest(before[mine], self.mu[mine] / share)
