"""What a rank imports: 41 of them start at once, so every package counts."""

import subprocess
import sys

from runs import launcher, limit

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
from fedmpi.run.arguments import resolve
from fedmpi.federation.job import Job
from fedmpi.methods import find
from fedmpi.mpi.ranks import Ranks
for method in sys.argv[2:]:
    data = "attributed:Attributed" if find(method).needs_attribute else "synthetic --rows 40"
    options = f"--dataset {data} --rounds 2 --model mlp --clients 4 --method {method}"
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
        timeout=limit(),
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()[-1].split()) <= ALLOWED | {"attributed"}


RANK = """
import sys
from pathlib import Path
from fedmpi.mpi.init import MPI
from fedmpi.mpi.start import run
from fedmpi.train import main

def main_and_tell():
    main()
    names = [name for name in sys.modules if name.startswith(("fedmpi", "numpy.random"))]
    Path(f"rank{MPI.COMM_WORLD.rank}").write_text("\\n".join(sorted(names)))

run(main_and_tell)
"""
OF_A_CLIENT = """
fedmpi fedmpi.data fedmpi.data.duplicates fedmpi.data.hosts fedmpi.data.store fedmpi.errors
fedmpi.federation fedmpi.federation.assignment fedmpi.federation.clients
fedmpi.federation.evaluation fedmpi.federation.exchange fedmpi.federation.job
fedmpi.federation.rounds fedmpi.methods fedmpi.methods.adversary fedmpi.methods.fedminmax
fedmpi.methods.method fedmpi.methods.optimizer fedmpi.methods.option fedmpi.methods.simplex
fedmpi.models fedmpi.models.batched_clients fedmpi.models.fixed_point fedmpi.models.flat
fedmpi.models.losses fedmpi.models.perceptron fedmpi.models.perceptron_passes fedmpi.mpi
fedmpi.mpi.allreduce fedmpi.mpi.board fedmpi.mpi.flags fedmpi.mpi.init fedmpi.mpi.launcher
fedmpi.mpi.placement fedmpi.mpi.ranks fedmpi.mpi.signals fedmpi.mpi.start fedmpi.plugins
fedmpi.privacy fedmpi.privacy.versions fedmpi.run fedmpi.run.config fedmpi.scoring
fedmpi.scoring.bootstrap fedmpi.scoring.scores fedmpi.train
"""


def test_the_ranks_of_clients_do_without_what_the_server_needs(mpirun, tmp_path):
    """Reading data, dealing rows, files and tables took half of a rank's start beyond torch's."""
    data = ["--dataset", "synthetic", "--rows", "40", "--model", "mlp"]
    done = mpirun(3, "-c", RANK, *data, "--rounds", "1", "--clients", "4", "--output", "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "rank1").read_text().split() == OF_A_CLIENT.split()
    assert "fedmpi.federation.announce" in (tmp_path / "rank0").read_text().split()
