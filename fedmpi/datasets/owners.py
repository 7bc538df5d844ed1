"""Tables of several owners turned into inputs that mean the same everywhere.

Owners may sit in one process (a file with a column that says whose row it is) or each on a rank of
its own (a file each). What they must agree on they agree on by statistics, never by rows: `Agree`
is the only way from one owner to another, and what is given to it is all that leaves an owner:

1. the names of its columns, and what kind of values each holds;
2. the values that its target takes, and the combinations of values that its group columns take;
3. which classes it has to train on and to test on, how many rows of each group, and notes that say
   how many rows were left out;
4. of every input column `Numbers` (counts, a mean, a sum of squares) or `Texts` (counts, values);
5. how many test values of each column of text were not seen in training.

The order of the owners is that of their names, so the result does not depend on where they sit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import reduce
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from fedmpi.datasets.csvfile import SEPARATOR, hold_out
from fedmpi.datasets.options import DataOptions
from fedmpi.datasets.table import (
    Columns,
    Encoder,
    Statistics,
    Texts,
    note_unseen,
    numbers,
    parse,
    survey,
)
from fedmpi.errors import UserError, shortened

T = TypeVar("T")
U = TypeVar("U")

MOST_LABELS = 1000
FEW_ROWS = 20
"""An owner with more rows does not send a column of text in which most rows differ."""


class Agree(Protocol):
    """How owners come to one answer."""

    def __call__(self, work: Callable[[], list[T]], join: Callable[[list[T]], U]) -> U:
        """`join` of what `work` gives for each owner anywhere, in the order of their names."""


def in_one_process(work: Callable[[], list[T]], join: Callable[[list[T]], U]) -> U:
    """Agree among owners that are all here."""
    return join(work())


@dataclass
class Owner:
    """One owner's rows, and what is made of them."""

    name: str
    frame: pd.DataFrame
    """Text, as it was read; no target and no group is missing."""
    in_test: np.ndarray | None = None
    """Which rows are to test with; None if they are yet to be chosen."""
    notes: list[str] = field(default_factory=list)
    y: np.ndarray = field(init=False)
    group: np.ndarray = field(init=False)
    x: np.ndarray = field(init=False)

    @property
    def tested(self) -> np.ndarray:
        """in_test, once it is known."""
        assert self.in_test is not None
        return self.in_test


@dataclass
class Agreed:
    """What all owners have in common in the end."""

    classes: tuple[str, ...]
    groups: tuple[str, ...]
    features: tuple[str, ...]
    notes: list[str]


BEYOND = 2**53
"""From here on two whole numbers may be one float."""


class Kind(IntEnum):
    """What a column holds; of two owners' columns together, the lesser of the two."""

    TEXT = 0
    NUMBERS = 1
    WHOLE_NUMBERS = 2


def assemble(
    owners: Sequence[Owner],
    options: DataOptions,
    share: float | None,
    what: str,
    agree: Agree = in_one_process,
) -> Agreed:
    """Give every owner its y, group, in_test and x; `what` names the whole for messages.

    `share` of each group is held out where an owner's test rows are yet to be chosen.
    """
    kinds, of_columns = agree(lambda: list(map(column_kinds, owners)), common_kinds)
    labels = agree(
        lambda: [Labels.of(owner.frame, kinds, options) for owner in owners],
        lambda parts: reduce(Labels.join, parts).check(kinds, options, what),
    )
    for owner in owners:
        owner.y, owner.group = labels.codes(owner.frame, kinds, options)
        if owner.in_test is None:
            assert share is not None
            owner.in_test = hold_out(owner.group, owner.y, share, options.seed, owner.name)
    trained, notes = agree(
        lambda: [Held.of(owner, labels) for owner in owners],
        lambda parts: in_the_game(parts, labels, options, what),
    )
    for owner in owners:
        keep_groups(owner, trained)
    left_out = {options.target, options.client, *options.drop}
    numeric = {name: kind > Kind.TEXT for name, kind in kinds.items() if name not in left_out}
    inputs = [parse(owner.frame, numeric) for owner in owners]
    private = agree is not in_one_process
    encoder = agree(
        lambda: [statistics(*pair, private) for pair in zip(owners, inputs, strict=True)],
        lambda parts: fit_encoder(parts, what),
    )

    def encode() -> list[dict[str, int]]:
        for owner, columns in zip(owners, inputs, strict=True):
            owner.x = encoder.encode(columns, len(owner.y))
        return [encoder.unseen(c, o.tested) for o, c in zip(owners, inputs, strict=True)]

    notes = [*of_columns, *notes, *encoder.notes, *agree(encode, note_all_unseen)]
    groups = tuple(name for name, stays in zip(labels.group_names, trained, strict=True) if stays)
    return Agreed(tuple(labels.class_names), groups, encoder.features, notes)


def column_kinds(owner: Owner) -> tuple[str, dict[str, Kind]]:
    """The owner's name, and its columns in order with what each holds."""
    found = {}
    for name in owner.frame.columns:
        values = numbers(owner.frame[name])
        if values is None:
            found[name] = Kind.TEXT
        else:
            whole = np.array_equal(values, np.trunc(values)) and (np.abs(values) < BEYOND).all()
            found[name] = Kind.WHOLE_NUMBERS if whole else Kind.NUMBERS
    return owner.name, found


def common_kinds(tables: list[tuple[str, dict[str, Kind]]]) -> tuple[dict[str, Kind], list[str]]:
    """The first owner's columns, each as what it is for all; and notes on columns left out."""
    (first, columns), *others = tables
    notes = []
    for owner, found in others:
        if lacking := [name for name in columns if name not in found]:
            raise UserError(
                f"{owner} has no column {lacking[0]!r}, which {first} has: every owner's file "
                "must have the same columns."
            )
        if extra := [name for name in found if name not in columns]:
            notes.append(f"columns of {owner} that {first} has not, left out: {', '.join(extra)}")
    return {name: min(found[name] for _, found in tables) for name in columns}, notes


@dataclass
class Labels:
    """The values that the target takes, and the combinations that the group columns take.

    Whole numbers count as such, so that 1 and 1.0 are the same label and 10 comes after 9.
    """

    classes: set
    groups: set[tuple]

    @classmethod
    def of(cls, frame: pd.DataFrame, kinds: dict[str, Kind], options: DataOptions) -> Labels:
        target, *columns = label_columns(frame, kinds, options)
        return cls(set(target), set(zip(*columns, strict=True)))

    def join(self, other: Labels) -> Labels:
        """Of the rows of both."""
        return Labels(self.classes | other.classes, self.groups | other.groups)

    def check(self, kinds: dict[str, Kind], options: DataOptions, what: str) -> Labels:
        """Itself, if these can be classes and groups."""
        assert options.target
        number = len(self.classes)
        if kinds[options.target] == Kind.NUMBERS:
            broken = next(value for value in sorted(self.classes) if not is_whole(value))
            raise UserError(
                f"{what}: the target {options.target!r} has values such as {broken}; it must be "
                "classes (text, or whole numbers below 2^53)."
            )
        if number == 1:
            raise UserError(
                f"{what}: the target {options.target!r} has one value only, "
                f"{shortened(self.class_names[0])}; two classes or more are needed."
            )
        if number > MOST_LABELS:
            raise UserError(
                f"{what}: the target {options.target!r} has {number} different values, such as "
                f"{self.class_names[0]!r}; 2 to {MOST_LABELS} classes are possible."
            )
        if len(self.groups) > MOST_LABELS:
            raise UserError(
                f"--group {','.join(options.group)} makes {len(self.groups)} groups; at most "
                f"{MOST_LABELS} are possible."
            )
        return self

    @property
    def class_names(self) -> list[str]:
        """In the order of their codes."""
        return [name_of(value) for value in sorted(self.classes)]

    @property
    def group_names(self) -> list[str]:
        """In the order of their codes."""
        return [SEPARATOR.join(map(name_of, values)) for values in sorted(self.groups)]

    def codes(
        self, frame: pd.DataFrame, kinds: dict[str, Kind], options: DataOptions
    ) -> tuple[np.ndarray, np.ndarray]:
        """The class and the group of every row."""
        target, *columns = label_columns(frame, kinds, options)
        class_of = {value: code for code, value in enumerate(sorted(self.classes))}
        group_of = {values: code for code, values in enumerate(sorted(self.groups))}
        y = np.array([class_of[value] for value in target])
        return y, np.array([group_of[values] for values in zip(*columns, strict=True)])


def label_columns(
    frame: pd.DataFrame, kinds: dict[str, Kind], options: DataOptions
) -> list[list[str] | list[float]]:
    """The target's and the group columns' labels, a list for each."""
    assert options.target
    found: list[list[str] | list[float]] = []
    for name in (options.target, *options.group):
        values = numbers(frame[name]) if kinds[name] == Kind.WHOLE_NUMBERS else None
        found.append(frame[name].tolist() if values is None else values.tolist())
    return found


def name_of(label: str | float) -> str:
    return label if isinstance(label, str) else f"{label:.0f}"


def is_whole(text: str) -> bool:
    try:
        return float(text).is_integer() and abs(float(text)) < BEYOND
    except ValueError:
        return False


@dataclass
class Held:
    """What an owner has of each class and of each group."""

    classes: np.ndarray
    """2 × classes: whether there are rows to train on, and to test on."""
    groups: np.ndarray
    """2 × groups: how many rows."""
    notes: list[str]

    @classmethod
    def of(cls, owner: Owner, labels: Labels) -> Held:
        train, test = ~owner.tested, owner.tested

        def counts(codes: np.ndarray, number: int) -> np.ndarray:
            return np.stack([np.bincount(codes[part], minlength=number) for part in (train, test)])

        classes = counts(owner.y, len(labels.classes)) > 0
        return cls(classes, counts(owner.group, len(labels.groups)), owner.notes)


def in_the_game(
    parts: list[Held], labels: Labels, options: DataOptions, what: str
) -> tuple[np.ndarray, list[str]]:
    """The groups that some owner can train on, and notes; UserError where a class lacks rows."""
    notes = [note for part in parts for note in part.notes]
    trained, tested = np.any([part.classes for part in parts], axis=0)
    names = np.array(labels.class_names, dtype=object)
    if (tested & ~trained).any():
        raise UserError(
            f"{options.test} has the target value {names[tested & ~trained][0]!r}, which no "
            f"training row has; they have {', '.join(map(repr, names[trained][:10]))}."
        )
    if trained.sum() < 2:
        raise UserError(f"the training rows have one class only, {names[trained][0]!r}.")
    train_rows, test_rows = np.sum([part.groups for part in parts], axis=0)
    stay = train_rows > 0
    if not stay.all():
        lost = ", ".join(np.array(labels.group_names, dtype=object)[~stay])
        number = test_rows[~stay].sum()
        notes.append(f"{number} test rows of groups without training rows left out: {lost}")
    if stay.sum() == 1:
        notes.append("there is one group only, and nothing to be fair between")
    if not test_rows[stay].any():
        raise UserError(
            f"{what}: no test rows are left, with {stay.sum()} groups and {trained.sum()} classes "
            "that need rows to train on. Use a larger --test, or other columns."
        )
    return stay, notes


def keep_groups(owner: Owner, stay: np.ndarray) -> None:
    """Leave out the owner's rows of groups that nobody can train on."""
    keep = stay[owner.group]
    owner.frame, owner.in_test = owner.frame[keep].reset_index(drop=True), owner.tested[keep]
    owner.y, owner.group = owner.y[keep], (np.cumsum(stay) - 1)[owner.group[keep]]


def statistics(owner: Owner, columns: Columns, private: bool) -> dict[str, Statistics]:
    """Of an owner's columns; where they are to leave it, no column that tells rows apart."""
    found = survey(columns, owner.tested)
    for name, known in found.items() if private else ():
        if isinstance(known, Texts):
            try:
                known.check(name, few=FEW_ROWS)
            except UserError as error:
                raise UserError(f"{owner.name}: {error}") from None
    return found


def fit_encoder(parts: list[dict[str, Statistics]], what: str) -> Encoder:
    """The inputs, from the statistics of all owners."""
    # Of one kind for all owners, as they agreed; the types cannot say that.
    columns: dict[str, list[Any]] = {name: [part[name] for part in parts] for name in parts[0]}
    joined = {name: reduce(lambda a, b: a.join(b), known) for name, known in columns.items()}
    encoder = Encoder.fit(joined)
    if not encoder.features:
        raise UserError(f"{what}: no column is left to learn from.")
    return encoder


def note_all_unseen(parts: list[dict[str, int]]) -> list[str]:
    return note_unseen({name: sum(part[name] for part in parts) for name in parts[0]})
