"""Who holds which rows: the settings ESG, PSG and SSG of the paper. settings.py has the others."""

import hashlib
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.errors import UserError, unknown_name

if TYPE_CHECKING:
    from fedmpi.data.dataset import Dataset

SETTINGS = ("ESG", "PSG", "SSG")
OWNED = "owners"
"""Name in place of a setting, where the data say who holds which row."""

# Keeps these generators apart from others made of a seed and a small number:
# to numpy, default_rng(seed) and default_rng([seed, 0]) are the same stream.
STREAM = int.from_bytes(b"rows", "big")


@dataclass(frozen=True, eq=False)
class Partition:
    """Each row's client, and the sizes n_{a,k} that follow from it."""

    setting: str
    groups: tuple[str, ...]
    client_of_row: np.ndarray
    """int32, a client number for each row."""
    counts: np.ndarray
    """int64, groups x clients: n_{a,k}."""
    names: tuple[str, ...] = ()
    """Names of the clients, where they have any."""

    @property
    def clients(self) -> int:
        """Number of clients, K."""
        return self.counts.shape[1]

    @property
    def client_sizes(self) -> np.ndarray:
        """Rows of each client, n_k."""
        return self.counts.sum(axis=0)

    @property
    def group_sizes(self) -> np.ndarray:
        """Rows of each group, n_a."""
        return self.counts.sum(axis=1)

    @property
    def total(self) -> int:
        """Number of all rows, n."""
        return int(self.counts.sum())

    @property
    def shares(self) -> np.ndarray:
        """P_A, groups x clients: the share n_{a,k}/n_k of each group in each client."""
        return self.counts / self.client_sizes

    def rows_of(self, client: int) -> np.ndarray:
        """The rows of one client, ascending."""
        return self._rows_by_client[self._starts[client] : self._starts[client + 1]]

    @cached_property
    def _rows_by_client(self) -> np.ndarray:
        # numpy sorts small integers by radix, six times faster than int32.
        small = self.client_of_row.astype(np.min_scalar_type(self.clients - 1))
        return np.argsort(small, kind="stable")

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.client_sizes)])

    def without(self, clients: Sequence[int]) -> "Partition":
        """Return the partition without the rows of these clients, whose numbers stay unused."""
        counts = self.counts.copy()
        counts[:, list(clients)] = 0
        left = self.client_of_row[~np.isin(self.client_of_row, list(clients))]
        return replace(self, client_of_row=left, counts=counts)

    def without_groups(self, groups: Sequence[int]) -> "Partition":
        """Return the partition without the rows of these groups, whose numbers stay unused.

        Which client holds each row is no longer known: use it where rows are already allocated.
        """
        if not groups:
            return self
        counts = self.counts.copy()
        counts[list(groups)] = 0
        return replace(self, client_of_row=self.client_of_row[:0], counts=counts)

    def digest(self) -> str:
        """SHA-256 of who holds what: a checkpoint continues only on the same partition."""
        sha256 = hashlib.sha256(np.array(self.counts.shape, dtype="<i8").tobytes())
        sha256.update(self.counts.astype("<i8").tobytes())
        sha256.update(self.client_of_row.astype("<i4", copy=False).data)
        return sha256.hexdigest()

    def summary(self) -> str:
        """A few lines for people, whatever the number of clients."""
        sizes, held = self.client_sizes, np.count_nonzero(self.counts, axis=0)
        of_groups = f"{held.min()}" if held.min() == held.max() else f"{held.min()} to {held.max()}"
        holders = "; ".join(
            f"{name}: {rows:,} ({np.count_nonzero(by_client):,})"
            for name, rows, by_client in zip(
                self.groups, self.group_sizes, self.counts, strict=True
            )
        )
        return "\n".join(
            [
                f"{self.setting}: {self.total:,} rows, {self.clients:,} clients",
                f"  rows per client: min {sizes.min():,}, median {np.median(sizes):,.0f}, "
                f"max {sizes.max():,}; groups per client: {of_groups} of {len(self.groups)}",
                textwrap.fill(
                    f"rows of each group (clients): {holders}",
                    width=100,
                    initial_indent="  ",
                    subsequent_indent="    ",
                ),
            ]
        )


def partition(
    group_of_row: np.ndarray,
    groups: tuple[str, ...],
    clients: int,
    setting: str,
    dataset: "Dataset",
    *,
    skew: float,
    seed: int,
    limited: bool = False,
) -> Partition:
    """Give each row to one client; `dataset` says which groups go where in PSG and SSG.

    ESG allocates every group evenly. PSG and SSG draw the shares of a group's holders from a
    Dirichlet(skew) distribution, at least one row each. `limited`: these rows are some of a
    dataset's (--limit-train), which decides what is advised where they are too few.
    """
    if clients < 1:
        raise UserError(f"{clients} clients: use --clients 1 or more.")
    if not (skew > 0 and math.isfinite(skew)):
        raise UserError(f"--skew {skew}: use a number above 0, such as 50.")
    group_of_row = np.asarray(group_of_row)
    group_sizes = np.bincount(group_of_row, minlength=len(groups))
    holders = _holders(setting, groups, clients, dataset)
    if any(rows < len(held_by) for rows, held_by in zip(group_sizes, holders, strict=True)):
        raise _too_few_rows(setting, groups, clients, dataset, group_sizes, limited)

    client_of_row = np.empty(len(group_of_row), dtype=np.int32)
    counts = np.zeros((len(groups), clients), dtype=np.int64)
    allocated = 0
    for a, held_by in enumerate(holders):
        # Seeded by group, so that a group is split the same whatever the others are.
        rng = np.random.default_rng([STREAM, seed, a])
        rows = rng.permutation(np.flatnonzero(group_of_row == a))
        if setting == "ESG":
            # As cards are dealt: each group starts after the client where the one before ended.
            counts[a] = len(rows) // clients
            counts[a, (allocated + np.arange(len(rows) % clients)) % clients] += 1
            allocated += len(rows)
        else:
            # Above 1e32 the shares are equal in float64; near 1e305 their sum overflows.
            shares = rng.dirichlet(np.full(len(held_by), min(skew, 1e100)))
            counts[a, held_by.start : held_by.stop] = largest_remainder(shares, len(rows))
        client_of_row[rows] = np.repeat(np.arange(clients, dtype=np.int32), counts[a])
    return Partition(setting, groups, client_of_row, counts)


def from_clients(
    setting: str,
    client_of_row: np.ndarray,
    clients: int,
    group_of_row: np.ndarray,
    groups: tuple[str, ...],
    names: tuple[str, ...] = (),
) -> Partition:
    """Return the partition in which each row is of the client that is given for it."""
    counts = np.zeros((len(groups), clients), dtype=np.int64)
    np.add.at(counts, (group_of_row, client_of_row), 1)
    return Partition(setting, groups, client_of_row.astype(np.int32), counts, names)


def single_client(group_of_row: np.ndarray, groups: tuple[str, ...]) -> Partition:
    """Return the partition of one client that holds everything, as `centralized` has it."""
    counts = np.bincount(group_of_row, minlength=len(groups)).reshape(-1, 1)
    client_of_row = np.zeros(len(group_of_row), dtype=np.int32)
    return Partition("centralized", groups, client_of_row, counts.astype(np.int64))


def as_owned(counts: np.ndarray, groups: tuple[str, ...], names: tuple[str, ...]) -> Partition:
    """Return the partition among clients that the data name, whose rows are in their order.

    `counts` is groups x clients.
    """
    client_of_row = np.repeat(np.arange(len(names), dtype=np.int32), counts.sum(axis=0))
    return Partition(OWNED, groups, client_of_row, counts.astype(np.int64), names)


def spread_clients(shares: Sequence[int], clients: int) -> list[int]:
    """Scale the clients per group in SSG to `clients`, by largest remainder, at least one each."""
    if clients < len(shares):
        raise UserError(
            f"SSG gives each client one group, but there are {clients} clients for "
            f"{len(shares)} groups: use --clients {len(shares)} or more, or --setting ESG."
        )
    return largest_remainder(np.array(shares, dtype=np.float64), clients).tolist()


def _holders(
    setting: str, groups: tuple[str, ...], clients: int, dataset: "Dataset"
) -> list[range]:
    """Return the clients that hold each group, which are neighbours in every setting."""
    if setting == "ESG":
        return [range(clients)] * len(groups)
    if setting == "PSG":
        if len(groups) <= 2:
            number = "two groups" if len(groups) == 2 else "one group"
            raise UserError(f"PSG on {number} is the same as SSG: use --setting SSG.")
        if clients < 2:
            raise UserError(
                f"PSG gives each half of the clients its own groups, but there is {clients} "
                "client: use --clients 2 or more, or --setting ESG."
            )
        half = (clients + 1) // 2
        first, _ = dataset.psg_blocks(groups)
        return [range(half) if a in first else range(half, clients) for a in range(len(groups))]
    if setting == "SSG":
        ends = np.cumsum([0, *dataset.ssg_clients(groups, clients)]).tolist()
        return [range(start, end) for start, end in pairwise(ends)]
    raise unknown_name("setting", setting, SETTINGS)


def _too_few_rows(
    setting: str,
    groups: tuple[str, ...],
    clients: int,
    dataset: "Dataset",
    group_sizes: np.ndarray,
    limited: bool,
) -> UserError:
    """Return the error for a group with too few rows for its clients, with what would work."""

    def short_of(setting: str, clients: int) -> np.ndarray:
        held_by = _holders(setting, groups, clients, dataset)
        return np.array([len(some) for some in held_by]) - group_sizes

    def most_clients(setting: str) -> int | None:
        fewer = min(clients, int(group_sizes.sum()))
        while fewer > 1:
            try:
                if short_of(setting, fewer).max() <= 0:
                    return fewer
            except UserError:
                return None
            fewer -= max(1, fewer // 1000)  # exact where it matters, and soon done where not
        return None

    short = short_of(setting, clients)
    a = int(short.argmax())
    problem = (
        f"group {groups[a]!r} has {_plural(group_sizes[a], 'row')} to train, but in {setting} "
        f"{_plural(group_sizes[a] + short[a], 'client')} of {clients} must hold at least one: "
    )
    others = [other for other in SETTINGS if other != setting]
    options = [
        f"--setting {name} --clients {most}"
        for name in (setting, *others)
        if (most := most_clients(name))
    ]
    if limited:
        options.insert(0, "a larger --limit-train")
    elif "min_group_rows" in dataset.uses:
        sizes = ", ".join(f"{name} {n:,}" for name, n in zip(groups, group_sizes, strict=True))
        problem = f"{problem.removesuffix(': ')} (rows to train: {sizes}): "
        if least := _least_rows(setting, groups, clients, dataset, group_sizes):
            left_out = ", ".join(np.array(groups)[group_sizes < least].tolist())
            options.append(f"--min-group-rows {least} (without {left_out})")
            if "merge_small" in dataset.uses and np.count_nonzero(group_sizes < least) > 1:
                options.append(f"--merge-small {least} (one group of {left_out})")
    if options:
        return UserError(f"{problem}use {' or '.join(options)}.")
    return UserError(f"{problem}merge it with another group, or leave it out.")


def _least_rows(
    setting: str,
    groups: tuple[str, ...],
    clients: int,
    dataset: "Dataset",
    group_sizes: np.ndarray,
) -> int | None:
    """The smallest --min-group-rows with which the groups that are left have rows enough."""
    for least in (np.unique(group_sizes)[:-1] + 1).tolist():
        stay = group_sizes >= least
        left = tuple(np.array(groups)[stay].tolist())
        try:
            held_by = _holders(setting, left, clients, dataset)
        except UserError:
            return None
        if all(n >= len(some) for n, some in zip(group_sizes[stay], held_by, strict=True)):
            return least
    return None


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def largest_remainder(shares: np.ndarray, total: int, least: int = 1) -> np.ndarray:
    """Return whole numbers of sum `total` in proportion to `shares`, at least `least` (0, 1) each.

    Shares of less than that are raised to it, and the others share what is left.
    """
    counts = np.full(len(shares), least, dtype=np.int64)
    if total == least * len(shares):
        return counts
    free = np.ones(len(shares), dtype=bool)
    while True:
        left = total - least * np.count_nonzero(~free)
        quotas = shares * left / shares[free].sum()
        small = free & (quotas < least)
        if not small.any():
            break
        free &= ~small
    counts[free] = np.floor(quotas[free])
    remainders = np.where(free, quotas - counts, -1)
    counts[np.argsort(-remainders, kind="stable")[: total - counts.sum()]] += 1
    return counts
