"""Which rank holds what: clients and their training rows, and the test rows."""

import heapq
from itertools import pairwise

import numpy as np

from fedmpi.errors import UserError


def assign_clients(client_sizes: np.ndarray, ranks: int) -> list[np.ndarray]:
    """The clients of each client rank, ascending, balanced by rows; one each if as many as ranks.

    Longest processing time first: the largest client left goes to the rank with the fewest rows,
    which is at most 4/3 of the best possible maximum (Graham 1969).
    """
    clients = len(client_sizes)
    if clients < ranks:
        raise UserError(
            f"{ranks} client ranks but only {clients} clients, and a client lives on one rank: "
            f"use mpirun -n {clients + 1} or --clients {ranks}."
        )
    if clients == ranks:
        return [np.array([k]) for k in range(clients)]
    hosted: list[list[int]] = [[] for _ in range(ranks)]
    # The count in the middle spreads clients without rows, so that no rank stays empty.
    heap = [(0, 0, rank) for rank in range(ranks)]
    for k in np.argsort(-np.asarray(client_sizes, dtype=np.int64), kind="stable").tolist():
        rows, count, rank = heap[0]
        hosted[rank].append(k)
        heapq.heapreplace(heap, (rows + int(client_sizes[k]), count + 1, rank))
    return [np.sort(np.array(mine)) for mine in hosted]


def spread_rows(total: int, ranks: int) -> list[slice]:
    """Contiguous blocks of `total` rows, one a rank, whose lengths differ by at most one."""
    bounds = [total * rank // ranks for rank in range(ranks + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]
