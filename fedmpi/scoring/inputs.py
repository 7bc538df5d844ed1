"""Raw rows of a table turned into a model's inputs, with a count of all that was odd in them."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedmpi.data.encoding import Categorical, Encoding, Numeric, as_text
from fedmpi.data.forms import to_numbers
from fedmpi.errors import UserError, shortened

NO_CLASS = "without a target, or of a class that was not trained on"
NO_GROUP = "without a group, or of one that was not trained on,"
REASONS = (NO_CLASS, NO_GROUP)
"""Why a row cannot be evaluated."""


@dataclass
class Tally:
    """Counts of what was odd in the rows so far, by column."""

    rows: int = 0
    extra: list[str] = field(default_factory=list)
    """Columns that the model has no use for."""
    unseen: Counter[str] = field(default_factory=Counter)
    """Values that no training row had."""
    text: Counter[str] = field(default_factory=Counter)
    """Values that are text where training rows had numbers."""
    missing: Counter[str] = field(default_factory=Counter)
    """Values that are missing where no training row lacked one."""
    short: int = 0
    """Rows that had fewer cells than the header."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows that cannot be evaluated, by the reason."""
    notes: list[str] = field(default_factory=list)
    """What the reader of a table says of it."""

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Return the counts by kind and column; names of columns, but no cells."""
        kinds = {"unseen": self.unseen, "text": self.text, "missing": self.missing}
        return {kind: {name: n for name, n in found.items() if n} for kind, found in kinds.items()}

    def add(self, other: Tally) -> None:
        """Add the counts of other rows; the names of their extra columns stay with them."""
        self.rows, self.short = self.rows + other.rows, self.short + other.short
        for mine, others in (
            (self.unseen, other.unseen),
            (self.text, other.text),
            (self.missing, other.missing),
            (self.left_out, other.left_out),
        ):
            mine.update(others)

    def to_vector(self, columns: list[str]) -> np.ndarray:
        """Return all counts as one vector, which can be summed over ranks; no names of columns."""
        of_columns = [
            found[name] for found in (self.unseen, self.text, self.missing) for name in columns
        ]
        reasons = [self.left_out[why] for why in REASONS]
        return np.array([self.rows, self.short, *reasons, *of_columns], dtype=float)

    @classmethod
    def from_vector(cls, vector: np.ndarray, columns: list[str]) -> Tally:
        """Return the counts that `to_vector` gave, or sums of such."""
        rows, short, *rest = vector.round().astype(int).tolist()
        reasons, rest = rest[: len(REASONS)], rest[len(REASONS) :]
        unseen, text, missing = (
            Counter(dict(zip(columns, part, strict=True)))
            for part in np.array(rest).reshape(3, -1).tolist()
        )
        left_out = Counter(dict(zip(REASONS, reasons, strict=True)))
        return cls(rows, [], unseen, text, missing, short, left_out)

    def lines(self) -> list[str]:
        """Return a line for the user on each thing that was odd."""
        lines = list(self.notes)
        if self.extra:
            lines.append(f"columns that the model does not use: {names(self.extra)}")
        if self.short:
            lines.append(f"{self.short:,} rows have fewer cells than the header, taken as missing")
        told = {
            "unseen": "values not seen in training, all zero in the inputs",
            "text": "values are text where training had numbers, taken as missing",
            "missing": "missing, where training had all values",
        }
        for kind, found in self.counts.items():
            lines += [f"column {name!r}: {n:,} {told[kind]}" for name, n in found.items()]
        lines += [
            f"{number:,} rows {why} left out" for why, number in self.left_out.items() if number
        ]
        return lines


def require(wanted: Iterable[str], given: Iterable[str], what: str = "the rows") -> None:
    """Raise a UserError for the columns that are wanted and not given, all of them at once."""
    given = list(given)
    lacking = [name for name in wanted if name not in given]
    if not lacking:
        return
    hints = ""
    for name in lacking:
        if nearest := difflib.get_close_matches(name, given, n=1, cutoff=0.7):
            hints += f"Is {nearest[0]!r} meant for {name!r}? "
    one = len(lacking) == 1
    raise UserError(
        f"{what}: no column{'' if one else 's'} {', '.join(map(repr, lacking))}, which "
        f"{'is' if one else 'are'} needed.",
        f"{hints}There are: {names(given)}.",
    )


def names(some: list[str], most: int = 20) -> str:
    """Return the first of these names, and how many there are in all."""
    more = f", … ({len(some)} in all)" if len(some) > most else ""
    return ", ".join(some[:most]) + more


def encode(encoding: Encoding, frame: pd.DataFrame, tally: Tally) -> np.ndarray:
    """Return a float32 row of inputs for each row of `frame`, whose columns all are there.

    A rule is applied to the different cells of a column, whose inputs then go to all rows: a column
    read as categories needs no more than that.
    """
    x = np.zeros((len(frame), len(encoding.features)), dtype=np.float32)
    flat, first, start = x.reshape(-1), np.arange(len(x)) * x.shape[1], 0
    for name, rule in encoding.columns.items():
        codes, cells = different_cells(frame[name])
        rows = np.bincount(codes, minlength=len(cells))
        if isinstance(rule, Numeric):
            for j, values in enumerate(numbers(name, encoding, cells, rows, tally).T):
                x[:, start + j] = values[codes]
        else:  # a 1 in each row: far fewer numbers to write than the inputs are
            place = places(name, encoding, cells, rows, tally)
            ones = first + (start + place)[codes]
            flat[ones if place.min(initial=0) >= 0 else ones[place[codes] >= 0]] = 1
        start += len(rule.features(name))
    tally.rows += len(frame)
    return x


def different_cells(column: pd.Series) -> tuple[np.ndarray, pd.Series]:
    """Return the place of each row's cell among the different cells, and these; missing is last."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy().astype(np.intp)
        cells = pd.Series(column.cat.categories)
    else:
        codes, found = pd.factorize(column)
        cells = pd.Series(found)
    absent = codes < 0
    if absent.any():
        cells = cells.reindex(range(len(cells) + 1))
        codes = np.where(absent, len(cells) - 1, codes)
    return codes, cells


def numbers(
    name: str, encoding: Encoding, cells: pd.Series, rows: np.ndarray, tally: Tally
) -> np.ndarray:
    """Return the inputs of different cells of a column of numbers, each of which `rows` have."""
    rule = encoding.columns[name]
    assert isinstance(rule, Numeric)
    values, text = to_numbers(*encoding.cells(cells, rule))
    refuse_text(name, cells, values, text, rows)
    out = np.zeros((len(cells), len(rule.features(name))), dtype=np.float32)
    rule.encode(values, out)
    bad = ~np.isfinite(out).all(axis=1) & (rows > 0)
    if bad.any():
        raise UserError(
            f"column {name!r} has {int(rows[bad].sum()):,} values that are infinite or too large: "
            "correct them."
        )
    tally.text[name] += int(rows[text].sum())
    tally.missing[name] += 0 if rule.missing else int(rows[np.isnan(values) & ~text].sum())
    return out


def places(
    name: str, encoding: Encoding, cells: pd.Series, rows: np.ndarray, tally: Tally
) -> np.ndarray:
    """Return which input each of the different cells of a column sets to 1; -1 for none."""
    rule = encoding.columns[name]
    assert not isinstance(rule, Numeric)
    if isinstance(rule, Categorical):
        words = as_text(cells, encoding.missing)
        place, absent = rule.codes(words), words.isna().to_numpy()
        tally.missing[name] += 0 if rule.missing else int(rows[absent].sum())
    else:
        values, text = to_numbers(*encoding.cells(cells, rule))
        refuse_text(name, cells, values, text, rows)
        place, absent = rule.codes(values), text
        tally.text[name] += int(rows[text].sum())
    tally.unseen[name] += int(rows[(place < 0) & ~absent].sum())
    return place


def refuse_text(
    name: str, cells: pd.Series, values: np.ndarray, text: np.ndarray, rows: np.ndarray
) -> None:
    """Raise a UserError for a column of numbers without a number in it: it is written otherwise."""
    in_words = int(rows[text].sum())
    if in_words and not rows[~np.isnan(values)].sum():
        raise UserError(
            f"column {name!r} was numbers in training, and all {in_words:,} of its values here are "
            "text, or numbers in another form: write them as in the training rows.",
            f"One of them is {shortened(str(cells[text & (rows > 0)].iloc[0]))}.",
        )
