"""The command-line options that decide which rows a dataset has."""

import argparse
import dataclasses
from dataclasses import dataclass
from typing import Protocol

from fedmpi.errors import UserError


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

    def __post_init__(self):
        if self.seed < 0:
            raise UserError(f"--seed {self.seed}: a seed is zero or more.")
        if self.rows < 1:
            raise UserError(f"--rows {self.rows}: at least one row is needed.")
        if self.min_group_rows < 0:
            raise UserError(f"--min-group-rows {self.min_group_rows}: a number of rows, as 40.")
        if self.min_value_rows < 1:
            raise UserError(f"--min-value-rows {self.min_value_rows}: a number of rows, as 5.")


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


NAMES = tuple(field.name for field in dataclasses.fields(DataOptions))


def add_data_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of DataOptions but --seed, None where not given; and --data-dir."""
    parser.add_argument("--data-dir", default="data", metavar="DIR", help="(data)")
    parser.add_argument("--rows", type=int, help="synthetic: training rows (10000)")
    parser.add_argument("--target", metavar="COL", help="csv: the column to predict")
    parser.add_argument(
        "--group",
        type=names_of_list,
        metavar="COL[,COL...]",
        help="csv: their combinations are groups",
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
        help="acs: leave out groups with fewer rows to train on",
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
    given = {name: getattr(args, name) for name in NAMES}
    return DataOptions(**{name: value for name, value in given.items() if value is not None})


def names_of_list(given: str) -> tuple[str, ...]:
    names = tuple(column.strip() for column in given.split(","))
    if "" in names:
        raise argparse.ArgumentTypeError(f"{given!r} has an empty name; give names as in sex,race")
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{given!r} has a name twice")
    return names
