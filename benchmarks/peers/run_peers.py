"""Run the peers that are installed in DIR, each between two runs of the plain loop.

`python -m fedmpi.bench --peers DIR` calls `rows`. DIR is made by setup.sh.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from fedmpi.bench.results import Row
from fedmpi.errors import UserError

HERE = Path(__file__).parent
SAME_LOSS = 1e-4
COMMANDS = {
    "pfl, one process": ("pfl", ["python", "drive_pfl.py"]),
    "pfl, 2 processes": ("pfl", ["torchrun", "--nproc_per_node=2", "drive_pfl.py"]),
    "APPFL, MPI, 3 ranks": ("appfl", ["mpirun", "-n", "3", "python", "drive_appfl.py"]),
    "Flower, Ray": ("flower", ["python", "drive_flower.py"]),
}


def run(command: list[str], task: str, shards: Path, path: Path, timeout: float) -> dict:
    """What a driver measured; `path` is the environment's folder of programs."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as result:
        environment = {
            **os.environ,
            "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent.parent)]),
            "OMP_NUM_THREADS": "1",
            "PEERS_SHARDS": str(shards),
            "PEERS_TASK": task,
            "PEERS_RESULT": result.name,
        }
        command = [str(path / command[0]), *command[1:]]
        began = time.time()
        driver = subprocess.Popen(
            command,
            env=environment,
            cwd=HERE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            _, words = driver.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(driver.pid, signal.SIGKILL)  # with the processes that it started
            raise UserError(f"{' '.join(command)}: not done in {timeout:g} s.") from None
        text = Path(result.name).read_text()
    if driver.returncode or not text:
        last = (words.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"{' '.join(command)}: {last}")
    found = json.loads(text)
    return found | {"startup": found["first_round"] - began}


def rows(
    folder: Path, tasks: list[str], repeats: int, options: list[str], timeout: float
) -> Iterator[Row]:
    """A row for each peer that is installed and each task; one that fails has none, but a line."""
    base = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as scratch:
        shards = Path(scratch, "shards.npz").resolve()
        command = [sys.executable, str(HERE / "shards.py"), str(shards), *options]
        subprocess.run([*command, "--clients", "40"], check=True)
        for what, (peer, command) in COMMANDS.items():
            if not (folder / peer / "ready").exists():
                print(f"peers: {peer} is not installed in {folder}")
                continue
            path = (folder / peer / "bin").resolve()
            for task in tasks:
                found, around = [], []
                try:
                    around.append(run(["python", "plain.py"], task, shards, base, timeout))
                    for _ in range(repeats):
                        found.append(run(command, task, shards, path, timeout))
                        around.append(run(["python", "plain.py"], task, shards, base, timeout))
                except UserError as error:
                    print(f"peers: {what}, {task}: {error}")
                    continue
                yield row(what, task, found, around)


def row(what: str, task: str, found: list[dict], around: list[dict]) -> Row:
    """The ratio of each run to the mean of its neighbours, and whether it did the same work."""
    near = [(a["seconds"] + b["seconds"]) / 2 for a, b in pairwise(around)]
    ratios = [f["seconds"] / n for f, n in zip(found, near, strict=True)]
    off = max(abs(f["loss"] - around[0]["loss"]) for f in found)
    startup = statistics.median(f["startup"] for f in found)
    note = f"first round after {startup:.1f} s; " + (
        "same test loss" if off < SAME_LOSS else f"OTHER WORK: test loss differs by {off:.1e}"
    )
    return Row(
        part="peers",
        task=task,
        what=what,
        ranks=1,
        mpi="",
        ratio=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        cpu_ratio=None,
        value=statistics.median(f["seconds"] for f in found),
        base=statistics.median(near),
        repeats=len(ratios),
        load=os.getloadavg()[0],
        note=note,
    )
