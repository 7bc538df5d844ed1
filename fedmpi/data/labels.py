"""Classes and groups of rows, from the target and the group columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedmpi.data.encoding import as_text, to_numbers

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

    def values(self, column: pd.Series) -> list[Label | None]:
        """Return what each cell says, None where nothing; comparable among training rows."""
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
        return f"{label:.0f}" if isinstance(label, float) else label

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "whole": self.whole}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> LabelColumn:
        return cls(told["name"], told["whole"])


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
