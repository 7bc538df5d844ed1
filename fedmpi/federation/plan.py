"""Allocation of clients and rows, decided by the server before the rounds.

Clients go to ranks, rows to clients, test rows to ranks. Rank 0 alone imports this module, and with
it all modules that know settings and files; the client ranks start without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from fedmpi import data as datasets
from fedmpi import models
from fedmpi.data.dataset import Dataset
from fedmpi.data.options import options_from
from fedmpi.data.owners import OwnedRows
from fedmpi.data.partition import (
    SETTINGS,
    Partition,
    as_owned,
    from_clients,
    partition,
    single_client,
)
from fedmpi.data.settings import draw
from fedmpi.data.splits import VALIDATE, choose_rows, hold_out, split_fold
from fedmpi.data.store import MOST_CLIENTS, Prepared
from fedmpi.errors import UserError, unknown_name
from fedmpi.federation import metrics
from fedmpi.federation.assignment import assign_clients, costs, spread_rows
from fedmpi.federation.batches import batch_shares, places_among
from fedmpi.federation.metrics import Metric
from fedmpi.methods.attribute import attribute_of
from fedmpi.methods.method import Method
from fedmpi.methods.newton import refuse_size
from fedmpi.models.micro_batch import rows_of_a_pass
from fedmpi.mpi.allreduce import Room, choose
from fedmpi.mpi.ranks import Ranks
from fedmpi.run import checkpoint
from fedmpi.run.config import Config
from fedmpi.run.display import Progress
from fedmpi.run.folder import RunFolder
from fedmpi.run.lost_ranks import RANKS
from fedmpi.run.participation import among_clients
from fedmpi.run.solver import AUTO, decay_for

if TYPE_CHECKING:
    from fedmpi.federation.private import Budget

KINDS = ("train on", "test with", "validate with")
"""What rows are for, in the order of an Allocation's rows."""
SPEED = "rows a second on rank "
"""Key in `measured`, followed by the number of the rank."""


@dataclass
class Allocation:
    """Rows of each client; clients and rows of each client rank."""

    partition: Partition
    assignment: list[np.ndarray]
    """The clients of each client rank."""
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]]
    """Rows of each client rank to train on, by client, to test with, and to validate with."""
    runs: list[tuple[list[int], list[int]]]
    """For each client rank, the lengths of the runs of its rows to test and to validate with that
    share no pass in exact sums: of owners, or of all its rows."""
    notes: list[str]


def keep_with_owners(held: OwnedRows, lost: Sequence[int] = ()) -> Allocation:
    """Allocate to each rank all rows of the owners that it hosts; each rank numbers its own rows.

    Owners in `lost`, whose ranks died, have no rows, whatever is in their files.
    """

    def rows_of(counts: np.ndarray, mine: np.ndarray) -> np.ndarray:
        return np.flatnonzero(~np.isin(np.repeat(mine, counts[:, mine].sum(axis=0)), lost))

    train = held.counts[0]
    rows = [
        (rows_of(train, mine), rows_of(held.counts[1], mine), rows_of(held.counts[2], mine))
        for mine in held.hosted
    ]
    left = without(held.hosted, lost)
    runs = [
        (held.counts[1][:, mine].sum(axis=0).tolist(), held.counts[2][:, mine].sum(axis=0).tolist())
        for mine in left
    ]
    shards = as_owned(train, held.groups, held.clients)
    return Allocation(shards, left, rows, runs, [])


def allocate(
    prepared: Prepared,
    dataset: Dataset,
    config: Config,
    alone: bool,
    client_ranks: int,
    lost: Sequence[int] = (),
    speeds: Sequence[float] | None = None,
    block: int = 1,
) -> Allocation:
    """Allocate the rows of a prepared dataset to clients; to one client, if `alone`.

    The rows of clients in `lost`, whose ranks died, go to nobody. `speeds` are of the client ranks.
    Rows to test and to validate with go to ranks in whole blocks.
    """
    c, groups = config, prepared.groups
    notes: list[str] = []
    train_rows = limited(prepared, "train", c.limit_train, c.seed, notes)
    if c.fold:
        of_row = np.asarray(prepared.array("train_group"))
        train_rows, test_rows = split_fold(train_rows, of_row, groups, c.fold, c.seed)
    else:
        test_rows = limited(prepared, "test", c.limit_test, c.seed, notes)
    train_rows, validation_rows = validation_of(prepared, train_rows, c)
    group_of_row = prepared.array("train_group")[train_rows]
    if alone:
        shards = single_client(group_of_row, groups)
    elif prepared.clients:
        counts = np.zeros((len(groups), len(prepared.clients)), dtype=np.int64)
        client_of_row = prepared.array("train_client")[train_rows]
        np.add.at(counts, (group_of_row, client_of_row), 1)
        # The prepared rows are in the order of their clients, and so are some of them.
        shards = as_owned(counts, groups, prepared.clients)
    elif c.by:
        shards = by_column(prepared, train_rows, c, client_ranks)
    elif c.setting not in SETTINGS:
        class_of_row = prepared.array("train_y")[train_rows]
        client_of_row, moved = draw(c.setting, group_of_row, class_of_row, c.clients, c.seed)
        shards = from_clients(c.setting, client_of_row, c.clients, group_of_row, groups)
        if moved:
            notes.append(
                f"{c.setting}: {moved} of {c.clients} clients drew no rows, and got one each, of "
                "the largest client's"
            )
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
    blocks = zip(
        spread_rows(len(test_rows), client_ranks, block),
        spread_rows(len(validation_rows), client_ranks, block),
        strict=True,
    )
    none = np.empty(0, dtype=np.int64)
    held_by = [np.concatenate([none, *map(shards.rows_of, mine)]) for mine in assignment]
    rows = [
        (train_rows[mine], test_rows[tested], validation_rows[validated])
        for mine, (tested, validated) in zip(held_by, blocks, strict=True)
    ]
    runs = [([len(tested)], [len(validated)]) for _, tested, validated in rows]
    return Allocation(shards, assignment, rows, runs, notes)


def by_column(prepared: Prepared, rows: np.ndarray, config: Config, client_ranks: int) -> Partition:
    """Split `rows` by a column: a client is a value, or if --clients are fewer, several values.

    The largest value that is left goes to the client with the fewest rows so far.
    """
    values, codes = codes_of(prepared, config)
    codes = codes[rows]
    sizes = np.bincount(codes, minlength=len(values))
    found = np.flatnonzero(sizes)  # --limit-train and --fold may leave values without rows
    clients = config.clients or len(found)
    if len(found) < clients:
        raise UserError(
            f"--clients {clients}: in {config.setting} a client is a value or more, and there are "
            f"{len(found)} values: use --clients {len(found)} or fewer, or leave it out."
        )
    if clients < client_ranks:
        raise UserError(
            f"--setting {config.setting}: {client_ranks} client ranks, but the column has "
            f"{clients} value(s), and a client is a value: use mpirun -n {clients + 1} or fewer."
        )
    merged = [found[mine] for mine in assign_clients(sizes[found], clients)]
    client_of_value = np.zeros(len(values), dtype=np.int32)
    for k, mine in enumerate(merged):
        client_of_value[mine] = k
    largest_first = [mine[np.argsort(-sizes[mine], kind="stable")].tolist() for mine in merged]
    names = tuple(client_name([values[v] for v in mine]) for mine in largest_first)
    group = prepared.array("train_group")[rows]
    held_by = client_of_value[codes]
    return from_clients(config.setting, held_by, clients, group, prepared.groups, names)


def codes_of(prepared: Prepared, config: Config) -> tuple[list[str], np.ndarray]:
    """The values of the column of --setting by:COLUMN, and which of them each training row has."""
    column = config.by
    assert column
    values = prepared.by_values.get(column)
    if values is None:
        if not prepared.by_values:
            raise UserError(
                f"--setting {config.setting}: {config.dataset} has no columns to split by: use "
                "another setting, as dirichlet:0.3."
            )
        raise unknown_name("column in --setting by:COLUMN,", column, prepared.by_values)
    if isinstance(values, int):
        raise UserError(
            f"--setting {config.setting}: the column has {values:,} values among the training "
            f"rows, and at most {MOST_CLIENTS:,} can be clients: give a column of categories."
        )
    kept = [name for name, known in prepared.by_values.items() if isinstance(known, list)]
    return values, np.asarray(prepared.array("train_by")[:, kept.index(column)])


def client_name(values: list[str]) -> str:
    """Name of a client that holds these values of a column, of which at most three are named."""
    more = [f"{len(values) - 3} more"] if len(values) > 3 else []
    return " + ".join([*values[:3], *more])


def validation_of(
    prepared: Prepared, rows: np.ndarray, config: Config
) -> tuple[np.ndarray, np.ndarray]:
    """Split the `rows` into those to train on and those to validate with (--validate)."""
    if config.validate is None:
        return rows, rows[:0]
    group, y = (np.asarray(prepared.array(f"train_{part}"))[rows] for part in ("group", "y"))
    held_out = hold_out(group, y, config.validate, config.seed, stream=VALIDATE)
    return rows[~held_out], rows[held_out]


def without(assignment: list[np.ndarray], lost: Sequence[int]) -> list[np.ndarray]:
    """Clients of each client rank, except those in `lost`."""
    return [mine[~np.isin(mine, lost)] for mine in assignment]


def limited(
    prepared: Prepared, split: str, limit: int | None, seed: int, notes: list[str]
) -> np.ndarray:
    """Choose the rows to train or to test with: all rows, unless there is a limit."""
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


class Plan:
    """All that the server decides and knows of a run before its rounds."""

    prepared: Prepared | OwnedRows
    allocation: Allocation
    whole: Partition
    """Partition of the rows among all clients, as if no rank had died."""
    lost: list[dict]
    """The dead client ranks, which the run goes on without."""
    notes: list[str]
    """Notes for the user on the data and on their allocation."""
    speeds: list[float] | None
    budget: Budget | None
    """What differential privacy allows, with --dp-epsilon."""
    left_out: tuple[list[int], list[int], list[int]]
    """Groups that have too few rows to train, to test and to validate with (--min-count)."""

    def __init__(
        self, ranks: Ranks, config: Config, method: Method, progress: Progress | None
    ) -> None:
        """Set up the plan. With a caller's `progress`, the run reports to it and prints nothing."""
        self.ranks, self.config, self.method, self.progress = ranks, config, method, progress
        self.dataset = datasets.find(config.dataset)
        self.folder = RunFolder(config.output)
        self.metrics: list[Metric] = []
        self.sums: dict[str, float] = {}
        """Seconds of a sum over the ranks by kind of sum, if measured."""

    def speeds_before(self) -> list[float] | None:
        """Rows per second of each client rank, from the resumed run if it had as many ranks."""
        if not self.config.resume:
            return None
        known = self.folder.read_json("config.json").get("measured", {})
        speeds = [known.get(f"{SPEED}{rank}", 0.0) for rank in self.ranks.client_ranks]
        return speeds if all(speeds) else None

    def allocate(
        self, prepared: Prepared | OwnedRows, speeds: list[float] | None = None
    ) -> dict[str, float | None]:
        """Check the options against the data, and allocate rows to every client rank.

        With the `speeds` of the client ranks, slower ranks get fewer rows. Return the options that
        are known now: the weight decay, the number of clients of --setting by:COLUMN, and the
        number of rows of a micro-batch, which is that of the resumed run, unless the user gives
        another, because a host with another cache must not change the bits of a run.
        """
        c, groups = self.config, prepared.groups
        self.prepared = prepared
        self.metrics = metrics.find(c.metrics or ())
        metrics.check(self.metrics, c.metrics or (), len(groups), len(prepared.classes))
        epsilon = c.options.get("epsilon")
        if epsilon and epsilon * len(groups) > 1:
            raise UserError(
                f"--epsilon {epsilon}: {len(groups)} groups cannot all weigh that much; "
                f"use at most {1 / len(groups):.4g}."
            )
        if self.method.needs_attribute:
            named = groups, tuple(prepared.classes)
            self.method.attribute = attribute_of(c.method, self.dataset, options_from(c), *named)
        shape = prepared.array("train_x").shape[1:]
        module = models.build(c.model, shape, len(prepared.classes), c.seed)
        models.check(c.model, module, shape, len(prepared.classes))
        if self.method.optimizer.second_order:
            refuse_size(sum(p.numel() for p in module.parameters()))
        self.lost = checkpoint.lost_in(self.folder.path) if c.resume else []
        self._refuse_to_forget()
        lost = [k for rank in self.lost for k in rank["clients"]]
        micro_batch = self._micro_batch(module)
        if isinstance(prepared, OwnedRows):
            self.allocation = keep_with_owners(prepared, lost)
        else:
            alone, client_ranks = self.method.single_client, len(self.ranks.client_ranks)
            block = micro_batch if c.sums == "exact" else 1
            self.allocation = allocate(
                prepared, self.dataset, c, alone, client_ranks, lost, speeds, block
            )
        self.speeds = speeds
        self.whole = self.allocation.partition
        self.allocation.partition = self.whole.without(
            [k for k in lost if 0 <= k < self.whole.clients]
        )
        self._leave_out_small_groups(prepared)
        if not self.allocation.partition.total:
            raise UserError(f"the run in {self.folder.path} had lost all its clients: --force it.")
        self.notes = [*prepared.notes, *self.allocation.notes]
        self.budget = None
        if c.dp_epsilon is not None:
            from fedmpi.federation.private import Budget

            self.budget = Budget(c, self.folder, self.allocation.partition.total)
            self.notes.append(self.budget.note())
            if not c.resume:
                self.budget.rounds(done=0)
        if batch_rows := c.options.get("batch_rows"):
            batch_shares(batch_rows, self.allocation.partition.group_sizes)
        if c.clients is None and c.partial:
            among_clients(c.options, self.whole.clients)  # refuses a cohort of more than there are
        # Last: a mistake above must not cost a run that the folder holds.
        self.folder.claim(c, c.identity())
        auto = c.options.get("weight_decay") == AUTO
        decay = decay_for(self.whole.total) if auto else None
        known: dict[str, float | None] = {"micro_batch": micro_batch, "auto_decay": decay}
        if c.clients is None:
            known |= {"clients": self.whole.clients, "counted": True}
        return known

    def _refuse_to_forget(self) -> None:
        """Refuse to resume from before a death if sums are secret.

        The rounds since were done without the dead ranks. Done again with their clients, from the
        same theta, they would tell what these had, by the difference of the sums.
        """
        if not (self.config.secure and self.config.resume):
            return
        died = self.folder.read_json(RANKS).get("lost", [])
        if unknown := [event["rank"] for event in died if event not in self.lost]:
            raise UserError(
                f"--secure: the run in {self.folder.path} has lost rank {unknown[0]} since its "
                "checkpoint. To go on from there would tell what that rank had: start over, with "
                "--force and another --seed."
            )

    def refuse_few_rows(self, splits: Sequence[int]) -> None:
        """Raise a UserError if the dead ranks left a group with fewer rows than --min-count.

        `splits` are the kinds of rows, by their places in KINDS, that sums are still made of.
        """
        least, few = self.config.min_count or 0, []
        for split in splits:
            counts = self._group_counts(split)
            small = set(np.flatnonzero((counts > 0) & (counts < least)))
            few += [
                f"{self.prepared.groups[a]} ({KINDS[split]})"
                for a in sorted(small.difference(self.left_out[split]))
            ]
        if few:
            raise UserError(
                f"--min-count {least}: without the ranks that died there are fewer rows of "
                f"{', '.join(few)}, and sums would tell of single ones. The run ends here: start "
                "over without these ranks, with another --seed."
            )

    def adding(self) -> int:
        """Number of the client ranks that are left and host clients."""
        return sum(len(self.allocation.assignment[i]) > 0 for i in self._left())

    def _left(self) -> list[int]:
        """Places, among the client ranks at the start, of those that are left."""
        first = self.ranks.client_ranks[0]
        return [number - first for number in self.ranks.numbers[first:]]

    def _leave_out_small_groups(self, prepared: Prepared | OwnedRows) -> None:
        """Leave groups with fewer than --min-count rows out, so that no sum tells of few rows.

        A group that is small among the rows to train on has no part in the game; one that is small
        among those to test or to validate with has no figure.
        """
        least, allocation = self.config.min_count, self.allocation
        self.left_out = ([], [], [])
        if least is None:
            return
        counts = [self._group_counts(split) for split in range(len(KINDS))]
        small = [np.flatnonzero((some > 0) & (some < least)).tolist() for some in counts]
        for some, groups, kind in zip(counts, small, KINDS, strict=True):
            if groups and len(groups) == np.count_nonzero(some):
                raise UserError(
                    f"--min-count {least}: no group has so many rows to {kind}; give a smaller "
                    "one, or merge groups (--merge-small)."
                )
        self.left_out = train, _, _ = small[0], small[1], small[2]
        kinds = zip(self.left_out, KINDS, strict=True)
        told = [f"{prepared.groups[a]} ({kind})" for groups, kind in kinds for a in groups]
        if told and self.config.small_groups == "refuse":
            raise UserError(
                f"--min-count {least}: there are fewer rows of {', '.join(told)}. Merge groups "
                "(--merge-small), or use --small-groups leave-out."
            )
        if told:
            few = ", ".join(told)
            allocation.notes.append(f"--min-count {least} leaves out, for few rows: {few}")
        allocation.partition = allocation.partition.without_groups(train)
        if isinstance(prepared, OwnedRows):
            zeroed = prepared.counts.copy()
            for split, groups in enumerate(self.left_out):
                zeroed[split][groups] = 0
            of_owners = [zeroed[split].sum(axis=0) for split in (1, 2)]
            allocation.runs = [
                (of_owners[0][mine].tolist(), of_owners[1][mine].tolist())
                for mine in allocation.assignment
            ]
            return
        allocation.rows = [self._without_groups(prepared, rows) for rows in allocation.rows]
        allocation.runs = [([len(test)], [len(some)]) for _, test, some in allocation.rows]

    def _group_counts(self, split: int) -> np.ndarray:
        """Rows of each group of a kind, by its place in KINDS, on the ranks that are left."""
        if split == 0:
            return self.allocation.partition.group_sizes
        left = self._left()
        if isinstance(self.prepared, OwnedRows):
            owners = np.concatenate([self.allocation.assignment[i] for i in left])
            return self.prepared.counts[split][:, owners].sum(axis=1)
        # Those to test with are spread again when ranks die.
        ranks = range(len(self.allocation.rows)) if split == 1 else left
        rows = np.concatenate([self.allocation.rows[i][split] for i in ranks])
        group = np.asarray(self.prepared.array(f"{self._source(split)}_group"))[rows]
        return np.bincount(group, minlength=len(self.prepared.groups))

    def _source(self, split: int) -> str:
        """Which of the prepared arrays has the rows to train, test or validate with."""
        return "test" if split == 1 and not self.config.fold else "train"

    def _without_groups(
        self, prepared: Prepared, rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A rank's rows of the three kinds, without those of groups that are left out."""
        kept = []
        for split, some in enumerate(rows):
            group = np.asarray(prepared.array(f"{self._source(split)}_group"))[some]
            kept.append(some[~np.isin(group, self.left_out[split])])
        return kept[0], kept[1], kept[2]

    def _micro_batch(self, module: nn.Module) -> int:
        """Number of rows of a micro-batch: the user's, the resumed run's, or the model's."""
        c = self.config
        before = self.folder.read_json("config.json").get("micro_batch") if c.resume else None
        if not c.micro_batch and isinstance(before, int) and before > 0:
            return before
        itemsize = getattr(torch, c.dtype).itemsize
        return c.micro_batch or rows_of_a_pass(c.model, module, itemsize)

    def spread_test_rows(self) -> list[tuple[np.ndarray, list[int]]]:
        """Spread the test rows over the surviving client ranks; return these rows and their runs.

        Every host has the files.
        """
        rows = np.concatenate([test for _, test, _ in self.allocation.rows])
        block = self.config.micro_batch if self.config.sums == "exact" else None
        spread = spread_rows(len(rows), len(self.ranks.client_ranks), block or 1)
        return [(rows[some], [some.stop - some.start]) for some in spread]

    def places(self) -> list[np.ndarray]:
        """For --batch-rows: the places of each surviving client rank's rows among all their rows.

        A place is that of a row among the rows of its group. Owners know their rows alone, so of
        them it is the place of the first row of each group, groups × hosted owners.
        """
        left = self._left()
        if isinstance(self.prepared, OwnedRows):
            counts = self.allocation.partition.counts
            firsts = np.cumsum(counts, axis=1) - counts
            return [firsts[:, self.allocation.assignment[i]] for i in left]
        rows = [self.allocation.rows[i][0] for i in left]
        return places_among(rows, np.asarray(self.prepared.array("train_group")))

    def choose_reduction(self, wanted: str, rooms: list[Room]) -> str:
        """Choose the kind of sum; a run that is resumed on as many ranks keeps its kind."""
        if self.config.resume and wanted in ("auto", "measure"):
            before = self.folder.read_json("config.json").get("layout", {})
            same = before.get("ranks") == self.ranks.size
            wanted = before.get("reduce", wanted) if same else wanted
        kind, note = choose(wanted, rooms)
        self.notes += [note] if note else []
        return kind
