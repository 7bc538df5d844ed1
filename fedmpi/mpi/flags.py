"""Flags that the ranks of a host raise in memory they share, and how a rank sleeps until then.

A rank that looks every millisecond whether the others are done takes 30 microseconds of CPU a look:
at 41 ranks on two cores that was over a third of a short round. So whoever raises the last flag
wakes the ranks that wait for it, by POSIX semaphores in the same memory. Without semaphores ranks
look, as they do for messages.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Iterable

import numpy as np

from fedmpi.mpi.init import MPI

LINE = 64
"""Bytes of a cache line: no two ranks write to the same line. A semaphore takes half a line."""
LONGEST_SLEEP = 0.004
"""Seconds after which a rank looks though nobody has woken it: a rank may have died, or call. With
50 ms a short round took a fifth to a third longer on a busy machine; with 2 to 8 it did not."""


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Semaphores:
    """A semaphore for each rank of a host, a line of the memory each, on which that rank sleeps."""

    def __init__(self, memory: np.ndarray, me: int) -> None:
        self._c = ctypes.CDLL(None)
        address, lines = memory.ctypes.data, memory.nbytes // LINE
        self._all = [ctypes.c_void_p(address + LINE * place) for place in range(lines)]
        self._me, self._mine = me, self._all[me]
        self.work = self._c.sem_init(self._mine, 1, 0) == 0
        """Whether this rank can sleep on its semaphore."""

    def sleep(self, seconds: float) -> None:
        """Sleep until another rank wakes this one, but no longer than `seconds`."""
        until = _Time(*divmod(time.time_ns() + int(seconds * 1e9), 10**9))
        self._c.sem_timedwait(self._mine, ctypes.byref(until))
        while self._c.sem_trywait(self._mine) == 0:
            pass  # what woke it before is over: one look tells

    def wake(self, places: Iterable[int]) -> None:
        """Wake the other ranks at `places`; one that is awake will not fall asleep next time."""
        for place in places:
            if place != self._me:
                self._c.sem_post(self._all[place])


def semaphores(memory: np.ndarray, me: int) -> Semaphores | None:
    """Return semaphores in `memory`, which is 0 at first; None where the system has none."""
    made = Semaphores(memory, me) if sys.platform == "linux" else None
    return made if made and made.work else None


class Flags:
    """Numbers that ranks raise in shared memory; for `Ranks.wait` they are a request like MPI's."""

    def __init__(
        self,
        numbers: np.ndarray,
        window: MPI.Win,
        comm: MPI.Comm,
        semaphores: Semaphores | None = None,
        waiters: Iterable[int] = (),
    ) -> None:
        """`waiters` are the places of the ranks that wait for these flags, and are woken."""
        self.numbers, self.window, self.comm = numbers, window, comm
        self.semaphores, self.waiters = semaphores, waiters
        self.longest_sleep = 0.0
        """Seconds that a rank may sleep unless it is woken: more, where no message needs it."""
        self.goal = 0

    def raise_mine(self, place: int) -> None:
        """Raise this rank's flag: other ranks of the host then see what this one has written."""
        self.goal += 1
        self.window.Sync()
        self.numbers[place] = self.goal
        if self.semaphores:
            self.window.Sync()  # of two ranks that come last, one at least must see both flags
            if self.numbers.min() >= self.goal:
                self.semaphores.wake(self.waiters)

    def Test(self) -> bool:
        """Return whether all flags are raised, so that what their ranks wrote can be read."""
        # Messages that are on their way through this rank need a call of MPI's to move on.
        self.comm.Iprobe(tag=0)
        if self.numbers.min() < self.goal:
            return False
        self.window.Sync()
        return True

    def sleep(self, seconds: float) -> None:
        """Sleep until the last flag is raised, but not for long; `seconds`, if nobody wakes us."""
        if self.semaphores:
            self.semaphores.sleep(max(seconds, self.longest_sleep))
        else:
            time.sleep(seconds)
