"""What a rank imports: 41 of them start at once, so every package counts."""

import subprocess
import sys

from runs import launcher

from fedmpi.methods import FILES

ALLOWED = {"fedmpi", "mpi4py", "numpy", "torch"}
PROGRAM = """
import sys
from importlib.metadata import packages_distributions
standard = sys.stdlib_module_names
before = set(sys.modules)
import numpy, torch
from mpi4py import MPI
beneath = set(sys.modules)  # what torch and numpy bring themselves
from fedmpi.config import resolve
from fedmpi.job import Job
from fedmpi.ranks import Ranks
for method in sys.argv[2:]:
    options = f"--dataset synthetic --rows 40 --rounds 2 --model mlp --clients 4 --method {method}"
    where = f"--data-dir {sys.argv[1]} --output {sys.argv[1]}/{method} --progress none"
    Job(Ranks(MPI.COMM_SELF), resolve([*options.split(), *where.split()], 1, True)).run()
names = {name.split(".")[0] for name in set(sys.modules) - beneath}
print(*sorted(name for name in names if name not in standard and not name.startswith("_")))
"""


def test_a_run_imports_nothing_heavy(tmp_path):
    """Not even within a round, where torch imports sympy for some calls."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path, *FILES],
        env=launcher(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()[-1].split()) <= ALLOWED
