"""The datasets by name. One file each, imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fedmpi.errors import UserError, unknown_name

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
NAMES = (*FILES, "csv:FILE", "csv:DIR/")


def find(name: str) -> Dataset:
    """The dataset called `name`; csv:FILE for a table of the user's own, csv:DIR/ for several."""
    kind, colon, file = name.partition(":")
    if kind == "csv" and colon:
        if not file:
            raise UserError("csv: needs a file, as in csv:people.csv.")
        from fedmpi.data.datasets.csvfile import CsvFile, CsvFolder, is_folder

        # By the slash alone where this host does not have the folder, but others may.
        return CsvFolder(file) if file.endswith("/") or is_folder(file) else CsvFile(file)
    if name not in FILES:
        raise unknown_name("dataset", name, NAMES)
    module, _, class_name = FILES[name].partition(":")
    return getattr(importlib.import_module(module), class_name)()
