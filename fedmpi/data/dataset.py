"""What a dataset is: its groups, who holds them in each setting, its preset, and how it is read."""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmpi.data.download import RawFile, check, local_copies
from fedmpi.data.options import DataOptions
from fedmpi.data.partition import spread_clients
from fedmpi.errors import UserError


@dataclass(frozen=True)
class Preset:
    """The training defaults of a dataset (the paper's, and ours where it gives none)."""

    model: str
    loss: str
    lr: float
    lr_mu: float
    local_epochs: int
    rounds: int
    """T for the methods that take one full-batch step a round."""
    local_rounds: int
    """T for the methods that train local epochs."""


@dataclass(frozen=True)
class Encoded:
    """Inputs that would not fit into memory: kept as codes, made float32 a batch at a time."""

    codes: np.ndarray
    encode: Callable[[np.ndarray], np.ndarray]
    """A row of inputs for every row of codes."""
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.codes), self.width

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: np.ndarray | slice) -> "Encoded":
        return Encoded(self.codes[rows], self.encode, self.width)

    def batches(self, rows: int = 1 << 16) -> Iterator[np.ndarray]:
        """Yield all rows in order, `rows` at a time."""
        for start in range(0, len(self.codes), rows):
            yield self.encode(self.codes[start : start + rows])


@dataclass
class Arrays:
    """A dataset read into memory: what preparation stores and ranks memory-map."""

    train_x: np.ndarray | Encoded
    train_y: np.ndarray
    train_group: np.ndarray
    test_x: np.ndarray | Encoded
    test_y: np.ndarray
    test_group: np.ndarray
    groups: tuple[str, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    notes: list[str] = field(default_factory=list)
    """Notes for the user on the preparation: rows dropped, values filled in."""
    sources: list[dict] = field(default_factory=list)
    """Origin of every byte: file, SHA-256, where the file came from."""
    scale: dict[str, list[float]] | None = None
    """"mean" and "std" by which an x of bytes is standardised as it is used."""
    encoding: dict[str, Any] | None = None
    """Rules that made x, y and the groups of raw rows, as encoding.Encoding tells them."""
    columns: list[dict[str, Any]] = field(default_factory=list)
    """What was made of each column of a table: see encoding.describe."""
    clients: tuple[str, ...] = ()
    """Names of the clients, where the data say who holds which row."""
    train_client: np.ndarray | None = None
    """The number among `clients` of every row to train on."""
    by: dict[str, np.ndarray] = field(default_factory=dict)
    """Columns for --setting by:COLUMN: the value of every row to train on, inputs or not."""
    by_values: dict[str, list[str] | int] = field(default_factory=dict)
    train_by: np.ndarray | None = None
    """What preparation makes of `by`, as store.Prepared has it."""

    @classmethod
    def split(
        cls, x: np.ndarray, y: np.ndarray, group: np.ndarray, in_test: np.ndarray, **described: Any
    ) -> "Arrays":
        """Split arrays over all rows: those of `in_test` to test with, the others to train on."""
        train = x[~in_test], y[~in_test], group[~in_test]
        return cls(*train, x[in_test], y[in_test], group[in_test], **described)


class Dataset:
    """A dataset. A subclass in a file of its own fills in the class attributes and `read`."""

    name: str
    """Name on the command line; package.module:Class for a dataset of the user's own."""
    title: str = ""
    """Name in tables and figures; `name`, if this is empty."""
    summary: str = ""
    preset: Preset = Preset(
        "mlp", "cross-entropy", 0.01, 0.01, local_epochs=15, rounds=1000, local_rounds=100
    )
    groups: tuple[str, ...] | None = None
    """Names of the groups, if they are known before reading; None if not (csv)."""
    ssg_shares: tuple[int, ...] | None = None
    """SSG clients per group, of 40; None spreads them as evenly as K allows."""
    uses: tuple[str, ...] = ()
    """Fields of DataOptions that decide the dataset's rows."""
    files: tuple[RawFile, ...] = ()
    """Files that are fetched and checked before they are read."""
    raw_folder: str | None = None
    """Folder of the files under raw/, if it is not of the dataset's name."""

    def attribute(
        self, groups: tuple[str, ...], options: DataOptions
    ) -> tuple[str, tuple[str, ...]] | None:
        """The attribute by which people are told apart, and the value of it that each group has.

        Groups may be an attribute and the target together. None where they are the classes alone.
        """
        return None

    def class_of_group(
        self, groups: tuple[str, ...], classes: tuple[str, ...], options: DataOptions
    ) -> tuple[int, ...] | None:
        """The class that all rows of each group have; None where groups have rows of several."""
        return None

    def psg_blocks(self, groups: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The groups of each half of the clients in PSG: here, halves in order."""
        if len(groups) < 3:
            raise UserError(
                f"{self.name} has {len(groups)} groups, on which PSG is the same as SSG: "
                "use --setting SSG."
            )
        half = (len(groups) + 1) // 2
        return tuple(range(half)), tuple(range(half, len(groups)))

    def ssg_clients(self, groups: tuple[str, ...], clients: int) -> list[int]:
        """Return how many clients hold each group in SSG."""
        return spread_clients(self.ssg_shares or (1,) * len(groups), clients)

    def owned(self, options: DataOptions) -> bool:
        """Return whether the data say who holds which row, so that no setting does."""
        return False

    def used(self, options: DataOptions) -> dict:
        """The part of `options` that decides the rows; the manifest keeps it."""
        return {name: asdict(options)[name] for name in self.uses}

    def key(self, options: DataOptions) -> str:
        """The folder name of the prepared arrays; differs when `options` give other rows."""
        name = re.sub(r"[^\w.-]+", "-", self.name)
        return "-".join([name, *(f"{name}{value}" for name, value in self.used(options).items())])

    def has_raw(self, data_dir: Path) -> bool:
        """Return whether the raw files are there, and need not be fetched."""
        folder = self.raw_folder or self.name
        return bool(self.files) and all(
            any(local_copies(folder, file, data_dir)) for file in self.files
        )

    def raw_checks(self, data_dir: Path) -> dict[Path, Callable[[], None]]:
        """The raw files that are there, each with the check that it is as it should be."""
        folder = self.raw_folder or self.name
        return {
            path: partial(check, path, file)
            for file in self.files
            for path in local_copies(folder, file, data_dir)
        }

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        """Fetch what is missing, check it, and turn it into arrays."""
        raise NotImplementedError
