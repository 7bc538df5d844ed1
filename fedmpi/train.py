"""Train one model that is fair to its worst-off group, over the ranks of an MPI job.

    mpirun -n 41 python -m fedmpi.train --dataset adult --setting PSG

Rank 0 is the server, ranks 1 to 40 hold a client each. With fewer ranks several clients share one,
and the result is the same:

    mpirun -n 3 python -m fedmpi.train --dataset adult --setting PSG --clients 40

One process does it all, without mpirun:

    python -m fedmpi.train --dataset adult --setting PSG

Your own data, whose groups are the combinations of two columns:

    mpirun -n 9 python -m fedmpi.train --dataset csv:loans.csv --target paid --group sex,region

Across nodes, with Open MPI and with MPICH:

    mpirun --hostfile hostfiles/openmpi.txt -n 41 python -m fedmpi.train --dataset adult
    mpirun -f hostfiles/mpich.txt -n 41 python -m fedmpi.train --dataset adult
"""

import math
import os
import sys

from fedmpi.ranks import MPI, AgreedError, Ranks, run


def main() -> int:
    world = Ranks(MPI.COMM_WORLD, stall_timeout=math.inf)
    # Before numpy and torch are imported: their thread pools read it once.
    os.environ.setdefault("OMP_NUM_THREADS", str(world.threads))
    config, finished, members = world.on_server(lambda: read_command_line(world))
    if not finished:
        ranks = world.first(members)  # spare ranks wait in the bcast below
        finished, error = train(ranks, config) if ranks else (None, None)
        error = world.bcast(error)
        if error:
            raise AgreedError(error)
    if world.is_server:
        from fedmpi.display import result_table, say

        say(result_table(finished))
        say(f"in {config.output}: {finished['seconds']:.1f} s of training")
    return 0


def read_command_line(world: Ranks):
    """The configuration, the result if that run is already finished, and the ranks it takes."""
    from fedmpi import methods
    from fedmpi.config import resolve
    from fedmpi.display import say
    from fedmpi.runfolder import RunFolder

    config = resolve(sys.argv[1:], len(world.client_ranks), one_process=world.size == 1)
    finished = None if config.force else RunFolder(config.output).finished(config.science())
    if finished:
        say(f"fedmpi: this run is already finished in {config.output} (--force runs it again)")
    members = 2 if methods.find(config.method).single_client else world.size
    return config, finished, members


def train(ranks: Ranks, config) -> tuple[dict | None, str | None]:
    """The result (on the server), or the line that says why there is none."""
    from fedmpi.job import Job  # torch is imported here, once the command line is known to be good

    try:
        return Job(ranks, config).run(), None
    except AgreedError as error:
        return None, str(error)


if __name__ == "__main__":
    run(main)
