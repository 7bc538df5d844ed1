"""Any CSV file: --target names the column to predict, --group the columns that make the groups."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.data.dataset import Arrays, Dataset
from fedmpi.data.files import hash_of
from fedmpi.data.options import DataOptions
from fedmpi.errors import Line, UserError, shortened, unknown_name

if TYPE_CHECKING:
    import pandas as pd

    from fedmpi.data.agreement import Owner

DEFAULT_TEST = "0.2"
FIRST_LINE = " Is its first line the names of its columns?"
"""Asked of a file that has no such column; a DataFrame has no first line."""
BLANK = "(blank)"
"""Client of the rows that have nothing in the column of --setting by:COLUMN."""
READING = 4
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
        "min_group_rows",
        "merge_small",
        "missing",
        "bins",
        "by",
    )

    def __init__(self, file: str):
        self.name = f"csv:{file}"
        self.path = path_of(file)

    def used(self, options: DataOptions) -> dict:
        used = super().used(options) | {"test": options.test or DEFAULT_TEST}
        if options.by is None:
            used.pop("by", None)  # as in the keys of before
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
            digest.update(bytes.fromhex(hash_of(path)))
        stem = re.sub(r"[^\w.-]+", "-", self.path.stem)[:40]
        return f"csv-{stem}-{digest.hexdigest()[:12]}"

    def owned(self, options: DataOptions) -> bool:
        return options.client is not None

    def attribute(
        self, groups: tuple[str, ...], options: DataOptions
    ) -> tuple[str, tuple[str, ...]] | None:
        """The group columns but the target; None where a value has the separator in it."""
        from fedmpi.data.labels import SEPARATOR

        names = options.group_columns
        places = [i for i, name in enumerate(names) if name != options.target_column]
        parts = [name.split(SEPARATOR) for name in groups]
        if not places or any(len(values) != len(names) for values in parts):
            return None
        values = tuple(SEPARATOR.join(part[i] for i in places) for part in parts)
        return SEPARATOR.join(names[i] for i in places), values

    def class_of_group(
        self, groups: tuple[str, ...], classes: tuple[str, ...], options: DataOptions
    ) -> tuple[int, ...] | None:
        """The class in the name of each group, where the target is one of the group columns."""
        from fedmpi.data.labels import SEPARATOR

        names = options.group_columns
        parts = [name.split(SEPARATOR) for name in groups]
        if options.target_column not in names or any(len(part) != len(names) for part in parts):
            return None
        found = [part[names.index(options.target_column)] for part in parts]
        if not set(found) <= set(classes):
            return None
        return tuple(classes.index(name) for name in found)

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        from fedmpi.data.agreement import InOneProcess, assemble

        if not options.target or not options.group:
            raise UserError(
                f"{self.name} needs --target COL and --group COL[,COL...]; its columns "
                f"are {', '.join(read_table(self.path, options, [], []).columns)}."
            )
        notes: list[Line] = []
        sources: list[dict] = []
        tables = read_tables(self.path, options, notes, sources)
        if options.bins:
            options = with_limits(tables.train, options, notes)
        frame, in_test = usable_rows(tables, options, notes)
        owners = split_owners(frame, in_test, options.client)
        owners[0].notes += notes
        share = held_out_share(options.test or DEFAULT_TEST)
        agreed = assemble(InOneProcess(owners), options, share, self.name)
        train_rows = [np.count_nonzero(~owner.tested) for owner in owners]
        by = {options.by: column_of(owners, options.by)} if options.by else {}
        return Arrays.split(
            np.concatenate([owner.x for owner in owners]),
            np.concatenate([owner.y for owner in owners]),
            np.concatenate([owner.group for owner in owners]),
            np.concatenate([owner.tested for owner in owners]),
            groups=agreed.groups,
            classes=agreed.classes,
            features=agreed.features,
            encoding=agreed.encoding.to_json(),
            columns=[*columns_aside(options), *agreed.encoding.found],
            notes=agreed.notes,
            sources=sources,
            clients=tuple(owner.name for owner in owners) if options.client else (),
            train_client=np.repeat(np.arange(len(owners)), train_rows) if options.client else None,
            by=by,
        )


def column_of(owners: "list[Owner]", name: str) -> np.ndarray:
    """The cells of a column in all rows to train on; blanks are a value of their own."""
    cells = [owner.training_rows[name].fillna(BLANK) for owner in owners]
    return np.concatenate([some.to_numpy(dtype=object) for some in cells])


def columns_aside(options: DataOptions) -> list[dict]:
    """Return, for the table of columns, those that the user has named and that are no inputs."""
    aside = {options.target_column: "the target"}
    if options.client:
        aside[options.client] = "the owner"
    for name in options.drop:
        aside.setdefault(name, "left out: --drop")
    return [{"name": name, "kind": "", "inputs": 0, "remark": why} for name, why in aside.items()]


def with_limits(frame: "pd.DataFrame", options: DataOptions, notes: list[Line]) -> DataOptions:
    """Return options with limits of the target, between as many equally large bins as --bins."""
    from fedmpi.data.forms import forms_of, to_numbers

    assert options.bins and options.target
    target = frame[options.target]
    forms = forms_of(target)
    if not forms:
        raise UserError(f"--bins {options.bins}: the target {options.target!r} is no numbers.")
    values, _ = to_numbers(target, forms[0])
    values = values[np.isfinite(values)]
    shares = np.arange(1, options.bins) / options.bins
    limits = np.unique(np.quantile(values, shares)) if len(values) else np.empty(0)
    limits = limits[limits > values.min()] if len(values) else limits  # below it there is nobody
    if not len(limits):
        raise UserError(f"--bins {options.bins}: the target {options.target!r} has one value.")
    if len(limits) < options.bins - 1:
        text = f"--bins {options.bins}: equal numbers allow {len(limits) + 1} classes"
        notes.append(Line(text))
    target_name = f"{options.target}:{','.join(f'{limit:.12g}' for limit in limits)}"
    return replace(options, target=target_name, bins=None)


class CsvFolder(CsvFile):
    """A file for each owner, which only the owner's rank reads: see fedmpi/data/owners.py."""

    summary = "your own tables, one file for each owner of rows"
    uses = tuple(name for name in CsvFile.uses if name not in ("client", "bins", "by"))

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


@dataclass
class Tables:
    """The rows to train on and, if they have a file of their own, the rows to test with."""

    train_path: Path
    train: "pd.DataFrame"
    test_path: Path | None = None
    test: "pd.DataFrame | None" = None


def read_tables(path: Path, options: DataOptions, notes: list[Line], sources: list[dict]) -> Tables:
    """The cells as text, with the columns that the user names but without those to leave out."""
    kept = [name for name in (*options.label_columns, options.client, options.by) if name]
    tables = Tables(path, read_table(path, options, notes, sources))
    require([*kept, *options.drop], tables.train, path)
    drop = [name for name in options.drop if name not in kept]
    tables.train = tables.train.drop(columns=drop)
    test = options.test or DEFAULT_TEST
    if held_out_share(test) is None:
        tables.test_path = path_of(test)
        tables.test = read_table(tables.test_path, options, notes, sources).drop(
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
    if options.by in options.drop and options.by not in other.columns:
        other[options.by] = "-"
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


def read_table(
    path: Path, options: DataOptions, notes: list[Line], sources: list[dict]
) -> "pd.DataFrame":
    """The cells as text, None for a blank and for what --missing names."""
    from fedmpi.data.tables import read_file

    frame, sha256 = read_file(path, notes)
    sources.append({"file": path.name, "sha256": sha256, "origin": str(path)})
    return frame.mask(frame.isin(options.missing), None) if options.missing else frame


def with_labels(
    frame: "pd.DataFrame", options: DataOptions, path: Path, notes: list[Line]
) -> "pd.DataFrame":
    """The rows that have a target, every column of the group, and an owner; '?' is no target."""
    from fedmpi.data.forms import NO_NUMBER
    from fedmpi.data.tables import check_cells

    check_cells(frame, path)
    labels = [name for name in (*options.label_columns, options.client) if name]
    whole = frame[labels].notna().all(axis=1) & (frame[options.target_column] != "?")
    for name in options.bands:
        whole &= ~frame[name].isin(NO_NUMBER)
    if not whole.any():
        raise UserError(f"{path} has no row with a value in each of {', '.join(labels)}.")
    if not whole.all():
        owner = " or an owner" if options.client else ""
        number = (~whole).sum()
        text = f"{path.name}: {number} rows without a target or a group{owner} left out"
        lacking = {name: int(frame[name].isna().sum()) for name in labels}
        each = ", ".join(f"{name} {rows}" for name, rows in lacking.items() if rows)
        notes.append(Line(f"{text} ({each})" if each else text))
    return frame[whole].reset_index(drop=True)


def require(names: Iterable[str], frame: "pd.DataFrame", path: Path) -> None:
    """Raise a UserError for those of `names` that are not columns."""
    lacking = [name for name in dict.fromkeys(names) if name not in frame.columns]
    if not lacking:
        return
    listed = ", ".join(map(shortened, lacking))
    allowed = unknown_name("column", lacking[0], frame.columns).line.quoted
    commas = any("," in name for name in frame.columns)
    quotes = " A name with a comma stands in double quotes, as in '\"a, b\",c'." if commas else ""
    raise UserError(
        f"{path} has no column {listed}.{FIRST_LINE}",
        allowed.replace("Allowed:", "They are:") + quotes,
    )
