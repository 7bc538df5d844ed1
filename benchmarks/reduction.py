"""Time flat and hierarchical sums in turn: a round of products, and a sum of the ranks' vectors.

    mpirun -n 41 python benchmarks/reduction.py [--length N] [--ms 4] [--rounds 10] [--repeats 7]

Every client rank multiplies matrices for some CPU milliseconds, then all ranks sum a vector. The
wall time is over that of the flat sum; the CPU time is that of all ranks, without the products.
"""

import argparse
import statistics
import time

import numpy as np

from fedmpi.mpi.allreduce import Flat, hierarchical
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import AgreedError, Ranks
from fedmpi.mpi.start import run


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--length", type=int, default=48_130)
    p.add_argument("--ms", type=float, default=4.0)
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--repeats", type=int, default=7)
    a = p.parse_args()
    ranks = Ranks(MPI.COMM_WORLD)
    shared = hierarchical(ranks, a.length, "float32")
    if not shared:
        raise AgreedError("MPI gives no window of shared memory here: there is nothing to compare.")
    kinds = {"flat": Flat(ranks, np.zeros(a.length, "float32")), "hierarchical": shared}
    matrix = np.random.default_rng(0).random((128, 128), dtype=np.float32)
    work = a.ms / 1000 if ranks.rank in ranks.client_ranks else 0.0
    wall: dict[str, list[float]] = {kind: [] for kind in kinds}
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    for repeat in range(a.repeats + 1):
        for kind, some in kinds.items():
            ranks.meet()
            began, used = time.perf_counter(), time.process_time()
            for _ in range(a.rounds):
                some.buffer[:] = 1
                end = time.process_time() + work
                while time.process_time() < end:
                    matrix @ matrix
                some.start()
                some.finish()
                assert some.buffer[0] == some.buffer[-1] == ranks.size, kind
            seconds, used = time.perf_counter() - began, time.process_time() - used
            ranks.meet()
            used = ranks.comm.allreduce(used / a.rounds - work)
            if repeat:  # the first repeat is to warm up
                wall[kind].append(seconds / a.rounds)
                cpu[kind].append(used)
    if ranks.is_server:
        for kind in kinds:
            pairs = zip(wall[kind], wall["flat"], strict=True)
            ratio = statistics.median(time / flat for time, flat in pairs)
            times = [f"{statistics.median(some[kind]) * 1000:7.1f} ms" for some in (wall, cpu)]
            print(f"{kind:13} {ratio:5.2f}   wall {times[0]}   CPU beyond the products {times[1]}")
    shared.free()


if __name__ == "__main__":
    run(main)
