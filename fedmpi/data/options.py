"""The command-line options that decide which rows a dataset has."""

import argparse
import csv
import dataclasses
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from fedmpi.errors import UserError

MOST_BINS = 100
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class DataOptions:
    """Options that a dataset is read with; each dataset `uses` some of them."""

    seed: int = 0
    rows: int = 10_000
    target: str | None = None
    group: tuple[str, ...] = ()
    test: str | None = None
    drop: tuple[str, ...] = ()
    client: str | None = None
    states: tuple[str, ...] = ("all",)
    min_group_rows: int = 0
    min_value_rows: int = 1
    merge_small: int = 0
    missing: tuple[str, ...] = ()
    bins: int | None = None
    by: str | None = None
    """Column of --setting by:COLUMN, which a dataset may keep for it."""

    @property
    def target_column(self) -> str:
        """Name of the target's column."""
        assert self.target
        return split_bands(self.target)[0]

    @property
    def group_columns(self) -> tuple[str, ...]:
        """Names of the group columns."""
        return tuple(split_bands(column)[0] for column in self.group)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Names of the target's column and the group columns, each once."""
        return tuple(dict.fromkeys((self.target_column, *self.group_columns)))

    @property
    def bands(self) -> dict[str, tuple[float, ...]]:
        """Limits of the bands of each column that is cut into bands."""
        given = (split_bands(column) for column in (self.target, *self.group) if column)
        return {name: limits for name, limits in given if limits}

    def __post_init__(self):
        if self.seed < 0:
            raise UserError(f"--seed {self.seed}: a seed is zero or more.")
        if self.rows < 1:
            raise UserError(f"--rows {self.rows}: at least one row is needed.")
        if self.min_group_rows < 0:
            raise UserError(f"--min-group-rows {self.min_group_rows}: a number of rows, as 40.")
        if self.min_value_rows < 1:
            raise UserError(f"--min-value-rows {self.min_value_rows}: a number of rows, as 5.")
        if self.merge_small < 0:
            raise UserError(f"--merge-small {self.merge_small}: a number of rows, as 40.")
        if self.bins is not None and not 2 <= self.bins <= MOST_BINS:
            raise UserError(f"--bins {self.bins}: 2 to {MOST_BINS} classes, as 4.")
        if self.bins and self.target and split_bands(self.target)[1]:
            raise UserError(f"--target {self.target} has limits, --bins chooses them: give one.")


class DataConfig(Protocol):
    """Part of a run's configuration that reading data takes, beside what `options_from` takes."""

    @property
    def dataset(self) -> str: ...

    @property
    def data_dir(self) -> str: ...

    @property
    def data_key(self) -> str: ...

    @property
    def progress(self) -> str: ...


NAMES = tuple(field.name for field in dataclasses.fields(DataOptions) if field.name != "by")
"""Names of the options that have a flag of their own; `by` is a part of --setting."""


def add_data_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of DataOptions but --seed, None where not given; and --data-dir."""
    parser.add_argument("--data-dir", default="data", metavar="DIR", help="(data)")
    parser.add_argument("--rows", type=int, help="synthetic: training rows (10000)")
    parser.add_argument(
        "--target",
        metavar="COL[:X,X...]",
        help="csv: the column to predict; numbers become classes with limits, as amount:1000,5000",
    )
    parser.add_argument(
        "--bins", type=int, metavar="N", help="csv: N classes of a target of numbers, equally large"
    )
    parser.add_argument(
        "--group",
        type=columns_of_list,
        metavar="COL[,COL...]",
        help="csv: their combinations are groups; age:30,50 makes three bands of ages",
    )
    parser.add_argument(
        "--test", metavar="FILE|SHARE", help="csv: test rows, or the share to hold out (.2)"
    )
    parser.add_argument(
        "--drop", type=names_of_list, metavar="COL[,COL...]", help="csv: not to learn from"
    )
    parser.add_argument("--client", metavar="COL", help="csv: the column that says whose row it is")
    parser.add_argument(
        "--states", type=names_of_list, metavar="ST[,ST...]", help="acs: as MA,RI, or all (all)"
    )
    parser.add_argument(
        "--min-group-rows",
        type=int,
        metavar="N",
        help="csv, acs: leave out groups with fewer rows to train on",
    )
    parser.add_argument(
        "--merge-small",
        type=int,
        metavar="N",
        help="csv: make one group of those with fewer than N rows to train on",
    )
    parser.add_argument(
        "--missing",
        type=names_of_list,
        metavar="TEXT[,TEXT...]",
        help="csv: cells that stand for a missing value, beside blanks, as NA,null",
    )
    parser.add_argument(
        "--min-value-rows",
        type=int,
        metavar="N",
        help="csv: a text that fewer than N training rows of its owner have is told to nobody, "
        "and becomes 'other' (1: off)",
    )


def options_from(args: object) -> DataOptions:
    """Return the options that `args` has as attributes, with defaults for those that are None."""
    given = {name: getattr(args, name) for name in NAMES} | {"by": getattr(args, "by", None)}
    return DataOptions(**{name: value for name, value in given.items() if value is not None})


def names_of_list(given: str) -> tuple[str, ...]:
    """Return the names of a list, in which a name with a comma stands in double quotes."""
    try:
        names = tuple(name.strip() for name in next(csv.reader([given], skipinitialspace=True)))
    except (csv.Error, StopIteration):
        names = ("",)
    if "" in names:
        raise argparse.ArgumentTypeError(f"{given!r} has an empty name; give names as in sex,race")
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{given!r} has a name twice")
    return names


def columns_of_list(given: str) -> tuple[str, ...]:
    """Return the columns of a list, those with limits as in age:30,50 with all of these."""
    columns: list[str] = []
    for part in names_of_list(given):
        if columns and split_bands(columns[-1])[1] and NUMBER.fullmatch(part):
            columns[-1] += f",{part}"
        else:
            columns.append(part)
    names = [split_bands(column)[0] for column in columns]
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{given!r} has a name twice")
    return tuple(columns)


def split_bands(column: str) -> tuple[str, tuple[float, ...]]:
    """Return the name and the ascending limits of a column given as age:30,50."""
    name, _, limits = column.rpartition(":")
    parts = limits.split(",")
    if not name or not all(NUMBER.fullmatch(part.strip()) for part in parts):
        return column, ()
    return name, tuple(sorted({float(part) for part in parts}))


def as_list(names: Iterable[str]) -> str:
    """Return names as an option takes them, to be pasted into a shell."""
    cells = [f'"{name}"' if "," in name or '"' in name else name for name in names]
    return shlex.quote(",".join(cells))
