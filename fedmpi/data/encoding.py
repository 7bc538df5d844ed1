"""Tables of text turned into float32 inputs; shared by the tabular datasets.

Everything learned from the data (means, deviations, categories) is learned from the training rows.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedmpi.errors import Line, UserError, shortened

if TYPE_CHECKING:
    from fedmpi.data.labels import LabelEncoding

MOST_CATEGORIES = 1000
TO_DO = "correct them, or leave it out with --drop"
LONGEST_CELL = 1000
"""Characters of a text that can be a category or a name; a longer one is rather a lost quote."""
OTHER = "\ufdd0"
"""Stand-in for a text that its owner keeps to itself: a character that stands for no character."""
COUNTS_ONLY = re.compile(r"Expected \d+ fields in line \d+, saw \d+|EOF inside string.*row \d+")
"""Pattern of what pandas may say of a file without quoting it."""


def read_text(content: bytes, path: Path, notes: list[Line]) -> pd.DataFrame:
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
        known = COUNTS_ONLY.fullmatch(why)
        text = f"{path} is not a table{f': {why}' if known else ''}."
        raise UserError(text, "" if known else f"pandas says: {why}.") from error
    note_short_rows(text, cells, path, notes)
    cells = cells.apply(lambda column: column.str.strip()).replace("", None)
    header, rows = cells.iloc[0], cells.iloc[1:].reset_index(drop=True)
    named = header.notna().to_numpy()
    if not named.all():
        notes.append(Line(f"{path.name}: {(~named).sum()} columns without a name left out"))
    rows = rows.loc[:, named].set_axis(header[named].tolist(), axis=1)
    if len(longest := max(rows.columns, key=len, default="")) > LONGEST_CELL:
        raise UserError(
            f"{path}: the name of a column has {len(longest):,} characters: is a quote left open?",
            f"It begins {shortened(longest)}.",
        )
    repeated = rows.columns[rows.columns.duplicated()]
    if len(repeated):
        number = len(repeated.unique())
        raise UserError(
            f"{path}: {number} names stand above more than one column: rename them.",
            f"There is more than one column {repeated[0]!r}.",
        )
    if rows.empty:
        raise UserError(f"{path} has a header but no rows.")
    return rows


def note_short_rows(text: str, cells: pd.DataFrame, path: Path, notes: list[Line]) -> None:
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
            Line(
                f"{path.name}: {len(short)} rows have fewer cells than the header's "
                f"{cells.shape[1]} (the first ends in line {short[0]}); the cells that lack are "
                "taken as empty"
            )
        )


def check_cells(frame: pd.DataFrame, path: Path) -> None:
    """Raise a UserError for a text that is too long to be a category or a label."""
    for name in frame.columns:
        lengths = frame[name].str.len()
        if lengths.max() > LONGEST_CELL:
            row = int(lengths.argmax())
            raise UserError(
                f"{path}: column {name!r} has a cell of {lengths.max():,.0f} characters (row "
                f"{row + 1}), at most {LONGEST_CELL:,} are possible: is a quote left open? "
                f"Otherwise leave it out with --drop {name!r}.",
                f"It begins {shortened(frame[name].iloc[row])}.",
            )


def to_numbers(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """The column as float64, NaN where it is no number; and which values are text.

    A missing value and '?', the mark of many a public table, are neither.
    """
    column = column.where(column != "?")
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return values, np.isnan(values) & column.notna().to_numpy()


def numbers(column: pd.Series) -> np.ndarray | None:
    """The column as float64, NaN where it is missing or '?'; None if some value is no number."""
    values, text = to_numbers(column)
    return None if text.any() else values


@dataclass(frozen=True)
class Numbers:
    """Statistics of a column of numbers over some rows: all that leaves an owner of rows.

    Only training rows count, but for `missing_test`. Joining adds up the rows of two owners.
    """

    rows: int
    known: int
    mean: float
    squares: float
    """Sum of the squared distances from the mean."""
    constant: bool
    """True if all known values are the mean."""
    binary: bool
    """True if all known values are 0 or 1."""
    missing_test: int

    @classmethod
    def of(cls, name: str, values: np.ndarray, in_test: np.ndarray) -> Numbers:
        train = values[~in_test]
        known = train[~np.isnan(train)]
        if np.isinf(known).any():
            raise UserError(
                f"column {name!r} has {np.isinf(known).sum()} infinite values: {TO_DO} {name!r}."
            )
        constant = bool((known == known[:1]).all())
        with np.errstate(over="ignore", invalid="ignore"):
            # Of a constant the value itself, where rounding would leave a little.
            mean = 0.0 if not len(known) else float(known[0] if constant else known.mean())
            squares = 0.0 if constant else float(np.square(known - mean).sum())
        if not np.isfinite(squares):
            raise UserError(f"column {name!r} has values too large to work with: {TO_DO} {name!r}.")
        binary = bool(np.isin(known, (0, 1)).all())
        missing_test = int(np.isnan(values[in_test]).sum())
        return cls(len(train), len(known), mean, squares, constant, binary, missing_test)

    def join(self, other: Numbers) -> Numbers:
        """Return the statistics of the rows of both (Chan, Golub and LeVeque 1979)."""
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

    @property
    def empty(self) -> bool:
        """Return whether there is no value at all to train on."""
        return not self.known

    def notes(self, name: str) -> list[str]:
        """Return notes for the user on this column."""
        missing = self.rows - self.known
        if not missing and not self.missing_test:
            return []
        return [
            f"column {name!r}: {missing} training and {self.missing_test} test values missing or "
            "no numbers, filled with the training mean"
        ]


@dataclass(frozen=True)
class Texts:
    """Statistics of a column of text over some rows, as Numbers are."""

    rows: int
    values: frozenset[str]
    """Values that occur in training rows, but for OTHER."""
    other: int
    """Number of training rows that have OTHER."""
    missing: int
    missing_test: int
    like_numbers: int
    unlike_numbers: int
    """Number of training rows that could be read as numbers, and of those that could not."""

    @classmethod
    def of(cls, column: pd.Series, in_test: np.ndarray) -> Texts:
        train = column[~in_test]
        known = train[train.notna() & (train != OTHER)]
        like = pd.to_numeric(known, errors="coerce").notna().sum()
        missing = train.isna().sum()
        other = len(train) - len(known) - missing
        counts = (other, missing, column[in_test].isna().sum(), like, len(known) - like)
        return cls(len(train), frozenset(known.unique()), *map(int, counts))

    def join(self, other: Texts) -> Texts:
        """Return the statistics of the rows of both."""
        return Texts(
            self.rows + other.rows,
            self.values | other.values,
            self.other + other.other,
            self.missing + other.missing,
            self.missing_test + other.missing_test,
            self.like_numbers + other.like_numbers,
            self.unlike_numbers + other.unlike_numbers,
        )

    def check(self, name: str) -> None:
        """Raise a UserError for a column that names rows rather than telling something of them."""
        number = len(self.values)
        if names_rows(number, self.rows):
            example = f"One of them is {shortened(min(self.values))}."
            raise too_many_texts(name, number, self.rows, example)

    @property
    def empty(self) -> bool:
        """Return whether there is no value at all to train on."""
        return not self.values and not self.other

    def notes(self, name: str, quote: bool = True) -> list[str]:
        """Return notes for the user on this column; with `quote`, a value may be an example."""
        notes = []
        if self.like_numbers > self.unlike_numbers:
            words = [value for value in sorted(self.values) if not is_number(value)]
            example = f", such as {shortened(words[0])}" if quote and words else ""
            notes.append(
                f"column {name!r} is taken for text: {self.unlike_numbers} training values are "
                f"not numbers{example}"
            )
        if self.other:
            notes.append(
                f"column {name!r}: {self.other} training rows have a value that fewer rows of "
                "their owner have than --min-value-rows, 'other' in the inputs"
            )
        if self.missing or self.missing_test:
            become = "a category of their own" if self.missing else "all zero in the inputs"
            notes.append(
                f"column {name!r}: {self.missing} training and {self.missing_test} test values "
                f"missing, {become}"
            )
        return notes


def names_rows(values: int, rows: int, few: int = 100) -> bool:
    """Return whether a text with so many different values names rows, and is no category."""
    return values > MOST_CATEGORIES or (rows > few and values > rows / 2)


def too_many_texts(name: str, values: int, rows: int, quoted: str = "") -> UserError:
    return UserError(
        f"column {name!r} is text with {values} different values in {rows} training rows: leave "
        f"it out with --drop {name!r}.",
        quoted,
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
    def fit(cls, name: str, column: Numbers) -> Numeric:
        deviation = 0.0
        if not column.constant:
            with np.errstate(over="ignore", invalid="ignore"):
                deviation = float(np.sqrt(column.squares / column.known))
        if not np.isfinite(deviation):
            raise UserError(f"column {name!r} has values too large to work with: {TO_DO} {name!r}.")
        plain = column.binary or not deviation
        center, scale = (0.0, 1.0) if plain else (column.mean, deviation)
        return cls(column.mean, deviation, center, scale, 0 < column.known < column.rows)

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
    """Text: an input of 0 and 1 for every value among the training rows, missing being one.

    With `other`, all values that were not told share one.
    """

    values: pd.Index
    other: bool
    missing: bool

    @classmethod
    def fit(cls, name: str, column: Texts) -> Categorical:
        column.check(name)
        values = pd.Index(sorted(column.values), dtype=object)
        return cls(values, column.other > 0, column.missing > 0)

    def features(self, name: str) -> list[str]:
        every = [f"{name}={value}" for value in self.values]
        every += [f"{name} other"] * self.other + [f"{name} missing"] * self.missing
        return every if len(every) > 1 else []

    def encode(self, column: pd.Series, out: np.ndarray) -> None:
        code = self.codes(column)
        known = np.flatnonzero(code >= 0)
        out[known, code[known]] = 1

    def codes(self, column: pd.Series) -> np.ndarray:
        """The place of every value, -1 for those that no training row has."""
        code = self.values.get_indexer(column.to_numpy(dtype=object))
        absent = column.isna().to_numpy()
        if self.other:
            code[(code < 0) & ~absent] = len(self.values)
        if self.missing:
            code[absent] = len(self.values) + self.other
        return code


@dataclass
class Coded:
    """A whole number that stands for something: an input of 0 and 1 for every code of training."""

    values: list[int]
    blank: int
    """Code of a missing value."""

    def features(self, name: str) -> list[str]:
        return [f"{name}={value}" for value in self.values] if len(self.values) > 1 else []

    def encode(self, values: np.ndarray, out: np.ndarray) -> None:
        code = self.codes(values)
        known = np.flatnonzero(code >= 0)
        out[known, code[known]] = 1

    def codes(self, values: np.ndarray) -> np.ndarray:
        """The place of every value, -1 for those that no training row has."""
        known = np.array(self.values)
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), self.blank, values)
        code = np.searchsorted(known, values).clip(max=len(known) - 1)
        return np.where(known[code] == values, code, -1)


Rule = Numeric | Categorical | Coded
KINDS: dict[str, type[Rule]] = {"number": Numeric, "text": Categorical, "code": Coded}


@dataclass
class Encoding:
    """Rules by which the columns of a table become inputs, and its labels classes and groups.

    It is learned from training rows, kept as JSON with what was trained, and applied to any rows.
    """

    columns: dict[str, Rule]
    labels: LabelEncoding | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(
            feature for name, rule in self.columns.items() for feature in rule.features(name)
        )

    @classmethod
    def fit(cls, statistics: dict[str, Statistics], quote: bool = True) -> Encoding:
        """Fit to the columns' statistics; with `quote`, notes may have values as examples."""
        columns: dict[str, Rule] = {}
        notes: list[str] = []
        empty, dropped = [], []
        for name, known in statistics.items():
            if known.empty:
                empty.append(name)
                continue
            rule: Rule
            if isinstance(known, Numbers):
                rule = Numeric.fit(name, known)
                notes += known.notes(name)
            else:
                rule = Categorical.fit(name, known)
                notes += known.notes(name, quote)
            if rule.features(name):
                columns[name] = rule
            else:
                dropped.append(name)
        if empty:
            names = ", ".join(empty)
            notes.append(f"columns without a value in the training rows left out: {names}")
        if dropped:
            notes.append(f"constant columns left out: {', '.join(dropped)}")
        return cls(columns, notes=notes)

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """A float32 row of inputs for every row of a table, whose cells are text or typed."""
        if lacking := [name for name in self.columns if name not in frame.columns]:
            raise UserError(
                f"the rows lack {len(lacking)} of the {len(self.columns)} columns that were "
                f"trained on: {', '.join(map(repr, lacking))}."
            )
        return self.encode_columns(self.parse(frame), len(frame))

    def parse(self, frame: pd.DataFrame) -> Columns:
        """The columns of a table that become inputs: numbers, or clean text."""
        return {
            name: (
                as_text(frame[name])
                if isinstance(rule, Categorical)
                else to_numbers(frame[name])[0]
            )
            for name, rule in self.columns.items()
        }

    def encode_columns(self, columns: Mapping[str, Any], rows: int) -> np.ndarray:
        """A float32 row of inputs for every row, from columns as `parse` gives them."""
        x = np.zeros((rows, len(self.features)), dtype=np.float32)
        start = 0
        for name, rule in self.columns.items():
            place = slice(start, start := start + len(rule.features(name)))
            rule.encode(columns[name], x[:, place])
            if not np.isfinite(x[:, place]).all():
                raise UserError(
                    f"column {name!r} has test values that are infinite or too large: {TO_DO} "
                    f"{name!r}."
                )
        return x

    def unseen(self, columns: Columns, in_test: np.ndarray | slice = slice(None)) -> dict[str, int]:
        """Count the (test) values of each column of text that no training row has."""
        unseen = {}
        for name, rule in self.columns.items():
            if isinstance(rule, Categorical):
                test = columns[name][in_test]
                assert isinstance(test, pd.Series)
                unseen[name] = int(((rule.codes(test) < 0) & test.notna().to_numpy()).sum())
        return unseen

    def to_json(self) -> dict[str, Any]:
        """Return all of it, but for the notes, as what json.dumps takes."""
        kinds = {kind: name for name, kind in KINDS.items()}
        columns = []
        for name, rule in self.columns.items():
            told = asdict(rule)
            if isinstance(rule, Categorical):
                told["values"] = rule.values.tolist()
            columns.append({"name": name, "kind": kinds[type(rule)]} | told)
        return {"columns": columns, "labels": self.labels.to_json() if self.labels else None}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Encoding:
        """Return the encoding that `to_json` told."""
        from fedmpi.data.labels import LabelEncoding

        columns: dict[str, Rule] = {}
        for column in told["columns"]:
            given = {key: value for key, value in column.items() if key not in ("name", "kind")}
            if column["kind"] == "text":
                given["values"] = pd.Index(given["values"], dtype=object)
            columns[column["name"]] = KINDS[column["kind"]](**given)
        labels = told.get("labels")
        return cls(columns, LabelEncoding.from_json(labels) if labels else None)


def note_unseen(unseen: dict[str, int]) -> list[str]:
    return [
        f"column {name!r}: {number} test values not seen in training, all zero"
        for name, number in unseen.items()
        if number
    ]


def encode(
    frame: pd.DataFrame, in_test: np.ndarray, notes: list[str]
) -> tuple[np.ndarray, Encoding]:
    """The inputs, a float32 row for every row of `frame`, and the rules that made them."""
    train = frame[~in_test]
    columns = parse(frame, {name: numbers(train[name]) is not None for name in frame.columns})
    encoding = Encoding.fit(survey(columns, in_test))
    x = encoding.encode_columns(columns, len(frame))
    notes += encoding.notes + note_unseen(encoding.unseen(columns, in_test))
    return x, encoding


def as_text(column: pd.Series) -> pd.Series:
    """Cells as text without spaces around it, None for a missing one; 2.0 is '2', as 2 is."""
    missing = column.isna()
    if pd.api.types.is_float_dtype(column.dtype):
        whole = column.where(~missing, 0) % 1 == 0
        text = column.map(repr).mask(whole, column.map("{:.0f}".format))
    elif pd.api.types.is_object_dtype(column.dtype):
        text = column.map(str).str.strip()
    else:
        text = column.astype(str).str.strip()
    return text.astype(object).mask(missing | (text == ""), None)


def parse(frame: pd.DataFrame, numeric: dict[str, bool]) -> Columns:
    """The columns of `numeric`, those that are numbers as such; a test value that is not is NaN."""
    return {
        name: to_numbers(frame[name])[0] if is_numeric else frame[name]
        for name, is_numeric in numeric.items()
    }


def with_rare_as_other(column: pd.Series, in_test: np.ndarray, least: int) -> pd.Series:
    """Return `column` with OTHER for the values that fewer than `least` training rows have."""
    count = column.map(column[~in_test].value_counts())
    return column.mask((count < least).to_numpy() & ~in_test, OTHER)


def survey(columns: Columns, in_test: np.ndarray) -> dict[str, Statistics]:
    """Return the statistics of the columns that are needed to encode them."""
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
