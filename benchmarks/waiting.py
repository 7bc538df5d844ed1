"""Compare how ranks that outnumber the cores wait for each other, in rounds of products and a sum.

    mpirun -n 41 python benchmarks/waiting.py [--rounds 5] [--repeats 5] [--ms 4]

Every rank multiplies matrices for some CPU milliseconds, then the ranks sum a vector as long as the
model of Adult. The forms take turns. The wall time is over that of the first form; the CPU time is
that of all ranks, without the products.

    FIRST-LONGEST   Iallreduce, tested after sleeps that double from FIRST to LONGEST microseconds
    two calls       Ireduce and Ibcast, sleeps as in fedmpi
    shared memory   each rank writes its vector to memory that the node shares and raises a flag,
                    sums a slice of all vectors, and reads the whole sum: no rank is in between

MPICH's own ways: MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM=sched_reduce_scatter_allgather, and so on.
"""

import argparse
import statistics
import time

import numpy as np
from mpi4py import MPI

LENGTH = 48_130


class Waiter:
    """Wait by sleeps that double from `first` to `longest` seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self.first, self.longest = first, longest

    def until(self, done) -> None:
        nap = self.first
        while not done():
            time.sleep(nap)
            nap = min(2 * nap, self.longest)


class Shared:
    """Memory that all ranks of a node see: each rank's vector, the sum, and each rank's two flags.

    A rank that has seen every `written` flag of a round knows that all ranks have read the sum of
    the round before; a rank that has seen every `summed` flag knows that all ranks have read its
    vector. So these two waits suffice, and no rank waits for another to pass something on.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm, self.round = comm, 0
        first = LENGTH + 2 * comm.size if comm.rank == 0 else 0
        self.window = MPI.Win.Allocate_shared(4 * (LENGTH + first), 4, comm=comm)
        parts = [
            np.frombuffer(self.window.Shared_query(rank)[0], dtype=np.float32)
            for rank in range(comm.size)
        ]
        self.vectors = [part[:LENGTH] for part in parts]
        self.total = parts[0][LENGTH : 2 * LENGTH]
        flags = parts[0][2 * LENGTH :].view(np.int32)
        self.written, self.summed = flags[: comm.size], flags[comm.size :]
        if comm.rank == 0:
            flags[:] = 0
        bounds = [LENGTH * r // comm.size for r in range(comm.size + 1)]
        self.mine = slice(bounds[comm.rank], bounds[comm.rank + 1])
        self.window.Lock_all()
        comm.Barrier()

    def raise_flag(self, flags: np.ndarray, waiter: Waiter) -> None:
        """Raise this rank's flag, and wait until all ranks have raised theirs."""
        self.window.Sync()
        flags[self.comm.rank] = self.round
        waiter.until(lambda: flags.min() >= self.round)
        self.window.Sync()

    def allreduce(self, vector: np.ndarray, waiter: Waiter) -> None:
        self.round += 1
        self.vectors[self.comm.rank][:] = vector
        self.raise_flag(self.written, waiter)
        total = self.total[self.mine]
        total[:] = self.vectors[0][self.mine]
        for other in self.vectors[1:]:
            total += other[self.mine]
        self.raise_flag(self.summed, waiter)
        vector[:] = self.total


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--ms", type=float, default=4.0)
    p.add_argument("--forms", nargs="+", help="all, unless some are named; the first is the base")
    a = p.parse_args()
    comm = MPI.COMM_WORLD
    vector, shared = np.ones(LENGTH, dtype=np.float32), Shared(comm)
    matrix = np.random.default_rng(0).random((128, 128), dtype=np.float32)

    def compute() -> None:
        end = time.process_time() + a.ms / 1000
        while time.process_time() < end:
            matrix @ matrix

    def iallreduce(waiter: Waiter) -> None:
        waiter.until(comm.Iallreduce(MPI.IN_PLACE, vector).Test)

    def two_calls(waiter: Waiter) -> None:
        root = comm.rank == 0
        send, receive = (MPI.IN_PLACE, vector) if root else (vector, None)
        waiter.until(comm.Ireduce(send, receive, root=0).Test)
        waiter.until(comm.Ibcast(vector, root=0).Test)

    now = Waiter(50e-6, 1e-3)
    forms = {
        "50-1000": lambda: iallreduce(now),
        "50-4000": lambda: iallreduce(Waiter(50e-6, 4e-3)),
        "500-2000": lambda: iallreduce(Waiter(500e-6, 2e-3)),
        "1000-10000": lambda: iallreduce(Waiter(1e-3, 10e-3)),
        "50-200": lambda: iallreduce(Waiter(50e-6, 200e-6)),
        "two calls": lambda: two_calls(now),
        "shared memory": lambda: shared.allreduce(vector, now),
    }
    forms = {name: forms[name] for name in a.forms or forms}
    wall: dict[str, list[float]] = {name: [] for name in forms}
    cpu: dict[str, list[float]] = {name: [] for name in forms}
    for repeat in range(a.repeats + 1):
        for name, exchange in forms.items():
            Waiter(0.005, 0.02).until(comm.Ibarrier().Test)
            began, used = time.perf_counter(), time.process_time()
            for _ in range(a.rounds):
                vector[:] = 1
                compute()
                exchange()
                assert vector[0] == vector[-1] == comm.size, name
            seconds, used = time.perf_counter() - began, time.process_time() - used
            Waiter(0.005, 0.02).until(comm.Ibarrier().Test)
            used = comm.allreduce(used / a.rounds - a.ms / 1000)
            if repeat:
                wall[name].append(seconds / a.rounds)
                cpu[name].append(used)
    if comm.rank == 0:
        print(f"{comm.size} ranks, {a.ms:g} ms each: {comm.size * a.ms:g} ms of CPU in a round")
        for name in forms:
            base = wall[next(iter(forms))]
            ratio = statistics.median(w / b for w, b in zip(wall[name], base, strict=True))
            lines = [f"{statistics.median(some[name]) * 1000:7.1f} ms" for some in (wall, cpu)]
            print(f"{name:14} {ratio:5.2f}   wall {lines[0]}   CPU beyond the products {lines[1]}")


if __name__ == "__main__":
    main()
