"""Kill ranks of runs with masked sums, and note what every rank adds, gives away and holds.

mpirun --with-ft ulfm -n 9 python tests/helpers/dying_in_secret.py OUT CSV

OUT/<run>-<rank>.notes has what a rank noted, one pickle after the other: what it adds to a sum
before and after it is masked; what its memory holds of that sum whenever the ranks come to agree,
whether MPI had ended the sum well or not; the noise that it drew; and the checkpoints.
"""

import contextlib
import hashlib
import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedmpi.federation.exchange import Exchange
from fedmpi.federation.job import Job
from fedmpi.federation.server import Server
from fedmpi.mpi import signals
from fedmpi.mpi.allreduce import Flat
from fedmpi.mpi.failures import Survivors
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import AgreedError, Ranks, Stopped
from fedmpi.mpi.start import run
from fedmpi.privacy.masks import Masks
from fedmpi.privacy.noise import Noise
from fedmpi.run.arguments import resolve

ROUNDS, CLIENTS, STOP = 7, 12, 4
RUNS = {
    "rounds": f"--secure --skew 2 --clients {CLIENTS} --setting PSG --lr-mu 0.1 --optimizer sgd",
    "private": "--secure --clients 4 --setting SSG --dp-epsilon 3 --dp-delta 1e-3",
    "owners": "--secure --lr-mu 0.1 --validate 0.3 --average last --eval-every 7",
    "few": "--sums exact --min-count 10",
}
DEATHS = {
    "rounds": {2: (8, "losses"), 3: (7, "changes"), 4: (6, "one"), 5: (5, "server")},
    "private": {3: (2, "changes")},
    "owners": {7: (2, "scores")},
    "few": {2: (2, "losses")},
}
"""By round: the rank that dies, and when.

    losses    before it has sent its losses
    changes   before it has sent its change; the server has the losses
    one       when all have the sum, but MPI gives it to rank 3 alone
    server    when all have the sum, but MPI fails on all ranks, the server's with the sum in memory
    scores    when the server has the scores of the validation rows
"""


class Notes:
    """What this process notes, safe from its death."""

    def begin(self, path: Path, job: Job) -> None:
        self.path, self.job, self.masked = path, job, []

    def note(self, kind: str, **values: Any) -> None:
        theta = hashlib.sha256(self.job.model.theta.numpy().tobytes()).hexdigest()
        with open(self.path, "ab") as file:
            pickle.dump({"kind": kind, "theta": theta, **values}, file)


NOTES = Notes()


def listen() -> None:
    """Note what is masked, what memory holds of it later, noise, and checkpoints."""
    add, all_well, rounded = Masks.add, Survivors._all_well, Noise.rounded
    save = Server.save_checkpoint

    def add_and_note(self, numbers, t, attempt, message, out=None):
        said = {"message": message.name, "t": t, "attempt": attempt}
        theta = NOTES.job.model.theta.numpy().copy() if message.name == "CHANGES" else None
        NOTES.note("plain", numbers=numbers.copy(), vector=theta, **said)
        add(self, numbers, t, attempt, message, out)
        given = numbers if out is None else out
        NOTES.note("masked", numbers=given.copy(), **said)
        NOTES.masked.append((given, said))

    def vote_and_note(self, failure):
        for numbers, said in NOTES.masked:
            NOTES.note("held", numbers=numbers.copy(), **said)
        NOTES.masked.clear()
        return all_well(self, failure)

    def draw_and_note(self, length, deviation):
        exchange = NOTES.job.exchange
        said = {"t": exchange.t, "attempt": exchange.attempt}
        NOTES.note("noise", length=length, deviation=deviation, **said)
        return rounded(self, length, deviation)

    def save_and_note(self, t, tables):
        NOTES.note("saved", t=t, lost=[event["rank"] for event in self.plan.lost])
        save(self, t, tables)

    Masks.add, Survivors._all_well, Noise.rounded = add_and_note, vote_and_note, draw_and_note
    Server.save_checkpoint = save_and_note


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def meet(ranks: Ranks) -> None:
    """Wait until all ranks have come here. A rank that was here may have ended the wait."""
    with contextlib.suppress(MPI.Exception):
        ranks.meet()


def before(where: type, what: str, call: Callable) -> None:
    """Call `call` with the object before each call of its method `where.what`."""
    function = getattr(where, what)

    def both(self, *arguments, **named):
        call(self)
        return function(self, *arguments, **named)

    setattr(where, what, both)


def meet_deaths(name: str, number: int) -> None:
    """Die as this run's DEATHS say, or see MPI fail as this rank would."""
    finish, score = Flat.finish, Job._score
    seen: set[int] = set()

    def now(*when: str) -> bool:
        """Whether a rank dies so in this round."""
        return DEATHS[name].get(NOTES.job.exchange.t, (0, ""))[1] in when

    def mine(*when: str) -> bool:
        return now(*when) and DEATHS[name][NOTES.job.exchange.t][0] == number

    def first_time() -> bool:
        """Whether a round is not done again."""
        known = NOTES.job.exchange.t in seen
        seen.add(NOTES.job.exchange.t)
        return not known

    def finish_and_fail(self):
        given = self.buffer.copy()
        finish(self)
        if not (now("one", "server") and first_time()):
            return
        meet(self.ranks)  # all have the sum by then
        if mine("one", "server"):
            die()
        has_it = number == (3 if now("one") else 0)
        if not has_it:
            self.buffer[:] = given
        if now("server") or not has_it:
            raise MPI.Exception(MPI.ERR_PROC_FAILED)

    def die_after_losses(exchange):
        if mine("changes"):
            exchange.receive_weights()  # with which the server answers when it has all losses
            die()

    def score_and_die(self, *arguments):
        scores = score(self, *arguments)
        if now("scores") and first_time():
            meet(self.ranks)  # the server has all scores by then
            if mine("scores"):
                die()
        return scores

    before(Exchange, "send_losses", lambda _: mine("losses") and die())
    before(Exchange, "sum_changes", die_after_losses)
    Flat.finish, Job._score = finish_and_fail, score_and_die


def arguments(name: str, csv: str, out: str) -> list[str]:
    """Options of the run `name`; the files of owners are beside the CSV file."""
    apart = name in ("owners", "few")
    whose = f"csv:{Path(csv).with_suffix('')}/" if apart else f"csv:{csv}"
    return [
        *("--dataset", whose, "--target", "y", "--group", "g", "--rounds", str(ROUNDS)),
        *("--eval-every", "2", "--lr", "0.3", "--solver", "paper", "--dtype", "float64"),
        *("--progress", "none", "--model", "mlp", "--micro-batch", "13"),
        *("--data-dir", f"{out}/data", "--output", f"{out}/{name}", *RUNS[name].split()),
    ]


def main() -> int:
    out, csv = sys.argv[1:]
    comm, me = MPI.COMM_WORLD, MPI.COMM_WORLD.Get_rank()
    signals.listen(speaks=False)
    listen()
    whole = Flat.finish, Job._score, Exchange.send_losses, Exchange.sum_changes
    for name in RUNS:
        ranks = Ranks(comm)
        options = [*arguments(name, csv, out), "--on-client-failure", "continue"]
        job = Job(ranks, resolve(options, ranks.size - 1, False))
        NOTES.begin(Path(out) / f"{name}-{me}.notes", job)
        Flat.finish, Job._score, Exchange.send_losses, Exchange.sum_changes = whole
        meet_deaths(name, ranks.rank)
        if name == "private" and ranks.is_server:
            before(Exchange, "sum_changes", stop)
        try:
            job.run()
        except Stopped:
            signals._asked = None
            ranks = Ranks(ranks.comm)
            job = Job(ranks, resolve([*options, "--resume"], ranks.size - 1, False))
            NOTES.begin(Path(out) / f"{name}-resumed-{me}.notes", job)
            job.run()
        except AgreedError as error:
            print(f"rank {ranks.rank}: {error}", file=sys.stderr, flush=True)
        comm = ranks.comm
    return 0


def stop(exchange: Exchange) -> None:
    """Ask the run to stop at a round, once."""
    if exchange.t == STOP and not signals.asked():
        os.kill(os.getpid(), signal.SIGUSR1)


if __name__ == "__main__":
    run(main)
