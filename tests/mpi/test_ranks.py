"""The communicator with manners, on real ranks (mpirun -n 3 pytest --with-mpi)."""

import os
import time

import numpy as np
import pytest
from mpi4py import MPI

import fedmpi.mpi.ranks
from fedmpi.errors import UserError
from fedmpi.mpi.ranks import AgreedError, Ranks


@pytest.fixture
def ranks() -> Ranks:
    return Ranks(MPI.COMM_WORLD)


def test_one_process_is_server_and_client():
    alone = Ranks(MPI.COMM_SELF)
    assert alone.is_server and alone.client_ranks == [0] and not alone.polite


def test_threads_follow_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert Ranks(MPI.COMM_SELF).threads == 7
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert Ranks(MPI.COMM_SELF).threads == len(os.sched_getaffinity(0))


@pytest.mark.mpi(min_size=3)
def test_teams_share_the_cores_of_a_node_and_those_that_are_left_over_need_none(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    world = Ranks(MPI.COMM_WORLD)
    world.cores = 2 * world.size
    team = world.team(world.rank)
    assert (team.size, team.cores, team.threads, team.polite) == (1, 2, 2, False)
    world.cores = 1
    assert world.team(world.rank).threads == 1
    world.cores = 8
    first = world.first(1)
    assert (first and first.cores) == (8 if world.rank == 0 else None)


@pytest.mark.mpi(min_size=3)
def test_the_collectives_do_what_they_are_named_after(ranks):
    me, size = ranks.rank, ranks.size
    summed = np.full(3, float(me))
    ranks.wait(ranks.Iallreduce(summed))
    assert summed.tolist() == [sum(range(size))] * 3

    at_server = np.full(2, me + 1.0)
    ranks.wait(ranks.Ireduce(at_server))
    expected = sum(range(1, size + 1)) if ranks.is_server else me + 1
    assert at_server.tolist() == [expected] * 2

    everywhere = np.full(2, 5.0 if ranks.is_server else 0.0)
    ranks.wait(ranks.Ibcast(everywhere))
    assert everywhere.tolist() == [5, 5]
    assert ranks.bytes_handed == 8 * (3 + 2 + 2)


@pytest.mark.mpi(min_size=3)
def test_parts_of_unequal_length_come_back_as_they_went(ranks):
    """Rank r has r numbers; the server has none."""
    counts = list(range(ranks.size)) if ranks.is_server else None
    whole = np.empty(sum(counts)) if counts else None
    part = np.arange(ranks.rank) + 10.0 * ranks.rank
    ranks.wait(ranks.Igatherv(part, whole, counts))
    if whole is not None:
        assert whole[:3].tolist() == [10, 20, 21]
        whole += 1
    back = np.empty(ranks.rank)
    ranks.wait(ranks.Iscatterv(whole, counts, back))
    assert np.array_equal(back, part + 1)


@pytest.mark.mpi(min_size=2)
def test_an_error_on_the_server_is_everybodys(ranks):
    def refuse():
        raise UserError("not like this")

    with pytest.raises(AgreedError, match="not like this"):
        ranks.on_server(refuse)
    assert ranks.on_server(lambda: 42) == 42
    with pytest.raises(SystemExit):
        ranks.on_server(lambda: exit(0))


@pytest.mark.mpi(min_size=3)
def test_spare_ranks_are_left_out(ranks):
    team = ranks.first(2)
    assert (team is None) == (ranks.rank >= 2)
    if team:
        assert team.size == 2 and team.client_ranks == [1]
    ranks.meet()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("polite", [True, False])
def test_a_polite_or_long_wait_leaves_the_core_alone(ranks, polite, monkeypatch):
    """CPU time, not wall time: the machine may be busy."""
    ranks.polite = polite
    monkeypatch.setattr(fedmpi.mpi.ranks, "LONG_WAIT", 0.1)
    ranks.meet()  # or a rank that comes late would not wait
    before, waited = time.process_time(), ranks.seconds_waited
    if ranks.is_server:
        time.sleep(1.5)
    ranks.meet()
    if not ranks.is_server:
        waited = ranks.seconds_waited - waited
        assert waited > 0.5
        assert time.process_time() - before < waited / 2


@pytest.mark.mpi(min_size=2)
def test_ranks_that_outnumber_cores_wait_politely(ranks):
    assert ranks.polite == (ranks.local_size > ranks.cores)
