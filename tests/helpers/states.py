"""Resume checkpoints of one process on three ranks, and run the same from their start.

mpirun -n 3 python tests/helpers/states.py OUT OPTION...

OUT/<name> has a checkpoint of each of STATES; OUT/<name>-3 gets the run on three ranks.
"""

import sys
from pathlib import Path

from mpi4py import MPI
from needy import NEEDY

from fedmpi.federation.job import Job
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run
from fedmpi.run.arguments import resolve

LOCAL = "--local-epochs 2 --batch-size 7"
STATES = {
    "scaffold": f"--method scaffold {LOCAL}",
    "sampled": f"--method needy:SampledScaffold --variate I --shares clients {LOCAL}",
    "scaffpd": f"--method scaffpd --lr-mu 0.5 {LOCAL}",
    "drfa": f"--method drfa --draws 2 {LOCAL}",
    "ditto": f"--method ditto {LOCAL}",
    "sampled-fedmgda": f"--method needy:SampledFedMGDA {LOCAL}",
    "yogi": f"--method fedavg --optimizer yogi {LOCAL}",
    **{name: f"--method needy:{name} {given} --solver paper" for name, given in NEEDY.items()},
}
"""Methods whose clients, or whose optimizer, keep something; one that compares clients; and the
methods of needy.py, each of which needs something else."""


def main() -> int:
    out, *options = sys.argv[1:]
    world = Ranks(MPI.COMM_WORLD)
    for name, method in STATES.items():
        for folder, how in ((name, ["--resume"]), (f"{name}-3", [])):
            given = [*options, *method.split(), "--output", str(Path(out) / folder), *how]
            Job(world, resolve(given, world.size - 1, one_process=False)).run()
            world.meet()
    return 0


if __name__ == "__main__":
    run(main)
