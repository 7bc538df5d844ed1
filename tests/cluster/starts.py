"""How the tests start ranks on the hosts of a bed, with the MPI of this Python."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
from bed import Bed
from jobs import options
from runs import limit

LONG = limit(900)
"""Seconds for a run that takes ten on a quiet machine."""
ROUNDS = 20


@cache
def vendor() -> str:
    """MPICH or Open MPI, asked in another process: this one is to stay without MPI."""
    ask = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    ask += "print(MPI.get_vendor()[0])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def pmi(wrong: bool = False) -> str:
    """srun's flag for this MPI, or the flag for the other one."""
    return "--mpi=pmix" if (vendor() == "Open MPI") != wrong else "--mpi=pmi2"


def hostfile(bed: Bed, slots: int) -> Path:
    """A host file in this MPI's dialect."""
    line = "{} slots={}" if vendor() == "Open MPI" else "{}:{}"
    path = bed.folder / f"hostfile-{slots}"
    path.write_text("".join(line.format(name, slots) + "\n" for name in bed.names))
    return path


def mpirun(bed: Bed, ranks: int, slots: int = 2) -> list:
    """mpirun over the hosts, by ssh; after it comes the program."""
    if vendor() == "Open MPI":
        how = ["--hostfile", hostfile(bed, slots), "--prtemca", "plm_ssh_agent", bed.ssh]
        how += ["--bind-to", "none", "-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS"]
    else:
        how = ["-f", hostfile(bed, slots), "-launcher", "ssh", "-launcher-exec", bed.ssh]
    return ["mpirun", *how, "-n", ranks]


def train(folder: Path, output: str, *more: object, rounds: int = ROUNDS) -> list:
    """The program: a small run in float64, its data in `folder`."""
    exact = ("--dtype", "float64", "--progress", "lines")
    command = [sys.executable, "-m", "fedmpi.train"]
    return [*command, *options(folder, output, rounds, *exact, *more)]


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest, relative to the largest entry."""
    return float(np.abs(a - b).max() / np.abs(b).max())
