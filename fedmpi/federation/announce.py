"""Announcement of a run before its rounds: config.json, partition.npz, the first lines printed.

Rank 0 alone imports this module.
"""

from __future__ import annotations

import os
import platform
import sys

import mpi4py
import numpy as np
import torch

import fedmpi
from fedmpi.federation.plan import SPEED, Plan
from fedmpi.federation.server import Server
from fedmpi.mpi.init import MPI
from fedmpi.mpi.launcher import command_line
from fedmpi.mpi.placement import Placement
from fedmpi.run import lost_ranks
from fedmpi.run.config import IDENTITY
from fedmpi.run.display import facts, say
from fedmpi.run.lost_ranks import RANKS

SOLVED = {
    "fast": "solver fast: few and long steps; --solver paper has the fixed steps of Algorithm 1",
    "paper": "solver paper: the fixed steps of Algorithm 1; --solver fast needs far fewer rounds",
}


def announce(
    plan: Plan, server: Server, placement: Placement, device: str, reduction: str, done: int
) -> None:
    """Save and print what is about to run; `done` rounds of the run are behind it."""
    ranks, config = plan.ranks, plan.config
    model = server.model
    hosted: list[list[int]] = [[]] if ranks.size > 1 else []
    hosted += [mine.tolist() for mine in plan.allocation.assignment]
    processes = [(place.host, place.pid) for place in placement.places]
    plan.folder.write_json(RANKS, lost_ranks.where(processes, hosted, command_line(ranks.size)))
    settings = config.saved()
    server.measured |= {
        "micro_batch": config.micro_batch or 0,
        "hierarchical": int(reduction == "hierarchical"),
    }
    for kind, seconds in plan.sums.items():
        server.measured[f"seconds of a {kind} sum"] = seconds
    for rank, speed in zip(ranks.client_ranks, plan.speeds or (), strict=False):
        server.measured[f"{SPEED}{rank}"] = speed
    waiting = "polite" if ranks.polite else "spinning"
    layout = {
        "ranks": ranks.size,
        **placement.saved(),
        "clients_per_rank": [len(mine) for mine in plan.allocation.assignment],
        "device": device,
        "threads": ranks.threads,
        "waiting": waiting,
        "reduce": reduction,
    }
    extra = {
        "title": plan.method.title or type(plan.method).__name__,
        "parameters": model.size,
        "prepared": str(plan.prepared.folder),
        "notes": plan.notes,
        "scale": plan.prepared.scale,
        "layout": layout,
        "measured": server.measured,
        "versions": versions(),
        "command": sys.argv,
        IDENTITY: config.identity(),
    }
    plan.folder.write_json("config.json", settings | extra)
    partition = plan.whole
    shares, counts = partition.shares, partition.counts
    names = {"groups": partition.groups, "clients": partition.names}
    arrays = {kind: np.array(some, dtype=str) for kind, some in names.items()}
    plan.folder.write_npz("partition.npz", P_A=shares, counts=counts, **arrays)
    server.logs.start(settings)
    if plan.progress:
        return
    say(f"fedmpi {fedmpi.__version__}, {ranks.size} rank(s), {versions()['mpi']}")
    # The number of clients says what was counted, and a note what availability comes to.
    shown = settings | {"counted": None, "available": None}
    say(facts({k: v for k, v in shown.items() if v is not None and v is not False and v != ()}))
    say(
        f"  {model.size:,} parameters on {device}, {ranks.threads} thread(s) "
        f"a rank, {waiting} waits, {reduction} sums"
    )
    for line in placement.lines():
        say(f"  {line}")
    if plan.method.option("batch_rows") and not config.local_epochs:
        say(f"  {SOLVED[config.solver]}")
    for note in plan.notes:
        say(f"  note: {note}")
    if "PRTE_LAUNCHED" in os.environ:  # Open MPI's mpirun
        say("  note: on Ctrl-C and TERM this mpirun kills its ranks; USR1 saves and stops them")
    say(partition.summary())
    if done:
        say(f"going on after round {done} of {config.rounds}")
    for loss in plan.lost:
        say(f"  without {lost_ranks.clients_of([loss])}, lost in round {loss['last_round'] + 1}")


def versions() -> dict[str, str]:
    """Versions of everything the results may depend on."""
    vendor, number = MPI.get_vendor()
    return {
        "fedmpi": fedmpi.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "mpi4py": mpi4py.__version__,
        "mpi": f"{vendor} {'.'.join(map(str, number))}",
    }
