import os

from fedmpi.mpi.placement import SHOWN, Place, Placement, here


def test_ranks_bound_to_cores_of_their_own_are_told_from_those_that_share():
    bound = [Place("n1", 7, (0, 1), "cpu"), Place("n1", 8, (2, 3), "cpu")]
    shared = [Place("n2", 9, (0, 1), "cpu")] * 3
    assert Placement(bound + shared).lines() == [
        "n1: ranks 0-1 on cores 0-3, each on its own",
        "n2: ranks 2-4 on cores 0-1",
    ]
    assert Placement(bound).saved() == {
        "hosts": ["n1", "n1"],
        "cores": ["0-1", "2-3"],
        "devices": ["cpu", "cpu"],
    }


def test_gpus_are_named_and_many_hosts_are_not():
    places = [Place(f"n{k}", 1, (), f"cuda:{k % 2}") for k in range(SHOWN + 3)]
    lines = Placement(places).lines()
    assert lines[:2] == ["n0: rank 0; cuda:0", "n1: rank 1; cuda:1"]
    assert len(lines) == SHOWN + 1 and lines[-1].startswith("and 3 more hosts")


def test_this_process_is_here():
    place = here("n1", "cpu")
    assert place.pid == os.getpid() and set(place.cores) <= set(range(4096))
