"""Run every method under a communicator that records what each rank gives to MPI.

mpirun -n 3 python tests/helpers/recorder.py OUT TABLE...

trains each of RUNS on each TABLE, through the entry that users have, with MPI.COMM_WORLD replaced
by a Recorder. OUT/<run>-<table>-<rank>.npz has the calls and, for comparison, the rank's own rows.
With hierarchical sums it also has what lies in the rank's part of the window while the rank
computes. On 4 ranks the runs are SECRET, with exact, masked and private sums.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import fedmpi.federation.exchange
import fedmpi.federation.job
import fedmpi.federation.rounds
import fedmpi.mpi.allreduce
import fedmpi.mpi.board
from fedmpi import train
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.mpi.ranks import Ranks

ROUNDS, EVAL_EVERY, BATCH = 5, 2, 10_000
LOCAL = f"--local-epochs 1 --batch-size {BATCH}"
BINARY = "--target z --group s,z --drop g,y"
"""Groups that are an attribute and the target, for methods that need them; as many as otherwise."""
RUNS = {
    "fedminmax": "",
    "fedminmax-8": "--clients 8",
    "fedminmax-hierarchical": "--reduce hierarchical",
    "fedminmax-local": f"--method fedminmax {LOCAL}",
    "centralized": "--method centralized",
    "localfedminmax": "--method localfedminmax",
    "afl": "--method afl",
    "afl-8": "--method afl --clients 8",
    "fedavg": f"--method fedavg {LOCAL}",
    "qfedavg": f"--method qfedavg --q 2 {LOCAL}",
    "term": f"--method term --tilt 3 {LOCAL}",
    "term-sample": f"--method term --tilt 3 --tilt-level sample {LOCAL}",
    "ditto": f"--method ditto {LOCAL}",
    "fedmgda": f"--method fedmgda --radius 0 {LOCAL}",
    "propfair": f"--method propfair {LOCAL}",
    "scaffold": f"--method scaffold {LOCAL}",
    "fedprox": f"--method fedprox {LOCAL}",
    "bgl": "--method bgl",
    "scaffpd": f"--method scaffpd --lr-mu 0 {LOCAL}",
    "drfa": f"--method drfa --draws 0 {LOCAL}",
    "fedfb": f"--method fedfb {BINARY} {LOCAL}",
    "gifair": f"--method gifair {LOCAL}",
    "gifair-group": f"--method gifair --gifair-level group {LOCAL}",
    "fairfed": f"--method fairfed --beta 0 {BINARY} {LOCAL}",
    "eominmax": f"--method eominmax {BINARY}",
    "leaks": "--method recorder:Leaks",
}
MLP = "--model mlp --clients 6"
EXACT = "--sums exact --bootstrap 0"  # replicates of the test rows, which masks go without
PRIVATE = "--dp-epsilon 3 --dp-delta 1e-3"
SHARED = "--reduce hierarchical"
SECRET = {
    "exact": f"{EXACT} {MLP}",
    "exact-hierarchical": f"{EXACT} {MLP} {SHARED}",
    "exact-fedavg": f"{EXACT} {MLP} --method fedavg {LOCAL}",
    "exact-validate": f"{EXACT} {MLP} --validate 0.2",
    "secure": f"--secure {MLP}",
    "secure-hierarchical": f"--secure {MLP} {SHARED}",
    "secure-fedavg": f"--secure {MLP} --method fedavg {LOCAL}",
    "secure-validate": f"--secure {MLP} --validate 0.2",
    "private": f"{PRIVATE} {MLP}",
    "secure-private": f"--secure {PRIVATE} {MLP}",
    "secure-private-hierarchical": f"--secure {PRIVATE} {MLP} {SHARED}",
}
"""A larger model, so that there are enough bytes to test whether they are uniform."""

# Calls by what a rank that is not the root gives away in them: the first argument, or nothing.
BUFFERS = ("Iallreduce", "Ireduce", "Igatherv", "Ialltoallv", "Isend", "shares", "tells", "lies")
PICKLES = ("gather", "allgather", "allreduce")
RECEIVES = ("Ibcast", "Iscatterv", "bcast", "scatter", "Recv")
NOTHING = ("Get_rank", "Get_size", "Split", "Split_type", "Free", "Ibarrier", "Iprobe", "Abort")


class Leaks(FedMinMax):
    """Method that gives rows away in round 2, which the tests must find."""

    steps = 0

    def client_round(self, clients, now):
        super().client_round(clients, now)
        if now.t == 2:
            MPI.COMM_WORLD.Isend(clients.x[0].numpy().copy(), dest=0, tag=99).Wait()

    def update_weights(self, risks):
        super().update_weights(risks)
        self.steps += 1
        for rank in (1, 2) if self.steps == 2 else ():
            MPI.COMM_WORLD.Recv(np.empty(100), source=rank, tag=99)


class Log:
    """The calls of this rank, in order."""

    calls: list[dict]
    buffers: list[np.ndarray]

    def begin(self) -> None:
        """Forget the calls of the last run: a run begins."""
        self.calls, self.buffers = [], []
        self.phase, self.round = "set-up", 0
        self.job: fedmpi.federation.job.Job | None = None

    def note(self, name: str, arguments: tuple) -> None:
        call: dict[str, Any] = {"phase": self.phase, "round": self.round, "call": name}
        if name in BUFFERS:
            given = arguments[1] if arguments[0] is MPI.IN_PLACE else arguments[0]
            given = given[0] if isinstance(given, list) else given  # with counts
            buffer = np.array(np.asarray(given), copy=True).reshape(-1)
            gives = "window" if name == "lies" else "buffer"
            call |= {"gives": gives, "dtype": str(buffer.dtype), "size": buffer.size}
            self.buffers.append(buffer)
        elif name in PICKLES:
            value = arguments[0]
            call |= {"gives": "pickle", "type": type(value).__name__, "value": repr(value)}
        elif name == "Allocate_shared":
            call |= {"gives": "nothing", "size": arguments[0]}
        elif name in (*RECEIVES, *NOTHING):
            call |= {"gives": "nothing"}
        else:
            call |= {"gives": "unknown"}
        self.calls.append(call)


class Recorder:
    """Communicator of mpi4py that notes every call of its methods."""

    def __init__(self, comm: MPI.Comm, log: Log) -> None:
        self._comm, self._log = comm, log

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._comm, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._log.note(name, arguments)
            result = found(*arguments, **named)
            return Recorder(result, self._log) if isinstance(result, MPI.Comm) else result

        return call


class Windows:
    """MPI.Win, as far as the package uses it: memory that the ranks of a host share."""

    def __init__(self, win: type[MPI.Win], log: Log) -> None:
        self._win, self._log = win, log

    def Allocate_shared(self, size: int, unit: int, info: MPI.Info, comm: Recorder) -> MPI.Win:
        self._log.note("Allocate_shared", (size,))
        return self._win.Allocate_shared(size, unit, info, comm._comm)


def follow(log: Log) -> None:
    """Tell the log the phase and the round of the run, and the run's job."""
    training = fedmpi.federation.rounds.Training
    run, begin = training.run, training.one_round
    make, start = fedmpi.federation.job.Job.__init__, fedmpi.mpi.allreduce.Hierarchical.start
    tell, send = fedmpi.mpi.board.Board.tell, fedmpi.federation.exchange.Exchange.send_losses
    close = fedmpi.federation.exchange.Exchange.sum_changes

    def run_and_tell(self):
        log.phase = "rounds"
        run(self)
        log.phase = "end"

    def begin_and_tell(self, t, evaluate):
        log.round = t
        begin(self, t, evaluate)

    def make_and_tell(self, *arguments):
        make(self, *arguments)
        log.job = self

    def tell_and_note(self, numbers):
        log.note("tells", (numbers,))
        tell(self, numbers)

    def start_and_tell(self):
        log.note("shares", (self.buffer,))
        start(self)

    def look(exchange):
        if exchange.reduction.kind == "hierarchical":
            log.note("lies", (exchange.reduction.buffer,))

    def look_and_send(self, *losses):
        look(self)  # within the passes of the round
        send(self, *losses)

    def look_and_close(self, flag):
        look(self)  # after them
        close(self, flag)

    fedmpi.federation.exchange.Exchange.send_losses = look_and_send
    fedmpi.federation.exchange.Exchange.sum_changes = look_and_close
    fedmpi.mpi.allreduce.Hierarchical.start = start_and_tell
    fedmpi.mpi.board.Board.tell = tell_and_note
    training.run, training.one_round = run_and_tell, begin_and_tell
    fedmpi.federation.job.Job.__init__ = make_and_tell


def save(path: Path, log: Log) -> None:
    """Save the calls, and the rows of this rank's clients."""
    own: dict[str, Any] = {}
    if log.job and log.job.clients:
        clients, groups = log.job.clients, len(log.job.prepared.groups)
        cell = clients.cell.numpy()
        own = {"x": clients.x.numpy(), "y": clients.y.numpy(), "group": cell % groups}
        own |= {"client": clients.numbers[cell // groups], "numbers": clients.numbers}
    given = {f"buffer{i}": buffer for i, buffer in enumerate(log.buffers)}
    np.savez(path, calls=json.dumps(log.calls), **own, **given)


def main() -> None:
    out, *tables = sys.argv[1:]
    world, win, log = MPI.COMM_WORLD, MPI.Win, Log()
    ranks = Ranks(world)
    follow(log)
    for table in tables:
        for name, options in (SECRET if world.size == 4 else RUNS).items():
            log.begin()
            # In the module, so that whoever asks mpi4py for the world gets the recorder.
            MPI.COMM_WORLD, MPI.Win = Recorder(world, log), Windows(win, log)
            folder = Path(out) / f"{name}-{Path(table).stem}"
            sys.argv = [
                *("fedmpi.train", "--dataset", f"csv:{table}", "--target", "y", "--group", "g"),
                *("--drop", "s,z"),
                *("--setting", "PSG", "--skew", "3", "--clients", "4", "--model", "logistic"),
                *("--dtype", "float64", "--rounds", str(ROUNDS), "--eval-every", str(EVAL_EVERY)),
                *("--solver", "paper", "--lr", "0.5", "--progress", "none"),
                *("--data-dir", f"{out}/data"),
                *("--reduce", "flat", "--output", str(folder), *options.split()),
            ]
            train.main()
            MPI.COMM_WORLD, MPI.Win = world, win
            save(Path(f"{folder}-{world.rank}.npz"), log)
            ranks.meet()


if __name__ == "__main__":
    main()
