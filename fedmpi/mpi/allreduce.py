"""Sums of the ranks' changes of theta: flat, or first within each host.

    flat            one Iallreduce of all ranks
    hierarchical    every rank's vector lies in memory that its host shares. As many client ranks
                    of a host as have a core add one slice of all vectors there; one rank of each
                    host sums the totals with the other hosts; all ranks read the total where it
                    lies

In a hierarchical sum no rank passes on what is another's, and between hosts goes one vector a host.
The order of addition depends on nothing but the layout, so a run repeats; that order is another
than MPI's, so the two kinds agree to rounding.

Both kinds have a `buffer`, which a rank fills with its part. Between `start` and `finish` the
buffer belongs to the sum, and after `finish` it holds the total.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, NamedTuple, cast

import numpy as np

from fedmpi.mpi.flags import LINE, Flags, semaphores
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import Ranks

MEMORY = "/dev/shm"
"""Folder of the memory that processes share under both MPIs, on Linux."""
PAGE = 4096
TRIALS = 7
"""Number of sums of each kind, when the two kinds are measured against each other."""


class Flat:
    """One Iallreduce of all ranks, in place."""

    kind = "flat"

    def __init__(self, ranks: Ranks, buffer: np.ndarray) -> None:
        self.ranks, self.buffer = ranks, buffer

    def start(self) -> None:
        self._request = self.ranks.Iallreduce(self.buffer)

    def finish(self) -> None:
        self.ranks.wait(self._request)

    def free(self) -> None:
        """Do nothing: flat sums have no memory of MPI's to give back."""


class Hierarchical:
    """A sum within each host through a shared window (MPI-3), then between the hosts.

    A rank that has seen all `written` flags of a round knows that every rank has read the total of
    the round before; a rank that has seen all `summed` flags knows that its vector has been read.
    So two waits suffice for the ranks that add, and one for the others. With several hosts the last
    wait is for the flag of the host's first rank, which has the sum of all hosts. The server adds
    no slice where others do: it has slept while the clients computed, and they would wait for it to
    wake. Nor do more ranks than there are cores: each would be woken once more.

    The function `hierarchical` makes one, and has the ranks meet before the first round.
    """

    kind = "hierarchical"

    def __init__(self, ranks: Ranks, length: int, dtype: str, host: int) -> None:
        self.ranks = ranks
        shared = ranks.comm.Split_type(MPI.COMM_TYPE_SHARED, key=ranks.rank)
        self.node = node = cast(MPI.Intracomm, shared.Split(host, ranks.rank))
        shared.Free()
        self.me, self.size = node.Get_rank(), node.Get_size()
        first = self.me == 0
        self.leaders = ranks.comm.Split(0 if first else MPI.UNDEFINED, ranks.rank)
        leaders = self.leaders.Get_size() if first else 0
        ranks.meet()
        self.hosts = ranks.comm.allreduce(leaders, op=MPI.MAX)
        first_adder = int(node.bcast(ranks.is_server) and self.size > 1)
        adders = node.bcast(min(self.size - first_adder, ranks.cores))
        self.adders = range(first_adder, first_adder + adders)
        self._allocate(length, np.dtype(dtype))
        bounds = [length * (self.me - first_adder + end) // adders for end in (0, 1)]
        self.mine = slice(*bounds) if self.me in self.adders else slice(0)

    def _allocate(self, length: int, dtype: np.dtype) -> None:
        """Allocate a vector for each rank, and with the first rank's the total and the flags."""
        vector = _rounded(length * dtype.itemsize, LINE)
        flags, wakes = 3 * _rounded(8 * self.size, LINE), LINE * self.size
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})  # each begins a page of its own
        size = bytes_needed(length, dtype.itemsize, self.size, first=self.me == 0)
        self.window = MPI.Win.Allocate_shared(size, 1, info, self.node)
        info.Free()
        memory: list[Any] = [self.window.Shared_query(place)[0] for place in range(self.size)]
        parts = [np.frombuffer(some, dtype=np.uint8) for some in memory]
        self.vectors = [part[: length * dtype.itemsize].view(dtype) for part in parts]
        self.buffer = self.vectors[self.me]
        self.total = parts[0][vector:][: length * dtype.itemsize].view(dtype)
        numbers = parts[0][2 * vector :][:flags].view(np.int64).reshape(3, -1)[:, : self.size]
        wake = parts[0][2 * vector + flags :][:wakes]
        woken_by = semaphores(wake, self.me) if self.ranks.polite else None
        common = (self.window, self.ranks.comm, woken_by)
        everyone = range(self.size)
        summed = numbers[1, self.adders.start : self.adders.stop]
        self.written = Flags(numbers[0], *common, self.adders)
        self.summed = Flags(summed, *common, everyone if self.hosts == 1 else everyone[:1])
        self.closed = Flags(numbers[2, :1], *common, everyone)
        self.flags = (self.written, self.summed, self.closed)
        self.buffer[:] = 0
        if self.me == 0:
            numbers[:] = 0
        self.window.Lock_all()
        self.window.Sync()

    def start(self) -> None:
        self.ranks.bytes_handed += self.buffer.nbytes
        self.written.raise_mine(self.me)

    def finish(self) -> None:
        if self.me in self.adders:
            self.ranks.wait(self.written)
            self._add_slice()
            self.summed.raise_mine(self.me - self.adders.start)
        else:
            self.summed.goal += 1
        if self.hosts == 1:
            self.ranks.wait(self.summed)
        elif self.me == 0:
            self.ranks.wait(self.summed)
            self.ranks.wait(self.leaders.Iallreduce(MPI.IN_PLACE, self.total))
            self.closed.raise_mine(0)
        else:
            self.closed.goal += 1
            self.ranks.wait(self.closed)
        self.buffer[:] = self.total

    def _add_slice(self) -> None:
        """Sum this rank's slice of the host's total, always from the first rank to the last."""
        total = self.total[self.mine]
        total[:] = self.vectors[0][self.mine]
        for other in self.vectors[1:]:
            total += other[self.mine]

    def free(self) -> None:
        """Give the shared memory back, on all ranks; the buffer must not be touched after that."""
        self.ranks.meet()
        self.window.Unlock_all()
        self.window.Free()
        self.node.Free()
        if self.me == 0:
            self.leaders.Free()


def _rounded(number: int, to: int) -> int:
    return -(-number // to) * to


def bytes_needed(length: int, itemsize: int, ranks: int, first: bool) -> int:
    """Bytes of shared memory that a rank needs; the first of a host has total and flags, too."""
    vector = _rounded(length * itemsize, LINE)
    flags = 3 * _rounded(8 * ranks, LINE) + LINE * ranks
    return _rounded(2 * vector + flags if first else vector, PAGE)


class Room(NamedTuple):
    """Memory and ranks of a rank's host, which decide how sums are made."""

    ranks: int
    """Number of the job's ranks on this host."""
    needed: int
    free: int
    """Bytes of shared memory that are free; 0 where we know of none."""
    device: str


def room(ranks: Ranks, length: int, dtype: str, device: str) -> Room:
    """Return the Room on this rank's host."""
    itemsize = np.dtype(dtype).itemsize
    sizes = [
        bytes_needed(length, itemsize, ranks.local_size, first=place == 0)
        for place in range(ranks.local_size)
    ]
    try:
        disk = os.statvfs(MEMORY)
        free = disk.f_bavail * disk.f_frsize
    except OSError:
        free = 0
    return Room(ranks.local_size, sum(sizes), free, device)


def choose(wanted: str, rooms: list[Room]) -> tuple[str, str]:
    """Return the kind of sums to use, and why that is not the wanted one ("" if it is).

    `auto` is a rule: a run that is repeated on the same ranks gives the same bits. `measure` is
    returned where both kinds are possible: `seconds_of_a_sum` tells which is faster.
    """
    most = max(room.ranks for room in rooms)
    if wanted == "flat" or len(rooms) == 1:
        return "flat", ""
    on_gpus = any(room.device != "cpu" for room in rooms)
    if wanted in ("auto", "measure") and (most == 1 or on_gpus):
        return "flat", ""
    if most == 1:
        return "flat", "sums are flat: every host has one rank"
    for room in rooms:
        # Half of it: what others take from there at the same time would end the job (SIGBUS).
        if room.needed > room.free / 2:
            need, free = (f"{number / 2**20:,.0f} MB" for number in (room.needed, room.free))
            return "flat", f"sums are flat: they need {need} of {MEMORY}, and {free} are free there"
    return "measure" if wanted == "measure" else "hierarchical", ""


def hierarchical(ranks: Ranks, length: int, dtype: str, host: int = 0) -> Hierarchical | None:
    """Return sums through shared windows; None on all ranks if MPI gives none to one of them.

    Ranks of a host that give different numbers as `host` are taken for ranks of different ones.
    """
    made: Hierarchical | None = None
    with contextlib.suppress(MPI.Exception):
        made = Hierarchical(ranks, length, dtype, host)
    ranks.meet()
    everywhere = ranks.comm.allreduce(int(made is not None), op=MPI.MIN)
    return made if everywhere else None


def seconds_of_a_sum(ranks: Ranks, shared: Hierarchical) -> dict[str, float]:
    """Time sums of both kinds in turn; return each kind's mean over the ranks, on all of them."""
    kinds = (Flat(ranks, np.zeros_like(shared.buffer)), shared)
    times: dict[str, list[float]] = {some.kind: [] for some in kinds}
    for _ in range(1 + TRIALS):  # the first one is to warm up
        for some in kinds:
            some.buffer[:] = 0
            ranks.meet()
            began = time.perf_counter()
            some.start()
            some.finish()
            times[some.kind].append(time.perf_counter() - began)
    mine = {kind: float(np.median(some[1:])) for kind, some in times.items()}
    every = ranks.gather(mine) or []
    return ranks.bcast({kind: sum(some[kind] for some in every) / ranks.size for kind in mine})
