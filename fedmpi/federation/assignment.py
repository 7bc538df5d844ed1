"""Assignment of clients, with their training rows, and of test rows to ranks."""

import heapq
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fedmpi.errors import UserError

BATCH = 32
"""Cost of a local step beyond its rows, in rows. Steps of Adult's MLP on 8, 32 and 85 rows took
160, 280 and 420 µs; and as batches grow with the rows, little depends on this constant."""


def costs(client_sizes: np.ndarray, batch_size: int | None) -> np.ndarray:
    """Cost of a round of each client, in rows; without local steps, the client's rows.

    All clients have the same number of epochs. A measurement would know no more on ranks that are
    alike, and the measurement's noise would change from run to run which rank hosts which client,
    and so the bits of the result.
    """
    sizes = np.asarray(client_sizes, dtype=np.int64)
    return sizes if batch_size is None else sizes + BATCH * -(-sizes // batch_size)


def assign_clients(
    client_costs: np.ndarray, ranks: int, speeds: Sequence[float] | None = None
) -> list[np.ndarray]:
    """Balance the clients over the client ranks by cost; return each rank's clients, ascending.

    With as many clients as ranks, each rank has one. Longest processing time first: the costliest
    client left goes to the rank that would finish this client first. Among ranks that are alike,
    the longest rank takes at most 4/3 of the optimum (Graham 1969); among ranks of given `speeds`,
    at most twice the optimum (Gonzalez, Ibarra and Sahni 1977).
    """
    clients = len(client_costs)
    if clients < ranks:
        raise UserError(
            f"{ranks} client ranks but only {clients} clients, and a client lives on one rank: "
            f"use mpirun -n {clients + 1} or --clients {ranks}."
        )
    order = np.argsort(-np.asarray(client_costs, dtype=np.int64), kind="stable").tolist()
    if speeds is not None:
        return _by_speed(client_costs, order, np.asarray(speeds, dtype=float))
    if clients == ranks:
        return [np.array([k]) for k in range(clients)]
    hosted: list[list[int]] = [[] for _ in range(ranks)]
    # The count in the middle spreads clients without rows, so that no rank stays empty.
    heap = [(0, 0, rank) for rank in range(ranks)]
    for k in order:
        cost, count, rank = heap[0]
        hosted[rank].append(k)
        heapq.heapreplace(heap, (cost + int(client_costs[k]), count + 1, rank))
    return [np.sort(np.array(mine)) for mine in hosted]


def _by_speed(client_costs: np.ndarray, order: list[int], speeds: np.ndarray) -> list[np.ndarray]:
    """Assign the clients to ranks of the given speeds, in `order`: the costliest client first."""
    hosted: list[list[int]] = [[] for _ in speeds]
    load = np.zeros(len(speeds))
    for i, k in enumerate(order):
        empty = np.array([not mine for mine in hosted])
        may = empty if empty.sum() == len(order) - i else np.ones(len(speeds), dtype=bool)
        done = np.where(may, (load + client_costs[k]) / speeds, np.inf)
        rank = int(np.argmin(done))
        hosted[rank].append(k)
        load[rank] += client_costs[k]
    return [np.sort(np.array(mine)) for mine in hosted]


def spread_rows(total: int, ranks: int, block: int = 1) -> list[slice]:
    """Contiguous runs of `total` rows, one a rank, whose lengths differ by at most one `block`.

    Each run has whole blocks, and the last run what is left.
    """
    blocks = -(-total // block)
    bounds = [min(total, blocks * rank // ranks * block) for rank in range(ranks + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]
