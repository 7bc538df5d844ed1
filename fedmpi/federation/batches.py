"""Batches of the federation, --batch-rows B: a round is a step on B rows of all clients together.

Which rows are in a batch follows from the seed, the round, and each row's place among all rows of
its group, and not from who holds the row. So a federated run takes the batches of the centralized
run, in any setting and on any layout, and Lemma 2 holds for batches, too.

A batch has B_a rows of group a: half of B is shared by the groups' rows, half equally, because the
adversary may put its weight on any group; B_a is at least 1 and at most n_a. A group's rows come in
a random order, all of them before the first comes again, then in another order. So there is no
short batch; a batch may have the end of one order and the beginning of the next. Every row of a
batch counts for n_a / B_a rows, which makes the sums of losses and of gradients unbiased, for
groups, clients and cells alike.

When a rank dies and the others go on, sizes, B_a, places and orders become those of the rows that
are left. To leave the dead rank's rows out of the old batches would be unbiased, too, but a batch
could then be without a group that still has rows, and this group's risk would be taken for 0.
"""

from __future__ import annotations

import numpy as np

from fedmpi.errors import UserError

ORDERS = int.from_bytes(b"order", "big")


def batch_shares(batch_rows: int, group_sizes: np.ndarray) -> np.ndarray:
    """B_a: how many rows of each group a batch of the federation has."""
    held = group_sizes > 0
    groups = np.count_nonzero(held)
    if batch_rows < groups:
        raise UserError(
            f"--batch-rows {batch_rows}: a batch needs a row of each of the {groups} groups; give "
            f"{groups} or more."
        )
    if batch_rows >= group_sizes.sum():
        return group_sizes.copy()
    wanted = batch_rows * (group_sizes / group_sizes.sum() + held / groups) / 2
    shares = np.where(held, np.clip(wanted.astype(np.int64), 1, group_sizes), 0)
    # What rounding and small groups leave over goes where most is wanting, one row at a time.
    while shares.sum() != batch_rows:
        more = 1 if shares.sum() < batch_rows else -1
        free = held & ((shares < group_sizes) if more > 0 else (shares > 1))
        lack = np.where(free, more * (wanted - shares) / np.maximum(wanted, 1), -np.inf)
        shares[np.argmax(lack)] += more
    return shares


def places_in_groups(group: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The place of each row among all rows of its group, if the first of these is at `first`."""
    places = np.empty(len(group), dtype=np.int64)
    for a in range(len(first)):
        mine = np.flatnonzero(group == a)
        places[mine] = first[a] + np.arange(len(mine))
    return places


def places_among(rows: list[np.ndarray], group_of_row: np.ndarray) -> list[np.ndarray]:
    """The place of each of these rows among all these rows of its group, by the rows' numbers."""
    all_rows = np.sort(np.concatenate(rows))
    group = group_of_row[all_rows]
    place = places_in_groups(group, np.zeros(int(group.max(initial=0)) + 1, dtype=np.int64))
    return [place[np.searchsorted(all_rows, mine)] for mine in rows]


class Batches:
    """Which of a rank's own rows are in the batch of a round."""

    def __init__(
        self,
        seed: int,
        batch_rows: int,
        group_sizes: np.ndarray,
        group: np.ndarray,
        place: np.ndarray,
    ) -> None:
        """`group` and `place` are of this rank's rows, `group_sizes` of all rows."""
        self.seed, self.sizes = seed, group_sizes
        self.shares = batch_shares(batch_rows, group_sizes)
        self.counts_for = group_sizes / np.maximum(self.shares, 1)
        """Of each group, for how many rows a row of a batch counts: n_a / B_a."""
        self._mine = []
        for a in range(len(group_sizes)):
            rows = np.flatnonzero(group == a)
            self._mine.append((place[rows], rows))
        self._orders: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    def rows(self, t: int) -> np.ndarray:
        """This rank's rows in the batch of round t, in order; a row may be there twice."""
        found = [self._of_group(a, t) for a in np.flatnonzero(self.shares).tolist()]
        return np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)

    def _of_group(self, a: int, t: int) -> np.ndarray:
        size, share = int(self.sizes[a]), int(self.shares[a])
        if share == size:  # whatever the order, and batch after batch
            return self._mine[a][1]
        start, parts = (t - 1) * share, []
        while share:
            again, first = divmod(start, size)
            taken = min(share, size - first)
            turns, rows = self._order(a, again)
            begin, end = turns.searchsorted((first, first + taken))
            parts.append(rows[begin:end])
            start, share = start + taken, share - taken
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _order(self, a: int, again: int) -> tuple[np.ndarray, np.ndarray]:
        """The turns at which this rank's rows of a group come, and these rows in that order.

        `again` tells the orders apart in which the group's rows come, one after the other.
        """
        if (a, again) not in self._orders:
            old = [key for key in self._orders if key[0] == a and key[1] < again - 1]
            for key in old:
                del self._orders[key]
            rng = np.random.default_rng([ORDERS, self.seed, a, again])
            order = rng.permutation(int(self.sizes[a]))
            places, rows = self._mine[a]
            turn_of = np.empty_like(order)
            turn_of[order] = np.arange(len(order))
            turns = turn_of[places]
            by_turn = np.argsort(turns)
            self._orders[a, again] = turns[by_turn], rows[by_turn]
        return self._orders[a, again]
