"""The datasets by name. One file each, imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fedmpi.errors import UserError, said_by, unknown_name

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
NAMES = (*FILES, "csv:FILE", "csv:DIR/", "package.module:Class")


def find(name: str) -> Dataset:
    """The dataset called `name`: one of ours, csv:FILE, csv:DIR/, or package.module:Class."""
    kind, colon, file = name.partition(":")
    if kind == "csv" and colon:
        if not file:
            raise UserError("csv: needs a file, as in csv:people.csv.")
        from fedmpi.data.datasets.csvfile import CsvFile, CsvFolder, is_folder

        # By the slash alone where this host does not have the folder, but others may.
        return CsvFolder(file) if file.endswith("/") or is_folder(file) else CsvFile(file)
    if name in FILES:
        module, _, class_name = FILES[name].partition(":")
        return getattr(importlib.import_module(module), class_name)()
    if not colon:
        raise unknown_name("dataset", name, NAMES)
    return find_own(name)


def find_own(name: str) -> Dataset:
    """The dataset of the user's own, package.module:Class."""
    from fedmpi.data.dataset import Dataset

    module, _, class_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), class_name)
    except Exception as error:  # whatever an import of somebody's file raises
        raise UserError(
            f"--dataset {name}: {said_by(error)}. Give package.module:Class, or csv:FILE."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Dataset)):
        raise UserError(f"--dataset {name}: it is not a subclass of fedmpi.data.dataset.Dataset.")
    dataset = found()
    dataset.name = name  # by which every rank finds it again
    return dataset
