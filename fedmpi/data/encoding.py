"""Tables of text turned into float32 inputs; shared by the tabular datasets.

Everything learned from the data (means, deviations, categories) is learned from the training rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedmpi.data.forms import PLAIN, forms_of, to_numbers
from fedmpi.data.options import as_list
from fedmpi.errors import UserError, shortened

if TYPE_CHECKING:
    from fedmpi.data.labels import LabelEncoding

MOST_CATEGORIES = 1000
OTHER = "\ufdd0"
"""Stand-in for a text that its owner keeps to itself: a character that stands for no character."""


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
            raise Unusable(name, f"has {np.isinf(known).sum()} infinite values")
        constant = bool((known == known[:1]).all())
        with np.errstate(over="ignore", invalid="ignore"):
            # Of a constant the value itself, where rounding would leave a little.
            mean = 0.0 if not len(known) else float(known[0] if constant else known.mean())
            squares = 0.0 if constant else float(np.square(known - mean).sum())
        if not np.isfinite(squares):
            raise Unusable(name, "has values too large to work with")
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
        """Raise Unusable for a column that names rows rather than telling something of them."""
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


class Unusable(Exception):
    """A column that cannot be an input, and why; `quoted` may have a cell."""

    def __init__(self, name: str, why: str, quoted: str = "") -> None:
        super().__init__(name, why, quoted)
        self.name, self.why, self.quoted = name, why, quoted


def too_many_texts(name: str, values: int, rows: int, quoted: str = "") -> Unusable:
    return Unusable(name, f"is text with {values} different values in {rows} training rows", quoted)


def refuse_columns(found: Sequence[Unusable], whose: str = "") -> None:
    """Raise one UserError for all columns that cannot be inputs, with what leaves them out."""
    if not found:
        return
    every = {column.name: column for column in reversed(found)}
    columns = list(reversed(every.values()))
    drop = f"--drop {as_list(column.name for column in columns)}"
    if len(columns) == 1:
        what = f"column {columns[0].name!r} {columns[0].why}: correct it, or leave it out with "
    else:
        each = "; ".join(f"{column.name!r} {column.why}" for column in columns)
        what = f"{len(columns)} columns cannot be inputs: {each}. Leave them out with "
    raise UserError(f"{whose}{what}{drop}.", columns[0].quoted)


Statistics = Numbers | Texts | Unusable
Forms = dict[str, str | None]
"""The form in which each column has numbers (forms.py), None for text."""
DAY_FIRST = ("date day/month/year", "date day/month/year time")
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
    form: str = PLAIN
    """How the numbers are written: see forms.py."""

    @classmethod
    def fit(cls, name: str, column: Numbers, form: str = PLAIN) -> Numeric:
        deviation = 0.0
        if not column.constant:
            with np.errstate(over="ignore", invalid="ignore"):
                deviation = float(np.sqrt(column.squares / column.known))
        if not np.isfinite(deviation):
            raise Unusable(name, "has values too large to work with")
        plain = column.binary or not deviation
        center, scale = (0.0, 1.0) if plain else (column.mean, deviation)
        return cls(column.mean, deviation, center, scale, 0 < column.known < column.rows, form)

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
    missing: tuple[str, ...] = ()
    """Texts that stand for a missing value, beside a blank."""
    notes: list[str] = field(default_factory=list)
    found: list[dict[str, Any]] = field(default_factory=list)
    """What was made of each column: see `describe`. Like the notes, it is no part of the JSON."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(
            feature for name, rule in self.columns.items() for feature in rule.features(name)
        )

    @classmethod
    def fit(cls, statistics: dict[str, Statistics], forms: Forms, quote: bool = True) -> Encoding:
        """Fit to the columns' statistics; with `quote`, notes may have values as examples."""
        columns: dict[str, Rule] = {}
        notes: list[str] = []
        empty, dropped = [], []
        unusable: list[Unusable] = []
        for name, known in statistics.items():
            if isinstance(known, Unusable):
                unusable.append(known)
                continue
            if known.empty:
                empty.append(name)
                continue
            rule: Rule
            try:
                if isinstance(known, Numbers):
                    form = forms[name] or PLAIN
                    rule = Numeric.fit(name, known, form)
                    notes += [note_form(name, form)] * (form != PLAIN) + known.notes(name)
                else:
                    rule = Categorical.fit(name, known)
                    notes += known.notes(name, quote)
            except Unusable as error:
                unusable.append(error)
                continue
            if rule.features(name):
                columns[name] = rule
            else:
                dropped.append(name)
        refuse_columns(unusable)
        if empty:
            names = ", ".join(empty)
            notes.append(f"columns without a value in the training rows left out: {names}")
        if dropped:
            notes.append(f"constant columns left out: {', '.join(dropped)}")
        return cls(columns, notes=notes, found=describe(statistics, columns, forms))

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
                as_text(frame[name], self.missing)
                if isinstance(rule, Categorical)
                else to_numbers(*self.cells(frame[name], rule))[0]
            )
            for name, rule in self.columns.items()
        }

    def cells(self, column: pd.Series, rule: Numeric | Coded) -> tuple[pd.Series, str]:
        """Return the cells of a column of numbers, without marks of missing ones; and their form"""
        if pd.api.types.is_object_dtype(column.dtype) or isinstance(column.dtype, pd.StringDtype):
            column = as_text(column, self.missing)
        return column, rule.form if isinstance(rule, Numeric) else PLAIN

    def encode_columns(self, columns: Mapping[str, Any], rows: int) -> np.ndarray:
        """A float32 row of inputs for every row, from columns as `parse` gives them."""
        x = np.zeros((rows, len(self.features)), dtype=np.float32)
        start = 0
        for name, rule in self.columns.items():
            place = slice(start, start := start + len(rule.features(name)))
            rule.encode(columns[name], x[:, place])
            if not np.isfinite(x[:, place]).all():
                raise UserError(
                    f"column {name!r} has test values that are infinite or too large: correct "
                    f"them, or leave it out with --drop {as_list([name])}."
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
        labels = self.labels.to_json() if self.labels else None
        return {"columns": columns, "missing": list(self.missing), "labels": labels}

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
        missing = tuple(told.get("missing", ()))
        return cls(columns, LabelEncoding.from_json(labels) if labels else None, missing)


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
    forms = {name: next(iter(forms_of(train[name])), None) for name in frame.columns}
    columns = parse(frame, forms)
    encoding = Encoding.fit(survey(columns, in_test), forms)
    x = encoding.encode_columns(columns, len(frame))
    notes += encoding.notes + note_unseen(encoding.unseen(columns, in_test))
    return x, encoding


def as_text(column: pd.Series, marks: tuple[str, ...] = ()) -> pd.Series:
    """Cells as text without spaces around it; 2.0 is '2', as 2 is.

    None stands for a missing cell, a blank one, and the `marks` of a missing one.
    """
    missing = column.isna()
    if pd.api.types.is_float_dtype(column.dtype):
        whole = column.where(~missing, 0) % 1 == 0
        text = column.map(repr).mask(whole, column.map("{:.0f}".format))
    elif pd.api.types.is_object_dtype(column.dtype):
        text = column.map(str).str.strip()
    else:
        text = column.astype(str).str.strip()
    return text.astype(object).mask(missing | text.isin(["", *marks]), None)


def parse(frame: pd.DataFrame, forms: Forms) -> Columns:
    """The columns of `forms`, as numbers where there is one; a test cell that is none is NaN."""
    return {
        name: to_numbers(frame[name], form)[0] if form else frame[name]
        for name, form in forms.items()
    }


def note_form(name: str, form: str) -> str:
    """Return the note on a column whose numbers are written in a form of their own."""
    if form.startswith("date"):
        how = form.removeprefix("date").strip() or "year-month-day"
        ambiguous = " (if it is month/day, write them as 2024-01-31)" * (form in DAY_FIRST)
        return f"column {name!r} is dates, read as {how}{ambiguous}: an input of days"
    unit = "percentages" if form.startswith("percent") else "amounts of money"
    what = unit if form.startswith(("percent", "currency")) else "numbers"
    point = {"thousands": ", with marks between thousands", "comma": ", with a decimal comma"}
    return f"column {name!r} is {what}{point.get(form.split()[-1], '')}"


def with_rare_as_other(column: pd.Series, in_test: np.ndarray, least: int) -> pd.Series:
    """Return `column` with OTHER for the values that fewer than `least` training rows have."""
    count = column.map(column[~in_test].value_counts())
    return column.mask((count < least).to_numpy() & ~in_test, OTHER)


def survey(columns: Columns, in_test: np.ndarray) -> dict[str, Statistics]:
    """Return the statistics of the columns that are needed to encode them."""
    found: dict[str, Statistics] = {}
    for name, values in columns.items():
        try:
            if isinstance(values, np.ndarray):
                found[name] = Numbers.of(name, values, in_test)
            else:
                found[name] = Texts.of(values, in_test)
        except Unusable as error:
            found[name] = error
    return found


def describe(
    statistics: dict[str, Statistics], columns: dict[str, Rule], forms: Forms
) -> list[dict[str, Any]]:
    """Return of each column its kind, missing training cells, categories, inputs, and a remark."""
    table = []
    for name, known in statistics.items():
        assert not isinstance(known, Unusable)
        form = forms[name]
        kind = "text" if form is None else "number" if form == PLAIN else form
        missing = known.rows - known.known if isinstance(known, Numbers) else known.missing
        remark = ""
        if name not in columns:
            remark = "left out: no value" if known.empty else "left out: constant"
        table.append(
            {
                "name": name,
                "kind": kind,
                "missing": missing,
                "categories": len(known.values) if isinstance(known, Texts) else 0,
                "inputs": len(columns[name].features(name)) if name in columns else 0,
                "remark": remark,
            }
        )
    return table


def is_number(value: str) -> bool:
    return bool(pd.notna(pd.to_numeric(value, errors="coerce")))
