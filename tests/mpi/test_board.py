"""Flags, and what is told and answered in shared memory (mpirun -n 3 pytest --with-mpi)."""

from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

from fedmpi.mpi import flags
from fedmpi.mpi.allreduce import Hierarchical, hierarchical
from fedmpi.mpi.board import Board
from fedmpi.mpi.ranks import Ranks

pytestmark = pytest.mark.mpi(min_size=3)
ROUNDS, WIDTH = 30, 11


@pytest.fixture(params=[True, False], ids=["polite", "spinning"])
def sums(request) -> Iterator[Hierarchical]:
    ranks = Ranks(MPI.COMM_WORLD)
    ranks.polite = request.param
    made = hierarchical(ranks, 5, "float64")
    assert made
    yield made
    made.free()


def test_the_server_reads_what_all_tell_and_all_read_its_answer(sums):
    """The sum is that of numpy from the first rank to the last, bit for bit, whoever is late."""
    ranks = sums.ranks
    board = Board(sums, WIDTH)
    board.sleep_until_woken(sums)
    heard = np.empty(WIDTH)
    for t in range(ROUNDS):
        rng = np.random.default_rng(t)
        lines = rng.normal(size=(ranks.size, WIDTH)) * 10.0 ** rng.integers(-6, 6, (ranks.size, 1))
        if ranks.rank == t % ranks.size:
            ranks.wait(Late(3))
        board.tell(lines[ranks.rank])
        expected = np.zeros(WIDTH)
        for line in lines:
            expected += line
        if ranks.is_server:
            ranks.wait(board.told)
            assert np.array_equal(board.total(), expected)
        ranks.wait(board.answer(expected if ranks.is_server else None))
        board.read(heard)
        assert np.array_equal(heard, expected)
        sums.buffer[:] = ranks.rank
        sums.start()
        sums.finish()
        assert sums.buffer.tolist() == [sum(range(ranks.size))] * 5
    assert ranks.bytes_handed == ROUNDS * (2 * 8 * WIDTH + sums.buffer.nbytes)
    board.free()


class Late:
    """Something that is there after some looks at it."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def Test(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.mark.parametrize("sums", [True], indirect=True)
def test_a_rank_that_waits_is_woken_by_the_last_that_comes(sums, monkeypatch):
    """Without being woken it would sleep for hours."""
    board, ranks = Board(sums, 1), sums.ranks
    monkeypatch.setattr("fedmpi.mpi.board.LONGEST_SLEEP", 10_000.0)
    board.sleep_until_woken(sums)
    looks = []
    test = flags.Flags.Test
    monkeypatch.setattr(flags.Flags, "Test", lambda self: looks.append(1) or test(self))
    for t in range(10):
        if ranks.rank == 1 + t % (ranks.size - 1):  # the server sleeps, then all the others
            ranks.wait(Late(40))
        board.tell(np.ones(1))
        if ranks.is_server:
            ranks.wait(board.told)
        ranks.wait(board.answer(board.total() if ranks.is_server else None))
        sums.start()
        sums.finish()
    assert len(looks) < 10 * 4 * 4  # four waits a round at most, and a look or two more each
    board.free()
