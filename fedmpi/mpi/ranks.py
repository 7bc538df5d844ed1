"""The ranks of a job: MPI's collectives on flat buffers, with polite waiting and counted bytes.

Every message of a run goes through here, under MPI's own names, so this is also the place to
look at to see what can leave a rank.
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from fedmpi.errors import UserError
from fedmpi.mpi import signals
from fedmpi.mpi.init import MPI

T = TypeVar("T")

SERVER = 0
OPEN_MPI = MPI.get_vendor()[0] == "Open MPI"
FIRST_SLEEP, LONGEST_SLEEP = 0.00005, 0.0002 if OPEN_MPI else 0.001
"""Seconds of sleep between the tests of a polite wait: short at first, for a message that is about
to arrive. Where ranks outnumber cores a test of Open MPI's gives the core away itself, so no sleep
need be long."""
TESTS = 4 if OPEN_MPI else 1
"""Tests at a time: each call of Open MPI's moves a collective on by one of its several steps."""
LONG_WAIT = 1.0
"""Seconds after which a rank with a core of its own sleeps, too: a message that comes so late (the
end of another team's runs, a long round) does not mind a millisecond, and others may use the
core."""
LOOK_EVERY = 1.0
GRACE = 5.0
ROLL_CALL, PRESENT = 7001, 7002


class Waited(Protocol):
    """A request of MPI's, or anything else that can be tested as requests are."""

    def Test(self) -> bool: ...


class AgreedError(UserError):
    """A UserError that every rank has: the job can end in order, without MPI_Abort."""

    code = 2
    """Exit code of a job that ends in this error."""


class Stopped(AgreedError):
    """The job was asked to stop, and has saved what it needs to go on."""

    code = signals.STOPPED


class StallError(UserError):
    """Some ranks did not come to the exchange within --stall-timeout."""


class Ranks:
    """A communicator whose waits leave the cores to those that compute.

    Ranks that outnumber the cores of their node sleep between tests of a request instead of
    spinning, so that waiting does not take a core from a rank that computes; the others spin for
    LONG_WAIT, then sleep as well. All waits are limited by `stall_timeout` seconds.
    """

    cores: int
    """Number of cores of this node that are for these ranks."""
    threads: int
    """Number of threads for a rank's arithmetic: what the user says, or cores over client ranks."""
    _given: int

    def __init__(
        self,
        comm: MPI.Comm,
        stall_timeout: float = 600.0,
        of: "Ranks | None" = None,
        beside: bool = False,
    ) -> None:
        """Take over a communicator, and see who shares this node.

        `of`: the Ranks that these are a subset of. `beside`: other teams run at the same time, so
        these ranks share the cores with them.
        """
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.is_server = self.rank == SERVER
        self.numbers = list(range(self.size))
        """Number of each rank when the job began, before others died (mpi/failures.py)."""
        self.posted: list[MPI.Request] | None = None
        """Messages under way, whose memory must stay when a rank dies; None where none may."""
        self.stall_timeout = stall_timeout
        self.bytes_handed = 0
        self.seconds_waited = 0.0
        self.host = socket.gethostname()
        self._read_node(of, beside)

    def _read_node(self, of: "Ranks | None", beside: bool) -> None:
        """Count the ranks that share this node, and the cores and threads that they have."""
        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        cores = node.allgather(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())
        self.local_rank, self.local_size = node.Get_rank(), node.Get_size()
        self.cores = of.cores if of else len(set().union(*cores)) or os.cpu_count() or 1
        if of and beside:
            self.cores = max(1, of.cores * self.local_size // of.local_size)
        hosts_clients = self.size == 1 or not self.is_server
        local_clients = node.allreduce(int(hosts_clients))
        self.polite = self.local_size > self.cores
        node.Free()
        given = os.environ.get("OMP_NUM_THREADS", "")
        self._given = of._given if of else int(given) if given.isdigit() else 0
        self.threads = self._given or max(1, self.cores // max(1, local_clients))

    def first(self, number: int) -> "Ranks | None":
        """Return the first `number` ranks as a job of their own; None on the other ranks."""
        if number >= self.size:
            return self
        comm = self.comm.Split(int(self.rank >= number), self.rank)
        return Ranks(comm, self.stall_timeout, self) if self.rank < number else None

    def team(self, number: int) -> "Ranks":
        """Return the ranks that call this with the same number, which work beside other teams."""
        return Ranks(self.comm.Split(number, self.rank), self.stall_timeout, self, beside=True)

    @property
    def client_ranks(self) -> list[int]:
        """Ranks that host clients: all but the server, or the only rank there is."""
        return list(range(1, self.size)) if self.size > 1 else [SERVER]

    def Iallreduce(self, buffer: Any, op: MPI.Op = MPI.SUM) -> MPI.Request:
        """Sum `buffer` over the ranks, in place, or reduce it by another `op`."""
        self.bytes_handed += buffer.nbytes
        return self._post(self.comm.Iallreduce(MPI.IN_PLACE, buffer, op))

    def Ireduce(self, buffer: Any) -> MPI.Request:
        """Sum `buffer` over the ranks; the server's holds the sum."""
        self.bytes_handed += buffer.nbytes
        if self.is_server:
            return self._post(self.comm.Ireduce(MPI.IN_PLACE, buffer, root=SERVER))
        return self._post(self.comm.Ireduce(buffer, None, root=SERVER))

    def Ibcast(self, buffer: Any, root: int = SERVER) -> MPI.Request:
        """Copy the server's `buffer`, or that of another rank, to every rank's."""
        self.bytes_handed += buffer.nbytes
        return self._post(self.comm.Ibcast(buffer, root=root))

    def Igatherv(self, part: Any, whole: Any, counts: list[int] | None) -> MPI.Request:
        """Lay the ranks' parts one after the other in the server's `whole`."""
        self.bytes_handed += part.nbytes
        to = [whole, counts] if self.is_server else None
        return self._post(self.comm.Igatherv(part, to, root=SERVER))

    def Iscatterv(self, whole: Any, counts: list[int] | None, part: Any) -> MPI.Request:
        """Cut the server's `whole` into the ranks' parts."""
        self.bytes_handed += part.nbytes
        of = [whole, counts] if self.is_server else None
        return self._post(self.comm.Iscatterv(of, part, root=SERVER))

    def _post(self, request: MPI.Request) -> MPI.Request:
        if self.posted is not None:
            self.posted = [*filter(None, self.posted), request]  # without those that are done
        return request

    def wait(self, request: Waited) -> None:
        """Wait for `request`, asleep where ranks outnumber cores or where it takes long;
        StallError after the limit.
        """
        if request.Test():
            return
        start, seconds = time.perf_counter(), FIRST_SLEEP
        now, looked, awake = start, start, 0.0
        while not any(request.Test() for _ in range(TESTS)):
            if self.polite or now > start + LONG_WAIT:
                getattr(request, "sleep", time.sleep)(seconds)  # flags are woken earlier
                seconds = min(2 * seconds, LONGEST_SLEEP)
            now = time.perf_counter()
            if now > looked + LOOK_EVERY:
                # A job that was suspended as a whole (by Ctrl-Z or by a scheduler) has not stalled.
                awake += min(now - looked, 2 * LOOK_EVERY)
                looked = now
                self._look_for_stall(awake)
        self.seconds_waited += time.perf_counter() - start

    def meet(self) -> None:
        """Wait politely for all ranks, so that blocking calls after this find every rank there."""
        self.wait(self.comm.Ibarrier())

    def bcast(self, value: T) -> T:
        """Return the server's object on every rank. For start and end; never within a round."""
        self.meet()
        return self.comm.bcast(value, root=SERVER)

    def gather(self, value: T) -> list[T] | None:
        """Return every rank's object on the server. For start and end; never within a round."""
        self.meet()
        return self.comm.gather(value, root=SERVER)

    def on_server(self, work: Callable[[], T]) -> T:
        """Do `work` on the server; every rank gets its value, or the AgreedError for its error."""
        outcome: tuple[str, Any] = ("value", None)
        if self.is_server:
            try:
                outcome = ("value", work())
            except UserError as error:
                outcome = ("error", str(error))
            except MemoryError as error:
                outcome = ("error", f"not enough memory on {self.host}: {error}.")
            except OSError as error:  # of the user's files and folders, most likely
                where = f"{error.filename}: " if error.filename else ""
                outcome = ("error", f"{where}{error.strerror or error}.")
            except SystemExit as error:  # --help
                outcome = ("exit", error.code)
        kind, value = self.bcast(outcome)
        if kind == "error":
            raise AgreedError(value)
        if kind == "exit":
            sys.exit(value)
        return value

    def _look_for_stall(self, waited: float) -> None:
        """Answer the server's roll call; raise a StallError if this wait is over the limit."""
        if self.is_server:
            if waited > self.stall_timeout:
                raise self._stall(self._roll_call())
        elif self.comm.Iprobe(source=SERVER, tag=ROLL_CALL):
            self.comm.Recv(bytearray(0), source=SERVER, tag=ROLL_CALL)
            self.comm.Isend(b"", dest=SERVER, tag=PRESENT)
        elif waited > self.stall_timeout + 2 * GRACE:  # the server, if it is there, speaks first
            raise self._stall([SERVER])

    def _roll_call(self) -> list[int]:
        """Return the ranks that are not waiting, and so do not answer."""
        missing = set(range(self.size)) - {self.rank}
        for other in missing:
            self.comm.Isend(b"", dest=other, tag=ROLL_CALL)
        deadline = time.perf_counter() + GRACE
        status = MPI.Status()
        while missing and time.perf_counter() < deadline:
            if self.comm.Iprobe(tag=PRESENT, status=status):
                self.comm.Recv(bytearray(0), source=status.source, tag=PRESENT)
                missing.discard(status.source)
            else:
                time.sleep(LONGEST_SLEEP)
        return sorted(missing)

    def _stall(self, missing: list[int]) -> StallError:
        names = ", ".join(str(self.numbers[rank]) for rank in missing) or "none (all answered)"
        return StallError(
            f"no progress for {self.stall_timeout:g} s (--stall-timeout). Ranks missing from the "
            f"exchange: {names}. What was saved stands: go on with --resume."
        )
