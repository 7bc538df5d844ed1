"""The datasets by name. One file each, imported when it is asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fedmpi.errors import UserError, unknown_name
from fedmpi.plugins import load_class

if TYPE_CHECKING:
    from fedmpi.data.dataset import Dataset

FILES = {
    "synthetic": "fedmpi.data.datasets.synthetic:Synthetic",
    "adult": "fedmpi.data.datasets.adult:Adult",
    "acs-employment": "fedmpi.data.datasets.acs:AcsEmployment",
    "acs-race": "fedmpi.data.datasets.acs:AcsRace",
    "fashionmnist": "fedmpi.data.datasets.fashionmnist:FashionMNIST",
    "cifar10": "fedmpi.data.datasets.cifar10:CIFAR10",
}
PLACED: dict[str, Dataset] = {}
"""Datasets that this process has in its memory, for the time of a run: a caller's DataFrame."""
NAMES = (*FILES, "csv:FILE", "csv:DIR/", "package.module:Class")


def find(name: str) -> Dataset:
    """The dataset called `name`: one of ours, csv:FILE, csv:DIR/, or package.module:Class."""
    if name in PLACED:
        return PLACED[name]
    kind, colon, file = name.partition(":")
    if kind == "csv" and colon:
        if not file:
            raise UserError("csv: needs a file, as in csv:people.csv.")
        from fedmpi.data.datasets.csvfile import CsvFile, CsvFolder, is_folder
        from fedmpi.data.files import PARQUET

        # By the slash alone where this host does not have the folder, but others may.
        owners = file.endswith("/") or is_folder(file)
        parts = file.rstrip("/").lower().endswith(PARQUET)  # of one table
        return CsvFolder(file) if owners and not parts else CsvFile(file)
    if name not in FILES and not colon:
        if os.path.exists(name):
            raise UserError(f"unknown dataset {name!r}. Did you mean csv:{name}?")
        raise unknown_name("dataset", name, NAMES)
    from fedmpi.data.dataset import Dataset

    dataset = load_class("--dataset", FILES.get(name, name), Dataset, given=name)()
    dataset.name = name  # by which every rank finds one of the user's own again
    return dataset
