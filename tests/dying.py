"""Ranks that die at given moments, in one launch: after each run the others do the next.

mpirun --with-ft ulfm -n 9 python tests/dying.py OUT CSV ROUNDS
"""

import os
import signal
import sys
from pathlib import Path

import fedmpi.evaluation
import fedmpi.job
from fedmpi.config import resolve
from fedmpi.exchange import Exchange
from fedmpi.job import Job
from fedmpi.ranks import MPI, Ranks, run
from fedmpi.training import Training

CLIENTS = 12
LOCAL = "--local-epochs 2 --batch-size 7"
RUNS = {
    "localfedminmax": "--method localfedminmax --setting PSG --lr-mu 0.1",
    "afl": "--method afl --setting PSG --lr-mu 0.1",
    "fedavg": f"--method fedavg --setting SSG {LOCAL}",
    "term": f"--method term --setting PSG --tilt 2 {LOCAL}",
    "fedminmax": "--setting SSG --lr-mu 0.1 --clients 4",
    "qfedavg": f"--method qfedavg --setting PSG --q 2 {LOCAL}",
}
"""Options of each. When it is FedMinMax's turn four client ranks are left: one for each group."""
WHEN = {
    "localfedminmax": (5, Exchange, "sum_changes"),
    "afl": (4, Training, "look_at_ranks"),
    "fedavg": (1, Exchange, "sum_changes"),
    "term": (4, Exchange, "report"),
    "fedminmax": (3, Exchange, "begin_round"),
    "qfedavg": (6, fedmpi.job, "evaluate"),
}
"""The round, and what the rank is about to do: the last one is the scoring after the rounds."""


def arguments(name: str, csv: str, data: str, rounds: str, output: str) -> list[str]:
    return [
        *("--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--skew", "2"),
        *("--clients", str(CLIENTS), "--rounds", rounds, "--eval-every", "2", "--lr", "0.3"),
        *("--dtype", "float64", "--progress", "none", "--model", "mlp", "--micro-batch", "13"),
        *("--data-dir", data, "--output", output, *RUNS[name].split()),
    ]


def die_at(t: int, where: object, what: str, job: Job) -> None:
    """This process is killed when, in round `t` or later, it comes there."""
    function = getattr(where, what)

    def die(*arguments, **named):
        if (arguments[1] if what == "begin_round" else job.exchange.round) >= t:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)

    setattr(where, what, die)


def main() -> int:
    out, csv, rounds = sys.argv[1:]
    comm = MPI.COMM_WORLD
    for name in RUNS:
        ranks = Ranks(comm)
        options = arguments(name, csv, f"{out}/data", rounds, str(Path(out) / name))
        config = resolve([*options, "--on-client-failure", "continue"], ranks.size - 1, False)
        job = Job(ranks, config)
        if ranks.rank == 2:
            die_at(*WHEN[name], job)
        job.run()
        comm = ranks.comm
    return 0


if __name__ == "__main__":
    run(main)
