"""Raw rows of a table turned into a model's inputs, with a count of all that was odd in them."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedmpi.data.encoding import Categorical, Encoding, Rule, as_text, to_numbers
from fedmpi.errors import UserError, shortened

NO_CLASS = "without a target, or of a class that was not trained on"
NO_GROUP = "of a group that was not trained on"
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
        lines = []
        if self.extra:
            lines.append(f"columns that the model does not use: {names(self.extra)}")
        if self.short:
            lines.append(f"{self.short:,} rows have fewer cells than the header, taken as missing")
        told = {
            "unseen": "values not seen in training, all zero in the inputs",
            "text": "values are text where training had numbers, taken as missing",
            "missing": "values missing, which none was in training",
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
    hints = []
    for name in lacking:
        nearest = difflib.get_close_matches(name, given, n=1, cutoff=0.6)
        hints.append(f"{name!r}{f' (is it {nearest[0]!r}?)' if nearest else ''}")
    raise UserError(
        f"{what} lack {len(lacking)} of the columns that the model needs: "
        f"{', '.join(map(repr, lacking))}.",
        f"Lacking: {', '.join(hints)}; there are: {names(given)}.",
    )


def names(some: list[str], most: int = 20) -> str:
    """Return the first of these names, and how many there are in all."""
    more = f", … ({len(some)} in all)" if len(some) > most else ""
    return ", ".join(some[:most]) + more


def encode(encoding: Encoding, frame: pd.DataFrame, tally: Tally) -> np.ndarray:
    """Return a float32 row of inputs for each row of `frame`, whose columns all are there.

    A rule is applied to the different cells of a column, and its rows are then copied: a column
    read as categories needs no more than that.
    """
    x = np.empty((len(frame), len(encoding.features)), dtype=np.float32)
    start = 0
    for name, rule in encoding.columns.items():
        end = start + len(rule.features(name))
        codes, cells = different_cells(frame[name])
        inputs = np.zeros((len(cells), end - start), dtype=np.float32)
        encode_cells(name, rule, cells, np.bincount(codes, minlength=len(cells)), inputs, tally)
        x[:, start:end] = inputs[codes]
        start = end
    tally.rows += len(frame)
    return x


def different_cells(column: pd.Series) -> tuple[np.ndarray, pd.Series]:
    """Return the place of each row's cell among the different cells, and these; missing is last."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, cells = column.cat.codes.to_numpy(), pd.Series(column.cat.categories)
    else:
        codes, found = pd.factorize(column)
        cells = pd.Series(found)
    absent = codes < 0
    if absent.any():
        cells = cells.reindex(range(len(cells) + 1))
        codes = np.where(absent, len(cells) - 1, codes)
    return codes, cells


def encode_cells(
    name: str, rule: Rule, cells: pd.Series, rows: np.ndarray, out: np.ndarray, tally: Tally
) -> None:
    """Encode different cells of a column, each of which so many `rows` have, into `out`."""
    is_text = pd.api.types.is_object_dtype(cells.dtype) or pd.api.types.is_string_dtype(cells.dtype)
    if isinstance(rule, Categorical):
        words = as_text(cells)
        rule.encode(words, out)
        absent = words.isna().to_numpy()
        tally.unseen[name] += int(rows[(rule.codes(words) < 0) & ~absent].sum())
        tally.missing[name] += 0 if rule.missing else int(rows[absent].sum())
        return
    values, text = to_numbers(as_text(cells) if is_text else cells)
    in_words = int(rows[text].sum())
    if in_words and not rows[~np.isnan(values)].sum():
        raise UserError(
            f"column {name!r} was numbers in training, and all {in_words:,} of its values here are "
            "text: write them as numbers, with a decimal point and nothing else.",
            f"One of them is {shortened(str(cells[text & (rows > 0)].iloc[0]))}.",
        )
    rule.encode(values, out)
    bad = ~np.isfinite(out).all(axis=1) & (rows > 0)
    if bad.any():
        raise UserError(
            f"column {name!r} has {int(rows[bad].sum()):,} values that are infinite or too large: "
            "correct them."
        )
    tally.text[name] += in_words
    if hasattr(rule, "missing"):
        absent = np.isnan(values) & ~text
        tally.missing[name] += 0 if rule.missing else int(rows[absent].sum())
    else:  # a code, of which a blank is one
        tally.unseen[name] += int(rows[(rule.codes(values) < 0) & ~text].sum())
