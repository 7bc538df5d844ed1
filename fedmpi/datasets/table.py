"""Tables of text turned into float32 inputs; shared by the tabular datasets.

Everything learned from the data (means, deviations, categories) is learned from the training rows.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedmpi.errors import UserError

MOST_CATEGORIES = 1000


def read_text(content: bytes, path: Path, notes: list[str]) -> pd.DataFrame:
    """The rows of a CSV file, cells as text or missing, columns named by the first line."""
    try:
        # The header is read as a row: pandas would rename duplicate columns without a word, and
        # take the first column for an index where the rows are longer than the header.
        cells = pd.read_csv(
            io.StringIO(content.decode("utf-8-sig")),
            header=None,
            dtype=str,
            skipinitialspace=True,
            low_memory=False,
        )
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8, for example with "
            "iconv -f latin1 -t utf-8."
        ) from error
    except pd.errors.EmptyDataError as error:
        raise UserError(f"{path} is empty.") from error
    except pd.errors.ParserError as error:
        why = str(error).strip().rpartition("C error: ")[2]
        raise UserError(f"{path} is not a table: {why}.") from error
    cells = cells.apply(lambda column: column.str.strip()).replace("", None)
    header, rows = cells.iloc[0], cells.iloc[1:].reset_index(drop=True)
    named = header.notna().to_numpy()
    if not named.all():
        notes.append(f"{path.name}: {(~named).sum()} columns without a name left out")
    rows = rows.loc[:, named].set_axis(header[named].tolist(), axis=1)
    repeated = rows.columns[rows.columns.duplicated()]
    if len(repeated):
        raise UserError(f"{path} has more than one column {repeated[0]!r}: rename one of them.")
    if rows.empty:
        raise UserError(f"{path} has a header but no rows.")
    return rows


def numbers(column: pd.Series) -> np.ndarray | None:
    """The column as float64, NaN where it is missing or '?'; None if some value is no number."""
    column = column.where(column != "?")  # the mark of many a public table
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return None if (np.isnan(values) & column.notna().to_numpy()).any() else values


def labels(column: pd.Series) -> tuple[np.ndarray, list[str]]:
    """A code for every value, and the names of the codes, in order; whole numbers as such."""
    values = numbers(column)
    if values is None or not np.array_equal(values, np.trunc(values)):
        names, found = np.unique(column.to_numpy(dtype=object).astype(str), return_inverse=True)
        return found, names.tolist()
    whole, found = np.unique(values, return_inverse=True)
    return found, [f"{value:.0f}" for value in whole]


@dataclass(frozen=True)
class Numbers:
    """What is known of a column of numbers over some rows. It is all that leaves an owner of rows.

    Only training rows count, but for `missing_test`. Joining adds up the rows of two owners.
    """

    rows: int
    known: int
    mean: float
    squares: float
    """Sum of the squared distances from the mean."""
    constant: bool
    """Whether all known values are the mean."""
    binary: bool
    """Whether all known values are 0 or 1."""
    missing_test: int

    @classmethod
    def of(cls, name: str, values: np.ndarray, in_test: np.ndarray) -> "Numbers":
        train = values[~in_test]
        known = train[~np.isnan(train)]
        if np.isinf(known).any():
            raise UserError(f"column {name!r} has {np.isinf(known).sum()} infinite values.")
        constant = bool((known == known[:1]).all())
        with np.errstate(over="ignore", invalid="ignore"):
            # Of a constant the value itself, where rounding would leave a little.
            mean = 0.0 if not len(known) else float(known[0] if constant else known.mean())
            squares = 0.0 if constant else float(np.square(known - mean).sum())
        if not np.isfinite(squares):
            raise UserError(f"column {name!r} has values too large to work with.")
        binary = bool(np.isin(known, (0, 1)).all())
        missing_test = int(np.isnan(values[in_test]).sum())
        return cls(len(train), len(known), mean, squares, constant, binary, missing_test)

    def join(self, other: "Numbers") -> "Numbers":
        """Of the rows of both (Chan, Golub and LeVeque 1979)."""
        known = self.known + other.known
        apart, share = other.mean - self.mean, other.known / max(1, known)
        squares = self.squares + other.squares + apart**2 * self.known * share
        same = not (self.known and other.known) or self.mean == other.mean
        return Numbers(
            self.rows + other.rows,
            known,
            self.mean + apart * share if self.known else other.mean,
            squares,
            self.constant and other.constant and same,
            self.binary and other.binary,
            self.missing_test + other.missing_test,
        )

    def note(self, name: str) -> str | None:
        """What the user should know of it."""
        missing = self.rows - self.known
        if not missing and not self.missing_test:
            return None
        return (
            f"column {name!r}: {missing} training and {self.missing_test} test values missing, "
            "filled with the training mean"
        )


@dataclass(frozen=True)
class Texts:
    """What is known of a column of text over some rows: as with Numbers."""

    rows: int
    values: frozenset[str]
    """Those that occur in training rows."""
    missing: int
    like_numbers: int
    unlike_numbers: int
    """Of all rows, how many could be read as numbers, and how many not."""

    @classmethod
    def of(cls, column: pd.Series, in_test: np.ndarray) -> "Texts":
        train = column[~in_test]
        like = pd.to_numeric(column, errors="coerce").notna()
        unlike = column.notna() & ~like
        values = frozenset(train.dropna().unique())
        return cls(len(train), values, *map(int, (train.isna().sum(), like.sum(), unlike.sum())))

    def join(self, other: "Texts") -> "Texts":
        """Of the rows of both."""
        return Texts(
            self.rows + other.rows,
            self.values | other.values,
            self.missing + other.missing,
            self.like_numbers + other.like_numbers,
            self.unlike_numbers + other.unlike_numbers,
        )

    def check(self, name: str, few: int = 100) -> None:
        """UserError for a column that names rows rather than telling something of them."""
        number = len(self.values)
        if number > MOST_CATEGORIES or (self.rows > few and number > self.rows / 2):
            raise UserError(
                f"column {name!r} is text with {number} different values in {self.rows} "
                f"training rows, such as {min(self.values)!r}: leave it out with --drop {name!r}."
            )

    def note(self, name: str) -> str | None:
        """What the user should know of it."""
        if self.like_numbers <= self.unlike_numbers:
            return None
        other = [value for value in sorted(self.values) if not is_number(value)]
        example = f", such as {other[0]!r}" if other else ""
        return (
            f"column {name!r} is taken for text: {self.unlike_numbers} values are not "
            f"numbers{example}"
        )


Statistics = Numbers | Texts
Columns = dict[str, np.ndarray | pd.Series]
"""Columns by name: float64 for numbers, text as it was read."""


@dataclass
class Numeric:
    """A number: standardised, unless it is 0 or 1; missing is the mean, and an input of its own."""

    mean: float
    deviation: float
    center: float
    scale: float
    missing: bool

    @classmethod
    def fit(cls, name: str, column: Numbers) -> "Numeric":
        deviation = 0.0
        if not column.constant:
            with np.errstate(over="ignore", invalid="ignore"):
                deviation = float(np.sqrt(column.squares / column.known))
        if not np.isfinite(deviation):
            raise UserError(f"column {name!r} has values too large to work with.")
        plain = column.binary or not deviation
        center, scale = (0.0, 1.0) if plain else (column.mean, deviation)
        return cls(column.mean, deviation, center, scale, column.known < column.rows)

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
    def fit(cls, name: str, column: Texts) -> "Categorical":
        column.check(name)
        return cls(pd.Index(sorted(column.values), dtype=object), column.missing > 0)

    def features(self, name: str) -> list[str]:
        every = [f"{name}={value}" for value in self.values] + [f"{name} missing"] * self.missing
        return every if len(every) > 1 else []

    def encode(self, column: pd.Series, out: np.ndarray) -> None:
        code = self.codes(column)
        known = np.flatnonzero(code >= 0)
        out[known, code[known]] = 1

    def codes(self, column: pd.Series) -> np.ndarray:
        """The place of every value, -1 for those that no training row has."""
        code = self.values.get_indexer(column.to_numpy(dtype=object))
        if self.missing:
            code[column.isna().to_numpy()] = len(self.values)
        return code


@dataclass
class Encoder:
    """How the columns of a table become inputs."""

    columns: dict[str, Numeric | Categorical]
    features: tuple[str, ...]
    notes: list[str]

    @classmethod
    def fit(cls, statistics: dict[str, Statistics]) -> "Encoder":
        columns: dict[str, Numeric | Categorical] = {}
        features: list[str] = []
        notes: list[str] = []
        dropped = []
        for name, known in statistics.items():
            encoder = (
                Numeric.fit(name, known)
                if isinstance(known, Numbers)
                else Categorical.fit(name, known)
            )
            notes += [note] if (note := known.note(name)) else []
            if named := encoder.features(name):
                columns[name] = encoder
                features += named
            else:
                dropped.append(name)
        if dropped:
            notes.append(f"constant columns left out: {', '.join(dropped)}")
        return cls(columns, tuple(features), notes)

    def encode(self, columns: Columns, rows: int) -> np.ndarray:
        """A float32 row of inputs for every row."""
        x = np.zeros((rows, len(self.features)), dtype=np.float32)
        start = 0
        for name, encoder in self.columns.items():
            place = slice(start, start := start + len(encoder.features(name)))
            encoder.encode(columns[name], x[:, place])  # type: ignore[arg-type]
            if not np.isfinite(x[:, place]).all():
                raise UserError(f"column {name!r} has test values that are infinite or too large.")
        return x

    def unseen(self, columns: Columns, in_test: np.ndarray) -> dict[str, int]:
        """How many test values of each column of text no training row has."""
        return {
            name: int((encoder.codes(columns[name][in_test]) < 0).sum())  # type: ignore[arg-type]
            for name, encoder in self.columns.items()
            if isinstance(encoder, Categorical)
        }


def note_unseen(unseen: dict[str, int]) -> list[str]:
    return [
        f"column {name!r}: {number} test values not seen in training, all zero"
        for name, number in unseen.items()
        if number
    ]


def encode(
    frame: pd.DataFrame, in_test: np.ndarray, notes: list[str]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The inputs, a float32 row for every row of `frame`, and the name of every input."""
    columns = parse(frame, {name: numbers(frame[name]) is not None for name in frame.columns})
    encoder = Encoder.fit(survey(columns, in_test))
    x = encoder.encode(columns, len(frame))
    notes += encoder.notes + note_unseen(encoder.unseen(columns, in_test))
    return x, encoder.features


def parse(frame: pd.DataFrame, numeric: dict[str, bool]) -> Columns:
    """The columns of `numeric`, those that are numbers as such."""
    columns: Columns = {}
    for name, is_numeric in numeric.items():
        values = numbers(frame[name]) if is_numeric else frame[name]
        assert values is not None, f"column {name} was said to be numbers"
        columns[name] = values
    return columns


def survey(columns: Columns, in_test: np.ndarray) -> dict[str, Statistics]:
    """What there is to know of the columns to encode them."""
    return {
        name: (
            Numbers.of(name, values, in_test)
            if isinstance(values, np.ndarray)
            else Texts.of(values, in_test)
        )
        for name, values in columns.items()
    }


def is_number(value: str) -> bool:
    return bool(pd.notna(pd.to_numeric(value, errors="coerce")))
