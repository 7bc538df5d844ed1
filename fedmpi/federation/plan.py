"""Who gets which rows: clients to ranks, rows to clients, test rows to ranks. On the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmpi.data.dataset import Dataset
from fedmpi.data.owners import OwnedRows
from fedmpi.data.partition import Partition, as_owned, partition, single_client
from fedmpi.data.splits import choose_rows, split_fold
from fedmpi.data.store import Prepared
from fedmpi.errors import UserError
from fedmpi.federation.assignment import assign_clients, costs, spread_rows
from fedmpi.run.config import Config


@dataclass
class Deal:
    """Who holds what, and of each client rank its clients and its rows."""

    partition: Partition
    assignment: list[np.ndarray]
    """The clients of each client rank."""
    rows: list[tuple[np.ndarray, np.ndarray]]
    """Of each client rank, the rows to train on, by client, and those to test with."""
    notes: list[str]


def leave(held: OwnedRows, lost: Sequence[int] = ()) -> Deal:
    """Each rank uses all the rows that its owners have, which it numbers by itself.

    Owners who are `lost` to the run have none, whatever is in their files.
    """

    def rows_of(counts: np.ndarray, mine: np.ndarray) -> np.ndarray:
        return np.flatnonzero(~np.isin(np.repeat(mine, counts[mine].sum(axis=1)), lost))

    train, test = held.counts
    rows = [(rows_of(train, mine), rows_of(test, mine)) for mine in held.hosted]
    shards = as_owned(train.T, held.groups, held.clients)
    return Deal(shards, without(held.hosted, lost), rows, [])


def deal(
    prepared: Prepared,
    dataset: Dataset,
    config: Config,
    alone: bool,
    client_ranks: int,
    lost: Sequence[int] = (),
    speeds: Sequence[float] | None = None,
) -> Deal:
    """Deal out the rows of a prepared dataset; to one client, if it is `alone`.

    Those of clients who are `lost` to the run go to nobody. `speeds` are of the client ranks.
    """
    c, groups = config, prepared.groups
    notes: list[str] = []
    train_rows = limited(prepared, "train", c.limit_train, c.seed, notes)
    if c.fold:
        of_row = np.asarray(prepared.array("train_group"))
        train_rows, test_rows = split_fold(train_rows, of_row, groups, c.fold, c.seed)
    else:
        test_rows = limited(prepared, "test", c.limit_test, c.seed, notes)
    group_of_row = prepared.array("train_group")[train_rows]
    if alone:
        shards = single_client(group_of_row, groups)
    elif prepared.clients:
        counts = np.zeros((len(groups), len(prepared.clients)), dtype=np.int64)
        np.add.at(counts, (group_of_row, prepared.array("train_client")), 1)
        shards = as_owned(counts, groups, prepared.clients)
    else:
        shards = partition(
            group_of_row,
            groups,
            c.clients,
            c.setting,
            dataset,
            skew=c.skew,
            seed=c.seed,
            limited=len(train_rows) < prepared.rows("train"),
        )
    cost = costs(shards.client_sizes, c.batch_size)
    assignment = without(assign_clients(cost, client_ranks, speeds), lost)
    blocks = spread_rows(len(test_rows), client_ranks)
    none = np.empty(0, dtype=np.int64)
    rows = [
        (train_rows[np.concatenate([none, *map(shards.rows_of, mine)])], test_rows[block])
        for mine, block in zip(assignment, blocks, strict=True)
    ]
    return Deal(shards, assignment, rows, notes)


def without(assignment: list[np.ndarray], lost: Sequence[int]) -> list[np.ndarray]:
    """The clients of each client rank, but for those who are lost."""
    return [mine[~np.isin(mine, lost)] for mine in assignment]


def limited(
    prepared: Prepared, split: str, limit: int | None, seed: int, notes: list[str]
) -> np.ndarray:
    """The rows to train or to test, all of them unless there is a limit."""
    total = prepared.rows(split)
    if limit is None or limit >= total:
        if limit is not None and limit > total:
            notes.append(f"--limit-{split} {limit}: there are {total:,} rows, all used")
        return np.arange(total)
    try:
        groups = np.asarray(prepared.array(f"{split}_group"))
        return choose_rows(groups, prepared.groups, limit, seed)
    except UserError as error:
        raise UserError(f"--limit-{split}: {error}") from None
