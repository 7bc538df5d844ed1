"""Agree on masks on every rank of a mpirun, and sum masked numbers.

mpirun -n 4 python tests/helpers/agreeing.py CASE KEYS

KEYS is a folder of key files for ash, birch and oak, who are ranks 1, 2 and 3, or "none". CASE is
"well", "circle" (any number of ranks, of which not all pairs have masks), or what is wrong on rank
2; in "lying" the server says that nothing is. Each rank writes what it got to rank<i>.json, or the
error that ended it.
"""

import json
import sys
from pathlib import Path

import numpy as np

from fedmpi.errors import UserError
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run
from fedmpi.privacy import graph, versions
from fedmpi.privacy.keyfiles import KeyFolder
from fedmpi.privacy.masks import Masks, Message

NAMES = ("server", "ash", "birch", "oak")
LENGTH = 40_001


class Between:
    """Communicator on whose rank somebody changes a public key, and what was committed to it."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm

    def __getattr__(self, name: str):
        return getattr(self._comm, name)

    def allgather(self, value):
        values = self._comm.allgather(value)
        self.told = self.__dict__.get("told", self.introduction())
        values[1] = self.told.commitment if isinstance(value, bytes) else self.told
        return values

    def introduction(self):
        from fedmpi.privacy.agreement import Party

        return Party(1, NAMES[1]).introduction


def agree(case: str, keys: str, ranks: Ranks) -> Masks:
    name = NAMES[ranks.rank] if ranks.rank < len(NAMES) else f"rank-{ranks.rank}"
    wrong = ranks.rank == 2
    if case == "circle":
        graph.ALL_PAIRS = 4
    if ranks.is_server and case == "lying":
        ranks.on_server = lambda work: ranks.bcast(("value", None))
    if wrong and case == "version":
        versions.PROTOCOL = 99
    if wrong and case == "between":
        ranks.comm = Between(ranks.comm)
    if wrong and case == "name":
        name = "oak"
    if wrong and keys != "none":
        keys += {"lying": "-wrong"}.get(case, f"-{case}" if Path(f"{keys}-{case}").is_dir() else "")
    folder = None if keys == "none" or ranks.is_server else KeyFolder(keys)
    return Masks.agree(ranks, name, None if wrong and case == "without" else folder, "a run")


def main() -> None:
    case, keys = sys.argv[1:]
    ranks = Ranks(MPI.COMM_WORLD)
    told = Path(f"rank{ranks.rank}.json")
    try:
        masks = agree(case, keys, ranks)
    except UserError as error:
        told.write_text(json.dumps({"error": str(error), "kind": type(error).__name__}))
        raise
    own = np.random.default_rng(ranks.rank).integers(0, 2**64, LENGTH, dtype=np.uint64)
    numbers = np.zeros(LENGTH, np.uint64) if ranks.is_server else own.copy()
    masks.add(numbers, 1, 0, Message.CHANGES)
    same = int(np.sum(numbers == own))
    ranks.wait(ranks.Iallreduce(numbers))
    plain = np.zeros(LENGTH, np.uint64) if ranks.is_server else own
    ranks.wait(ranks.Iallreduce(plain))
    equal = bool(np.array_equal(numbers, plain))
    result = {"equal": equal, "same": same, "neighbours": masks.neighbours}
    told.write_text(json.dumps(result | {"fingerprint": masks.fingerprint}))


run(main)
