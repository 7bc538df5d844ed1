"""Kill ranks at given moments, in one launch: after each run the survivors do the next run.

mpirun --with-ft ulfm -n RANKS python tests/helpers/dying.py OUT CSV ROUNDS [RUN...]
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import fedmpi.federation.evaluation
import fedmpi.federation.job
from fedmpi.federation.exchange import Exchange
from fedmpi.federation.job import Job
from fedmpi.federation.rounds import Training
from fedmpi.mpi import signals
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import Ranks, Stopped
from fedmpi.mpi.start import run
from fedmpi.run.arguments import resolve

CLIENTS = 12
LOCAL = "--local-epochs 2 --batch-size 7"
MOMENTUM = (
    "--setting PSG --lr-mu 0.1 --batch-rows 20 --optimizer nesterov --schedule cosine "
    "--average tail --adversary multiplicative"
)
RUNS = {
    "cohort": "--setting PSG --lr-mu 0.1 --cohort 5 --optimizer nesterov",
    "momentum": MOMENTUM,
    "adam": "--method afl --setting PSG --lr-mu 0.1 --batch-rows 30 --optimizer adam --lr 0.01",
    "localfedminmax": "--method localfedminmax --setting PSG --lr-mu 0.1",
    "afl": "--method afl --setting PSG --lr-mu 0.1",
    "fedavg": f"--method fedavg --setting SSG {LOCAL}",
    "term": f"--method term --setting PSG --tilt 2 {LOCAL}",
    "fedminmax": "--setting SSG --lr-mu 0.1 --clients 4",
    "qfedavg": f"--method qfedavg --setting PSG --q 2 {LOCAL}",
    "owners": "--batch-rows 25 --optimizer nesterov",
}
"""Options of each run."""
WHEN = {
    "cohort": (3, Exchange, "send_losses"),
    "momentum": (4, Training, "look_at_ranks"),
    "adam": (3, Exchange, "sum_changes"),
    "localfedminmax": (5, Exchange, "sum_changes"),
    "afl": (4, Training, "look_at_ranks"),
    "fedavg": (1, Exchange, "sum_changes"),
    "term": (4, Exchange, "send_losses"),
    "fedminmax": (3, Training, "one_round"),
    "qfedavg": (6, fedmpi.federation.job, "evaluate"),
    "owners": (4, Exchange, "send_losses"),
}
"""Round of the death, and the call that the rank dies in; `evaluate` scores after the rounds."""
QUICK = ("cohort", "momentum", "fedavg", "fedminmax", "qfedavg", "owners")
"""Runs of the quick tests, which lose a rank in every call of WHEN."""
STOPS = {"cohort": 5, "momentum": 5, "afl": 5}
"""Round at which a run is asked to stop, one after the death; the survivors resume the run."""


def ranks_for(names: Sequence[str]) -> int:
    """Ranks to begin with; FedMinMax's run has four client ranks left, one for each group."""
    return names.index("fedminmax") + 1 + 4


def arguments(name: str, csv: str, data: str, rounds: str, output: str) -> list[str]:
    """Options of the run `name`; the owners' files are beside the CSV file."""
    whose = f"csv:{csv} --skew 2 --clients {CLIENTS}"
    if name == "owners":
        whose = f"csv:{Path(csv).with_suffix('')}/"
    return [
        *("--dataset", *whose.split(), "--target", "y", "--group", "g"),
        *("--rounds", rounds, "--eval-every", "2", "--lr", "0.3"),
        *("--solver", "paper", "--dtype", "float64", "--progress", "none"),
        *("--model", "mlp", "--micro-batch", "13"),
        *("--data-dir", data, "--output", output, *RUNS[name].split()),
    ]


def at_round(call: Callable[[int], None]) -> None:
    """Call `call` with the number of each round when the round begins."""
    one_round = Training.one_round

    def tell_and_begin(self, t, evaluate):
        call(t)
        one_round(self, t, evaluate)

    Training.one_round = tell_and_begin


def die_at(t: int, where: object, what: str) -> None:
    """Kill this process when it calls `where.what` in round `t` or later."""
    reached: list[int] = []
    at_round(reached.append)
    function = getattr(where, what)

    def die(*arguments, **named):
        if max([*reached, arguments[1] if what == "one_round" else 0]) >= t:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)

    setattr(where, what, die)


def stop_at(t: int) -> None:
    """Send this process a signal when round `t` begins."""
    at_round(lambda now: os.kill(os.getpid(), signal.SIGUSR1) if now == t else None)


def main() -> int:
    out, csv, rounds, *names = sys.argv[1:]
    comm = MPI.COMM_WORLD
    signals.listen(speaks=False)
    for name in names or RUNS:
        ranks = Ranks(comm)
        options = arguments(name, csv, f"{out}/data", rounds, str(Path(out) / name))
        options += ["--on-client-failure", "continue"]
        job = Job(ranks, resolve(options, ranks.size - 1, False))
        if ranks.rank == 2:
            die_at(*WHEN[name])
        one_round = Training.one_round
        if ranks.is_server and name in STOPS:
            stop_at(STOPS[name])
        try:
            job.run()
        except Stopped:
            signals._asked, Training.one_round = None, one_round
            ranks = Ranks(ranks.comm)
            Job(ranks, resolve([*options, "--resume"], ranks.size - 1, False)).run()
        comm = ranks.comm
    return 0


if __name__ == "__main__":
    run(main)
