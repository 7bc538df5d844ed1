"""Measure what a round costs if a cohort of the clients takes part, against all clients.

    mpirun -n 3 python benchmarks/cohorts.py [--data-dir data] [--repeats 3]

Adult, PSG, 40 clients and cohorts of 4. Runs with all clients and with cohorts take turns in one
launch, the best of each counts. Wall time and CPU time of a round, the latter of the client rank
with most; and the part of that CPU time in which the rows of the cohort are copied.
"""

import argparse
import tempfile
import time
from pathlib import Path

from mpi4py import MPI

from fedmpi.federation.clients import Clients
from fedmpi.federation.job import Job
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run
from fedmpi.run.arguments import resolve

KINDS = {
    "FedMinMax, `mlp`": "--method fedminmax --model mlp --rounds 40",
    "FedMinMax, `logistic`": "--method fedminmax --model logistic --optimizer sgd --rounds 200",
    "AFL, `mlp`": "--method afl --model mlp --rounds 40",
    "FedAvg, `mlp`, E = 1": "--method fedavg --model mlp --local-epochs 1 --rounds 10",
}
COPYING = [0.0]


def timed_among(self: Clients, counts_for):
    began = time.process_time()
    some = AMONG(self, counts_for)
    COPYING[0] += time.process_time() - began
    return some


AMONG, Clients.among = Clients.among, timed_among


def measure(ranks: Ranks, data_dir: str, options: str) -> tuple[float, float, float]:
    """Milliseconds of a round: wall time, CPU time of a client rank, copying."""
    with tempfile.TemporaryDirectory() as folder:
        words = f"--dataset adult --setting PSG --clients 40 --data-dir {data_dir} --solver paper"
        words += f" --progress none --eval-every 1000 --output {folder}/run {options}"
        config = resolve(words.split(), ranks.size - 1, one_process=False)
        job = Job(ranks, config, progress=Silent())
        training = job.begin()
        COPYING[0] = 0.0
        ranks.meet()
        began, cpu = time.perf_counter(), time.process_time()
        training.run()
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        mine = cpu if ranks.rank else 0.0, COPYING[0]
        ranks.comm.barrier()
        if job.plan:
            job.plan.folder.release()
        job._free()
        by_rank = ranks.comm.allgather(mine)
    most = max(by_rank)
    return tuple(1000 * seconds / config.rounds for seconds in (wall, *most))


class Silent:
    """Progress that prints nothing, the first lines neither."""

    def update(self, *told) -> None:
        pass

    def close(self) -> None:
        pass


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data-dir", default="data", type=Path)
    p.add_argument("--repeats", type=int, default=3)
    a = p.parse_args()
    ranks = Ranks(MPI.COMM_WORLD)
    for kind, options in KINDS.items():
        times = [
            [measure(ranks, a.data_dir, f"{options}{cohort}") for cohort in ("", " --cohort 4")]
            for _ in range(a.repeats)
        ]
        if not ranks.rank:
            whole, some = (min(t[i] for t in times) for i in (0, 1))
            cpu_whole, cpu_some = (min((t[i][1], t[i][2]) for t in times) for i in (0, 1))
            print(
                f"{kind:24} ms a round: {whole[0]:7.1f} {some[0]:7.1f}, ratio "
                f"{some[0] / whole[0]:.2f}; of CPU {cpu_whole[0]:7.1f} {cpu_some[0]:7.1f}, ratio "
                f"{cpu_some[0] / cpu_whole[0]:.2f}; copying {cpu_some[1] / cpu_some[0]:.3f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    run(main)
