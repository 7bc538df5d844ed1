"""Arrays that a caller has in memory already, as a dataset for the time of a run."""

from pathlib import Path

from fedmpi.data.dataset import Arrays, Dataset
from fedmpi.data.options import DataOptions


class Memory(Dataset):
    """Arrays of this process, under a name that no other run of the process has."""

    summary = "arrays, from Python"

    def __init__(self, name: str, arrays: Arrays) -> None:
        self.name, self.arrays = name, arrays

    def owned(self, options: DataOptions) -> bool:
        return bool(self.arrays.clients)

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        return self.arrays
