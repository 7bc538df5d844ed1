"""The datasets by name. One file each; importing them is light, reading them is not."""

from fedmpi.datasets.acs import AcsEmployment, AcsRace
from fedmpi.datasets.adult import Adult
from fedmpi.datasets.cifar10 import CIFAR10
from fedmpi.datasets.csvfile import CsvFile, CsvFolder, is_folder
from fedmpi.datasets.dataset import Dataset
from fedmpi.datasets.fashionmnist import FashionMNIST
from fedmpi.datasets.synthetic import Synthetic
from fedmpi.errors import UserError, unknown_name

TABLES = (Adult(), AcsEmployment(), AcsRace())
IMAGES = (FashionMNIST(), CIFAR10())
DATASETS: dict[str, Dataset] = {d.name: d for d in (Synthetic(), *TABLES, *IMAGES)}
NAMES = (*DATASETS, "csv:FILE", "csv:DIR/")


def find(name: str) -> Dataset:
    """The dataset called `name`; csv:FILE for a table of the user's own, csv:DIR/ for several."""
    kind, colon, file = name.partition(":")
    if kind == "csv" and colon:
        if not file:
            raise UserError("csv: needs a file, as in csv:people.csv.")
        # By the slash alone where this host does not have the folder, but others may.
        return CsvFolder(file) if file.endswith("/") or is_folder(file) else CsvFile(file)
    if name not in DATASETS:
        raise unknown_name("dataset", name, NAMES)
    return DATASETS[name]
