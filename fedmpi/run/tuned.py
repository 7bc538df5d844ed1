"""What fedmpi.tune chose, as a file that --tuned reads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedmpi import methods
from fedmpi.errors import UserError
from fedmpi.methods.method import Method
from fedmpi.methods.option import STEPS, Option


def tunable(method: type[Method]) -> dict[str, Option]:
    """Return what fedmpi.tune can choose for a method: lr, and its options that are numbers."""
    numbers = [
        o for o in method.all_options() if o.type in (int, float) and method.sets_by_itself(o)
    ]
    return {"lr": Option("lr", grid=STEPS, above=0)} | {o.name: o for o in numbers}


def read_tuned(path: Path) -> dict:
    """Return the file's contents; `dataset`, `method` and `options` are sure to be there."""
    try:
        tuned = json.loads(path.read_text(encoding="utf-8"))
        names = [tuned["dataset"], tuned["method"]]
        options = tuned["options"]
        good = all(isinstance(name, str) for name in names) and all(
            name in tunable(methods.find(tuned["method"])) and isinstance(value, int | float)
            for name, value in options.items()
        )
    except OSError as error:
        raise UserError(f"--tuned {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise UserError(f"--tuned {path} is not a file of fedmpi.tune: give its tuned.json.")
    return tuned


def apply_tuned(a: argparse.Namespace) -> None:
    """Fill in what the file chose, where the command line is silent; refuse one of another run."""
    tuned = read_tuned(Path(a.tuned))
    for name in ("dataset", "method"):
        if tuned[name] != getattr(a, name):
            raise UserError(
                f"--tuned {a.tuned} is of --{name} {tuned[name]}, not {getattr(a, name)}."
            )
    chosen = {name: value for name, value in tuned["options"].items() if getattr(a, name) is None}
    vars(a).update(chosen, tuned_options=tuple(chosen))
