"""Tables of several owners turned into inputs that mean the same everywhere.

Owners may sit in one process (a file with a column that says whose row it is) or each on a rank of
its own (a file each). What they must agree on they agree on by statistics, never by rows: `Agree`
is the only way from one owner to another, and what is given to it is all that leaves an owner:

1. of label columns, which the user has named, what kind of values each holds;
2. tags of the values that its target and its groups take, to count them by, then the values;
3. how many rows of each group it has, how many of its test rows were left out, and notes;
4. of every input column whether it holds text or numbers;
5. tags of the values of its columns of text, to count them by;
6. of every input column `Numbers` (counts, a mean, a sum of squares) or `Texts` (counts, values);
7. how many test values of each column of text were not seen in training.

Where the owners are apart, tags of the names of all columns come first (`share_columns`), so that
the names that are told are those that all owners have: what one file alone has for a name may be a
cell of a file without a header. A tag is a hash with the salt of the run: it does not tell a value,
but it confirms a guess at one.

The order of the owners is that of their names, so the result does not depend on where they sit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import reduce
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from fedmpi.data.datasets.csvfile import Tables
from fedmpi.data.encoding import (
    Columns,
    Encoding,
    Statistics,
    Texts,
    is_number,
    names_rows,
    note_unseen,
    numbers,
    parse,
    survey,
    too_many_texts,
    with_rare_as_other,
)
from fedmpi.data.labels import BEYOND, SEPARATOR, LabelColumn, LabelEncoding
from fedmpi.data.options import DataOptions
from fedmpi.data.splits import hold_out
from fedmpi.errors import Line, UserError, shortened

T = TypeVar("T")
U = TypeVar("U")

MOST_LABELS = 1000
FEW_ROWS = 20
"""Rows above which an owner does not tell the values of a column in which most rows differ."""


@dataclass
class Owner:
    """Rows of one owner, and what is made of these rows."""

    name: str
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Text, as it was read; no target and no group is missing."""
    in_test: np.ndarray | None = None
    """Mask of the rows to test with; None if these rows are yet to be chosen."""
    notes: list[Line] = field(default_factory=list)
    keep: Callable[[str], bool] = lambda text: False
    """Says something to the owner alone, and returns whether it could be written."""
    tables: Tables = field(init=False)
    """Whole of the owner's file, from which `frame` is made."""
    y: np.ndarray = field(init=False)
    group: np.ndarray = field(init=False)
    """Group of each row; -1 for a test row whose group no training row has."""
    x: np.ndarray = field(init=False)

    @property
    def tested(self) -> np.ndarray:
        """Mask of the rows to test with, once these rows are known."""
        assert self.in_test is not None
        return self.in_test

    @property
    def training_rows(self) -> pd.DataFrame:
        """Rows to train on: all rows, until it is known which are to test with."""
        return self.frame if self.in_test is None else self.frame[~self.in_test]


class Agree(Protocol):
    """Way in which owners come to one answer."""

    owners: list[Owner]
    """Owners of this process."""

    @property
    def salt(self) -> bytes | None:
        """Salt of the tags; None where all owners are in one process: nothing leaves them."""

    def __call__(self, work: Callable[[Owner], T], join: Callable[[list[T]], U]) -> U:
        """Return `join` of what `work` gives for each owner anywhere, in the order of names."""


@dataclass
class InOneProcess:
    """Agree among owners that are all here."""

    owners: list[Owner]
    salt = None

    def __call__(self, work: Callable[[Owner], T], join: Callable[[list[T]], U]) -> U:
        return join([work(owner) for owner in self.owners])


@dataclass
class Agreed:
    """Names and notes that all owners have in common in the end."""

    encoding: Encoding
    """Statistics and labels that were agreed on, and nothing more of an owner."""
    notes: list[str]

    @property
    def labels(self) -> LabelEncoding:
        assert self.encoding.labels
        return self.encoding.labels

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels.classes

    @property
    def groups(self) -> tuple[str, ...]:
        return self.labels.groups

    @property
    def features(self) -> tuple[str, ...]:
        return self.encoding.features


class Kind(IntEnum):
    """Kind of a column; the kind of two owners' columns together is the lesser of the two."""

    TEXT = 0
    NUMBERS = 1
    WHOLE_NUMBERS = 2


def assemble(agree: Agree, options: DataOptions, share: float | None, what: str) -> Agreed:
    """Give every owner its y, group, in_test and x; `what` names the whole for messages.

    `share` of each group is held out where an owner's test rows are yet to be chosen.
    """
    owners, apart = agree.owners, agree.salt is not None
    assert options.target
    label_names = (options.target, *options.group)
    kinds = agree(lambda owner: column_kinds(owner.training_rows, label_names), common_kinds)
    if apart:
        count_labels(agree, kinds, options)
    labels = agree(
        lambda owner: Labels.of(owner, kinds, options),
        lambda parts: reduce(Labels.join, parts).check(options, what, quote=not apart),
    ).encoding(kinds, options)
    for owner in owners:
        owner.y, owner.group = labels.y(owner.frame), labels.group(owner.frame)
        if owner.in_test is None:
            assert share is not None
            owner.in_test = hold_out(owner.group, owner.y, share, options.seed, owner.name)
    notes = agree(
        lambda owner: Held.of(owner, labels, options, apart),
        lambda parts: check_rows(parts, len(labels.groups), len(labels.classes), what),
    )
    for owner in owners:
        keep_groups(owner)
    encoding = agree_on_inputs(agree, options, what)
    encoding.labels = labels
    return Agreed(encoding, notes + encoding.notes)


def agree_on_inputs(agree: Agree, options: DataOptions, what: str) -> Encoding:
    """Give every owner its x, by means, deviations and categories of all owners' training rows."""
    apart = agree.salt is not None
    left_out = {options.target, options.client, *options.drop}

    def numeric_columns(owner: Owner) -> tuple[str, dict[str, bool]]:
        names = [name for name in owner.frame.columns if name not in left_out]
        kinds = column_kinds(owner.training_rows, names)
        return owner.name, {name: kind > Kind.TEXT for name, kind in kinds.items()}

    text_for = agree(numeric_columns, who_has_text)
    numeric = {name: not owners for name, owners in text_for.items()}
    inputs = {owner.name: columns_of(owner, numeric, options) for owner in agree.owners}
    if apart:
        count_texts(agree, inputs, {name: why for name, why in text_for.items() if why})
    encoding = agree(
        lambda owner: survey(inputs[owner.name], owner.tested),
        lambda parts: fit_encoding(parts, what, quote=not apart),
    )

    def encode(owner: Owner) -> dict[str, int]:
        columns = inputs[owner.name]
        owner.x = encoding.encode_columns(columns, len(owner.y))
        return encoding.unseen(columns, owner.tested)

    encoding.notes += agree(encode, note_all_unseen)
    return encoding


def share_columns(agree: Agree) -> list[str]:
    """Leave every owner with the columns that all have, in the first one's order; return notes.

    Raise a UserError, which tells numbers alone, if an owner lacks a column of the first.
    """
    assert agree.salt is not None
    salt = agree.salt

    def tags(owner: Owner) -> tuple[str, list[bytes]]:
        return owner.name, [tag(salt, name) for name in owner.tables.train.columns]

    shared, notes, error = agree(tags, common_columns)
    for owner in agree.owners:
        names = {tag(salt, name): name for name in owner.tables.train.columns}
        if unshared := [name for key, name in names.items() if key not in set(shared)]:
            owner.keep(f"columns that not every owner has: {', '.join(map(repr, unshared))}")
        owner.tables.train = owner.tables.train[[names[key] for key in shared if key in names]]
    agree(lambda owner: None, lambda parts: refuse(error))
    return notes


def common_columns(
    tables: list[tuple[str, list[bytes]]],
) -> tuple[list[bytes], list[str], str | None]:
    """Return tags of the columns that all have, in the first one's order; notes; what is wrong."""
    (first, columns), *others = tables
    notes, error = [], None
    for owner, found in others:
        lacks, more = len(set(columns) - set(found)), len(set(found) - set(columns))
        if lacks:
            header = " Is its first line the names of its columns?" if lacks == more else ""
            error = error or (
                f"{owner} lacks {lacks} of the {len(columns)} columns that {first} has, and has "
                f"{more} that {first} does not have: every owner's file must have the same columns."
                f"{header} Each owner finds its own that are not shared in its .fedmpi.txt."
            )
        elif more:
            notes.append(f"{owner}: {more} columns left out that {first} does not have")
    shared = set(columns).intersection(*(found for _, found in others))
    return [key for key in columns if key in shared], notes, error


def refuse(error: str | None) -> None:
    if error:
        raise UserError(error)


def tag(salt: bytes, value: str) -> bytes:
    """Return a tag by which equal values are recognised without telling them."""
    return hashlib.blake2b(value.encode(errors="surrogatepass"), key=salt, digest_size=16).digest()


def column_kinds(rows: pd.DataFrame, names: Iterable[str]) -> dict[str, Kind]:
    """Return the kind of each of these columns in these rows."""
    found = {}
    for name in names:
        values = numbers(rows[name])
        if values is None:
            found[name] = Kind.TEXT
        else:
            whole = np.array_equal(values, np.trunc(values)) and (np.abs(values) < BEYOND).all()
            found[name] = Kind.WHOLE_NUMBERS if whole else Kind.NUMBERS
    return found


def common_kinds(parts: list[dict[str, Kind]]) -> dict[str, Kind]:
    """Return the kind of each column for all owners."""
    return {name: min(part[name] for part in parts) for name in parts[0]}


def who_has_text(parts: list[tuple[str, dict[str, bool]]]) -> dict[str, str]:
    """Owners for whom each column is text: "" for numbers of all, "all" for text of all."""
    found = {}
    for name in parts[0][1]:
        owners = [owner for owner, numeric in parts if not numeric[name]]
        found[name] = "all" if len(owners) == len(parts) else ", ".join(owners)
    return found


def columns_of(owner: Owner, numeric: dict[str, bool], options: DataOptions) -> Columns:
    """Return the owner's inputs, with OTHER for the values that are not to be told."""
    columns = parse(owner.frame, numeric)
    least = options.min_value_rows
    for name, column in columns.items() if least > 1 else ():
        if isinstance(column, pd.Series):
            columns[name] = with_rare_as_other(column, owner.tested, least)
    return columns


def count_texts(agree: Agree, inputs: dict[str, Columns], names: dict[str, str]) -> None:
    """Refuse a column of text that tells rows apart, before a value of it is told.

    `names` has, for each column of text, the owners for whom it is: see `who_has_text`.
    """
    salt = agree.salt
    assert salt is not None

    def tags(owner: Owner) -> tuple[int, dict[str, set[bytes]]]:
        found = {}
        for name, whose in names.items():
            texts = Texts.of(inputs[owner.name][name], owner.tested)  # type: ignore[arg-type]
            words = [value for value in texts.values if not is_number(value)]
            if words and texts.like_numbers > texts.unlike_numbers:
                owner.keep(f"column {name!r} is taken for text: {min(words)!r} is not a number")
            if names_rows(len(texts.values), texts.rows, FEW_ROWS):
                if whose != "all":
                    raise UserError(
                        f"column {name!r} is numbers, but not for {whose}: correct it there, or "
                        f"leave it out with --drop {name!r}."
                    )
                error = too_many_texts(name, len(texts.values), texts.rows)
                example = f"One of them is {shortened(min(texts.values))}."
                raise UserError(f"{owner.name}: {error}", example)
            found[name] = {tag(salt, value) for value in texts.values}
        return len(owner.training_rows), found

    def count(parts: list[tuple[int, dict[str, set[bytes]]]]) -> None:
        rows = sum(number for number, _ in parts)
        for name in names:
            number = len(set().union(*(found[name] for _, found in parts)))
            if names_rows(number, rows, FEW_ROWS):
                raise too_many_texts(name, number, rows)

    agree(tags, count)


def count_labels(agree: Agree, kinds: dict[str, Kind], options: DataOptions) -> None:
    """Refuse a target or groups that tell rows apart, before a value of them is told."""
    salt, target = agree.salt, options.target
    assert salt is not None and target

    def tags(owner: Owner) -> tuple[int, set[bytes], set[bytes]]:
        rows = owner.training_rows
        for name in (target, *options.group):
            number = rows[name].nunique()
            if number > MOST_LABELS or (len(rows) > FEW_ROWS and number > len(rows) / 2):
                what = f"the target {name!r}" if name == target else f"--group {name!r}"
                raise UserError(
                    f"{owner.name}: {what} has {number} different values in {len(rows)} rows; "
                    "name a column whose values many rows share.",
                    f"One of them is {shortened(min(rows[name]))}.",
                )
        found = Labels.of(owner, kinds, options)
        groups = {tag(salt, SEPARATOR.join(map(name_of, values))) for values in found.groups}
        return len(rows), {tag(salt, name_of(value)) for value in found.classes}, groups

    def count(parts: list[tuple[int, set[bytes], set[bytes]]]) -> None:
        sizes, classes, groups = zip(*parts, strict=True)
        rows = sum(sizes)
        check_number(len(set().union(*classes)), f"the target {target!r}", "classes", rows)
        what = f"--group {','.join(options.group)}"
        check_number(len(set().union(*groups)), what, "groups", rows)

    agree(tags, count)


def check_number(number: int, what: str, kind: str, rows: int) -> None:
    """Raise a UserError for labels that most rows have for themselves."""
    if number > MOST_LABELS or (rows > FEW_ROWS and number > rows / 2):
        raise UserError(
            f"{what} makes {number} {kind} of {rows} rows; at most {MOST_LABELS}, and half as many "
            "as rows, are possible."
        )


@dataclass
class Labels:
    """The values that the target takes, and the combinations that the group columns take.

    Whole numbers count as such, so that 1 and 1.0 are the same label and 10 comes after 9.
    """

    classes: set
    groups: set[tuple]

    @classmethod
    def of(cls, owner: Owner, kinds: dict[str, Kind], options: DataOptions) -> Labels:
        """Return the labels of the owner's training rows; UserError for a broken target number."""
        rows = owner.training_rows
        read = [column.values(rows[column.name]) for column in label_columns(kinds, options)]
        target, *columns = read
        assert options.target
        if kinds[options.target] == Kind.NUMBERS:
            broken = [value for value in target if not is_whole(str(value))]
            whose = f"{owner.name}: " if owner.name else ""
            raise UserError(
                f"{whose}the target {options.target!r} has numbers that are not whole, or too "
                "large; it must be classes (text, or whole numbers below 2^53).",
                f"One of them is {broken[0]}." if broken else "",
            )
        return cls(set(target), set(zip(*columns, strict=True)))

    def join(self, other: Labels) -> Labels:
        """Return the labels of the rows of both."""
        return Labels(self.classes | other.classes, self.groups | other.groups)

    def check(self, options: DataOptions, what: str, quote: bool) -> Labels:
        """Return self if these can be classes and groups; the UserError may `quote` values."""
        assert options.target
        number = len(self.classes)
        if number == 1:
            raise UserError(
                f"{what}: the target {options.target!r} has one value only in the training rows; "
                "two classes or more are needed.",
                f"It is {shortened(self.class_names[0])}." if quote else "",
            )
        if number > MOST_LABELS:
            raise UserError(
                f"{what}: the target {options.target!r} has {number} different values; 2 to "
                f"{MOST_LABELS} classes are possible.",
                f"One of them is {self.class_names[0]!r}." if quote else "",
            )
        if len(self.groups) > MOST_LABELS:
            raise UserError(
                f"--group {','.join(options.group)} makes {len(self.groups)} groups; at most "
                f"{MOST_LABELS} are possible."
            )
        return self

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in the order of their codes."""
        return [name_of(value) for value in sorted(self.classes)]

    def encoding(self, kinds: dict[str, Kind], options: DataOptions) -> LabelEncoding:
        """Return the rules by which cells become the numbers of these classes and groups."""
        target, *columns = label_columns(kinds, options)
        groups = [tuple(map(name_of, values)) for values in sorted(self.groups)]
        return LabelEncoding(
            target,
            tuple(self.class_names),
            {name: code for code, name in enumerate(self.class_names)},
            tuple(columns),
            tuple(SEPARATOR.join(names) for names in groups),
            {names: code for code, names in enumerate(groups)},
        )


def label_columns(kinds: dict[str, Kind], options: DataOptions) -> list[LabelColumn]:
    """Return how the target and the group columns are read."""
    assert options.target
    names = (options.target, *options.group)
    return [LabelColumn(name, kinds[name] == Kind.WHOLE_NUMBERS) for name in names]


def name_of(label: str | float) -> str:
    return label if isinstance(label, str) else f"{label:.0f}"


def is_whole(text: str) -> bool:
    try:
        return float(text).is_integer() and abs(float(text)) < BEYOND
    except ValueError:
        return False


@dataclass
class Held:
    """Counts of an owner's rows by group, and what else it tells of them."""

    groups: np.ndarray
    """2 × groups: how many rows to train on, and to test with."""
    left_out: int
    """Test rows of groups that no training row has."""
    names: set[str]
    """Names of these groups, where they may be told."""
    notes: list[str]

    @classmethod
    def of(cls, owner: Owner, labels: LabelEncoding, options: DataOptions, apart: bool) -> Held:
        """Count an owner's rows; UserError for a test row of a class that none can have learned."""
        rows = owner.frame
        if (strange := owner.y < 0).any():
            values = sorted(rows[options.target][strange].unique())
            classes = ", ".join(map(repr, labels.classes[:10]))
            raise UserError(
                f"{options.test} has {strange.sum()} rows with a target value that no training "
                "row has.",
                f"One of them is {shortened(values[0])}; training rows have {classes}.",
            )
        lost = owner.group < 0
        columns = (rows[name][lost] for name in options.group)
        names = {SEPARATOR.join(values) for values in zip(*columns, strict=True)}
        if apart and names:
            owner.keep(f"test rows of groups without training rows: {', '.join(sorted(names))}")
        for note in owner.notes if apart else ():
            owner.keep(str(note))
        counts = [
            np.bincount(owner.group[part & ~lost], minlength=len(labels.groups))
            for part in (~owner.tested, owner.tested)
        ]
        notes = [note.text if apart else str(note) for note in owner.notes]
        return cls(np.stack(counts), int(lost.sum()), set() if apart else names, notes)


def check_rows(parts: list[Held], groups: int, classes: int, what: str) -> list[str]:
    """Return notes on the rows of all owners; UserError if there are none to test with."""
    notes = [note for part in parts for note in part.notes]
    if left_out := sum(part.left_out for part in parts):
        names = ", ".join(sorted(set().union(*(part.names for part in parts))))
        text = f"{left_out} test rows of groups without training rows left out"
        notes.append(f"{text}: {names}" if names else text)
    if groups == 1:
        notes.append("there is one group only, and nothing to be fair between")
    if not np.sum([part.groups for part in parts], axis=0)[1].any():
        raise UserError(
            f"{what}: no test rows are left, with {groups} groups and {classes} classes that need "
            "rows to train on. Use a larger --test, or other columns."
        )
    return notes


def keep_groups(owner: Owner) -> None:
    """Leave out the owner's rows of groups that nobody can train on."""
    keep = owner.group >= 0
    owner.frame, owner.in_test = owner.frame[keep].reset_index(drop=True), owner.tested[keep]
    owner.y, owner.group = owner.y[keep], owner.group[keep]


def fit_encoding(parts: list[dict[str, Statistics]], what: str, quote: bool) -> Encoding:
    """Make the encoding of the inputs, from the statistics of all owners."""
    # Of one kind for all owners, as they agreed; the types cannot say that.
    columns: dict[str, list[Any]] = {name: [part[name] for part in parts] for name in parts[0]}
    joined = {name: reduce(lambda a, b: a.join(b), known) for name, known in columns.items()}
    encoding = Encoding.fit(joined, quote)
    if not encoding.features:
        raise UserError(f"{what}: no column is left to learn from.")
    return encoding


def note_all_unseen(parts: list[dict[str, int]]) -> list[str]:
    return note_unseen({name: sum(part[name] for part in parts) for name in parts[0]})
