"""bootstrap.npz, read back: the figures of a run on its test rows, and on replicates of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmpi.errors import UserError, said_by

FILE = "bootstrap.npz"


@dataclass(frozen=True, eq=False)
class Replicates:
    """Sums over test rows, (1 + B) × groups: first of the rows themselves, then of replicates."""

    groups: tuple[str, ...]
    losses: np.ndarray
    right: np.ndarray
    """Rows that are classified right."""
    rows: np.ndarray
    test_rows: str
    """Name of the data, and fingerprint of the rows. Equal names: the same rows, so the same
    replicates."""

    @property
    def risk(self) -> np.ndarray:
        """Mean losses; NaN where a replicate has no row of a group."""
        return self._mean(self.losses)

    @property
    def accuracy(self) -> np.ndarray:
        """Shares of rows that are classified right; NaN where a replicate has no row of a group."""
        return self._mean(self.right)

    def _mean(self, sums: np.ndarray) -> np.ndarray:
        result = np.full(sums.shape, np.nan)
        return np.divide(sums, self.rows, out=result, where=self.rows > 0)

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays of the file, by name; counts as integers."""
        counts = {name: getattr(self, name).round().astype(np.int64) for name in ("right", "rows")}
        names = {"groups": np.array(self.groups), "test_rows": np.array(self.test_rows)}
        return {"losses": self.losses} | counts | names


def read_replicates(folder: Path) -> Replicates | None:
    """Return what a run left in its folder; None if it was run without --bootstrap."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as found:
            losses, right, rows = (
                np.asarray(found[name], dtype=np.float64) for name in ("losses", "right", "rows")
            )
            groups = tuple(str(name) for name in found["groups"])
            if not losses.shape == right.shape == rows.shape == (len(losses), len(groups)):
                raise ValueError(f"its shapes are {losses.shape}, {right.shape}, {rows.shape}")
            return Replicates(groups, losses, right, rows, str(found["test_rows"]))
    except Exception as error:  # numpy and zipfile raise all sorts on a damaged file
        raise UserError(f"{path} cannot be read as a bootstrap: {said_by(error)}.") from None
