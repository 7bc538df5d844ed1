"""Time the rounds of one point of a study, on the ranks of a launch.

    mpirun -n 3 python -m fedmpi.scaling.measure '{"options": [...], "repeats": 3, "seconds": 2}'

The server prints one line of JSON. `fedmpi.scaling` writes the argument and reads the line.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile

from fedmpi.bench.launch import MARK
from fedmpi.bench.rounds import Federation, timed
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run

WARM_UP, MOST = 2, 200
"""Number of rounds before the measurement, and of one repeat at most."""


def main() -> int:
    job = json.loads(sys.argv[1])
    world = Ranks(MPI.COMM_WORLD, stall_timeout=float("inf"))
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch: one rank or several share a core
    import torch

    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(world, job["options"], f"{folder}/run")
        torch.set_num_threads(1)
        repeats = measure(world, federation, job["repeats"], job["seconds"])
        federation.end()
        world.meet()
    hosts = world.gather((world.host, world.cores))
    if world.is_server:
        training = federation.training
        exchange, model = training.exchange, training.model
        result = {
            "repeats": repeats,
            "rows": training.total_rows,
            "groups": len(training.groups),
            "parameters": model.size,
            "bytes": model.buffer.nbytes,
            "reduce": exchange.reduction.kind,
            "hosts": len(dict(hosts or [])),
            "cores": sum(dict(hosts or []).values()),
        }
        print(MARK + json.dumps(result), flush=True)
    return 0


def measure(world: Ranks, federation: Federation, repeats: int, seconds: float) -> list[dict]:
    """Measure the seconds of a round in every repeat, and their split; on the server.

    As in history.csv: `compute` is the mean of the client ranks, `wait` is how much longer the
    slowest client rank takes, `exchange` is all the rest.
    """
    warm, _ = timed(world, lambda: federation.rounds(WARM_UP))
    block = world.bcast(max(1, min(MOST, math.ceil(seconds * WARM_UP / warm))))
    training, found = federation.training, []
    for _ in range(repeats):
        training.computing = 0.0
        wall, cpu = timed(world, lambda: federation.rounds(block))
        computing = world.gather(training.computing)
        if computing:
            of_clients = [computing[rank] / block for rank in world.client_ranks]
            mean, longest = sum(of_clients) / len(of_clients), max(of_clients)
            wall = wall / block
            found.append(
                {
                    "seconds": wall,
                    "compute": mean,
                    "wait": longest - mean,
                    "exchange": max(0.0, wall - longest),
                    "cpu": cpu / block,
                    "rounds": block,
                }
            )
    return found


if __name__ == "__main__":
    run(main)
