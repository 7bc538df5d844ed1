"""Run methods, settings and steps on several layouts of one launch; write each theta into OUT.

mpirun -n 6 python tests/helpers/layouts.py OUT CSV ROUNDS quick|slow
"""

import sys
from pathlib import Path

from mpi4py import MPI
from runs import groups_for

from fedmpi import methods
from fedmpi.data.partition import SETTINGS
from fedmpi.data.settings import in_a_path
from fedmpi.federation.job import Job
from fedmpi.methods.adversary import ADVERSARIES
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run
from fedmpi.run.arguments import resolve

CLIENTS = 11
LAYOUTS = (1, 3, 6)
"""Numbers of ranks. Of 6, five share 11 clients. Each further rank would take a second to start,
and part in all runs."""
OPTIMIZERS = {"sgd": "", "nesterov": "", "adam": "--lr 0.02"}
STEPS = {
    f"{name}-{adversary}-{rows or 'all'}": f"--optimizer {name} --adversary {adversary} {lr}"
    + (f" --batch-rows {rows}" if rows else "")
    for name, lr in OPTIMIZERS.items()
    for adversary in ADVERSARIES
    for rows in (0, 37)
}
"""Options of the step of theta and of the adversary: of all rows, or of batches of 37."""
SOME, LAST = "nesterov-projected-37", list(STEPS)[-1]
OTHERS = ("dirichlet:0.3", "dirichlet-classes:0.3", "quantity:0.5", "by:h")
COHORTS = {"cohort": "--cohort 4"}
"""Only some clients take part in a round."""
OF_THE_PAPER = ("fedminmax", "centralized", "localfedminmax", "afl", "fedavg", "qfedavg", "term")
"""Methods in all settings; the others in PSG alone, where clients lack groups but share some."""
RUNS = [
    (method, setting, "")
    for method in methods.FILES
    for setting in (SETTINGS if method in OF_THE_PAPER else ("PSG",))
]
RUNS += [*(("fedminmax", setting, "") for setting in OTHERS), ("fedavg", OTHERS[0], "")]
RUNS += [(method, "PSG", steps) for steps in STEPS for method in ("fedminmax", "centralized")]
RUNS += [(method, "PSG", LAST) for method in ("afl", "localfedminmax")]
RUNS += [
    (m, "PSG", some) for some in COHORTS for m in methods.FILES if methods.find(m).under_cohorts
]
QUICK = [
    *((method, "PSG", "") for method in methods.FILES),
    *((method, setting, "") for method in ("fedminmax", "centralized") for setting in SETTINGS),
    *(("fedminmax", setting, "") for setting in (OTHERS[0], OTHERS[-1])),
    *((m, "PSG", some) for some in (SOME, LAST) for m in ("fedminmax", "centralized")),
    *((method, "PSG", "cohort") for method in ("fedminmax", "fedavg")),
]
"""Runs of the quick tests: each method once, and each kind of the others."""
RUNS_OF = {"quick": [r for r in RUNS if r in QUICK], "slow": [r for r in RUNS if r not in QUICK]}


def name_of(method: str, setting: str, steps: str, size: int) -> str:
    """Name of the folder of a run on `size` ranks."""
    return "-".join([method, in_a_path(setting), *([steps] if steps else []), str(size)])


def arguments(method: str, setting: str, steps: str, csv: str, rounds: str) -> list[str]:
    """Options of a small run with unequal shards, whose clients lack groups except in ESG."""
    local = ["--local-epochs", "2", "--batch-size", "10"]
    return [
        *("--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--drop", "h"),
        *(["--skew", "2"] if setting in SETTINGS else []),
        *("--method", method, "--setting", setting, "--clients", str(CLIENTS)),
        *("--rounds", rounds, "--dtype", "float64", "--progress", "none", "--seed", "3"),
        *(local if methods.find(method).trains_locally else ["--lr-mu", "0.1"]),
        *("--solver", "paper", "--model", "mlp", "--lr", "0.1", "--micro-batch", "50"),
        *("--metrics", "auc,calibration,odds"),
        *(STEPS | COHORTS).get(steps, "").split(),
        *groups_for(method),
    ]


def main() -> int:
    out, csv, rounds, which = sys.argv[1:]
    world = Ranks(MPI.COMM_WORLD)
    teams = {size: world.first(size) for size in LAYOUTS if size <= world.size}
    for what in RUNS_OF[which]:
        for size, team in teams.items():
            folder = Path(out) / name_of(*what, size)
            options = [*arguments(*what, csv, rounds), "--output", str(folder)]
            options += ["--data-dir", str(Path(out) / "data")]
            if methods.find(what[0]).single_client and size > 2:
                continue
            if team:
                config = resolve(options, max(1, size - 1), one_process=size == 1)
                Job(team, config).run()
            world.meet()
    return 0


if __name__ == "__main__":
    run(main)
