"""What a dataset is: its groups, who holds them in each setting, its preset, and how it is read."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedmpi.datasets.options import DataOptions
from fedmpi.datasets.sources import RawFile
from fedmpi.errors import UserError
from fedmpi.partition import spread_clients


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


@dataclass
class Arrays:
    """A dataset read into memory: what preparation stores and ranks memory-map."""

    train_x: np.ndarray
    train_y: np.ndarray
    train_group: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    test_group: np.ndarray
    groups: tuple[str, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    notes: list[str] = field(default_factory=list)
    """What the user should know of the preparation: rows dropped, values filled in."""
    sources: list[dict] = field(default_factory=list)
    """Where every byte came from: file, SHA-256, origin."""

    @classmethod
    def split(
        cls, x: np.ndarray, y: np.ndarray, group: np.ndarray, in_test: np.ndarray, **described: Any
    ) -> "Arrays":
        """From arrays over all rows, those of `in_test` to test with and the others to train on."""
        train = x[~in_test], y[~in_test], group[~in_test]
        return cls(*train, x[in_test], y[in_test], group[in_test], **described)


class Dataset:
    """One dataset. A subclass in a file of its own fills in the class attributes and `read`."""

    name: str
    summary: str
    preset: Preset
    groups: tuple[str, ...] | None = None
    """Known before reading, or None (csv)."""
    ssg_shares: tuple[int, ...] | None = None
    """SSG clients per group, of 40; None spreads them as evenly as K allows."""
    uses: tuple[str, ...] = ()
    """The fields of DataOptions that decide its rows."""
    files: tuple[RawFile, ...] = ()
    """What is fetched and checked before it is read."""

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
        """How many clients hold each group in SSG."""
        return spread_clients(self.ssg_shares or (1,) * len(groups), clients)

    def used(self, options: DataOptions) -> dict:
        """The part of `options` that decides the rows; the manifest keeps it."""
        return {name: asdict(options)[name] for name in self.uses}

    def key(self, options: DataOptions) -> str:
        """The folder name of the prepared arrays; differs when `options` give other rows."""
        return "-".join(
            [self.name, *(f"{name}{value}" for name, value in self.used(options).items())]
        )

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        """Fetch what is missing, check it, and turn it into arrays."""
        raise NotImplementedError
