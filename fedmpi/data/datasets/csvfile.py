"""Any CSV file: --target names the column to predict, --group the columns that make the groups."""

import contextlib
import hashlib
import json
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.data.dataset import Arrays, Dataset
from fedmpi.data.options import DataOptions
from fedmpi.errors import Line, UserError, shortened, unknown_name

if TYPE_CHECKING:
    import pandas as pd

    from fedmpi.data.agreement import Owner

DEFAULT_TEST = "0.2"
READING = 3
"""Version of the reading, which is a part of the key. Raise it when the same file would be read to
other rows or inputs."""


class CsvFile(Dataset):
    """Columns of numbers are standardised, columns of text become one input for each value."""

    summary = "your own table, with --target and --group"
    uses: tuple[str, ...] = (
        "seed",
        "target",
        "group",
        "test",
        "drop",
        "client",
        "min_value_rows",
    )

    def __init__(self, file: str):
        self.name = f"csv:{file}"
        self.path = path_of(file)

    def used(self, options: DataOptions) -> dict:
        used = super().used(options) | {"test": options.test or DEFAULT_TEST}
        if held_out_share(used["test"]) is None:
            del used["seed"]  # which only chooses the rows held out
        return used

    def key(self, options: DataOptions) -> str:
        """Return a key made of the options and of the contents, not place or date, of the files."""
        used = self.used(options)
        contents = [self.path]
        if held_out_share(used["test"]) is None:
            contents.append(path_of(used.pop("test")))
        digest = hashlib.sha256(json.dumps(used | {"reading": READING}, sort_keys=True).encode())
        for path in contents:
            digest.update(hashlib.sha256(content_of(path)).digest())
        stem = re.sub(r"[^\w.-]+", "-", self.path.stem)[:40]
        return f"csv-{stem}-{digest.hexdigest()[:12]}"

    def owned(self, options: DataOptions) -> bool:
        return options.client is not None

    def attribute(
        self, groups: tuple[str, ...], options: DataOptions
    ) -> tuple[str, tuple[str, ...]] | None:
        """The group columns but the target; None where a value has the separator in it."""
        from fedmpi.data.labels import SEPARATOR

        places = [i for i, name in enumerate(options.group) if name != options.target]
        parts = [name.split(SEPARATOR) for name in groups]
        if not places or any(len(values) != len(options.group) for values in parts):
            return None
        values = tuple(SEPARATOR.join(part[i] for i in places) for part in parts)
        return SEPARATOR.join(options.group[i] for i in places), values

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        from fedmpi.data.agreement import InOneProcess, assemble

        if not options.target or not options.group:
            raise UserError(
                f"{self.name} needs --target COL and --group COL[,COL...]; its columns "
                f"are {', '.join(read_table(self.path, [], []).columns)}."
            )
        notes: list[Line] = []
        sources: list[dict] = []
        tables = read_tables(self.path, options, notes, sources)
        frame, in_test = usable_rows(tables, options, notes)
        owners = split_owners(frame, in_test, options.client)
        owners[0].notes += notes
        share = held_out_share(options.test or DEFAULT_TEST)
        agreed = assemble(InOneProcess(owners), options, share, self.name)
        train_rows = [np.count_nonzero(~owner.tested) for owner in owners]
        return Arrays.split(
            np.concatenate([owner.x for owner in owners]),
            np.concatenate([owner.y for owner in owners]),
            np.concatenate([owner.group for owner in owners]),
            np.concatenate([owner.tested for owner in owners]),
            groups=agreed.groups,
            classes=agreed.classes,
            features=agreed.features,
            encoding=agreed.encoding.to_json(),
            notes=agreed.notes,
            sources=sources,
            clients=tuple(owner.name for owner in owners) if options.client else (),
            train_client=np.repeat(np.arange(len(owners)), train_rows) if options.client else None,
        )


class CsvFolder(CsvFile):
    """A file for each owner, which only the owner's rank reads: see fedmpi/data/owners.py."""

    summary = "your own tables, one file for each owner of rows"
    uses = ("seed", "target", "group", "test", "drop", "min_value_rows")

    def __init__(self, folder: str):
        self.path = path_of(folder)
        self.name = f"csv:{folder.rstrip('/') or '/'}/"

    def owned(self, options: DataOptions) -> bool:
        return True

    def key(self, options: DataOptions) -> str:
        raise UserError(f"{self.name} is never in one place: only fedmpi.train can read it.")

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        raise UserError(f"{self.name} is never in one place: only fedmpi.train can read it.")


def split_owners(
    frame: "pd.DataFrame", in_test: np.ndarray | None, client: str | None
) -> "list[Owner]":
    """The rows by owner, in the order of the names; one without a name if none is asked for.

    Rows of a test file go to the first: where a row is tested makes no difference.
    """
    from fedmpi.data.agreement import Owner

    if client is None:
        return [Owner("", frame, in_test)]
    names = frame[client].to_numpy(dtype=object).astype(str)
    test = np.zeros(len(frame), dtype=bool) if in_test is None else in_test
    owners = []
    for number, name in enumerate(np.unique(names[~test]).tolist()):
        rows = (names == name) & ~test
        rows |= test & (number == 0)
        chosen = None if in_test is None else in_test[rows]
        owners.append(Owner(name, frame[rows].reset_index(drop=True), chosen))
    return owners


def held_out_share(test: str) -> float | None:
    """Return `--test` as a share of the rows, or None if it names a file."""
    try:
        share = float(test)
    except ValueError:
        return None
    if not 0 < share < 1:
        raise UserError(
            f"--test {test}: a share of the rows is between 0 and 1; or name a CSV file."
        )
    return share


def path_of(given: str) -> Path:
    """The path that the user means, ~ being a home folder if there is such a one."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        return Path(given)


def is_folder(given: str) -> bool:
    """Return whether this host has a folder there; for a name that cannot be one, it has not."""
    with contextlib.suppress(OSError, ValueError):
        return path_of(given).is_dir()
    return False


def content_of(path: Path) -> bytes:
    try:
        if stat.S_ISREG(path.stat().st_mode) or path.is_dir():  # of which reading tells
            return path.read_bytes()
    except FileNotFoundError as error:
        # A newcomer's first slip: the name is right, and the folder another.
        raise UserError(f"cannot read {path}: {error.strerror}, seen from {Path.cwd()}.") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {why}.") from error
    raise UserError(f"cannot read {path}: it is a pipe or a device; save it as a file first.")


@dataclass
class Tables:
    """The rows to train on and, if they have a file of their own, the rows to test with."""

    train_path: Path
    train: "pd.DataFrame"
    test_path: Path | None = None
    test: "pd.DataFrame | None" = None


def read_tables(path: Path, options: DataOptions, notes: list[Line], sources: list[dict]) -> Tables:
    """The cells as text, with the columns that the user names but without those to leave out."""
    labels = [name for name in (options.target, *options.group, options.client) if name]
    tables = Tables(path, read_table(path, notes, sources))
    require([*labels, *options.drop], tables.train, path)
    drop = [name for name in options.drop if name not in labels]
    tables.train = tables.train.drop(columns=drop)
    test = options.test or DEFAULT_TEST
    if held_out_share(test) is None:
        tables.test_path = path_of(test)
        tables.test = read_table(tables.test_path, notes, sources).drop(
            columns=drop, errors="ignore"
        )
    return tables


def usable_rows(
    tables: Tables, options: DataOptions, notes: list[Line]
) -> tuple["pd.DataFrame", np.ndarray | None]:
    """The rows with labels, and which are of the test file; None if they are yet to be chosen."""
    import pandas as pd

    path, test_path = tables.train_path, tables.test_path
    frame = with_labels(tables.train, options, path, notes)
    if tables.test is None or test_path is None:
        return frame, None
    other = tables.test
    if options.client and options.client not in other.columns:
        other[options.client] = "-"  # whose test rows these are makes no difference
    require(frame.columns, other, test_path)
    if extra := [name for name in other.columns if name not in frame.columns]:
        text = f"{len(extra)} columns only in {test_path.name} ignored"
        notes.append(Line(text, f"({', '.join(extra)})"))
    other = with_labels(other[frame.columns], options, test_path, notes)
    if path.samefile(test_path):
        text = f"the test rows are the training rows: --test is {test_path.name} as well"
        notes.append(Line(text))
    in_test = np.arange(len(frame) + len(other)) >= len(frame)
    return pd.concat([frame, other], ignore_index=True), in_test


def read_table(path: Path, notes: list[Line], sources: list[dict]) -> "pd.DataFrame":
    from fedmpi.data.encoding import read_text

    content = content_of(path)
    origin = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
    sources.append(origin | {"origin": str(path)})
    return read_text(content, path, notes)


def with_labels(
    frame: "pd.DataFrame", options: DataOptions, path: Path, notes: list[Line]
) -> "pd.DataFrame":
    """The rows that have a target, every column of the group, and an owner; '?' is no target."""
    from fedmpi.data.encoding import check_cells

    check_cells(frame, path)
    assert options.target
    named = (options.target, *options.group, options.client)
    labels = list(dict.fromkeys(name for name in named if name))
    whole = frame[labels].notna().all(axis=1) & (frame[options.target] != "?")
    if not whole.any():
        raise UserError(f"{path} has no row with a value in each of {', '.join(labels)}.")
    if not whole.all():
        owner = " or an owner" if options.client else ""
        number = (~whole).sum()
        text = f"{path.name}: {number} rows without a target or a group{owner} left out"
        notes.append(Line(text))
    return frame[whole].reset_index(drop=True)


def require(names: Iterable[str], frame: "pd.DataFrame", path: Path) -> None:
    """Raise a UserError for the first of `names` that is not a column."""
    for name in names:
        if name not in frame.columns:
            only = frame.columns[0]
            if len(frame.columns) == 1 and re.search(r"[;\t|]", only):
                raise UserError(
                    f"{path} has one column: separate its cells by commas.",
                    f"The column is {shortened(only)}.",
                )
            allowed = unknown_name("column", name, frame.columns).line.quoted
            raise UserError(
                f"{path} has no column {shortened(name)}. Is its first line the names of its "
                "columns?",
                allowed.replace("Allowed:", "They are:"),
            )
