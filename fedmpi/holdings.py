"""Data that were never in one place: csv:DIR/ with a file for each owner, on whichever host has it.

A file is read by one rank, and its rows stay there: in memory, for nothing of them is prepared or
written. What owners must agree on goes through `OverRanks`; datasets/owners.py lists what that is.
Beside it the server learns the names, sizes and dates of the files, a hash of each (to recognise a
run that is finished, or data that have changed), and each owner's number of rows by group.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fedmpi.datasets.csvfile import (
    DEFAULT_TEST,
    CsvFolder,
    content_of,
    held_out_share,
    path_of,
    read_rows,
)
from fedmpi.datasets.options import DataOptions, options_from
from fedmpi.errors import UserError
from fedmpi.ranks import Ranks

if TYPE_CHECKING:
    from fedmpi.config import Config
    from fedmpi.datasets.owners import Owner

T = TypeVar("T")
U = TypeVar("U")

Seen = tuple[str, dict[str, tuple[int, int]]]
"""A rank's host, and the files that it sees: owner -> bytes and date."""


@dataclass
class Holdings:
    """On each rank the rows of its own owners; in place of a Prepared dataset, with its names."""

    folder: Path
    groups: tuple[str, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    notes: tuple[str, ...]
    clients: tuple[str, ...]
    """All owners, by name."""
    hosted: list[np.ndarray]
    """The numbers of the owners on each client rank."""
    counts: np.ndarray
    """On the server: 2 × owners × groups, rows to train on and to test with."""
    arrays: dict[str, np.ndarray]
    """This rank's own, one owner after the other."""
    scale = None

    def array(self, name: str) -> np.ndarray:
        """One of the arrays, of this rank's rows."""
        return self.arrays[name]

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        """A copy of some of this rank's rows."""
        return self.arrays[name][rows]


class OverRanks:
    """Agree among owners on the ranks of a job: see owners.Agree."""

    def __init__(self, ranks: Ranks, names: list[str]) -> None:
        self.ranks, self.names = ranks, names

    def __call__(self, work: Callable[[], list[T]], join: Callable[[list[T]], U]) -> U:
        """Statistics go to the server, which joins them; what is agreed on comes back to all."""
        parts: list[tuple[str, T]] = []
        error = None
        try:
            parts = list(zip(self.names, work(), strict=True))
        except UserError as mistake:
            error = str(mistake)
        told = self.ranks.gather((parts, error))

        def joined() -> U:
            assert told
            for _, error in told:
                if error:
                    raise UserError(error)
            every = sorted(chain.from_iterable(part for part, _ in told), key=itemgetter(0))
            return join([part for _, part in every])

        return self.ranks.on_server(joined)


def hold(ranks: Ranks, config: Config) -> Holdings:
    """Read each owner's file on its own rank, and agree on what the inputs mean."""
    dataset, options = folder_of(config), options_from(config)
    names, hosted = find_owners(ranks, dataset.path)
    mine = my_owners(ranks, names, hosted)
    agree = OverRanks(ranks, mine)
    share = held_out_share(options.test or DEFAULT_TEST)
    owners: list[Owner] = []

    def read() -> list[None]:
        owners.extend(read_owner(dataset.path, name, options, share) for name in mine)
        return [None] * len(mine)

    agree(read, len)
    from fedmpi.datasets.owners import assemble

    agreed = assemble(owners, options, share, dataset.name, agree)
    parts = {
        f"{split}_{part}": np.concatenate(
            [getattr(o, part)[o.tested == (split == "test")] for o in owners] or [nothing]
        )
        for split in ("train", "test")
        for part, nothing in nothings(len(agreed.features)).items()
    }

    def rows_by_group() -> list[np.ndarray]:
        groups = len(agreed.groups)
        return [
            np.stack([np.bincount(o.group[o.tested == test], minlength=groups) for test in (0, 1)])
            for o in owners
        ]

    counts = ranks.gather(dict(zip(mine, rows_by_group(), strict=True)))
    by_owner = {name: rows for some in counts or [] for name, rows in some.items()}
    return Holdings(
        dataset.path,
        agreed.groups,
        agreed.classes,
        agreed.features,
        tuple(agreed.notes),
        tuple(names),
        hosted,
        np.stack([by_owner[name] for name in names], axis=1) if by_owner else np.empty(0),
        parts,
    )


def nothings(features: int) -> dict[str, np.ndarray]:
    """What a rank without owners has of the parts of a row."""
    codes = np.empty(0, dtype=np.int64)
    return {"x": np.empty((0, features), dtype=np.float32), "y": codes, "group": codes}


def read_owner(folder: Path, name: str, options: DataOptions, share: float | None) -> Owner:
    """One owner's rows, with those of its file in the folder that --test names, if it does."""
    from fedmpi.datasets.owners import Owner

    test = path_of(options.test or DEFAULT_TEST) / f"{name}.csv"
    chosen = DEFAULT_TEST if share is not None or not test.is_file() else str(test)
    notes: list[str] = []
    frame, in_test = read_rows(folder / f"{name}.csv", replace(options, test=chosen), notes, [])
    if share is None and in_test is None:
        in_test = np.zeros(len(frame), dtype=bool)
    return Owner(name, frame, in_test, notes)


def fingerprint(ranks: Ranks, config: Config) -> str:
    """By which the data are recognised: from all owners' files, each hashed by its own rank."""
    dataset, options = folder_of(config), options_from(config)
    names, hosted = find_owners(ranks, dataset.path)
    mine = my_owners(ranks, names, hosted)

    def digests() -> list[str]:
        paths = [[dataset.path / f"{name}.csv"] for name in mine]
        if held_out_share(options.test or DEFAULT_TEST) is None:
            for files in paths:
                files.append(path_of(options.test or "") / files[0].name)
        return [
            "".join(hashlib.sha256(content_of(f)).hexdigest() for f in files if f.is_file())
            for files in paths
        ]

    def join(parts: list[str]) -> str:
        whole = "\n".join(f"{name} {part}" for name, part in zip(names, parts, strict=True))
        return f"csv-owners-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"

    return OverRanks(ranks, mine)(digests, join)


def my_owners(ranks: Ranks, names: list[str], hosted: list[np.ndarray]) -> list[str]:
    """The owners whose files this rank reads."""
    if ranks.rank not in ranks.client_ranks:
        return []
    return [names[k] for k in hosted[ranks.client_ranks.index(ranks.rank)]]


def folder_of(config: Config) -> CsvFolder:
    return CsvFolder(config.dataset.removeprefix("csv:"))


def find_owners(ranks: Ranks, folder: Path) -> tuple[list[str], list[np.ndarray]]:
    """The owners by name, and the numbers of those on each client rank."""
    seen: dict[str, tuple[int, int]] = {}
    if ranks.rank in ranks.client_ranks and folder.is_dir():
        for path in folder.glob("[!.]*.csv"):
            status = path.stat()
            seen[path.stem] = (status.st_size, status.st_mtime_ns)
    everyone = ranks.gather((ranks.host, seen))

    def assign() -> tuple[list[str], list[np.ndarray]]:
        assert everyone
        return assign_owners(folder, [everyone[rank] for rank in ranks.client_ranks])

    return ranks.on_server(assign)


def assign_owners(folder: Path, seen: list[Seen]) -> tuple[list[str], list[np.ndarray]]:
    """Each owner to a client rank that has its file, the largest first, to the least loaded."""
    places: dict[str, list[int]] = defaultdict(list)
    for rank, (_, files) in enumerate(seen):
        for name in files:
            places[name].append(rank)
    if not places:
        hosts = ", ".join(sorted({host for host, _ in seen}))
        raise UserError(f"{folder}/ has no file OWNER.csv on the hosts of the clients ({hosts}).")
    for name, ranks in places.items():
        first, *others = [(seen[rank][1][name], seen[rank][0]) for rank in ranks]
        for other in others:
            if other[0] != first[0]:
                raise UserError(
                    f"{folder}/{name}.csv is not the same file on {first[1]} and {other[1]}: give "
                    "each owner's file a name of its own."
                )
    names = sorted(places)
    load = [(0, 0)] * len(seen)
    hosted: list[list[int]] = [[] for _ in seen]
    for k in sorted(range(len(names)), key=lambda k: -seen[places[names[k]][0]][1][names[k]][0]):
        rank = min(places[names[k]], key=lambda rank: (load[rank], rank))
        size, _ = seen[rank][1][names[k]]
        load[rank] = (load[rank][0] + size, load[rank][1] + 1)
        hosted[rank].append(k)
    idle = [rank for rank, some in enumerate(hosted) if not some]
    if idle:
        here = sorted({seen[rank][0] for rank in idle})
        raise UserError(
            f"{len(names)} owners' files for {len(seen)} client ranks: {len(idle)} of them, on "
            f"{', '.join(here)}, would have nothing to do. Use mpirun -n {len(names) + 1} or "
            "fewer, with no more ranks on a host than it has files."
        )
    return names, [np.sort(np.array(some)) for some in hosted]
