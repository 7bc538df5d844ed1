"""The losses of all ranks and the server's answer, in memory that the ranks of one host share.

MPI's Ireduce and Ibcast go from rank to rank in a tree, and move on when the ranks in between look
at their messages. Ranks that outnumber the cores sleep meanwhile, or look often and burn what
others compute with. Here each rank writes its own line and the server reads all lines; the server
writes its answer and each rank reads it. So ranks can sleep until they are woken.

The server adds the lines from the first rank to the last: a run that is repeated on the same ranks
gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmpi.mpi.allreduce import Hierarchical
from fedmpi.mpi.flags import LINE, LONGEST_SLEEP, Flags, semaphores
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import SERVER


class Board:
    """Lines of `width` numbers: one of each rank, and the server's answer.

    Nobody may `tell` again before the server has read the lines (`told`), nor may the server
    `answer` again before all ranks have told again: a round, which ends with a sum, sees to both.
    """

    def __init__(self, sums: Hierarchical, width: int, dtype: str = "float64") -> None:
        """Share memory with all ranks of `sums`, which are of one host; all ranks call this.

        The ranks' lines are of `dtype`, the answer is always of float64.
        """
        self.ranks, node = sums.ranks, sums.node
        me, size = node.Get_rank(), node.Get_size()
        line = -(-8 * width // LINE) * LINE
        needed = (size + 1) * line + 2 * LINE * size
        self.window = MPI.Win.Allocate_shared(needed if me == SERVER else 0, 1, MPI.INFO_NULL, node)
        memory: Any = self.window.Shared_query(SERVER)[0]
        lines, flags, wakes = np.split(
            np.frombuffer(memory, dtype=np.uint8)[:needed],
            [(size + 1) * line, (size + 1) * line + LINE * size],
        )
        numbers = lines.view(np.float64).reshape(size + 1, -1)[:, :width]
        self.lines, self._answer = numbers[:size].view(dtype), numbers[size]
        raised = flags.view(np.int64).reshape(size, -1)
        woken_by = semaphores(wakes, me) if self.ranks.polite else None
        common = (self.window, self.ranks.comm, woken_by)
        self.told = Flags(raised[:, 0], *common, [SERVER])
        self.answered = Flags(raised[:1, 1], *common, range(size))
        if me == SERVER:
            raised[:] = 0
        self.window.Lock_all()
        self.window.Sync()
        self.ranks.meet()

    def sleep_until_woken(self, sums: Hierarchical) -> None:
        """Let ranks sleep for long, also in `sums`: no message needs them on its way."""
        for flags in (self.told, self.answered, *sums.flags):
            flags.longest_sleep = LONGEST_SLEEP

    def tell(self, numbers: np.ndarray) -> None:
        """Write this rank's line."""
        self.ranks.bytes_handed += numbers.nbytes
        self.lines[self.ranks.rank] = numbers
        self.told.raise_mine(self.ranks.rank)

    def total(self) -> np.ndarray:
        """Sum the lines of all ranks, once they have told."""
        return self.lines.sum(axis=0)

    def answer(self, numbers: np.ndarray | None) -> Flags:
        """Write the server's answer, and on all other ranks wait for it: by the flag returned."""
        if numbers is None:
            self.ranks.bytes_handed += 8 * len(self._answer)
            self.answered.goal += 1
        else:
            self.ranks.bytes_handed += numbers.nbytes
            self._answer[:] = numbers
            self.answered.raise_mine(SERVER)
        return self.answered

    def read(self, numbers: np.ndarray) -> None:
        """Copy the server's answer into `numbers`, once it has answered."""
        numbers[:] = self._answer

    def free(self) -> None:
        """Give the shared memory back, on all ranks."""
        self.ranks.meet()
        self.window.Unlock_all()
        self.window.Free()
