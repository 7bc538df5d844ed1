"""Helpers that the tests share: to start a real mpirun, and to read what a run left."""

import contextlib
import csv
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
import torch

from fedmpi.run.supervise import NOT_UP, STARTS

REPOSITORY = Path(__file__).parents[2]

LIMIT = 600
"""Seconds after which a launch is taken to hang, on a quiet machine of 2 cores, on which the
longest launch took 31 s."""
SLOWEST = 6
"""Largest factor by which a machine may be slower; pyproject's faulthandler_timeout is twice the
limit on such a machine."""
START = 0.01
"""Seconds that a bare Python takes to start on a quiet machine."""
_slowness = (-float("inf"), 1.0)


def slowness() -> float:
    """Factor by which this machine is slower just now than a quiet one: 1 to SLOWEST.

    The time to start a process tells a slow machine, the load per core a busy one: the scheduler
    prefers short work, so at a load of 8 on 2 cores the start of a process took only 12 ms, but a
    launch of the tests twice its usual time.
    """
    global _slowness
    began = time.monotonic()
    if began > _slowness[0] + 10:  # not before every launch: the measurement takes .05 s
        for _ in range(5):
            subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)
        now = time.monotonic()
        busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
        _slowness = (now, min(max(1.0, busy, (now - began) / (5 * START)), SLOWEST))
    return _slowness[1]


def limit(seconds: float = LIMIT) -> float:
    """Seconds that a wait may take: all limits of the tests are from here.

    The limits are there to end what hangs. No test is to fail because others use the machine.
    """
    return seconds * slowness()


@dataclass
class Run:
    """Files that a run left in its folder."""

    folder: Path

    @property
    def result(self) -> dict:
        return json.loads((self.folder / "result.json").read_text())

    @property
    def config(self) -> dict:
        return json.loads((self.folder / "config.json").read_text())

    @property
    def history(self) -> list[dict[str, str]]:
        with open(self.folder / "history.csv", newline="") as file:
            return list(csv.DictReader(file))

    def theta(self, which: str = "last") -> np.ndarray:
        """Model as one vector: the `last` theta, or the `averaged` theta."""
        state = torch.load(self.folder / "model.pt", weights_only=True)[which]
        return torch.cat([p.reshape(-1) for p in state.values()]).numpy()


class CutOff(Exception):
    """The end of a run, as if it had been killed."""


@contextlib.contextmanager
def cut_off_after(last: int):
    """End runs in this process after round `last`, with nothing more saved."""
    from fedmpi.federation.rounds import Training

    save_if_due = Training.save_if_due

    def cut(self, t):
        save_if_due(self, t)
        if t == last:
            raise CutOff

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CutOff):
        patch.setattr(Training, "save_if_due", cut)
        yield


def write_people(path: Path, sizes: dict[str, int], lifted: str = "") -> Path:
    """Write a small CSV: numbers u and v, groups g of these sizes, a target y that follows u + v.

    The target is "yes" more often in the group `lifted`.
    """
    rng = np.random.default_rng(1)
    group = np.repeat(list(sizes), list(sizes.values()))
    x = rng.normal(size=(len(group), 2))
    y = np.where(x.sum(1) + (group == lifted) > 0, "yes", "no")
    rows = [f"{u},{v},{g},{t}" for (u, v), g, t in zip(x, group, y, strict=True)]
    path.write_text("\n".join(["u,v,g,y", *rows]) + "\n")
    return path


def groups_for(method: str) -> list[str]:
    """Option for a method that needs groups of an attribute and the class, on tables as these."""
    from fedmpi import methods

    return ["--group", "g,y"] if methods.find(method).needs_attribute else []


def launcher() -> dict[str, str]:
    """Environment in which this Python's own mpirun starts, also as root and oversubscribed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "PRTE"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(REPOSITORY), str(REPOSITORY / "tests/helpers")]
    )
    return environment


def launch(command: list[str], **options: Any) -> CompletedProcess[str]:
    """Run `command`, a real mpirun; run it again if mpirun itself did not come up."""
    for _ in range(STARTS):
        done = subprocess.run(
            command, env=launcher(), capture_output=True, text=True, timeout=limit(), **options
        )
        if NOT_UP not in done.stderr:
            break
    return done
