"""Going on after ranks have died: the ranks that are left agree on it, and shrink to themselves.

After a death a collective of MPI's ends in an error on some ranks, well on others, and on some not
at all. So work is done `together`: a rank that sees an error revokes the communicator, which ends
the waits of all others; then all vote on whether everybody got through. This vote is MPI's
agreement, whose outcome is the same on every rank that is left. If the outcome is no, the ranks
shrink to those that are left, and do the same work again from the state in which it began.

This is User-Level Failure Mitigation, which Open MPI 5 has and MPICH has not. What a round does
without the clients of a dead rank is in federation/failures.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fedmpi.errors import UserError
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import FIRST_SLEEP, LONGEST_SLEEP, SERVER, AgreedError, Ranks, StallError
from fedmpi.mpi.start import end_without_finalize

T = TypeVar("T")

_KEPT: list[Any] = []
"""Memory of messages that a death cut off: MPI may still write there."""


def keep(memory: Any) -> None:
    """Keep `memory` until the process ends, since MPI may still write to it."""
    _KEPT.append(memory)


class Survivors:
    """The ranks of a job that are left, and how these ranks come to agree."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        ranks.posted = []
        end_without_finalize()

    def together(self, work: Callable[[], T], again: Callable[[list[int]], None]) -> T:
        """Return the value of `work` on every rank, once all ranks that are left have done it.

        After a death `again` puts everything back to where `work` begins, without the dead ranks,
        whose original numbers `again` is given. It may talk to the other ranks, and may be called
        again if another rank dies in it.
        """
        while True:
            value, agreed, failure = None, None, None
            try:
                value = work()
            except AgreedError as error:  # everybody's, if everybody got so far
                agreed = error
            except MPI.Exception as error:
                failure = error
            if self._all_well(failure):
                if agreed:
                    raise agreed
                return value  # type: ignore[return-value]
            self._recover(again, failure)

    def _recover(self, again: Callable[[list[int]], None], failure: MPI.Exception | None) -> None:
        dead: list[int] = []
        while True:
            newly = self._shrink()
            if failure and not newly:
                raise failure  # an error that no death explains
            dead, failure = dead + newly, None
            try:
                again(dead)
            except MPI.Exception as error:
                failure = error
            if self._all_well(failure):
                return

    def _all_well(self, failure: MPI.Exception | None) -> bool:
        """Return whether no rank has failed or died, the same on every rank that is left."""
        if failure:
            self.ranks.comm.Revoke()
        vote = np.array([failure is None], dtype=np.intc)
        try:
            self._wait(self.ranks.comm.Iagree(vote))
        except MPI.Exception:
            return False
        return bool(vote[0])

    def _wait(self, request: MPI.Request) -> None:
        """Wait as Ranks.wait does, which could not call the roll on a revoked communicator."""
        start, seconds = time.perf_counter(), FIRST_SLEEP
        while not request.Test():
            time.sleep(seconds if self.ranks.polite else 0)
            seconds = min(2 * seconds, LONGEST_SLEEP)
            if time.perf_counter() - start > self.ranks.stall_timeout:
                raise StallError(
                    f"no agreement for {self.ranks.stall_timeout:g} s (--stall-timeout) on who is "
                    "left. What was saved stands: go on with --resume."
                )

    def _shrink(self) -> list[int]:
        """Shrink to the surviving ranks; return the original numbers of the dead ones."""
        ranks, before = self.ranks, self.ranks.comm
        before.Revoke()
        keep(ranks.posted)
        comm = before.Shrink()
        comm.Set_errhandler(MPI.ERRORS_RETURN)  # to mpi4py: raise them
        places = list(range(comm.Get_size()))
        left = MPI.Group.Translate_ranks(comm.Get_group(), places, before.Get_group())
        dead = [n for place, n in enumerate(ranks.numbers) if place not in left]
        ranks.comm, ranks.rank, ranks.size = comm, comm.Get_rank(), comm.Get_size()
        ranks.numbers, ranks.posted = [ranks.numbers[place] for place in left], []
        if SERVER in dead:
            raise UserError(
                "rank 0, the server, has died, and nobody can go on without it. What was saved "
                "stands: go on with the same command and --resume."
            )
        if ranks.size == 1:
            raise UserError("no client rank is left. What was saved stands: go on with --resume.")
        return dead
