"""Which client ranks have a mask in common: all pairs, or a random regular graph on many ranks.

A rank's masked numbers hide behind its edges. What colluders (some client ranks, and the server)
can work out from all messages are the sums over the connected components of the honest ranks'
graph, and nothing else. So the honest ranks must be connected: then only their total is known.

All pairs connect any honest ranks, whoever colludes, but cost a rank n - 1 streams a message. For
more than ALL_PAIRS ranks the graph is that of Bell, Bonawitz, Gascón, Lepoint and Raykova (2020),
"Secure Single-Server Aggregation with (Poly)Logarithmic Overhead": the ranks stand on a circle in
a random order, each joined to the k/2 next ones on either side (a Harary graph). It is simple and
k-regular.

The order is by a hash of each rank's number and a seed that no rank chooses (agreement.py). Ranks
that die leave the circle, and the others close up. Two ranks that were joined stay joined then,
so colluders cannot part honest ranks by leaving.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import perm

from fedmpi.errors import UserError

ALL_PAIRS = 64
"""Most client ranks of which all pairs have a mask in common."""
CHANCE = Fraction(1, 2**40)
"""Chance of honest ranks that are not connected, at most, if a third of the ranks collude."""


def too_few(clients: int) -> str:
    """Return a warning if masks among so many client ranks hide little, or ""; UserError for one.

    Three are the fewest of which none learns what another has to add, if they do not collude.
    """
    if clients < 2:
        raise UserError(
            "--secure: with one client rank the sum is what that rank has to add, and no mask "
            "can hide it. Use 3 client ranks or more, as mpirun -n 4."
        )
    if clients == 2:
        return (
            "--secure with two client ranks hides their sums from the server, but not from each "
            "other: each knows the total and its own part. Use 3 client ranks or more."
        )
    return ""


def neighbours(number: int, numbers: Sequence[int], seed: bytes, k: int) -> list[int]:
    """Return the ranks that rank `number` has masks in common with, in order.

    `numbers`: the ranks that are there; `k`: degree of the graph, where they are many.
    """
    if len(numbers) <= max(ALL_PAIRS, k + 1):
        return sorted(set(numbers) - {number})
    return sorted(on_circle(number, numbers, seed, k))


def on_circle(number: int, numbers: Sequence[int], seed: bytes, k: int) -> set[int]:
    """Return the k/2 ranks on either side of `number`, on the circle that `seed` orders."""
    assert k % 2 == 0 and k < len(numbers)
    circle = sorted(numbers, key=lambda n: hashlib.sha256(seed + n.to_bytes(8, "big")).digest())
    place = circle.index(number)
    steps = range(1, k // 2 + 1)
    return {circle[(place + sign * step) % len(circle)] for step in steps for sign in (-1, 1)}


@cache
def degree(n: int) -> int:
    """Return the number of neighbours of each of `n` client ranks.

    For more than ALL_PAIRS ranks it is the least even k whose `chance_of_a_split` is at most
    CHANCE with a third of the ranks colluding: 22 of 65 ranks, 26 of 100, 36 of 1,000.
    """
    if n <= ALL_PAIRS:
        return max(0, n - 1)
    return next(k for k in range(2, n, 2) if chance_of_a_split(n, k, n // 3) <= CHANCE)


def chance_of_a_split(n: int, k: int, colluding: int) -> Fraction:
    """Return a bound on the chance that the honest ranks of a k-regular circle are not connected.

    Let r = k/2, c ranks collude, and h = n - c are honest. Two honest ranks with less than r
    colluders between them are joined. So honest ranks fall apart exactly where r or more colluders
    stand in a row, and a circle falls apart where it is cut twice. (One honest rank with colluding
    neighbours alone is a case of this: r of them on either side.)

    A cut begins at a place p with an honest rank and then r colluders. Two cuts are at places p, q
    whose blocks of r + 1 places do not overlap, as one begins with an honest rank and the other has
    none further on: there are n (n - 2r - 1) / 2 such pairs of places. In a random order, 2r given
    places have colluders and 2 given places honest ranks with chance

        c (c-1) ... (c-2r+1)  h (h-1)  /  n (n-1) ... (n-2r-1)

    and the bound is the sum of this over the pairs of places. With k = 2r, the factor n - k - 1
    cancels.
    """
    honest = n - colluding
    if k >= n - 1 or colluding < k:
        return Fraction(0)  # everybody is joined, or colluders are too few for two cuts
    ways = n * honest * (honest - 1) * perm(colluding, k)
    return Fraction(ways, 2 * (n - k) * perm(n, k))
