"""What fedmpi.tune chose, as a file that --tuned reads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedmpi.errors import UserError

GRIDS: dict[str, tuple[float, ...]] = {
    "lr": (0.001, 0.005, 0.01, 0.05, 0.1),
    "lr_mu": (0.001, 0.005, 0.01, 0.05, 0.1),
    "local_epochs": (3, 10, 15),
    "q": (0.2, 0.5, 1.0, 2.0, 5.0),
    "tilt": (0.01, 0.1, 0.5, 0.8, 1.0),
}
"""The paper's grids, by option; these can be tuned, and nothing else."""


def read_tuned(path: Path) -> dict:
    """The contents of the file, of which `dataset`, `method` and `options` are sure to be there."""
    try:
        tuned = json.loads(path.read_text(encoding="utf-8"))
        names = [tuned["dataset"], tuned["method"]]
        options = tuned["options"]
        good = all(isinstance(name, str) for name in names) and all(
            name in GRIDS and isinstance(value, int | float) for name, value in options.items()
        )
    except OSError as error:
        raise UserError(f"--tuned {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise UserError(f"--tuned {path} is not a file of fedmpi.tune: give its tuned.json.")
    return tuned


def apply_tuned(a: argparse.Namespace) -> None:
    """Fill in what the file chose, where the command line is silent; refuse a file of another."""
    tuned = read_tuned(Path(a.tuned))
    for name in ("dataset", "method"):
        if tuned[name] != getattr(a, name):
            raise UserError(
                f"--tuned {a.tuned} is of --{name} {tuned[name]}, not {getattr(a, name)}."
            )
    for name, value in tuned["options"].items():
        if getattr(a, name) is None:
            setattr(a, name, value)
