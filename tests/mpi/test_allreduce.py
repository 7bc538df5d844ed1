"""Sums within hosts first: on real ranks (mpirun -n 3 pytest --with-mpi), and the choice."""

import signal

import numpy as np
import pytest
from counted import job
from mpi4py import MPI
from runs import Run

from fedmpi.mpi import allreduce as module
from fedmpi.mpi.allreduce import Flat, Room, bytes_needed, choose, hierarchical, seconds_of_a_sum
from fedmpi.mpi.ranks import Ranks, Stopped

LENGTHS = (1, 2, 1001)
"""Shorter than the ranks are many, too: some then have no slice."""
HOSTS = {"one host": lambda rank: 0, "two": lambda rank: int(rank > 1), "each": lambda rank: rank}


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("cores", [1, 99])
def test_the_sum_is_that_of_iallreduce_round_after_round(hosts, cores):
    """With ranks that come late in turn; in float64 to 1e-12, and bit for bit when repeated.

    With one core there is one rank that adds, and the others sleep until they are woken.
    """
    ranks = Ranks(MPI.COMM_WORLD)
    ranks.cores, ranks.polite = cores, cores == 1
    rng = np.random.default_rng(ranks.rank)
    for length in LENGTHS:
        flat = Flat(ranks, np.zeros(length))
        first, again = (
            hierarchical(ranks, length, "float64", HOSTS[hosts](ranks.rank)) for _ in range(2)
        )
        assert first and again and not first.buffer.any()
        for t in range(12):
            values = rng.normal(size=length) * 10.0 ** rng.integers(-3, 3)
            for some in (flat, first, again):
                some.buffer[:] = values
                if ranks.rank == t % ranks.size:
                    ranks.wait(Late(3))
                some.start()
                some.finish()
            np.testing.assert_allclose(first.buffer, flat.buffer, rtol=1e-9, atol=1e-12)
            assert np.array_equal(first.buffer, again.buffer)
        ranks.meet()
        for some in (flat, first, again):
            some.free()


class Late:
    """Something that is there after some looks at it."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def Test(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("method", ["fedminmax", "term"])
def test_a_run_gives_the_theta_of_flat_sums(mpi_tmp_path, method, monkeypatch):
    """Also between hosts; TERM waits for its weights in the round, which must not be held up."""
    extra = ["--method", method, "--setting", "PSG"]
    extra += [] if method == "fedminmax" else ["--local-epochs", "1"]
    made = hierarchical
    kinds = ("flat", *["hierarchical"] * (method == "fedminmax"), "hosts")
    for name in kinds:
        if name == "hosts":
            monkeypatch.setattr(
                "fedmpi.federation.job.hierarchical",
                lambda ranks, *some: made(ranks, *some, host=int(ranks.rank > 1)),
            )
        reduce = ["--reduce", "flat" if name == "flat" else "hierarchical"]
        job(MPI.COMM_WORLD, mpi_tmp_path, f"{method}-{name}", *extra, *reduce)
    if MPI.COMM_WORLD.Get_rank() == 0:
        flat, *others = (Run(mpi_tmp_path / f"{method}-{name}") for name in kinds)
        for other in others:
            assert np.abs(other.theta() - flat.theta()).max() < 1e-9
            assert other.config["layout"]["reduce"] == "hierarchical"
        assert flat.config["layout"]["reduce"] == "flat"
    MPI.COMM_WORLD.Barrier()


@pytest.mark.mpi(min_size=3)
def test_a_run_goes_on_with_the_sums_that_it_had(mpi_tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("fedmpi.mpi.signals.asked", lambda: signal.SIGUSR1)
        job(MPI.COMM_WORLD, mpi_tmp_path, "run", "--reduce", "flat")
    job(MPI.COMM_WORLD, mpi_tmp_path, "run", "--resume", "--reduce", "auto")
    assert Run(mpi_tmp_path / "run").config["layout"]["reduce"] == "flat"
    job(MPI.COMM_WORLD, mpi_tmp_path, "new", "--reduce", "auto")
    assert Run(mpi_tmp_path / "new").config["layout"]["reduce"] == "hierarchical"


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("faster", ["flat", "hierarchical"])
def test_the_faster_sums_are_taken_and_kept(mpi_tmp_path, monkeypatch, faster):
    """As measured, whatever it is; a resume does not measure again."""
    measured = []

    def seconds(ranks, shared):
        real = seconds_of_a_sum(ranks, shared)
        assert set(real) == {"flat", "hierarchical"} and min(real.values()) > 0
        assert len(set(ranks.comm.allgather(tuple(real.values())))) == 1
        measured.append({kind: 0.25 if kind == faster else 0.5 for kind in real})
        return measured[-1]

    monkeypatch.setattr("fedmpi.federation.job.seconds_of_a_sum", seconds)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("fedmpi.mpi.signals.asked", lambda: signal.SIGUSR1)
        job(MPI.COMM_WORLD, mpi_tmp_path, "run", "--reduce", "measure")
    job(MPI.COMM_WORLD, mpi_tmp_path, "run", "--resume", "--reduce", "measure")
    job(MPI.COMM_WORLD, mpi_tmp_path, "flat", "--reduce", "flat")
    run, flat = (Run(mpi_tmp_path / name) for name in ("run", "flat"))
    assert len(measured) == 1 and run.config["layout"]["reduce"] == faster
    assert run.config["measured"][f"seconds of a {faster} sum"] == 0.25
    assert np.abs(run.theta() - flat.theta()).max() < 1e-9


@pytest.mark.mpi(min_size=3)
def test_without_a_shared_window_all_ranks_are_flat_and_say_so(mpi_tmp_path, monkeypatch):
    """One rank that cannot is enough."""
    ranks = Ranks(MPI.COMM_WORLD)
    real = module.Hierarchical._allocate

    def allocate(self, *some):
        real(self, *some)
        if ranks.rank == 2:
            raise MPI.Exception(MPI.ERR_WIN)

    monkeypatch.setattr(module.Hierarchical, "_allocate", allocate)
    assert hierarchical(ranks, 10, "float64") is None
    job(MPI.COMM_WORLD, mpi_tmp_path, "run", "--reduce", "hierarchical")
    config = Run(mpi_tmp_path / "run").config
    assert config["layout"]["reduce"] == "flat" and "sums are flat" in config["notes"][-1]


def rooms(ranks: int, hosts: int = 1, **changes: object) -> list[Room]:
    usual = Room(ranks, 1000 * ranks, 1 << 30, "cpu")
    return [usual._replace(**changes)] * (ranks * hosts)


def test_ranks_of_a_host_are_summed_there_first():
    assert choose("auto", rooms(2)) == ("hierarchical", "")
    assert choose("auto", rooms(1, hosts=9)) == ("flat", "")
    assert choose("auto", rooms(8, device="cuda:0")) == ("flat", "")
    assert choose("hierarchical", rooms(8, device="cuda:0")) == ("hierarchical", "")
    assert choose("flat", rooms(8)) == ("flat", "")
    assert choose("measure", rooms(2)) == ("measure", "")
    assert choose("measure", rooms(1, hosts=9)) == ("flat", "")
    assert choose("measure", rooms(8, device="cuda:0")) == ("flat", "")
    assert choose("auto", rooms(1)) == choose("hierarchical", rooms(1)) == ("flat", "")


def test_what_cannot_be_had_is_said():
    kind, why = choose("hierarchical", rooms(1, hosts=3))
    assert kind == "flat" and "one rank" in why
    for wanted in ("auto", "hierarchical", "measure"):
        kind, why = choose(wanted, rooms(8, needed=50 << 20, free=64 << 20))
        assert kind == "flat" and "need 50 MB" in why and "64 MB are free" in why


def test_the_first_rank_has_room_for_the_total_and_the_flags():
    one, first = (bytes_needed(1000, 8, 41, first=some) for some in (False, True))
    assert one >= 8000 and first >= 16000 + 3 * 41 * 8
