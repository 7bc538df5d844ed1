"""Print when the first round of a real run is done, and the client ranks' memory at the end.

mpirun -n 41 python -m fedmpi.bench.first_round --dataset adult --setting PSG
"""

import json
import os
import resource
import sys
import tempfile
import time

from fedmpi.bench.launch import MARK
from fedmpi.bench.rounds import quiet
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run


def main() -> int:
    ranks = Ranks(MPI.COMM_WORLD, stall_timeout=float("inf"))
    os.environ.setdefault("OMP_NUM_THREADS", str(ranks.threads))
    with tempfile.TemporaryDirectory() as folder, quiet():
        config = ranks.on_server(lambda: read_command_line(ranks, folder))
        from fedmpi.federation.job import Job

        job = Job(ranks, config)
        training = job.begin()
        training.run()
        now = time.time()
        job.finish(training)
        memory = ranks.gather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if memory:
        print(MARK + json.dumps({"time": now, "memory_mb": max(memory[1:] or memory)}), flush=True)
    ranks.meet()
    return 0


def read_command_line(ranks: Ranks, folder: str):
    """Configuration of a run of one round."""
    from fedmpi.run.arguments import resolve

    fixed = ["--rounds", "1", "--output", f"{folder}/run", "--progress", "none"]
    return resolve([*sys.argv[1:], *fixed], len(ranks.client_ranks), ranks.size == 1)


if __name__ == "__main__":
    run(main)
