"""pytest on one rank of many: rank 0 reports, the others write to LOGS/rank<i>.log.

mpirun -n 3 python launch/pytest_rank.py LOGS [pytest options]
"""

import os
import sys
import time

import pytest
from mpi4py import MPI


def main(logs: str, *options: str) -> None:
    rank = MPI.COMM_WORLD.rank
    if rank > 0:
        log = os.open(f"{logs}/rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.pop("FEDMPI_COUNTS", None)  # rank 0 counts for all
    # A cache of its own for each rank: they would write the same files at the same time.
    code = pytest.main([*options, "-o", f"cache_dir={logs}/cache{rank}"])
    sys.stdout.flush()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        # The other ranks may wait for this one in a collective, so they must be ended;
        # those that failed too get a moment to finish their report.
        time.sleep(2)
        MPI.COMM_WORLD.Abort(int(code))


main(*sys.argv[1:])
