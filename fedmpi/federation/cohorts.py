"""The clients of a round where not all take part: --participation, --cohort, --availability.

A cohort S of M clients is drawn uniformly and without replacement from (seed, t), so all ranks draw
the same one on any layout, and a resumed run the one that it would have drawn. With --availability
a client can take part in a round with its own probability p_k, whatever the others do, and S is
drawn from the A clients that can: all of them, without M.

Client k counts for 1 / pi_k clients in the sums of the round, where

    pi_k = p_k min(M, A) / A

is the probability to be available times that of being drawn from those that are. So sums over S are
unbiased estimates of sums over all clients (Horvitz and Thompson 1952): given who is available, the
expectation over the draws is the sum over the available ones of what they have / p_k, and the
expectation of this over who is available is the sum over all. The exact probability of inclusion,
p_k E[min(1, M / A) | k is available], would do as well, but takes a sum over all who may be.

--availability-correction no takes the cohort for a uniform draw from all K clients: pi = |S| / K.
Methods that draw their own cohorts (Method.cohort) are read like that, too.

After a death K, M (if it is a share) and S are of the clients that are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedmpi.methods.method import Method
    from fedmpi.run.config import Config

DRAWS = int.from_bytes(b"cohort", "big")


@dataclass(frozen=True)
class Cohort:
    """The clients of one round."""

    clients: np.ndarray
    """Their numbers, ascending; none, if nobody was available."""
    counts_for: np.ndarray
    """Of each client of the federation, for how many clients it counts: 1 / pi_k, 0 if absent."""
    shares: np.ndarray
    """Share of each client in a mean over the cohort: n_k / pi_k, normalised."""


class Cohorts:
    """The cohorts of a run, the same on every rank."""

    def __init__(self, method: Method, config: Config, available: np.ndarray | None = None) -> None:
        self.method, self.config = method, config
        self.sizes = np.zeros(config.clients, dtype=np.int64)
        """Rows n_k of each client, which the job fills in; 0 for clients of dead ranks."""
        self.available = available
        """Probability p_k of each client to be available; None: all are always."""

    def size(self, clients: int) -> int:
        """Number M of the clients to draw, of so many; all of them, if no number was given."""
        share, number = (self.config.options.get(name) for name in ("participation", "cohort"))
        if share is not None:
            number = max(1, round(share * clients))
        return clients if number is None else min(number, clients)

    def most(self) -> float:
        """Largest number that a client may count for, however many clients are left."""
        if self.method.has_cohorts():
            return len(self.sizes)
        least = 1.0 if self.available is None else self.available.min()
        return max(k / self.size(k) for k in range(1, len(self.sizes) + 1)) / least

    def of_round(self, t: int) -> Cohort:
        """Draw the cohort of round `t`."""
        left = np.flatnonzero(self.sizes)
        if self.method.has_cohorts():
            own = self.method.cohort(t)
            chosen = left if own is None else np.intersect1d(left, own)
            inclusion = np.full(len(chosen), len(chosen) / len(left))
        else:
            chosen, inclusion = self._draw(t, left)
        counts_for = np.zeros(len(self.sizes))
        counts_for[chosen] = 1 / inclusion
        shares = self.sizes * counts_for
        return Cohort(chosen, counts_for, shares / max(shares.sum(), 1))

    def _draw(self, t: int, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw a cohort from the clients that are `left`; return it, and its pi_k."""
        # Of each client two numbers of its own, so that no death changes those of the others.
        luck, order = np.random.default_rng([DRAWS, self.config.seed, t]).random(
            (2, len(self.sizes))
        )
        p = np.ones(len(self.sizes)) if self.available is None else self.available
        there = left[luck[left] < p[left]]
        size = min(self.size(len(left)), len(there))
        chosen = np.sort(there[np.argsort(order[there], kind="stable")[:size]])
        if self.config.options.get("availability_correction") == "no":
            return chosen, np.full(size, size / len(left))
        return chosen, p[chosen] * (size / max(len(there), 1))

    def note(self) -> str:
        """Line for the user at the start."""
        if self.method.has_cohorts():
            return "a round has a cohort of the clients, which the method draws"
        size, clients, p = self.size(len(self.sizes)), len(self.sizes), self.available
        if p is None:
            who = f"{size} of {clients} clients take part in each round, by the seed"
        else:
            corrected = self.config.options["availability_correction"] == "yes"
            often = f"its own probability, {p.min():g} to {p.max():g}"
            often += ", for which sums are corrected" if corrected else ", not corrected for"
            who = f"a client takes part in a round with {often}"
            if size < clients:
                who = f"{size} of the available clients take part; one is available with {often}"
        return f"{who}; training risks shown are of these clients' rows"
