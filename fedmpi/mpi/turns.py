"""Numbered work that teams of ranks share: a team that is free takes the next number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import SERVER, Ranks


class Turns:
    """The numbers 0 … count - 1, of which each goes to the team that asks first.

    The ranks of one host share the memory of a counter. Over several hosts the counter's owner
    would have to answer while it computes; there team k of n takes the numbers k, k + n, k + 2n, …
    """

    def __init__(self, world: Ranks, team: Ranks, number: int, teams: int, count: int) -> None:
        """Share the counter; all ranks of `world` call this, with the number of their `team`."""
        self.team, self.number, self.teams, self.count = team, number, teams, count
        self.window: MPI.Win | None = None
        if teams > 1 and world.local_size == world.size:
            assert isinstance(world.comm, MPI.Intracomm)
            mine = 8 if world.is_server else 0
            self.window = MPI.Win.Allocate_shared(mine, 8, MPI.INFO_NULL, world.comm)
            memory: Any = self.window.Shared_query(SERVER)[0]
            self.counter = np.frombuffer(memory, np.int64)
            if world.is_server:
                self.counter[:] = 0
            # Once for all turns: to lock it for each takes an answer of a server that may compute.
            self.window.Lock_all()
            self.window.Sync()
            world.meet()

    def __iter__(self) -> Iterator[int]:
        """Yield this team's numbers, on all ranks of the team."""
        turn = self.number
        while True:
            if self.window:
                turn = self.team.bcast(self._add(1) if self.team.is_server else 0)
            if turn >= self.count:
                return
            yield turn
            turn += self.teams

    def stop(self) -> None:
        """Leave no number to the other teams of this host; all ranks of a team call this."""
        if self.window and self.team.is_server:
            self._add(self.count)

    def _add(self, number: int) -> int:
        """Add to the counter; return what it was."""
        assert self.window
        before = np.empty(1, np.int64)
        self.window.Fetch_and_op(np.array([number]), before, SERVER)
        self.window.Flush(SERVER)
        return int(before[0])

    def free(self) -> None:
        """Give the shared memory back, on all ranks of the world, once all teams are done."""
        if self.window:
            self.window.Unlock_all()
            self.window.Free()
