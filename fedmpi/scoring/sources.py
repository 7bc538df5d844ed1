"""Rows to score, wherever the user has them: a table, standard input, arrays, the test rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedmpi.errors import UserError, said_by
from fedmpi.scoring.inputs import Tally
from fedmpi.scoring.model import Model

if TYPE_CHECKING:
    import pandas as pd

    from fedmpi.data.labels import LabelEncoding
    from fedmpi.data.store import Prepared
    from fedmpi.scoring.chunks import Table

TEST = "test"
"""Name that users give for the run's own test rows."""
PART_BYTES = 1 << 24


@dataclass
class Part:
    """Some rows, and what is known of each beside its cells."""

    rows: pd.DataFrame | np.ndarray
    records: list[bytes]
    """What stands before the prediction in the row's line of the output."""
    y: np.ndarray | None = None
    group: np.ndarray | None = None
    """Classes and groups by number, of arrays that come with them."""


class Source(Protocol):
    """Rows that can be read once, from the first to the last."""

    name: str
    separator: str
    """What stands between the cells of `header`, and of the records."""

    @property
    def header(self) -> bytes:
        """What stands before the names of the predictions in the first line of the output."""

    @property
    def columns(self) -> Sequence[str]:
        """Names in `header`."""

    def parts(self, tally: Tally) -> Iterator[Part]:
        """Yield the rows in order; count in `tally` what is odd."""


class TableRows:
    """Rows of a CSV file. Its columns may be in any order, and others may be among them."""

    def __init__(self, table: Table, wanted: list[str], tally: Tally) -> None:
        from fedmpi.scoring.chunks import check_columns

        check_columns(table, wanted, tally)
        self.table, self.name, self.wanted = table, table.name, wanted
        self.separator = table.separator

    @property
    def header(self) -> bytes:
        return self.table.header

    @property
    def columns(self) -> list[str]:
        return self.table.columns

    def parts(self, tally: Tally) -> Iterator[Part]:
        for chunk in self.table.chunks(self.wanted, tally):
            yield Part(chunk.frame, chunk.records)


@dataclass
class ArrayRows:
    """Rows that are inputs already: images, or a prepared dataset. The output numbers them."""

    name: str
    x: np.ndarray
    y: np.ndarray | None = None
    group: np.ndarray | None = None
    separator = ","
    header = b"row"
    columns = ("row",)

    def parts(self, tally: Tally) -> Iterator[Part]:
        step = max(1, PART_BYTES // max(1, self.x[:1].nbytes))
        for start in range(0, len(self.x), step):
            rows = slice(start, start + step)
            x = np.array(self.x[rows])  # a copy: the pages of a mapped file count as memory
            records = [b"%d" % i for i in range(start, start + len(x))]
            labels = (None if a is None else np.asarray(a[rows]) for a in (self.y, self.group))
            yield Part(x, records, *labels)


def open_source(
    given: str, model: Model, data_dir: Path, tally: Tally, labelled: bool = False
) -> Source:
    """Return the rows that the user means; with `labelled`, their classes and groups are wanted."""
    if given == TEST:
        prepared = test_rows(model, data_dir)
        arrays = (prepared.array(f"{TEST}_{part}") for part in ("x", "y", "group"))
        return ArrayRows("the test rows", *arrays)
    if given.startswith("csv:") or given.endswith("/"):
        raise UserError(f"{given}: give one file; each owner of rows can score its own.")
    if Path(given).suffix.lower() in (".npy", ".npz"):
        return with_groups(read_arrays(given), model, labelled)
    from fedmpi.scoring.chunks import open_table

    if model.encoding is None:
        model.encode_counted(_no_table(), tally)  # says what the model takes
    return TableRows(open_table(given), wanted_columns(model, labelled), tally)


def wanted_columns(model: Model, labelled: bool) -> list[str]:
    """Return the columns that inputs are made of and, with `labelled`, classes and groups."""
    assert model.encoding
    wanted = list(model.encoding.columns)
    if labelled:
        labels = labels_of(model)
        wanted += [labels.target.name, *(column.name for column in labels.group_columns)]
    return list(dict.fromkeys(wanted))


def labels_of(model: Model) -> LabelEncoding:
    """Return the rules of the model's classes and groups; UserError if it has none."""
    if model.encoding is None or model.encoding.labels is None:
        raise UserError(
            "the dataset of this model does not say which columns are its classes and groups: "
            "give a .npz file with x, y and group."
        )
    return model.encoding.labels


def _no_table() -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame()


def read_arrays(given: str) -> ArrayRows:
    """Return the rows of a .npy file, or those of a .npz file with x and maybe y and group."""
    path = Path(given).expanduser()
    try:
        if path.suffix.lower() == ".npy":
            return ArrayRows(str(path), np.load(path, mmap_mode="r", allow_pickle=False))
        with np.load(path, allow_pickle=False) as found:
            names = list(found)
            if "x" not in names and len(names) != 1:
                raise UserError(
                    f"{path} has the arrays {', '.join(names) or 'none'}: call the rows x, their "
                    "classes y, their groups group."
                )
            rows = found["x"] if "x" in names else found[names[0]]
            return ArrayRows(str(path), rows, *(found.get(name) for name in ("y", "group")))
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or said_by(error)}.") from error
    except Exception as error:  # whatever a foreign file makes numpy raise
        raise UserError(f"{path} is no array of numpy's ({said_by(error)}).") from error


def with_groups(rows: ArrayRows, model: Model, labelled: bool) -> ArrayRows:
    """Return the rows with their groups, which are the classes where the model says so."""
    if rows.x.ndim == 0:
        raise UserError(f"{rows.name} is one number, and no rows.")
    if not labelled:
        return rows
    if rows.group is None and model.groups == model.classes:
        rows.group = rows.y
    for what, codes, names in (("y", rows.y, model.classes), ("group", rows.group, model.groups)):
        if codes is None:
            raise UserError(f"{rows.name} has no {what}: save it as .npz with x, y and group.")
        if codes.shape != (len(rows.x),) or codes.dtype.kind not in "iub":
            raise UserError(f"{rows.name}: {what} must be a whole number for each row.")
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(names):
            raise UserError(
                f"{rows.name}: {what} has {codes.min()} to {codes.max()}; the model has 0 to "
                f"{len(names) - 1} ({', '.join(names)})."
            )
    return rows


def test_rows(model: Model, data_dir: Path) -> Prepared:
    """Return the prepared dataset that the model was trained on, for its test rows."""
    from fedmpi import data as datasets
    from fedmpi.data.options import DataOptions
    from fedmpi.data.prepare import prepare, verify
    from fedmpi.data.store import is_stale

    told = model.description["trained_on"]
    name, key = told["dataset"], Path(told["data"]).name
    if name.endswith("/"):
        raise UserError(
            f"the test rows of {name} are with their owners: mpirun -n N python -m fedmpi.evaluate "
            "RUN csv:DIR/ evaluates files there."
        )
    folder = data_dir / "prepared" / key
    if folder.exists() and not is_stale(folder):
        return verify(folder)
    if ":" in name and not name.startswith("csv:"):
        raise UserError(
            f"{folder} is not there, and {name} is a dataset of the user's own, which a file must "
            f"not choose to import: python -m fedmpi.data fetch {name} prepares it."
        )
    options: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in told["options"].items()
    }
    dataset, given = datasets.find(name), DataOptions(**options)
    if dataset.key(given) != key:
        raise UserError(f"{name} has changed since the model was trained: give a file of rows.")
    return prepare(dataset, data_dir, given)
