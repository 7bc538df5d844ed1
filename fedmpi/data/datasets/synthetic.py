"""The synthetic problem of the paper, whose minimax optimum is known.

A ~ Ber(1/2), X ~ N(0, 1), Y ~ Ber(u) with u by the sign of x and the group. No model on x alone can
bring the Brier risk of A=0 below .45; with that, A=1 is at .31.
"""

from pathlib import Path

import numpy as np

from fedmpi.data.dataset import Arrays, Dataset, Preset
from fedmpi.data.options import DataOptions

TEST_ROWS = 60_000

# P(Y = 1) for group A (row) and x > 0 (column).
U = np.array([[0.3, 0.6], [0.1, 0.9]])


class Synthetic(Dataset):
    """Rows are drawn, not fetched; `--rows` and `--seed` decide them."""

    name = "synthetic"
    title = "Synthetic"
    summary = "one feature, two groups, a known minimax optimum"
    preset = Preset("mlp4", "brier", 0.1, 0.1, local_epochs=15, rounds=500, local_rounds=12)
    groups = ("A=0", "A=1")
    ssg_shares = (20, 20)
    uses = ("rows", "seed")

    def attribute(
        self, groups: tuple[str, ...], options: DataOptions
    ) -> tuple[str, tuple[str, ...]]:
        return "A", tuple(name.removeprefix("A=") for name in groups)

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        # Streams of their own: the test rows of a seed do not depend on --rows.
        train, test = np.random.SeedSequence([int.from_bytes(b"data", "big"), options.seed]).spawn(
            2
        )
        return Arrays(
            *draw(options.rows, np.random.default_rng(train)),
            *draw(TEST_ROWS, np.random.default_rng(test)),
            groups=self.groups,
            classes=("0", "1"),
            features=("x",),
            encoding=encoding(self.groups),
            sources=[{"origin": f"drawn by fedmpi, {options.rows} rows, seed {options.seed}"}],
        )


def encoding(groups: tuple[str, ...]) -> dict:
    """Return the encoding of a table with columns x, y and A: x is taken as it is.

    It is written out as JSON, for encoding.py would bring pandas into a run that does without.
    """
    as_it_is = {"mean": 0.0, "deviation": 1.0, "center": 0.0, "scale": 1.0, "missing": False}
    labels = {
        "target": {"name": "y", "whole": True},
        "classes": ["0", "1"],
        "class_of": {"0": 0, "1": 1},
        "otherwise": -1,
        "group_columns": [{"name": "A", "whole": True}],
        "groups": list(groups),
        "group_of": [[["0"], 0], [["1"], 1]],
    }
    return {"columns": [{"name": "x", "kind": "number"} | as_it_is], "labels": labels}


def draw(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw x, y and the group of `rows` rows."""
    group = rng.integers(2, size=rows)
    x = rng.standard_normal((rows, 1), dtype=np.float32)
    y = rng.random(rows) < U[group, (x[:, 0] > 0).astype(int)]
    return x, y, group
