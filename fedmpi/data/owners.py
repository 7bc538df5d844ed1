"""Data that were never in one place: csv:DIR/ with a file for each owner, on whichever host has it.

A file is read by one rank, and its rows stay there: in memory, for nothing of them is prepared or
written. What owners must agree on goes through `OverRanks`; agreement.py lists what that is.
Beside it the server learns the names, sizes and dates of the files, a hash of each (to recognise a
run that is finished, or data that have changed), and each owner's number of rows by group.

No cell of a file is in a message, whatever goes wrong: an error or a note tells numbers, lines, and
names that the user gave or that all owners have. What quotes cells is written by the owner's rank
into `Aside`, a file beside the owner's own, on its own host.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedmpi.data.datasets.csvfile import (
    DEFAULT_TEST,
    CsvFolder,
    held_out_share,
    path_of,
    read_tables,
    usable_rows,
)
from fedmpi.data.files import hash_of, owners_files
from fedmpi.data.options import DataConfig, DataOptions, options_from
from fedmpi.data.splits import VALIDATE, hold_out
from fedmpi.errors import UserError, printable
from fedmpi.mpi import start
from fedmpi.mpi.ranks import Ranks

if TYPE_CHECKING:
    from fedmpi.data.agreement import Owner

T = TypeVar("T")
U = TypeVar("U")

SPLITS = ("train", "test", "validate")

Seen = tuple[str, dict[str, tuple[int, int]]]
"""A rank's host, and the files that it sees: owner -> bytes and date."""


@dataclass
class OwnedRows:
    """Rows of this rank's own owners, in place of a Prepared dataset, whose names it has."""

    folder: Path
    groups: tuple[str, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    notes: tuple[str, ...]
    clients: tuple[str, ...]
    """Names of all owners, in order."""
    hosted: list[np.ndarray]
    """The numbers of the owners on each client rank."""
    counts: np.ndarray
    """Numbers of rows by SPLITS, 3 × groups × owners; on the server."""
    arrays: dict[str, np.ndarray]
    """Arrays of this rank's own rows, one owner after the other."""
    encoding: dict[str, Any]
    """Statistics and labels that all owners agreed on, for encoding.Encoding.from_json."""
    scale = None

    def array(self, name: str) -> np.ndarray:
        """Return one of the arrays, of this rank's rows."""
        return self.arrays[name]

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return a copy of some of this rank's rows."""
        return self.arrays[name][rows]


class Aside:
    """File DIR/<owner>.fedmpi.txt on the owner's host, for what only the owner may read.

    Only the account that the rank runs under may read it. A start that has nothing to say leaves
    none.
    """

    def __init__(self, folder: Path, owner: str) -> None:
        self.path = folder / f"{owner}.fedmpi.txt"
        self.lines: list[str] = []
        with contextlib.suppress(OSError):
            self.path.unlink()

    def keep(self, text: str) -> bool:
        """Write one thing more; return whether that could be done."""
        self.lines.append(text)
        new = self.path.with_name(f".{self.path.name}.new")
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(file, "w", encoding="utf-8", errors="backslashreplace") as out:
                out.write("What fedmpi found in this owner's rows. It is told to nobody else.\n\n")
                out.writelines(f"{line}\n" for line in self.lines)
            os.replace(new, self.path)
        except OSError:
            return False
        return True


class OverRanks:
    """Agree among owners on the ranks of a job: see agreement.Agree."""

    def __init__(self, ranks: Ranks, owners: list[Owner]) -> None:
        self.ranks, self.owners = ranks, owners
        self.salt: bytes = ranks.bcast(secrets.token_bytes(16))

    def __call__(self, work: Callable[[Owner], T], join: Callable[[list[T]], U]) -> U:
        """Join statistics of all owners on the server; return to all what is agreed on."""
        parts: list[tuple[str, T]] = []
        error = None
        for owner in self.owners:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a library's may quote what it warns of
                    parts.append((owner.name, work(owner)))
            except Exception as mistake:
                error = told_of(mistake, owner, self.ranks.host)
                break
        told = self.ranks.gather((parts, error))

        def joined() -> U:
            assert told
            for _, error in told:
                if error:
                    raise UserError(error)
            every = sorted(chain.from_iterable(part for part, _ in told), key=itemgetter(0))
            try:
                return join([part for _, part in every])
            except UserError as error:
                raise UserError(error.line.text) from None
            except Exception as error:  # ours to mend; what it says may quote a category
                raise UserError(
                    f"{nameless(error)} when what the owners told was joined."
                ) from None

        return self.ranks.on_server(joined)


def told_of(error: Exception, owner: Owner, host: str) -> str:
    """Return what others may know of an owner's error; the owner finds the rest beside its file."""
    if isinstance(error, UserError):
        text, aside = printable(error.line.text), str(error) if error.line.quoted else ""
    else:
        text = f"{nameless(error)} when the rows of {owner.name} were read."
        aside = "".join(traceback.format_exception(error))
    return f"{text}{kept(owner, aside, host)}" if aside else text


def kept(owner: Owner, text: str, host: str) -> str:
    """Say `text` to the owner alone; return the sentence that tells others where."""
    place = f"{owner.name}.fedmpi.txt beside the owner's file on {host}"
    if owner.keep(text):
        return f" The same with the cell is in {place}, for the owner alone."
    return f" The cell is told to nobody: {place} cannot be written."


def nameless(error: BaseException) -> str:
    """Return the kind of an error and its place in the code; its text may quote a cell."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{where}"


def read_owned_rows(ranks: Ranks, config: DataConfig, validate: float | None = None) -> OwnedRows:
    """Read each owner's file on its own rank, and agree on what the inputs mean.

    With `validate`, each owner holds out that share of its rows to train on.
    """
    from fedmpi.data.agreement import Owner, assemble, share_columns

    dataset, options = folder_of(config), options_from(config)
    names, hosted = find_owners(ranks, dataset.path)
    mine = my_owners(ranks, names, hosted)
    owners = [Owner(name, keep=Aside(dataset.path, name).keep) for name in mine]
    start.tell_instead = lambda error: told_in_training(error, owners, ranks.host)
    agree = OverRanks(ranks, owners)
    share = held_out_share(options.test or DEFAULT_TEST)
    agree(lambda owner: read_owner(dataset.path, owner, options, share), refuse_copies)
    notes = share_columns(agree)
    agree(lambda owner: use_rows(owner, options, share), len)
    agreed = assemble(agree, options, share, dataset.name)
    splits = [split_of(owner, validate, options.seed) for owner in owners]
    parts = {
        f"{split}_{part}": np.concatenate(
            [getattr(o, part)[of_row == i] for o, of_row in zip(owners, splits, strict=True)]
            or [nothing]
        )
        for i, split in enumerate(SPLITS)
        for part, nothing in nothings(len(agreed.features)).items()
    }

    def rows_by_group() -> list[np.ndarray]:
        groups = len(agreed.groups)
        return [
            np.stack([np.bincount(o.group[of_row == i], minlength=groups) for i in range(3)])
            for o, of_row in zip(owners, splits, strict=True)
        ]

    counts = ranks.gather(dict(zip(mine, rows_by_group(), strict=True)))
    by_owner = {name: rows for some in counts or [] for name, rows in some.items()}
    return OwnedRows(
        dataset.path,
        agreed.groups,
        agreed.classes,
        agreed.features,
        tuple(notes + agreed.notes),
        tuple(names),
        hosted,
        np.stack([by_owner[name] for name in names], axis=2) if by_owner else np.empty(0),
        parts,
        agreed.encoding.to_json(),
    )


def split_of(owner: Owner, validate: float | None, seed: int) -> np.ndarray:
    """Return the place in SPLITS of each of the owner's rows."""
    of_row = owner.tested.astype(np.int8)
    if validate is not None:
        rows = np.flatnonzero(of_row == 0)
        group, y = owner.group[rows], owner.y[rows]
        of_row[rows[hold_out(group, y, validate, seed, owner.name, VALIDATE)]] = 2
    return of_row


def told_in_training(error: BaseException, owners: list[Owner], host: str) -> str:
    """Return the line for an exception on a rank that has owners' rows."""
    text = "".join(traceback.format_exception(error))
    return nameless(error) + "." + "".join(kept(owner, text, host) for owner in owners[:1])


def nothings(features: int) -> dict[str, np.ndarray]:
    """Return the parts of a row, of no rows, for a rank without owners."""
    codes = np.empty(0, dtype=np.int64)
    return {"x": np.empty((0, features), dtype=np.float32), "y": codes, "group": codes}


def refuse_copies(files: list[tuple[str, str]]) -> None:
    """Raise a UserError if two owners have the same file, by its SHA-256."""
    owners: dict[str, str] = {}
    for owner, sha256 in files:
        if sha256 in owners:
            raise UserError(
                f"{owners[sha256]} and {owner} have the same file: each owner needs its own rows. "
                "Take one of the two away."
            )
        owners[sha256] = owner


def read_owner(
    folder: Path, owner: Owner, options: DataOptions, share: float | None
) -> tuple[str, str]:
    """Read the owner's file, and its file in the folder that --test names, if there is one.

    Return the owner's name, and the SHA-256 of its file.
    """
    test = None
    if share is None:
        test = owners_files(path_of(options.test or "")).get(owner.name)
    chosen = str(test) if test else DEFAULT_TEST
    path = owners_files(folder)[owner.name]
    sources: list[dict] = []
    owner.tables = read_tables(path, replace(options, test=chosen), owner.notes, sources)
    return owner.name, sources[0]["sha256"]


def use_rows(owner: Owner, options: DataOptions, share: float | None) -> None:
    """Take the owner's rows that have labels; without a test file, none are to test with."""
    owner.frame, owner.in_test = usable_rows(owner.tables, options, owner.notes)
    if share is None and owner.in_test is None:
        owner.in_test = np.zeros(len(owner.frame), dtype=bool)


def fingerprint(ranks: Ranks, config: DataConfig) -> str:
    """Return a name for the data, made of all owners' files, each hashed by its own rank."""
    dataset, options = folder_of(config), options_from(config)
    names, hosted = find_owners(ranks, dataset.path)
    from fedmpi.data.agreement import Owner

    mine = [Owner(name) for name in my_owners(ranks, names, hosted)]

    def digests(owner: Owner) -> str:
        folders = [dataset.path]
        if held_out_share(options.test or DEFAULT_TEST) is None:
            folders.append(path_of(options.test or ""))
        files = [owners_files(folder).get(owner.name) for folder in folders]
        return "".join(hash_of(file) for file in files if file)

    def join(parts: list[str]) -> str:
        whole = "\n".join(f"{name} {part}" for name, part in zip(names, parts, strict=True))
        return f"csv-owners-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"

    return OverRanks(ranks, mine)(digests, join)


def my_owners(ranks: Ranks, names: list[str], hosted: list[np.ndarray]) -> list[str]:
    """Return the owners whose files this rank reads."""
    if ranks.rank not in ranks.client_ranks:
        return []
    return [names[k] for k in hosted[ranks.client_ranks.index(ranks.rank)]]


def folder_of(config: DataConfig) -> CsvFolder:
    return CsvFolder(config.dataset.removeprefix("csv:"))


def find_owners(ranks: Ranks, folder: Path) -> tuple[list[str], list[np.ndarray]]:
    """Return the owners by name, and the numbers of those on each client rank."""
    seen: dict[str, tuple[int, int]] = {}
    error = ""
    if ranks.rank in ranks.client_ranks and folder.is_dir():
        try:
            for owner, path in owners_files(folder).items():
                status = path.stat()
                seen[owner] = (status.st_size, status.st_mtime_ns)
        except UserError as mistake:
            error = str(mistake)
    everyone = ranks.gather((ranks.host, seen, error))

    def assign() -> tuple[list[str], list[np.ndarray]]:
        assert everyone
        for _, _, error in everyone:
            if error:
                raise UserError(error)
        return assign_owners(folder, [everyone[rank][:2] for rank in ranks.client_ranks])

    return ranks.on_server(assign)


def assign_owners(folder: Path, seen: list[Seen]) -> tuple[list[str], list[np.ndarray]]:
    """Assign each owner to the least loaded client rank that has its file, the largest first."""
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
