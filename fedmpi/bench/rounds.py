"""Time the rounds of two contestants in turn, on the ranks of a launch, so that noise hits both.

    mpirun -n 3 python -m fedmpi.bench.rounds '{"kind": "rounds", "repeats": 5, "block": 4, ...}'

The contestants are built in the same processes and take blocks of rounds in turn: the first, the
second, the first again. A repeat's ratio is the time of the second contestant's block over the mean
of the two blocks of the first contestant before and after.
The server prints one line of JSON. `fedmpi.bench` writes the argument and reads the line.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.bench.launch import MARK
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run

if TYPE_CHECKING:
    from fedmpi.federation.clients import Clients
    from fedmpi.methods.method import Round

SLEEP = 0.02
UNENDING = ["--rounds", "1000000000", "--progress", "none"]
PIECES = (256, 512, 1024, 2048, 4096)


class Contestant(ABC):
    """Rounds that can be timed. Every rank has an instance, which may have nothing to do."""

    done = 0
    batches = 1
    """Number of batches in a round; right on the server alone."""

    def rounds(self, number: int) -> None:
        """Do the next `number` rounds."""
        for t in range(self.done + 1, self.done + number + 1):
            self.round(t)
        self.done += number

    @abstractmethod
    def round(self, t: int) -> None:
        """Do round `t`."""

    @abstractmethod
    def theta(self) -> np.ndarray | None:
        """The model as one vector, on the server."""

    def end(self) -> None:  # noqa: B027
        """Finish what is under way, after the last round."""


class Federation(Contestant):
    """fedmpi on all ranks, through the rounds of a real job that is never evaluated."""

    def __init__(self, ranks: Ranks, options: list[str], folder: str) -> None:
        from fedmpi.federation.job import Job
        from fedmpi.run.arguments import resolve

        arguments = [*options, *UNENDING, "--output", folder]
        one = ranks.size == 1
        config = ranks.on_server(lambda: resolve(arguments, len(ranks.client_ranks), one))
        job = Job(ranks, config)
        with quiet():
            self.training = job.begin()
        if job.plan and config.batch_size:
            sizes = job.plan.allocation.partition.client_sizes
            self.batches = int(-(-sizes // config.batch_size).sum())
        self.training.begin_rounds()
        self.split: list[tuple[float, float, float]] = []
        """Seconds of each round on this rank: in all, computing, and CPU seconds computing."""
        self.cpu, self.compute = 0.0, self.training.method.client_round
        self.training.method.client_round = self.client_round  # type: ignore[method-assign]

    def client_round(self, clients: Clients, now: Round) -> None:
        """Do the method's client_round, timed by a clock that other processes do not move."""
        began = time.process_time()
        self.compute(clients, now)
        self.cpu = time.process_time() - began

    def round(self, t: int) -> None:
        began, computed = time.perf_counter(), self.training.computing
        self.training.one_round(t, evaluate=False)
        seconds = time.perf_counter() - began
        self.split.append((seconds, self.training.computing - computed, self.cpu))
        if self.training.server:
            self.training.server.end_round(t, None)

    def theta(self) -> np.ndarray | None:
        model = self.training.model
        if not self.training.server:
            return None
        named = model.state_dict(model.theta)  # theta itself may hold a layer transposed
        return np.concatenate([tensor.numpy().reshape(-1) for tensor in named.values()])

    def end(self) -> None:
        self.training.exchange.receive_weights()  # nobody uses these, but MPI wants them fetched


class Plain(Contestant):
    """The plain loop on the server; the other ranks sleep meanwhile."""

    def __init__(self, ranks: Ranks, options: list[str], share: bool = False) -> None:
        self.works = ranks.is_server or share
        if not self.works:
            return
        from fedmpi import models
        from fedmpi.bench.plain import PieceLoop, PlainLoop, shards
        from fedmpi.federation.assignment import assign_clients
        from fedmpi.federation.clients import batch_order
        from fedmpi.run.arguments import resolve

        config = resolve(options, 1, one_process=True)
        prepared, clients = shards(config)
        if share:  # every rank has its own clients, as the client ranks of a run do
            hosted = assign_clients(np.array([len(y) for _, y in clients]), ranks.size)
            clients = [clients[k] for k in hosted[ranks.rank]]
        module = models.build(
            config.model, prepared.array("train_x").shape[1:], len(prepared.classes), config.seed
        )
        self.order = None
        if share and not config.batch_size:
            loops = [PieceLoop(module, clients, config.loss, config.lr, n) for n in PIECES]
            self.loop: PlainLoop = min(loops, key=lambda loop: seconds_of(loop.round))
            self.rows_of_a_batch = self.loop.batch
            return
        self.loop = PlainLoop(module, clients, config.loss, config.lr, config.batch_size)
        if config.batch_size:
            sizes = [len(y) for _, y in clients]
            self.order = lambda k: batch_order(sizes[k], config.seed, k, self.done + 1, 0)

    def check_rounds(self, number: int) -> None:
        """Do rounds in fedmpi's own order of rows, which must end at fedmpi's theta."""
        for _ in range(number if self.works else 0):
            self.loop.round(self.order)
            self.done += 1

    def round(self, t: int) -> None:
        if self.works:
            self.loop.round()

    def theta(self) -> np.ndarray | None:
        return self.loop.theta().numpy() if self.works else None


class quiet:
    """Context that drops what a job prints at its start: stdout is for the result."""

    def __enter__(self) -> None:
        self.kept, sys.stdout = sys.stdout, open(os.devnull, "w")

    def __exit__(self, *_: object) -> None:
        sys.stdout.close()
        sys.stdout = self.kept


def seconds_of(work: Callable[[], None]) -> float:
    """Shortest of three CPU times of `work`: CPU time, so that a busy machine does not choose."""
    times = []
    for _ in range(3):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def shares(splits: list[list[tuple[float, float, float]]]) -> dict:
    """Compute from the ranks' splits how evenly the client ranks work, and the messages' share.

    `uneven` is by how much the CPU time of the busiest rank, in the median round, exceeds that of
    the least busy rank. `exchange` is the share of the rounds' time that is left after the slowest
    rank of each round has computed.
    """
    table = np.array(splits)  # ranks × rounds × (seconds, computing, CPU)
    cpu = np.median(table[:, :, 2], axis=1)
    longest, seconds = table[:, :, 1].max(axis=0).sum(), table[:, :, 0].max(axis=0).sum()
    return {"uneven": float(cpu.max() / cpu.min() - 1), "exchange": float(1 - longest / seconds)}


def sleep_until_all_are_here(ranks: Ranks) -> None:
    """Wait at a barrier for long: 40 ranks that test every millisecond would take a core."""
    request = ranks.comm.Ibarrier()
    while not request.Test():
        time.sleep(SLEEP)
    ranks.meet()


def timed(ranks: Ranks, work: Callable[[], None]) -> tuple[float, float]:
    """Do `work`; return seconds on this rank's clock, and CPU seconds of all ranks together."""
    sleep_until_all_are_here(ranks)
    began, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    sleep_until_all_are_here(ranks)
    return seconds, ranks.comm.allreduce(cpu)


def compete(ranks: Ranks, first: Contestant, second: Contestant, repeats: int, block: int) -> dict:
    """Time blocks in turn; return the repeats' ratios, and seconds and CPU seconds a round."""
    times: list[tuple[float, float]] = []
    turns = [first, *itertools.chain.from_iterable([(second, first)] * repeats)]
    for who in turns:
        seconds, cpu = timed(ranks, lambda who=who: who.rounds(block))  # type: ignore[misc]
        times.append((seconds / block, cpu / block))
    table = np.array(times)
    base = (table[0:-1:2] + table[2::2]) / 2
    return {
        "ratios": (table[1::2] / base)[:, 0].tolist(),
        "cpu_ratios": (table[1::2] / base)[:, 1].tolist(),
        "seconds": table[1::2, 0].tolist(),
        "base_seconds": table[0::2, 0].tolist(),
        "cpu_seconds": table[1::2, 1].tolist(),
        "base_cpu_seconds": table[0::2, 1].tolist(),
    }


def contestants(ranks: Ranks, job: dict, folder: str) -> tuple[Contestant, Contestant]:
    """Build both contestants; the second is measured against the first."""
    if job["kind"] == "floor":
        return Plain(ranks, job["first"]), Plain(ranks, job["second"], share=True)
    second = Federation(ranks, job["second"], f"{folder}/second")
    if job["kind"] == "clients":
        return Federation(ranks, job["first"], f"{folder}/first"), second
    return Plain(ranks, job["first"]), second


def warm_up(ranks: Ranks, first: Contestant, second: Contestant) -> dict:
    """Do two rounds of each; return how far fedmpi's theta is from the plain loop's."""
    timed(ranks, lambda: first.check_rounds(2) if isinstance(first, Plain) else first.rounds(2))
    second.rounds(2)
    ours, theirs = second.theta(), first.theta()
    if not isinstance(first, Plain) or isinstance(second, Plain) or ours is None or theirs is None:
        return {}
    return {"difference": float(np.abs(ours - theirs).max() / np.abs(theirs).max())}


def main() -> int:
    job = json.loads(sys.argv[1])
    world = Ranks(MPI.COMM_WORLD, stall_timeout=float("inf"))
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch: the plain loop runs in one thread
    import torch

    with tempfile.TemporaryDirectory() as folder:
        first, second = contestants(world, job, folder)
        torch.set_num_threads(1)
        result = warm_up(world, first, second)
        result |= compete(world, first, second, job["repeats"], job["block"])
        if isinstance(second, Federation):
            splits = world.gather(second.split[2:])  # without the two rounds of the warm-up
            result |= shares([splits[rank] for rank in world.client_ranks]) if splits else {}
        first.end()
        second.end()
        world.meet()
    if world.is_server:
        result |= {"batch": getattr(second, "rows_of_a_batch", None), "torch": torch.__version__}
        result["batches"] = [first.batches, second.batches]
        result["mpi"] = f"{MPI.get_vendor()[0]} {'.'.join(map(str, MPI.get_vendor()[1]))}"
        print(MARK + json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    run(main)
