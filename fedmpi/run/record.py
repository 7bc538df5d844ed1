"""Runs that are finished, read back from their folders: for tables, claims and reports."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fedmpi.errors import UserError


@dataclass(frozen=True, eq=False)
class Record:
    """A finished run, whose large files are read when they are asked for."""

    folder: Path
    config: dict
    result: dict

    @cached_property
    def history(self) -> dict[str, np.ndarray]:
        """Return the columns of history.csv, in its order."""
        with open(self.folder / "history.csv", encoding="utf-8", newline="") as file:
            names, *rows = list(csv.reader(file))
        values = np.array([[float(cell or "nan") for cell in row] for row in rows])
        return dict(zip(names, values.reshape(len(rows), len(names)).T, strict=True))

    @cached_property
    def partition(self) -> dict[str, np.ndarray]:
        """Return `counts` and `P_A`, groups x clients, and the names of the `groups`."""
        with np.load(self.folder / "partition.npz", allow_pickle=False) as arrays:
            return dict(arrays)


def read_record(folder: Path) -> Record:
    """Return the finished run in `folder`."""
    try:
        config, result = (
            json.loads((folder / name).read_text(encoding="utf-8"))
            for name in ("config.json", "result.json")
        )
    except FileNotFoundError as error:
        name = Path(error.filename).name
        raise UserError(f"{folder} holds no finished run: it has no {name}.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} cannot be read as a run: {error}.") from None
    return Record(folder, config, result)


def find_records(folders: Iterable[Path]) -> list[Record]:
    """Return the finished runs in `folders` and below, each once, in the order of their paths."""
    found: dict[Path, Record] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder. Give the folder of a run.")
        results = [folder / "result.json", *sorted(folder.rglob("*/result.json"))]
        below = [path.parent for path in results if path.is_file()]
        if not below:
            raise UserError(f"{folder} holds no finished run: no result.json in it or below it.")
        found |= {path.resolve(): read_record(path) for path in below}
    return list(found.values())
