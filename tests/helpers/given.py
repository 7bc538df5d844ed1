"""What recorder.py has recorded: on which data, and what each rank gave to MPI."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from runs import REPOSITORY, launch

GROUPS, CLASSES, FEATURES = 4, 3, 5
TABLES = ("one", "two")
OWN = ("x", "y", "group", "client", "numbers")


def table(seed: int, rows: int, shares: list[float]) -> str:
    """Rows of four groups and three classes, with as many inputs whatever the values.

    For methods that need them also a binary attribute and target, s and z, of as many groups.
    """
    rng = np.random.default_rng(seed)
    group = rng.choice(GROUPS, size=rows, p=shares)
    x = rng.normal(size=(rows, FEATURES - 1)) * 10 ** rng.uniform(-2, 2, FEATURES - 1)
    y = rng.integers(CLASSES, size=rows)
    rest = np.c_[group, y, rng.integers(2, size=(rows, 2))]
    lines = [",".join(map(str, [*u, *v])) for u, v in zip(x, rest, strict=True)]
    return "\n".join([",".join([*"abcd"[: FEATURES - 1], *"gysz"]), *lines]) + "\n"


def record(out: Path, ranks: int) -> Path:
    """Record runs on two tables, which differ in all but their shape, in one launch."""
    (out / "one.csv").write_text(table(1, 300, [0.25, 0.25, 0.25, 0.25]))
    (out / "two.csv").write_text(table(2, 900, [0.4, 0.1, 0.15, 0.35]))
    command = ["mpirun", "-n", str(ranks), sys.executable]
    command += [str(REPOSITORY / "tests/helpers/recorder.py"), str(out)]
    done = launch([*command, *(str(out / f"{name}.csv") for name in TABLES)])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


@dataclass
class Given:
    """What one rank gave to MPI in one run."""

    calls: list[dict]
    own: dict[str, np.ndarray]

    @classmethod
    def read(cls, folder: Path, run: str, rank: int, name: str = "one") -> "Given":
        with np.load(folder / f"{run}-{name}-{rank}.npz") as saved:
            calls = json.loads(str(saved["calls"]))
            buffers = iter(
                [saved[f"buffer{i}"] for i in range(len(saved)) if f"buffer{i}" in saved]
            )
            own = {key: saved[key] for key in saved if key in OWN}
        for call in calls:
            if call["gives"] in ("buffer", "window"):
                call["buffer"] = next(buffers)
        return cls(calls, own)

    def sent(self, phase: str, t: int | None = None) -> list[dict]:
        """The calls that gave something away."""
        return [
            call
            for call in self.calls
            if call["phase"] == phase
            and call["gives"] not in ("nothing", "window")
            and t in (None, call["round"])
        ]
