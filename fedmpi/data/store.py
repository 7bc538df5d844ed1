"""Prepared datasets: .npy files with a manifest, written once, memory-mapped by every rank.

prepare.py writes them. Every rank imports this module, so it needs nothing heavier than numpy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmpi.errors import UserError

if TYPE_CHECKING:
    from fedmpi.data.dataset import Arrays

FORMAT = 2
"""Version of the format. Raise it when what is stored, or how a dataset is read, changes: older
folders are rebuilt."""

WINDOW_BYTES = 1 << 22

MOST_CLIENTS = 1000
"""Most values of a column that can be clients; a column with more is rather numbers, or names."""

SPLITS = ("train", "test")
ARRAYS = tuple(f"{split}_{part}" for split in SPLITS for part in ("x", "y", "group"))


@dataclass(frozen=True)
class Prepared:
    """A prepared dataset on disk; its arrays are mapped when asked for."""

    folder: Path
    dataset: str
    groups: tuple[str, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    notes: tuple[str, ...]
    sources: tuple[dict, ...]
    counts: dict[str, dict[str, int]]
    """Rows by split ("train", "test") and group."""
    scale: dict[str, list[float]] | None = None
    """"mean" and "std" by channel of images, which are stored as bytes."""
    encoding: dict[str, Any] | None = None
    """Rules that make inputs and labels of raw rows, for encoding.Encoding.from_json; None for
    images, and for a dataset of the user's own."""
    columns: tuple[dict[str, Any], ...] = ()
    """What was made of each column of a table: see encoding.describe."""
    clients: tuple[str, ...] = ()
    """Names of the clients, where the data say who holds which row: "train_client" does, then."""
    by_values: dict[str, list[str] | int] = field(default_factory=dict)
    """Columns for --setting by:COLUMN: the names of a column's values, or how many there are where
    they are too many. "train_by" has a column of codes for each column with names, in order."""

    @classmethod
    def open(cls, folder: Path) -> Prepared:
        """The dataset in `folder`; UserError if its manifest and its files do not agree."""
        manifest = read_manifest(folder)
        if manifest.get("format") != FORMAT:
            raise damaged(folder, f"it has format {manifest.get('format')}, not {FORMAT}")
        try:
            prepared = cls(
                folder=folder,
                dataset=manifest["dataset"],
                counts=manifest["counts"],
                scale=manifest.get("scale"),
                encoding=manifest.get("encoding"),
                columns=tuple(manifest.get("columns", ())),
                clients=tuple(manifest.get("clients", ())),
                by_values=dict(manifest["by_values"]),
                **{
                    name: tuple(manifest[name])
                    for name in ("groups", "classes", "features", "notes", "sources")
                },
            )
            for name in names_of(prepared):
                check_array(prepared, name, manifest["arrays"][name])
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged(folder, f"manifest.json lacks or misspells {error}") from error
        return prepared

    def array(self, name: str) -> np.ndarray:
        """Return one of the arrays, memory-mapped and read-only."""
        return np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    def take(self, name: str, rows: np.ndarray | slice) -> np.ndarray:
        """Return a copy of some rows of one of ARRAYS.

        They are read through a window that moves over the file: rows from everywhere touch every
        page, and the pages of a mapped file count as the memory of each rank that has touched them.
        """
        whole = self.array(name)
        if isinstance(rows, slice):
            rows = np.arange(len(whole))[rows]
        taken = np.empty((len(rows), *whole.shape[1:]), dtype=whole.dtype)
        order = np.argsort(rows, kind="stable")
        window = max(1, WINDOW_BYTES // max(1, whole[:1].nbytes))
        starts = np.arange(0, len(whole), window)
        bounds = [*np.searchsorted(rows[order], starts).tolist(), len(rows)]
        for first, last in pairwise(bounds):
            if first < last:
                places = order[first:last]
                taken[places] = self.array(name)[rows[places]]  # mapped anew, and let go
        return taken

    def rows(self, split: str) -> int:
        """The number of rows to train or to test."""
        return sum(self.counts[split].values())


def names_of(dataset: Arrays | Prepared) -> tuple[str, ...]:
    """The arrays that a dataset has."""
    split_by = any(isinstance(values, list) for values in dataset.by_values.values())
    return (*ARRAYS, *["train_client"] * bool(dataset.clients), *["train_by"] * split_by)


def is_stale(folder: Path) -> bool:
    """Return whether `folder` is a whole preparation, but of another format.

    A table that was prepared before its encoding was kept is prepared again, to the same arrays.
    """
    try:
        manifest = read_manifest(folder)
        lacks_encoding = bool(manifest.get("features")) and "encoding" not in manifest
        return manifest.get("format") != FORMAT or lacks_encoding
    except UserError:
        if folder.exists():
            raise
        return True  # another process is just replacing it


def read_manifest(folder: Path) -> dict:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(folder, f"manifest.json cannot be read ({error})") from error
    if not isinstance(manifest, dict):
        raise damaged(folder, "manifest.json is not a manifest")
    return manifest


def check_array(prepared: Prepared, name: str, described: dict) -> None:
    """Raise a UserError unless the file of array `name` is as the manifest describes it."""
    path = prepared.folder / f"{name}.npy"
    try:
        size, array = path.stat().st_size, prepared.array(name)
    except (OSError, EOFError, ValueError) as error:
        raise damaged(prepared.folder, f"{path.name} cannot be read ({error})") from error
    found = (list(array.shape), str(array.dtype), size)
    expected = (described["shape"], described["dtype"], described["bytes"])
    if found != expected or len(array) != prepared.rows(name.split("_")[0]):
        why = f"{path.name} (shape, dtype, bytes) is {found}, manifest.json says {expected}"
        raise damaged(prepared.folder, why)


def damaged(folder: Path, why: str) -> UserError:
    return UserError(f"{folder} is damaged: {why}. Delete that folder to have it prepared again.")
