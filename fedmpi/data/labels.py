"""Classes and groups of rows, from the target and the group columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from fedmpi.data.encoding import as_text
from fedmpi.data.forms import PLAIN, to_numbers

SEPARATOR = " / "
"""Separator of the values that a group's name is made of."""
BEYOND = 2**53
"""First whole number whose float may be that of its neighbour, too."""
Label = str | float


@dataclass(frozen=True)
class LabelColumn:
    """How the cells of the target, or of a group column, are read."""

    name: str
    whole: bool = False
    """True for whole numbers: 1 and 1.0 are the same label, and 10 comes after 9."""
    limits: tuple[float, ...] = ()
    """Limits of bands, for a column of numbers whose bands are the labels."""
    form: str = PLAIN
    """How the numbers of such a column are written: see forms.py."""
    broken: bool = False
    """True for numbers that are not whole; where these are groups, each is a text."""

    def values(self, column: pd.Series) -> list[Label | None]:
        """Return what each cell says, None where nothing; comparable among training rows."""
        if self.limits:
            values, _ = to_numbers(column, self.form)
            bands = np.searchsorted(self.limits, values, side="right").astype(float)
            return [None if np.isnan(v) else b for v, b in zip(values, bands.tolist(), strict=True)]
        labels = column.tolist()
        if self.whole:  # of training rows: another row may have text
            values, text = to_numbers(column)
            labels = [
                word if is_text else None if np.isnan(value) else value + 0.0
                for value, is_text, word in zip(values.tolist(), text, labels, strict=True)
            ]
        return labels

    def names(self, column: pd.Series) -> list[str | None]:
        """Return the name of each cell's label."""
        codes, cells = pd.factorize(as_text(column))
        names = [self.name_of(value) for value in self.values(pd.Series(cells, dtype=object))]
        return [None if code < 0 else names[code] for code in codes.tolist()]

    def name_of(self, label: Label | None) -> str | None:
        """Return the name of a label, as the classes and groups have it."""
        if label is None or isinstance(label, str):
            return label
        if not self.limits:
            return f"{label:.0f}"
        low, high = int(label) - 1, int(label)
        if low < 0:
            return f"{self.name} < {self.limits[high]:g}"
        if high == len(self.limits):
            return f"{self.name} >= {self.limits[low]:g}"
        return f"{self.limits[low]:g} <= {self.name} < {self.limits[high]:g}"

    def to_json(self) -> dict[str, Any]:
        told = {"name": self.name, "whole": self.whole}
        return told | {"limits": list(self.limits), "form": self.form}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> LabelColumn:
        limits, form = tuple(told.get("limits", ())), told.get("form", PLAIN)
        return cls(told["name"], told["whole"], limits, form)


@dataclass(frozen=True)
class LabelEncoding:
    """Rules by which cells become the numbers of classes and of groups."""

    target: LabelColumn
    classes: tuple[str, ...]
    class_of: dict[str, int]
    """Number of the class by the name of a label; several labels may be one class."""
    group_columns: tuple[LabelColumn, ...]
    groups: tuple[str, ...]
    group_of: dict[tuple[str, ...], int] = field(hash=False)
    """Number of the group by the names of the group columns' labels; of the target, its class."""
    otherwise: int = -1
    """Class of all other cells of the target; -1 for none."""

    def y(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the class of every row, -1 where there is none that was trained on."""
        names = self.target.names(frame[self.target.name])
        return np.array([self.class_of.get(name, self.otherwise) for name in names], dtype=int)  # type: ignore[arg-type]

    def group(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the group of every row, -1 where there is none that was trained on."""
        columns: list[Sequence[str | None]] = []
        for column in self.group_columns:
            if column.name == self.target.name:
                columns.append([self.classes[y] if y >= 0 else None for y in self.y(frame)])
            else:
                columns.append(column.names(frame[column.name]))
        found: list[Any] = list(zip(*columns, strict=True))
        return np.array([self.group_of.get(names, -1) for names in found], dtype=int)

    def regrouped(self, numbers: Sequence[int], groups: tuple[str, ...]) -> LabelEncoding:
        """Return the same with other groups, given the new number of each group, -1 for none."""
        group_of = {
            names: numbers[code] for names, code in self.group_of.items() if numbers[code] >= 0
        }
        return replace(self, groups=groups, group_of=group_of)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.to_json(),
            "classes": list(self.classes),
            "class_of": self.class_of,
            "otherwise": self.otherwise,
            "group_columns": [column.to_json() for column in self.group_columns],
            "groups": list(self.groups),
            "group_of": [[list(names), code] for names, code in self.group_of.items()],
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> LabelEncoding:
        return cls(
            LabelColumn.from_json(told["target"]),
            tuple(told["classes"]),
            told["class_of"],
            tuple(map(LabelColumn.from_json, told["group_columns"])),
            tuple(told["groups"]),
            {tuple(names): code for names, code in told["group_of"]},
            told["otherwise"],
        )


BINARY = {
    **dict.fromkeys(("0", "0.0", "no", "n", "false", "f"), "no"),
    **dict.fromkeys(("1", "1.0", "yes", "y", "true", "t"), "yes"),
}
SEX = {
    **dict.fromkeys(("f", "female", "females", "woman", "women"), "female"),
    **dict.fromkeys(("m", "male", "males", "man", "men"), "male"),
}
"""Words for the same, by which people write a label in one file and another."""


def folded(label: str) -> str:
    """Return a label without the difference of capital letters and spaces."""
    return " ".join(label.casefold().split())


def meanings(labels: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Return what each label means as a word for a sex, and as yes or no.

    The second is None for all labels if one of them is neither yes nor no.
    """
    words = {label: folded(label) for label in labels}
    binary = all(word in BINARY for word in words.values())
    return {
        label: (SEX.get(word, word), BINARY[word] if binary else None)
        for label, word in words.items()
    }
