"""Real jobs that the tests send signals to."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from runs import launcher, limit


def people(path: Path) -> Path:
    """Write a small CSV of four groups."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(240, 2))
    rows = [f"{u},{v},{'abcd'[i % 4]},{int(u + v > 0)}" for i, (u, v) in enumerate(x)]
    path.write_text("\n".join(["u,v,g,y", *rows]) + "\n")
    return path


def options(folder: Path, output: str, rounds: int, *more: object) -> list[str]:
    """Options of a run of short rounds, whose data are in `folder`."""
    csv = folder / "people.csv"
    data = ["--dataset", f"csv:{csv if csv.exists() else people(csv)}", "--target", "y"]
    data += ["--group", "g", "--data-dir", str(folder / "data")]
    run = ["--model", "logistic", "--clients", "4", "--output", str(folder / output)]
    run += ["--solver", "paper"]
    return [*data, *run, "--rounds", str(rounds), *map(str, more)]


class Job:
    """Job `mpirun -n 3 python -m fedmpi.train`, whose output goes to the file `log`.

    With `watch`, the options of fedmpi.run.supervise, the job is supervised. `program` is the
    module to run. One rank is started without mpirun.
    """

    def __init__(
        self,
        arguments: list[str],
        log: Path,
        watch: list[str] | None = None,
        ranks: int = 3,
        flags: Sequence[str] = (),
        program: str = "fedmpi.train",
    ) -> None:
        train = [sys.executable, "-m", program, *arguments]
        under = (
            [] if watch is None else [sys.executable, "-m", "fedmpi.run.supervise", *watch, "--"]
        )
        mpirun = ["mpirun", *flags, "-n", str(ranks)] if ranks > 1 else []
        self.log, self.ranks = log, ranks
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                [*under, *mpirun, *train],
                env=launcher(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        """Wait until the job has printed `text`."""
        end = time.monotonic() + limit()
        while text not in self.text:
            assert time.monotonic() < end and self.process.poll() is None, self.text
            time.sleep(0.02)

    def wait_until_watched(self) -> None:
        """Wait until fedmpi.run.supervise has a pidfd of each rank, so can tell who ends first."""
        while sum(map(is_of_a_process, self._open_files())) < self.ranks:
            assert self.process.poll() is None, self.text
            time.sleep(0.005)

    def _open_files(self) -> list[Path]:
        return list(Path(f"/proc/{self.process.pid}/fd").iterdir())

    def ends(self) -> int:
        """Wait for the job to end; return its exit code."""
        try:
            return self.process.wait(limit())
        finally:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL to all processes of the job at once."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def client_ranks(self) -> list[int]:
        """PIDs of ranks 1, 2, ..., by the numbers that the launcher gave them."""
        return [pid for rank, pid in sorted(self.pids().items()) if rank > 0]

    def pids(self) -> dict[int, int]:
        """PID of each rank, by the number that the launcher gave it."""
        numbered = {}
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                for name in (b"PMI_RANK=", b"OMPI_COMM_WORLD_RANK="):
                    for entry in environment:
                        if entry.startswith(name):
                            numbered[int(entry[len(name) :])] = pid
        return numbered


def is_of_a_process(file: Path) -> bool:
    """Whether this open file is a pidfd."""
    with contextlib.suppress(OSError):  # closed since
        return "pidfd" in os.readlink(file)
    return False


def descendants(pid: int) -> list[int]:
    """All processes below `pid`."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text()
            for child in map(int, children.split()):
                found += [child, *descendants(child)]
    return found
