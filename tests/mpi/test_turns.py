"""Each piece of work goes to one team (mpirun -n 3 pytest --with-mpi)."""

import itertools
import time

import pytest
from mpi4py import MPI

from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.turns import Turns

pytestmark = pytest.mark.mpi(min_size=3)
COUNT = 60


@pytest.mark.parametrize("hosts", [1, 2])
def test_each_number_goes_to_one_team(hosts):
    """Teams of one and two ranks; the second host of two is made up."""
    world = Ranks(MPI.COMM_WORLD)
    number = min(world.rank, 1)
    team = world.team(number)
    world.local_size = world.size if hosts == 1 else world.size - 1
    turns = Turns(world, team, number, 2, COUNT)
    assert (turns.window is None) == (hosts == 2)
    mine = list(turns)
    world.meet()
    turns.free()
    assert mine == team.bcast(mine)
    taken = world.comm.allgather(mine if team.is_server else [])
    assert sorted(itertools.chain(*taken)) == list(range(COUNT))


def test_after_a_stop_no_team_begins_anything():
    world = Ranks(MPI.COMM_WORLD)
    number = min(world.rank, 1)
    turns = Turns(world, world.team(number), number, 2, COUNT)
    first = next(iter(turns))
    world.meet()
    if number == 0:
        turns.stop()
    world.meet()
    assert first in (0, 1) and list(turns) == []
    turns.free()


def test_a_team_that_computes_does_not_keep_the_other_from_work():
    """The server, which has the counter, calls no MPI until all other numbers are taken."""
    world = Ranks(MPI.COMM_WORLD)
    number = min(world.rank, 1)
    team = world.team(number)
    turns = Turns(world, team, number, 2, COUNT)
    mine = []
    for turn in turns:
        mine.append(turn)
        until = time.monotonic() + 300
        while number == 0 and turns.counter[0] < COUNT and time.monotonic() < until:
            time.sleep(0.01)
    world.meet()
    turns.free()
    assert len(mine) <= 1 if number == 0 else len(mine) >= COUNT - 1
