"""Tables of several owners turned into inputs that mean the same everywhere.

Owners may sit in one process (a file with a column that says whose row it is) or each on a rank of
its own (a file each). What they must agree on they agree on by statistics, never by rows: `Agree`
is the only way from one owner to another, and what is given to it is all that leaves an owner:

1. of label columns, which the user has named, what kind of values each holds;
2. tags of the values that its target and its groups take, and of what these mean (yes is 1), to
   count and compare them by, then the values;
3. how many rows of each group and class it has, how many test rows were left out, and notes;
4. of every input column the forms in which all of its cells are numbers, if there are any;
5. tags of the values of its columns of text, to count them by; why a column cannot be an input;
6. of every input column `Numbers` (counts, a mean, a sum of squares) or `Texts` (counts, values),
   how many rows a rule from it to the class gets wrong, and whether it looks like an id;
7. how many test values of each column of text were not seen in training.

Where the owners are apart, tags of the names of all columns come first (`share_columns`), so that
the names that are told are those that all owners have: what one file alone has for a name may be a
cell of a file without a header. A tag is a hash with the salt of the run: it does not tell a value,
but it confirms a guess at one.

The order of the owners is that of their names, so the result does not depend on where they sit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
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
    Forms,
    Statistics,
    Texts,
    Unusable,
    is_number,
    names_rows,
    note_unseen,
    parse,
    refuse_columns,
    survey,
    too_many_texts,
    with_rare_as_other,
)
from fedmpi.data.forms import NO_NUMBER, forms_of, known_cells, to_numbers
from fedmpi.data.labels import BEYOND, SEPARATOR, LabelColumn, LabelEncoding, meanings
from fedmpi.data.options import DataOptions, as_list
from fedmpi.data.splits import hold_out
from fedmpi.data.suspicion import errors_by, gives_away, looks_like_id
from fedmpi.errors import Line, UserError, shortened

T = TypeVar("T")
U = TypeVar("U")

MOST_LABELS = 1000
MANY_CLASSES, ROWS_OF_A_CLASS = 30, 20
"""More classes than the first need as many rows each as the second says, on average."""
FEW_ROWS = 20
"""Rows above which an owner does not tell the values of a column in which most rows differ."""
FEW_TEST = 30
"""Test rows of a group below which its risk is called rough."""
MERGED = "other groups"
BUT_NOT = "is numbers, but not for"


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
    columns = agree(
        lambda owner: label_kinds(owner, options),
        lambda parts: label_columns(parts, options),
    )
    notes = agree(
        lambda owner: LabelTags.of(owner, columns, agree.salt),
        lambda parts: check_tags(parts, columns, apart),
    )
    labels = agree(
        lambda owner: Labels.of(owner, columns),
        lambda parts: reduce(Labels.join, parts).check(columns, what, quote=not apart),
    ).encoding(columns)
    for owner in owners:
        owner.y, owner.group = labels.y(owner.frame), labels.group(owner.frame)
        if owner.in_test is None:
            assert share is not None
            owner.in_test = hold_out(owner.group, owner.y, share, options.seed, owner.name)
    settled = agree(
        lambda owner: Held.of(owner, labels, options, apart),
        lambda parts: settle_groups(parts, labels, options, what),
    )
    labels = labels.regrouped(settled.numbers, settled.groups)
    for owner in owners:
        keep_groups(owner, settled.numbers)
    encoding = agree_on_inputs(agree, options, settled.classes, what)
    encoding.labels, encoding.missing = labels, options.missing
    return Agreed(encoding, notes + settled.notes + encoding.notes)


def agree_on_inputs(
    agree: Agree, options: DataOptions, class_rows: np.ndarray, what: str
) -> Encoding:
    """Give every owner its x, by means, deviations and categories of all owners' training rows."""
    apart = agree.salt is not None
    left_out = {options.target_column, options.client, *options.drop}

    def forms_by_column(owner: Owner) -> tuple[str, dict[str, tuple[str, ...]]]:
        rows = owner.training_rows
        return owner.name, {n: forms_of(rows[n]) for n in rows.columns if n not in left_out}

    forms, text_for = agree(forms_by_column, common_forms)
    inputs: dict[str, Columns] = {}
    known: dict[str, dict[str, Statistics]] = {}

    def look(owner: Owner) -> dict[str, Statistics]:
        if owner.name not in known:
            inputs[owner.name] = columns_of(owner, forms, options)
            known[owner.name] = survey(inputs[owner.name], owner.tested)
        return known[owner.name]

    if apart:
        count_texts(agree, look, text_for)

    def statistics(owner: Owner) -> tuple[dict[str, Statistics], dict[str, Hint]]:
        found, columns = look(owner), inputs[owner.name]
        return found, {name: Hint.of(values, owner) for name, values in columns.items()}

    def fit(parts: list[tuple[dict[str, Statistics], dict[str, Hint]]]) -> Encoding:
        encoding = fit_encoding([known for known, _ in parts], forms, what, quote=not apart)
        hints = {n: reduce(Hint.join, [some[n] for _, some in parts]) for n in encoding.columns}
        encoding.notes += suspicions(hints, class_rows)
        return encoding

    encoding = agree(statistics, fit)

    def encode(owner: Owner) -> dict[str, int]:
        columns = inputs[owner.name]
        owner.x = encoding.encode_columns(columns, len(owner.y))
        return encoding.unseen(columns, owner.tested)

    encoding.notes += agree(encode, note_all_unseen)
    return encoding


@dataclass(frozen=True)
class Hint:
    """What a column may be, beside an input."""

    errors: int
    """Training rows that a rule from this column to the class gets wrong."""
    id_like: bool

    @classmethod
    def of(cls, values: np.ndarray | pd.Series, owner: Owner) -> Hint:
        train = ~owner.tested
        errors = errors_by(values[train], owner.y[train]) if train.any() else 0
        return cls(errors, looks_like_id(values, owner.tested))

    def join(self, other: Hint) -> Hint:
        """Return the hint for the rows of both."""
        return Hint(self.errors + other.errors, self.id_like and other.id_like)


def suspicions(hints: dict[str, Hint], class_rows: np.ndarray) -> list[str]:
    """Return notes on columns that give the target away, and on those that count rows."""
    notes, rows = [], class_rows.sum()
    for name, hint in hints.items():
        if gives_away(hint.errors, class_rows):
            notes.append(
                f"column {name!r} alone tells the class of {rows - hint.errors} of "
                f"{rows} training rows: does it give the target away? If it is not known "
                f"before the target is, --drop {as_list([name])}"
            )
    if ids := [name for name, hint in hints.items() if hint.id_like]:
        which = ", ".join(map(repr, ids))
        notes.append(
            f"another whole number in every row, as of an id: {which}. If that is what it is, "
            f"--drop {as_list(ids)}"
        )
    return notes


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


def label_kinds(owner: Owner, options: DataOptions) -> dict[str, tuple[str, ...]]:
    """Return the kind of each label column in the owner's training rows, or the forms it fits.

    Forms are for a column that is cut into bands, which must be numbers.
    """
    rows, found = owner.training_rows, {}
    for name in options.label_columns:
        if name in options.bands:
            found[name] = forms_of(rows[name])
            if not found[name]:
                words = [cell for cell in known_cells(rows[name]) if not is_number(cell)]
                raise UserError(
                    f"{whose(owner)}column {name!r} has {len(words)} values that are no numbers; "
                    "limits are for numbers.",
                    f"One of them is {shortened(words[0])}.",
                )
            continue
        values, text = to_numbers(rows[name])
        if text.any() or rows[name].isin(NO_NUMBER).any():
            found[name] = (Kind.TEXT.name,)
        else:
            whole = np.array_equal(values, np.trunc(values)) and (np.abs(values) < BEYOND).all()
            found[name] = ((Kind.WHOLE_NUMBERS if whole else Kind.NUMBERS).name,)
    return found


def label_columns(
    parts: list[dict[str, tuple[str, ...]]], options: DataOptions
) -> list[LabelColumn]:
    """Return how the target and the group columns are read; UserError for numbers as target."""
    read = {}
    for name in options.label_columns:
        if limits := options.bands.get(name, ()):
            common = [form for form in parts[0][name] if all(form in part[name] for part in parts)]
            if not common:
                raise UserError(f"column {name!r} has numbers that owners write in different ways.")
            read[name] = LabelColumn(name, limits=limits, form=common[0])
            continue
        kind = min(Kind[part[name][0]] for part in parts)
        read[name] = LabelColumn(
            name, whole=kind == Kind.WHOLE_NUMBERS, broken=kind == Kind.NUMBERS
        )
    return [read[name] for name in (options.target_column, *options.group_columns)]


def whose(owner: Owner) -> str:
    return f"{owner.name}: " if owner.name else ""


def common_forms(
    parts: list[tuple[str, dict[str, tuple[str, ...]]]],
) -> tuple[Forms, dict[str, str]]:
    """Return the form of the numbers of each column, None for text; and of those the owners.

    "all" stands for a column that is text for all owners.
    """
    forms: Forms = {}
    text_for = {}
    for name, first in parts[0][1].items():
        forms[name] = next((f for f in first if all(f in found[name] for _, found in parts)), None)
        if forms[name] is None:
            owners = [owner for owner, found in parts if not found[name]]
            if not owners:  # all have numbers, but not in one form
                owners = [owner for owner, found in parts if first[0] not in found[name]]
            text_for[name] = "all" if len(owners) == len(parts) else ", ".join(owners)
    return forms, text_for


def columns_of(owner: Owner, forms: Forms, options: DataOptions) -> Columns:
    """Return the owner's inputs, with OTHER for the values that are not to be told."""
    columns = parse(owner.frame, forms)
    least = options.min_value_rows
    for name, column in columns.items() if least > 1 else ():
        if isinstance(column, pd.Series):
            columns[name] = with_rare_as_other(column, owner.tested, least)
    return columns


def count_texts(
    agree: Agree, look: Callable[[Owner], dict[str, Statistics]], names: dict[str, str]
) -> None:
    """Refuse all columns that cannot be inputs, before a value of a text is told.

    `look` returns an owner's statistics; `names` has, for each column of text, the owners for whom
    it is: see `common_forms`.
    """
    salt = agree.salt
    assert salt is not None

    def tags(owner: Owner) -> tuple[str, int, dict[str, set[bytes]], list[tuple[str, str]]]:
        found, unusable = {}, []
        for name, column in look(owner).items():
            if isinstance(column, Unusable):
                unusable.append(column)
            if not isinstance(column, Texts):
                continue
            words = [value for value in column.values if not is_number(value)]
            if words and column.like_numbers > column.unlike_numbers:
                owner.keep(f"column {name!r} is taken for text: {min(words)!r} is not a number")
            if names_rows(len(column.values), column.rows, FEW_ROWS):
                example = f"One of them is {shortened(min(column.values))}."
                error = too_many_texts(name, len(column.values), column.rows, example)
                if names[name] != "all":
                    error.why = f"{BUT_NOT} {names[name]}"
                unusable.append(error)
            else:
                found[name] = {tag(salt, value) for value in column.values}
        for column in unusable:
            if column.quoted:
                owner.keep(f"column {column.name!r} {column.why}. {column.quoted}")
        told = [(column.name, column.why) for column in unusable]
        return owner.name, len(owner.training_rows), found, told

    def count(parts: list[tuple[str, int, dict[str, set[bytes]], list[tuple[str, str]]]]) -> None:
        rows = sum(number for _, number, _, _ in parts)
        unusable = [Unusable(name, why) for *_, told in parts for name, why in told]
        refused = {column.name for column in unusable}
        owners = [owner for owner, *_, told in parts if told]
        for name in names:
            number = len(set().union(*(found.get(name, ()) for _, _, found, _ in parts)))
            if name not in refused and names_rows(number, rows, FEW_ROWS):
                unusable.append(too_many_texts(name, number, rows))
        one_sided = any(column.why.startswith(BUT_NOT) for column in unusable)
        refuse_columns(unusable, f"{', '.join(owners)}: " if owners and not one_sided else "")

    agree(tags, count)


@dataclass
class LabelTags:
    """Tags of an owner's labels, by which these are counted and compared before they are told.

    Where all owners are in one process, the labels themselves.
    """

    owner: str
    rows: int
    columns: dict[str, dict[Any, tuple[Any, Any]]]
    """Of each label column: label -> its meaning as a sex, and as yes or no (None for neither)."""
    groups: set

    @classmethod
    def of(cls, owner: Owner, columns: list[LabelColumn], salt: bytes | None) -> LabelTags:
        """Return them; UserError, by an owner who is apart, for labels that tell rows apart."""

        def told(text: str | None) -> Any:
            return text if salt is None or text is None else tag(salt, text)

        rows = owner.training_rows
        for i, column in enumerate(columns if salt is not None else ()):
            number = 0 if column.limits else rows[column.name].nunique()
            if number > MOST_LABELS or (len(rows) > FEW_ROWS and number > len(rows) / 2):
                what = f"--group {column.name!r}" if i else f"the target {column.name!r}"
                raise UserError(
                    f"{owner.name}: {what} has {number} different values in {len(rows)} rows; "
                    f"name a column whose values many rows share{AS_NUMBERS.format(column.name)}.",
                    f"One of them is {shortened(min(rows[column.name]))}.",
                )
        labels = Labels.of(owner, columns)
        found: dict[str, dict[Any, tuple[Any, Any]]] = {}
        for i, column in enumerate(columns):
            values = {values[i - 1] for values in labels.groups} if i else labels.classes
            means = {} if column.limits else meanings([str(column.name_of(v)) for v in values])
            found[column.name] = {
                told(label): (told(one), told(two)) for label, (one, two) in means.items()
            }
        names = (SEPARATOR.join(map(str, map(name_of, values))) for values in labels.groups)
        return cls(owner.name, len(rows), found, set(map(told, names)))


AS_NUMBERS = ", or give limits for numbers, as {0}:10,20"


def check_tags(parts: list[LabelTags], columns: list[LabelColumn], apart: bool) -> list[str]:
    """Return notes on how owners write labels; UserError for two ways of writing the same one."""
    rows = sum(part.rows for part in parts)
    target = columns[0].name
    notes = []
    if apart:
        group = f"--group {','.join(column.name for column in columns[1:])}"
        check_number(len(set().union(*(p.columns[target] for p in parts))), target, rows)
        check_number(len(set().union(*(part.groups for part in parts))), group, rows, "groups")
    for i, column in enumerate({column.name: column for column in columns}.values()):
        what = f"--group {column.name!r}" if i else f"the target {column.name!r}"
        check_meanings([(p.owner, p.columns[column.name]) for p in parts], what, apart)
    first = next((part for part in parts if len(part.columns[target]) > 1), None)
    for part in parts if first else ():
        assert first
        theirs, others = part.columns[target], first.columns[target]
        if len(theirs) > 1 and not set(theirs) & set(others):
            notes.append(
                f"{first.owner} and {part.owner} have no class of {target!r} in common: do they "
                "write the same in different ways?"
            )
            break
    return notes


def check_meanings(
    parts: list[tuple[str, dict[Any, tuple[Any, Any]]]], what: str, apart: bool
) -> None:
    """Raise a UserError for labels that differ in letters, or in the word for yes or a sex."""
    for kind in (0, 1):
        ways: dict[Any, dict[Any, list[str]]] = {}
        for owner, labels in parts:
            for label, means in labels.items():
                ways.setdefault(means[kind], {}).setdefault(label, []).append(owner)
        if None in ways:  # a label that is neither yes nor no
            continue
        twice = [labels for labels in ways.values() if len(labels) > 1]
        if twice:
            number = len({label for _, labels in parts for label in labels})
            owners = sorted({o for some in twice for names in some.values() for o in names if o})
            where = f" (of {', '.join(owners)})" if owners else ""
            raise UserError(
                f"{what} has {number} different labels, but {len(ways)} meanings: some{where} "
                "differ in capital letters alone, or are two words for the same, as yes and 1, f "
                "and female. Write each label in one way.",
                "" if apart else f"As {', '.join(map(repr, min(map(sorted, twice))))}.",
            )


def check_number(number: int, what: str, rows: int, kind: str = "classes") -> None:
    """Raise a UserError for labels that most rows have for themselves."""
    if number > MOST_LABELS or (rows > FEW_ROWS and number > rows / 2):
        limits = AS_NUMBERS.format(what) if kind == "classes" else ""
        what = f"the target {what!r}" if kind == "classes" else what
        raise UserError(
            f"{what} makes {number} {kind} of {rows} rows; at most {MOST_LABELS}, and half as many "
            f"as rows, are possible{limits}."
        )


@dataclass
class Labels:
    """The values that the target takes, and the combinations that the group columns take.

    Whole numbers count as such, so that 1 and 1.0 are the same label and 10 comes after 9.
    """

    classes: set
    groups: set[tuple]
    rows: int = 0

    @classmethod
    def of(cls, owner: Owner, columns: list[LabelColumn]) -> Labels:
        """Return the labels of the owner's training rows; UserError for a broken target number."""
        rows = owner.training_rows
        target, *groups = [column.values(rows[column.name]) for column in columns]
        if columns[0].broken:
            broken = [value for value in target if not is_whole(str(value))]
            name = columns[0].name
            raise UserError(
                f"{whose(owner)}the target {name!r} has numbers that are not whole, or too large; "
                f"it must be classes (text, or whole numbers below 2^53): use --bins 4 for four "
                f"classes of numbers, or give their limits, as --target {name}:10,20.",
                f"One of them is {broken[0]}." if broken else "",
            )
        return cls(set(target), set(zip(*groups, strict=True)), len(rows))

    def join(self, other: Labels) -> Labels:
        """Return the labels of the rows of both."""
        rows = self.rows + other.rows
        return Labels(self.classes | other.classes, self.groups | other.groups, rows)

    def check(self, columns: list[LabelColumn], what: str, quote: bool) -> Labels:
        """Return self if these can be classes and groups; the UserError may `quote` values."""
        target, number = columns[0], len(self.classes)
        example = f"One of them is {shortened(self.class_names(target)[0])}." if quote else ""
        if number == 1:
            raise UserError(
                f"{what}: the target {target.name!r} has one value only in the training rows; "
                "two classes or more are needed.",
                f"It is {shortened(self.class_names(target)[0])}." if quote else "",
            )
        few = number > MANY_CLASSES and self.rows < ROWS_OF_A_CLASS * number
        if number > MOST_LABELS or (few and not target.limits):
            bins = "--bins 4, or their limits, as" if quote else "limits, as"
            raise UserError(
                f"{what}: the target {target.name!r} has {number} different values in {self.rows} "
                f"rows; 2 to {MOST_LABELS} classes are possible, with {ROWS_OF_A_CLASS} rows or "
                f"more each if they are many. If it is numbers, give {bins} --target "
                f"{target.name}:10,20.",
                example,
            )
        if len(self.groups) > MOST_LABELS:
            names = ",".join(column.name for column in columns[1:])
            raise UserError(
                f"--group {names} makes {len(self.groups)} groups; at most {MOST_LABELS} are "
                "possible. Numbers can be cut into bands, as --group age:30,50."
            )
        return self

    def class_names(self, target: LabelColumn) -> list[str]:
        """Names of the classes, in the order of their codes."""
        return [str(target.name_of(value)) for value in sorted(self.classes)]

    def encoding(self, columns: list[LabelColumn]) -> LabelEncoding:
        """Return the rules by which cells become the numbers of these classes and groups."""
        target, *others = columns
        classes = self.class_names(target)
        groups = [
            tuple(str(column.name_of(value)) for column, value in zip(others, values, strict=True))
            for values in sorted(self.groups)
        ]
        return LabelEncoding(
            target,
            tuple(classes),
            {name: code for code, name in enumerate(classes)},
            tuple(others),
            tuple(SEPARATOR.join(names) for names in groups),
            {names: code for code, names in enumerate(groups)},
        )


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

    classes: np.ndarray
    """How many rows of each class to train on."""

    @classmethod
    def of(cls, owner: Owner, labels: LabelEncoding, options: DataOptions, apart: bool) -> Held:
        """Count an owner's rows; UserError for a test row of a class that none can have learned."""
        rows = owner.frame
        if (strange := owner.y < 0).any():
            values = sorted(rows[options.target_column][strange].unique())
            classes = ", ".join(map(repr, labels.classes[:10]))
            raise UserError(
                f"{options.test} has {strange.sum()} rows with a target value that no training "
                "row has.",
                f"One of them is {shortened(values[0])}; training rows have {classes}.",
            )
        lost = owner.group < 0
        columns = (rows[name][lost] for name in options.group_columns)
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
        by_class = np.bincount(owner.y[~owner.tested], minlength=len(labels.classes))
        left_out = int(lost.sum())
        return cls(np.stack(counts), left_out, set() if apart else names, notes, by_class)


@dataclass
class Settled:
    """Groups that are trained on, and what is to be said of the rows."""

    numbers: list[int]
    """New number of each group, -1 if it is left out."""
    groups: tuple[str, ...]
    classes: np.ndarray
    """Rows of each class to train on."""
    notes: list[str]


def settle_groups(
    parts: list[Held], labels: LabelEncoding, options: DataOptions, what: str
) -> Settled:
    """Merge small groups or leave them out, as asked; UserError if no rows are left to test with.

    Names of classes and groups are known to all; no other cell is in a note.
    """
    notes = [note for part in parts for note in part.notes]
    if left_out := sum(part.left_out for part in parts):
        names = ", ".join(sorted(set().union(*(part.names for part in parts))))
        text = f"{left_out} test rows of groups without training rows left out"
        notes.append(f"{text}: {names}" if names else text)
    train, test = np.sum([part.groups for part in parts], axis=0)
    classes = np.sum([part.classes for part in parts], axis=0)
    numbers, groups = merge_small(train, labels.groups, options.merge_small, notes)
    numbers, groups = leave_small_out(train, numbers, groups, options.min_group_rows, notes)
    notes += note_labels(labels, classes, train)
    if len(groups) == 1:
        notes.append("there is one group only, and nothing to be fair between")
    new_test = np.bincount(numbers[numbers >= 0], test[numbers >= 0], minlength=len(groups))
    if not new_test.any():
        raise UserError(
            f"{what}: no test rows are left, with {len(groups)} groups and {len(classes)} classes "
            "that need rows to train on. Use a larger --test, or other columns."
        )
    few = [a for a in np.argsort(new_test, kind="stable").tolist() if 0 < new_test[a] < FEW_TEST]
    if few:
        named = ", ".join(f"{groups[a]} {new_test[a]:.0f}" for a in few[:5])
        more = f" and {len(few) - 5} more groups" if len(few) > 5 else ""
        notes.append(f"few test rows, so risks are rough: {named}{more}")
    return Settled(numbers.tolist(), groups, classes, notes)


def merge_small(
    train: np.ndarray, groups: tuple[str, ...], least: int, notes: list[str]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the new number of each group, and the names, with one group for the small ones."""
    small = np.flatnonzero(train < least)
    if len(small) < 2:
        if len(small):
            notes.append(f"--merge-small {least}: {groups[small[0]]} alone is small, and stays")
        return np.arange(len(groups)), groups
    large = np.flatnonzero(train >= least)
    numbers = np.full(len(groups), len(large))
    numbers[large] = np.arange(len(large))
    named = ", ".join(f"{groups[a]} ({train[a]})" for a in small)
    notes.append(f"--merge-small {least} makes one group, {MERGED!r}, of (training rows): {named}")
    return numbers, (*(groups[a] for a in large), MERGED)


def leave_small_out(
    train: np.ndarray,
    numbers: np.ndarray,
    groups: tuple[str, ...],
    least: int,
    notes: list[str],
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the new number of each group, -1 for a small one, and the names of the others."""
    rows = np.bincount(numbers, train, minlength=len(groups)).astype(int)
    stay = rows >= least
    if stay.all():
        return numbers, groups
    if stay.sum() < 2:
        counts = ", ".join(f"{name} {n}" for name, n in zip(groups, rows, strict=True))
        raise UserError(
            f"--min-group-rows {least} leaves fewer than two groups (rows to train on: {counts}): "
            "use a smaller number."
        )
    named = ", ".join(f"{groups[a]} ({rows[a]})" for a in np.flatnonzero(~stay))
    notes.append(f"--min-group-rows {least} leaves out (training rows): {named}")
    place = np.where(stay, np.cumsum(stay) - 1, -1)
    return place[numbers], tuple(groups[a] for a in np.flatnonzero(stay))


def note_labels(labels: LabelEncoding, classes: np.ndarray, train: np.ndarray) -> list[str]:
    """Return notes on the classes and their rows, and on labels that may stand for missing."""
    order = np.argsort(-classes, kind="stable")[:20]
    named = ", ".join(f"{labels.classes[y]} {classes[y]:,}" for y in sorted(order.tolist()))
    more = f", … ({len(classes)} in all)" if len(classes) > len(order) else ""
    notes = [f"classes and their training rows: {named}{more}"]
    for name, rows in zip(labels.classes, classes.tolist(), strict=True):
        if name in NO_NUMBER:
            notes.append(note_mark("class", name, rows))
    for i, column in enumerate(labels.group_columns):
        for mark in NO_NUMBER if column.name != labels.target.name else ():
            codes = [code for names, code in labels.group_of.items() if names[i] == mark]
            if codes:
                what = f"group of {column.name!r} called"
                notes.append(note_mark(what, mark, int(train[codes].sum())))
    return notes


def note_mark(what: str, mark: str, rows: int) -> str:
    option = f"--missing {as_list([mark])}"
    return f"{what} {mark!r} ({rows} training rows): if that means missing, {option} leaves it out"


def keep_groups(owner: Owner, numbers: list[int]) -> None:
    """Give the owner's rows the new numbers of their groups; leave out those of no group."""
    owner.group = np.append(numbers, -1)[owner.group]
    keep = owner.group >= 0
    owner.frame, owner.in_test = owner.frame[keep].reset_index(drop=True), owner.tested[keep]
    owner.y, owner.group = owner.y[keep], owner.group[keep]


def fit_encoding(
    parts: list[dict[str, Statistics]], forms: Forms, what: str, quote: bool
) -> Encoding:
    """Make the encoding of the inputs, from the statistics of all owners."""
    # Of one kind for all owners, as they agreed; the types cannot say that.
    columns: dict[str, list[Any]] = {name: [part[name] for part in parts] for name in parts[0]}
    joined = {name: join_statistics(known) for name, known in columns.items()}
    encoding = Encoding.fit(joined, forms, quote)
    if not encoding.features:
        raise UserError(f"{what}: no column is left to learn from.")
    return encoding


def join_statistics(known: list[Any]) -> Statistics:
    """Join what owners know of a column; it is unusable for all if it is for one."""
    unusable = [part for part in known if isinstance(part, Unusable)]
    return unusable[0] if unusable else reduce(lambda a, b: a.join(b), known)


def note_all_unseen(parts: list[dict[str, int]]) -> list[str]:
    return note_unseen({name: sum(part[name] for part in parts) for name in parts[0]})
