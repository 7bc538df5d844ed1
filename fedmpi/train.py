"""Train one model that is fair to the worst-off group, over the ranks of an MPI job.

    mpirun -n 41 python -m fedmpi.train --dataset adult --setting PSG

Rank 0 is the server, ranks 1 to 40 hold a client each. With fewer ranks several clients share a
rank, and the result is the same:

    mpirun -n 3 python -m fedmpi.train --dataset adult --setting PSG --clients 40

One process does the whole run, without mpirun:

    python -m fedmpi.train --dataset adult --setting PSG

Your own data, whose groups are the combinations of two columns:

    mpirun -n 9 python -m fedmpi.train --dataset csv:loans.csv --target paid --group sex,region

Data of several owners in one file, and data that stay with the owners, each file DIR/<owner>.csv
read by a rank of its own:

    mpirun -n 9 python -m fedmpi.train --dataset csv:loans.csv --client bank --target paid ...
    mpirun -n 9 python -m fedmpi.train --dataset csv:banks/ --target paid --group sex

With Open MPI 5, going on without the clients of a rank that dies (docs/survival.md):

    mpirun --with-ft ulfm -n 6 python -m fedmpi.train --dataset adult --on-client-failure continue

The same from Python, without mpirun or in a script under mpirun (docs/python.md):

    run = fedmpi.train("adult", setting="PSG", solver="fast")

Across nodes, with Open MPI and with MPICH:

    mpirun --hostfile hostfiles/openmpi.txt -n 41 python -m fedmpi.train --dataset adult
    mpirun -f hostfiles/mpich.txt -n 41 python -m fedmpi.train --dataset adult
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

# MPI starts when fedmpi.mpi is imported. So that is left to the functions: fedmpi.train is also a
# name of the Python interface, and to look at it must start nothing.
if TYPE_CHECKING:
    from fedmpi.interface.run import Run
    from fedmpi.mpi.ranks import AgreedError, Ranks
    from fedmpi.run.config import Config


def main() -> int:
    from fedmpi.mpi.start import start

    world = start()
    config = world.on_server(lambda: read_command_line(world))
    finished = carry_out(world, config)
    if world.is_server:
        from fedmpi.run.display import personal_table, result_table, say, validated

        assert finished
        say(result_table(finished))
        if "validation" in finished:
            say(validated(finished, config.rounds))
        if "personal" in finished:
            say(personal_table(finished["personal"]))
        say(f"in {config.output}: {finished['seconds']:.1f} s of training")
    return 0


def read_command_line(world: Ranks) -> Config:
    """Configuration of the run, from the command line."""
    from fedmpi.run.arguments import resolve

    config = resolve(sys.argv[1:], len(world.client_ranks), one_process=world.size == 1)
    check_ranks(world, config)
    return config


def check_ranks(world: Ranks, config: Config) -> None:
    """Raise a UserError for a configuration that these ranks cannot run."""
    from fedmpi import methods

    if config.on_client_failure != "end":
        from fedmpi.federation.failures import refuse

        refuse(config, methods.find(config.method).single_client, world)


def carry_out(world: Ranks, config: Config, quiet: bool = False) -> dict | None:
    """Train, unless this run is finished already; return the result, on the server.

    With `quiet` nothing is printed but what --progress asks for.
    """
    from fedmpi.mpi import signals

    if config.dataset.endswith("/"):
        from fedmpi.data.owners import fingerprint

        config = config.replace(data=fingerprint(world, config))
    finished, members = world.on_server(lambda: look_for_result(world, config, quiet))
    if not finished:
        ranks = world.first(members)  # spare ranks wait in the bcast below
        if not ranks:
            signals.wait_for_the_round()
        finished, error = train(ranks, config, quiet) if ranks else (None, None)
        if ranks is not world:
            error = world.bcast(error)
        if error:
            raise error
    return finished


def look_for_result(world: Ranks, config: Config, quiet: bool) -> tuple[dict | None, int]:
    """Result, if this run is already finished, else None; and the number of ranks of the run."""
    from fedmpi import methods
    from fedmpi.run.display import say
    from fedmpi.run.folder import RunFolder

    finished = None if config.force else RunFolder(config.output).finished(config.identity())
    if finished and not quiet:
        say(f"fedmpi: this run is already finished in {config.output} (--force runs it again)")
    members = 2 if methods.find(config.method).single_client else world.size
    return finished, members


def train(ranks: Ranks, config: Config, quiet: bool) -> tuple[dict | None, AgreedError | None]:
    """Train; return the result (on the server), or the error that says why there is none."""
    from fedmpi.federation.job import (
        Job,  # torch is imported here, once the command line is known to be good
    )
    from fedmpi.mpi.ranks import AgreedError

    progress = None
    if quiet and ranks.is_server:
        from fedmpi.run.display import Progress

        progress = Progress(config.progress, config.rounds)
    try:
        return Job(ranks, config, progress).run(), None
    except AgreedError as error:
        return None, error
    finally:
        if progress:
            progress.close()


class CallableModule(ModuleType):
    """This module as the function fedmpi.train of the Python interface."""

    def __call__(self, dataset: Any, method: Any = "fedminmax", **options: Any) -> Run | None:
        from fedmpi.interface.training import train

        return train(dataset, method, **options)


if __name__ == "__main__":
    from fedmpi.mpi.start import run

    run(main)
else:
    sys.modules[__name__].__class__ = CallableModule
