"""Keys and masks on real ranks: a server and 3 owners, and all that can be wrong with one."""

import json
import shutil

import numpy as np
import pytest
from mpi4py import MPI
from runs import REPOSITORY

from fedmpi.mpi.ranks import AgreedError, Ranks
from fedmpi.privacy.keyfiles import make
from fedmpi.privacy.masks import Masks, Message

PROGRAM = REPOSITORY / "tests/helpers/agreeing.py"


@pytest.fixture
def told(mpirun, tmp_path):
    """Launch a case on 4 ranks: told("well", "none") -> what was printed, and each rank's file."""
    keys = tmp_path / "keys"
    for name in ("ash", "birch", "oak"):
        make(keys, name)
    for case in ("wrong", "missing", "swapped"):
        shutil.copytree(keys, tmp_path / f"keys-{case}")
    (tmp_path / "keys-wrong/birch.pub").unlink()
    shutil.copy(keys / "oak.key", tmp_path / "keys-wrong/birch.key")
    (tmp_path / "keys-missing/birch.key").unlink()
    shutil.copy(keys / "ash.pub", tmp_path / "keys-swapped/oak.pub")
    shutil.copy(keys / "oak.pub", tmp_path / "keys-swapped/ash.pub")

    def launch(case: str, folder: str, ranks: int = 4):
        done = mpirun(ranks, PROGRAM, case, folder)
        paths = [tmp_path / f"rank{rank}.json" for rank in range(ranks)]
        return done, [json.loads(path.read_text()) for path in paths if path.exists()]

    return launch


@pytest.mark.launch
@pytest.mark.parametrize("folder", ["none", "keys"])
def test_ranks_agree_and_masked_sums_are_the_plain_ones(told, folder):
    done, (server, *clients) = told("well", folder)
    assert done.returncode == 0, done.stderr
    assert all(rank["equal"] for rank in (server, *clients))
    assert [rank["same"] for rank in clients] == [0, 0, 0]
    assert [rank["neighbours"] for rank in (server, *clients)] == [[], [2, 3], [1, 3], [1, 2]]
    assert len({rank["fingerprint"] for rank in (server, *clients)}) == 1


@pytest.mark.launch
@pytest.mark.once
@pytest.mark.parametrize(
    ("case", "folder", "said"),
    [
        (
            "wrong",
            "keys",
            "rank 2 (birch) does not have the same keys as ranks 1, 3: its birch.key",
        ),
        ("missing", "keys", "rank 2 (birch): there is no keys-missing/birch.key. Make it with"),
        ("swapped", "keys", "rank 2 (birch) does not have the same keys as ranks 1, 3:"),
        ("name", "keys", "ranks 2 and 3 both say that they are oak"),
        ("without", "keys", "rank 2 (birch) has no --keys, but others have"),
        ("version", "none", "rank 2: the protocol of sums is 99, but 2 on rank 0."),
        ("between", "none", "rank 2: public keys or the name of the run are others than on rank 0"),
    ],
)
def test_a_mistake_on_one_rank_ends_all_with_one_line(told, case, folder, said):
    done, errors = told(case, folder)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("fedmpi:")]
    assert len(lines) == 1 and said in lines[0], done.stderr
    assert [error["kind"] for error in errors] == ["AgreedError"] * 4
    assert {f"fedmpi: {error['error']}" for error in errors} == set(lines)


@pytest.mark.launch
@pytest.mark.once
def test_ranks_on_a_circle_agree_with_their_neighbours_alone(told):
    done, (_, *clients) = told("circle", "none", 8)
    assert done.returncode == 0, done.stderr
    assert all(rank["equal"] and rank["same"] == 0 for rank in clients)
    joined = {number: rank["neighbours"] for number, rank in enumerate(clients, start=1)}
    assert all(len(others) == 4 for others in joined.values())
    assert all(number in joined[other] for number in joined for other in joined[number])


@pytest.mark.launch
def test_a_rank_with_a_false_proof_ends_whatever_the_server_says(told):
    done, ended = told("lying", "keys")
    assert done.returncode != 0 and "not have the same keys" in done.stderr
    assert ended and {rank.get("kind") for rank in ended} == {"UserError"}


@pytest.mark.mpi(min_size=3)
def test_masks_of_a_team_are_not_those_of_the_next():
    """Two agreements in one launch, as in a grid: the sums are right, the masks are others."""
    ranks = Ranks(MPI.COMM_WORLD)
    seen = []
    for _ in range(2):
        masks = Masks.agree(ranks, f"rank-{ranks.rank}")
        numbers = np.zeros(100, np.uint64) if ranks.is_server else np.arange(100, dtype=np.uint64)
        masks.add(numbers, 1, 0, Message.LOSSES)
        seen.append(numbers.copy())
        ranks.wait(ranks.Ireduce(numbers))
        if ranks.is_server:
            assert numbers.tolist() == [(ranks.size - 1) * i for i in range(100)]
    assert ranks.is_server or not np.any(seen[0] == seen[1])


@pytest.mark.mpi(min_size=3)
def test_one_client_rank_is_refused_on_all_ranks():
    ranks = Ranks(MPI.COMM_WORLD)
    team = ranks.first(2)
    if team:
        with pytest.raises(AgreedError, match="one client rank"):
            Masks.agree(team, f"rank-{team.rank}")
    ranks.meet()


def test_one_process_is_refused():
    with pytest.raises(AgreedError, match="one client rank"):
        Masks.agree(Ranks(MPI.COMM_SELF), "rank-0")
