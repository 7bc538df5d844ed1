"""Tables of text turned into float32 inputs; shared by the tabular datasets.

Everything learned from the data (means, deviations, categories) is learned from the training rows.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedmpi.errors import UserError, shortened

MOST_CATEGORIES = 1000
LONGEST_CELL = 1000
"""Characters of a text that can be a category or a name; a longer one is rather a lost quote."""


def read_text(content: bytes, path: Path, notes: list[str]) -> pd.DataFrame:
    """The rows of a CSV file, cells as text or missing, columns named by the first line."""
    try:
        text = content.decode("utf-8-sig")
        # The header is read as a row: pandas would rename duplicate columns without a word, and
        # take the first column for an index where the rows are longer than the header.
        cells = pd.read_csv(
            io.StringIO(text),
            header=None,
            dtype=str,
            skipinitialspace=True,
            low_memory=False,
        )
    except UnicodeDecodeError as error:
        old = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8, for example with "
            f"iconv -f {old} -t utf-8."
        ) from error
    except pd.errors.EmptyDataError as error:
        raise UserError(f"{path} is empty.") from error
    except pd.errors.ParserError as error:
        why = str(error).strip().rpartition("C error: ")[2]
        raise UserError(f"{path} is not a table: {why}.") from error
    note_short_rows(text, cells, path, notes)
    cells = cells.apply(lambda column: column.str.strip()).replace("", None)
    header, rows = cells.iloc[0], cells.iloc[1:].reset_index(drop=True)
    named = header.notna().to_numpy()
    if not named.all():
        notes.append(f"{path.name}: {(~named).sum()} columns without a name left out")
    rows = rows.loc[:, named].set_axis(header[named].tolist(), axis=1)
    if len(longest := max(rows.columns, key=len, default="")) > LONGEST_CELL:
        raise UserError(
            f"{path}: the column name {shortened(longest)} has {len(longest):,} characters: is a "
            "quote left open?"
        )
    repeated = rows.columns[rows.columns.duplicated()]
    if len(repeated):
        raise UserError(f"{path} has more than one column {repeated[0]!r}: rename one of them.")
    if rows.empty:
        raise UserError(f"{path} has a header but no rows.")
    return rows


def note_short_rows(text: str, cells: pd.DataFrame, path: Path, notes: list[str]) -> None:
    """Note rows with fewer cells than the others: pandas makes them up without a word."""
    if not cells.iloc[:, -1].isna().any():
        return  # every row has its last cell, so it is whole
    limit = csv.field_size_limit(max(len(text), 1))
    try:
        reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
        lengths = [(reader.line_num, len(row)) for row in reader if any(map(str.strip, row))]
    except csv.Error:  # it is stricter than pandas, who has read the table
        return
    finally:
        csv.field_size_limit(limit)
    short = [line for line, length in lengths if length < cells.shape[1]]
    if short and short[0] != lengths[0][0]:  # under a short header all rows are longer
        notes.append(
            f"{path.name}: {len(short)} rows have fewer cells than the header's {cells.shape[1]} "
            f"(the first ends in line {short[0]}); the cells that lack are taken as empty"
        )


def check_cells(frame: pd.DataFrame, path: Path) -> None:
    """UserError for a text that is too long to be a category or a label."""
    for name in frame.columns:
        lengths = frame[name].str.len()
        if lengths.max() > LONGEST_CELL:
            row = int(lengths.argmax())
            raise UserError(
                f"{path}: column {name!r} has a cell of {lengths.max():,.0f} characters (row "
                f"{row + 1}, {shortened(frame[name].iloc[row])}), at most {LONGEST_CELL:,} are "
                f"possible: is a quote left open? Otherwise leave it out with --drop {name!r}."
            )


def numbers(column: pd.Series) -> np.ndarray | None:
    """The column as float64, NaN where it is missing or '?'; None if some value is no number."""
    column = column.where(column != "?")  # the mark of many a public table
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return None if (np.isnan(values) & column.notna().to_numpy()).any() else values


def labels(column: pd.Series) -> tuple[np.ndarray, list[str]]:
    """A code for every value, and the names of the codes, in order; whole numbers as such."""
    values = numbers(column)
    exact = values is not None and np.abs(values).max() < 2**53  # False for a NaN as well
    if values is None or not (exact and np.array_equal(values, np.trunc(values))):
        names, found = np.unique(column.to_numpy(dtype=object).astype(str), return_inverse=True)
        return found, names.tolist()
    whole, found = np.unique(values, return_inverse=True)
    return found, [f"{value:.0f}" for value in whole]


@dataclass
class Numeric:
    """A number: standardised, unless it is 0 or 1; missing is the mean, and an input of its own."""

    mean: float
    deviation: float
    center: float
    scale: float
    missing: bool

    @classmethod
    def fit(cls, name: str, train: np.ndarray) -> "Numeric":
        known = train[~np.isnan(train)]
        if np.isinf(known).any():
            raise UserError(
                f"column {name!r} has {np.isinf(known).sum()} infinite values: correct them, or "
                f"leave it out with --drop {name!r}."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = (known.mean(), known.std()) if len(known) else (0.0, 0.0)
        if not np.isfinite(deviation):
            raise UserError(
                f"column {name!r} has values too large to work with: correct them, or leave it out "
                f"with --drop {name!r}."
            )
        if len(known) and (known == known[0]).all():
            deviation = 0.0  # where rounding would leave a little
        binary = np.isin(known, (0, 1)).all()
        center, scale = (0.0, 1.0) if binary or not deviation else (mean, deviation)
        return cls(mean, deviation, center, scale, missing=0 < len(known) < len(train))

    def features(self, name: str) -> list[str]:
        return [name] * bool(self.deviation) + [f"{name} missing"] * self.missing

    def encode(self, values: np.ndarray, out: np.ndarray) -> None:
        absent = np.isnan(values)
        with np.errstate(over="ignore"):
            if self.deviation:
                filled = np.where(absent, self.mean, values)
                out[:, 0] = (filled - self.center) / self.scale
            if self.missing:
                out[:, -1] = absent


@dataclass
class Categorical:
    """Text: an input of 0 and 1 for every value among the training rows, missing being one."""

    values: pd.Index
    missing: bool

    @classmethod
    def fit(cls, name: str, train: pd.Series) -> "Categorical":
        values = pd.Index(sorted(train.dropna().unique()), dtype=object)
        if len(values) > MOST_CATEGORIES or (len(train) > 100 and len(values) > len(train) / 2):
            raise UserError(
                f"column {name!r} is text with {len(values)} different values in {len(train)} "
                f"training rows, such as {shortened(values[0])}: leave it out with --drop {name!r}."
            )
        return cls(values, missing=bool(train.isna().any()))

    def features(self, name: str) -> list[str]:
        every = [f"{name}={value}" for value in self.values] + [f"{name} missing"] * self.missing
        return every if len(every) > 1 else []

    def encode(self, column: pd.Series, out: np.ndarray) -> None:
        code = self.values.get_indexer(column.to_numpy(dtype=object))
        if self.missing:
            code[column.isna().to_numpy()] = len(self.values)
        known = np.flatnonzero(code >= 0)
        out[known, code[known]] = 1


def encode(
    frame: pd.DataFrame, in_test: np.ndarray, notes: list[str]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The inputs, a float32 row for every row of `frame`, and the name of every input."""
    plan, dropped, empty = [], [], []
    features: list[str] = []
    encoder: Numeric | Categorical
    for name in frame.columns:
        column = frame[name]
        train = column[~in_test]
        if (train.isna() | (train == "?")).all():
            empty.append(name)
            continue
        values = numbers(column)
        if values is None:
            encoder = Categorical.fit(name, train)
            note_text(name, column, in_test, encoder, notes)
        else:
            encoder, column = Numeric.fit(name, values[~in_test]), values
            note_missing(name, values, in_test, notes)
        if named := encoder.features(name):
            plan.append((name, encoder, column, slice(len(features), len(features) + len(named))))
            features += named
        else:
            dropped.append(name)
    if empty:
        notes.append(f"columns without a value in the training rows left out: {', '.join(empty)}")
    if dropped:
        notes.append(f"constant columns left out: {', '.join(dropped)}")
    x = np.zeros((len(frame), len(features)), dtype=np.float32)
    for name, encoder, column, place in plan:
        encoder.encode(column, x[:, place])
        if not np.isfinite(x[:, place]).all():
            raise UserError(
                f"column {name!r} has test values that are infinite or too large: correct them, or "
                f"leave it out with --drop {name!r}."
            )
    return x, tuple(features)


def note_missing(name: str, values: np.ndarray, in_test: np.ndarray, notes: list[str]) -> None:
    absent = np.isnan(values)
    if absent.any():
        notes.append(
            f"column {name!r}: {absent[~in_test].sum()} training and {absent[in_test].sum()} test "
            "values missing, filled with the training mean"
        )


def note_text(
    name: str, column: pd.Series, in_test: np.ndarray, encoder: Categorical, notes: list[str]
) -> None:
    is_number = pd.to_numeric(column, errors="coerce").notna()
    others = column[~is_number & column.notna()]
    if is_number.sum() > len(others):
        notes.append(
            f"column {name!r} is taken for text: {len(others)} values are not numbers, "
            f"such as {shortened(others.iloc[0])}"
        )
    absent = column.isna().to_numpy()
    if absent.any():
        notes.append(
            f"column {name!r}: {absent[~in_test].sum()} training and {absent[in_test].sum()} test "
            "values missing, "
            + ("a category of their own" if encoder.missing else "all zero in the inputs")
        )
    test = column[in_test]
    unseen = ~test.isin(encoder.values) & test.notna()
    if unseen.any():
        notes.append(f"column {name!r}: {unseen.sum()} test values not seen in training, all zero")
