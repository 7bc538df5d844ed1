"""Choose a method's steps and parameters by cross-validation on the training rows.

    mpirun -n 3 python -m fedmpi.tune adult --method qfedavg
    mpirun -n 41 python -m fedmpi.tune adult --method fedminmax --lr-mu .01    # lr alone is tuned
    mpirun -n 82 python -m fedmpi.tune adult --method term --at-once 2         # two runs at a time
    python -m fedmpi.tune synthetic --method afl --grid lr=.05,.1 lr_mu=.1 --criterion average

Each configuration of the grid (the paper's, with --solver fast around its own steps, unless --grid
or an option says otherwise) is trained on two thirds of the training rows and validated on the
third, three times; the test rows have no part in tuning. The choice goes to tuned.json, which
fedmpi.train reads with --tuned. Stop the command when you like: started again, it goes on where it
was.
"""

from __future__ import annotations

import argparse
import copy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmpi.errors import UserError
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run, start

if TYPE_CHECKING:
    from fedmpi.federation.grid import Plan

CRITERIA = ("worst", "average")
DEFAULT_CLIENTS = 40
INSTEAD = {
    "--dataset": "name the dataset first, as in `tune adult`",
    "--fold": "use --folds",
    "--limit-test": "test rows have no part in tuning",
    "--tuned": "that is what comes out",
    "--resume": "it goes on by itself",
    "--on-client-failure": "a run of many ends with its ranks, and is tried again",
}


@dataclass
class Request:
    """The command line: what to tune, over which grid, and by which criterion."""

    options: argparse.Namespace
    criterion: str
    folds: int
    grid: dict[str, tuple[float, ...]]
    at_once: int
    output: Path


@dataclass
class Choice:
    """A point of the grid, and a run for each fold."""

    options: dict[str, Any]
    plans: list[Plan]


def main() -> int:
    world = start()
    request, choices = world.on_server(lambda: read_command_line(world))
    from fedmpi.federation.grid import run_grid

    plans = [plan for choice in choices for plan in choice.plans]
    run_grid(world, plans, request.options.progress, request.at_once)
    world.on_server(lambda: conclude(request, choices))
    return 0


def parser(method: str = "") -> argparse.ArgumentParser:
    """Parser of the options of tuning, and of those of fedmpi.train that hold for all runs."""
    from fedmpi.run.arguments import parser_of

    p = parser_of("python -m fedmpi.tune", __doc__ or "", INSTEAD, method)
    g = p.add_argument_group("tuning")
    g.add_argument(
        "--criterion",
        default="worst",
        help="the validation risk to be lowest: of the worst group, or the average (worst)",
    )
    g.add_argument("--folds", type=int, default=3, metavar="N", help="(3)")
    g.add_argument(
        "--grid",
        nargs="+",
        default=[],
        metavar="OPTION=V[,V...]",
        help="instead of the paper's values, as in lr=.01,.1 q=1,2",
    )
    g.add_argument(
        "--at-once",
        type=int,
        metavar="N",
        help="runs at a time, on as many teams of ranks (as many as can have a rank a client)",
    )
    g.add_argument("--output", metavar="DIR", help="(tuning/<dataset>-<setting>-<method>-s<seed>)")
    return p


def read_command_line(world: Ranks) -> tuple[Request, list[Choice]]:
    """Request of the user and points of the grid, each checked, and looked up on the disk."""
    from fedmpi.data.settings import canonical, in_a_path
    from fedmpi.federation.grid import look
    from fedmpi.run.arguments import method_in, short_name

    a = parser(method_in(sys.argv[1:])).parse_args(sys.argv[1:])
    a.fold = a.tuned = a.limit_test = None
    a.resume, a.on_client_failure = False, "end"
    a.setting = canonical(a.setting or "ESG")
    a.clients = a.clients or DEFAULT_CLIENTS
    given = {name: vars(a).pop(name) for name in ("criterion", "folds", "grid", "at_once")}
    if given["criterion"] not in CRITERIA:
        raise UserError(f"--criterion {given['criterion']}: must be worst or average.")
    if given["folds"] < 2:
        raise UserError(f"--folds {given['folds']}: must be at least 2.")
    at_once = given["at_once"]
    if at_once is None:
        at_once = max(1, world.size // (a.clients + 1))
    if at_once < 1:
        raise UserError(f"--at-once {at_once}: must be at least 1.")
    name = f"{short_name(a.dataset)}-{in_a_path(a.setting)}-{a.method.rpartition(':')[2]}-s{a.seed}"
    output = Path(a.output or f"tuning/{name}")
    grid = read_grid(a, given["grid"])
    request = Request(a, given["criterion"], given["folds"], grid, at_once, output)
    choices = plan_choices(request)
    for choice in choices:
        for plan in choice.plans:
            look(plan)
    return request, choices


def read_grid(a: argparse.Namespace, pairs: list[str]) -> dict[str, tuple[float, ...]]:
    """Values to try: those of --grid, or else those of `grid_of`.

    An option without a grid is tuned only if --grid gives it values.
    """
    from fedmpi import methods
    from fedmpi.run.tuned import tunable

    options = tunable(methods.find(a.method))
    grid = grid_of(a)
    for pair in pairs:
        name, _, values = pair.partition("=")
        name = name.replace("-", "_")
        if name not in options:
            allowed = ", ".join(options)
            raise UserError(f"--grid {pair}: {a.method} can be tuned over {allowed}.")
        if getattr(a, name) is not None:
            raise UserError(f"--grid {pair}: --{name.replace('_', '-')} is given, too.")
        kind = options[name].type
        try:
            grid[name] = tuple(dict.fromkeys(kind(value) for value in values.split(",")))
        except ValueError:
            raise UserError(f"--grid {pair}: give numbers, as in {name}=1,2.") from None
    if not grid:
        raise UserError("nothing is left to tune: leave out one of the options, or give --grid.")
    return grid


def grid_of(a: argparse.Namespace) -> dict[str, tuple[float, ...]]:
    """The method's own grids, the paper's, for the options that `a` leaves open.

    E is tuned for the methods that train local epochs by themselves. `--solver fast` has steps of
    its own, and so grids of its own: see fedmpi/run/solver.py.
    """
    from fedmpi import methods
    from fedmpi.run.arguments import resolve_options
    from fedmpi.run.solver import grid_for
    from fedmpi.run.tuned import tunable

    defaults = resolve_options(copy.deepcopy(a), 1, one_process=False)
    options = tunable(methods.find(a.method)).items()
    grid = {name: o.grid for name, o in options if o.grid and getattr(a, name, None) is None}
    return grid_for(defaults, grid)


def plan_choices(request: Request) -> list[Choice]:
    """Plan a run for every point of the grid and each fold."""
    from fedmpi.data.splits import model_selection

    values = {name: list(values) for name, values in request.grid.items()}
    points = ({n: point[n] for n in values} for point in model_selection().ParameterGrid(values))
    output = request.output / "runs"
    return [plan_folds(request.options, point, request.folds, output) for point in points]


def plan_folds(
    a: argparse.Namespace, options: dict[str, Any], folds: int, output: Path, title: str = ""
) -> Choice:
    """Plan a run for each fold with these `options`, in folders below `output`."""
    from fedmpi.federation.grid import Plan
    from fedmpi.run.arguments import resolve_options

    label = "-".join(f"{name}={value:g}" for name, value in options.items() if value is not None)
    plans = []
    for fold in range(1, folds + 1):
        b = copy.deepcopy(a)
        vars(b).update(options)
        b.fold = f"{fold}/{folds}"
        b.output = str(output / f"{label}-fold{fold}of{folds}")
        config = resolve_options(b, 1, one_process=False)
        plans.append(Plan(config, f"{title}{label} fold {b.fold}"))
    return Choice(options, plans)


def conclude(request: Request, choices: list[Choice]) -> None:
    """Rank the points, without those that failed, and write the best one; on the server."""
    from fedmpi.run.display import say
    from fedmpi.run.folder import RunFolder

    rows = [row_of(choice, request.criterion) for choice in choices]
    ranked = sorted((row for row in rows if row["risk"] is not None), key=lambda row: row["risk"])
    failed = [plan for choice in choices for plan in choice.plans if plan.failure]
    for plan in failed:
        say(f"FAILED {plan.title}: {plan.failure}")
    if not ranked:
        raise UserError(
            f"no point of the grid has all its {request.folds} folds: nothing to choose."
        )
    best, a = ranked[0], request.options
    folder = RunFolder(request.output)
    config = choices[0].plans[0].config
    folder.write_json(
        "tuned.json",
        {
            "dataset": a.dataset,
            "method": a.method,
            "setting": config.setting,
            "clients": config.clients,
            "seed": a.seed,
            "criterion": request.criterion,
            "folds": request.folds,
            "rounds": config.rounds,
            "options": {name: best[name] for name in request.grid},
            "risk": best["risk"],
            "std": best["std"],
            "failed": len(failed),
            "tried": [*ranked, *(row for row in rows if row["risk"] is None)],
        },
    )
    say(f"validation risk ({request.criterion}), mean over {request.folds} folds:")
    for row in ranked[:10]:
        point = "  ".join(f"{name} {row[name]:<6g}" for name in request.grid)
        say(f"  {row['risk']:.4f} ± {row['std']:.4f}  {point}")
    for name, values in request.grid.items():
        if len(values) > 1 and best[name] in (min(values), max(values)):
            say(f"note: the best {name}, {best[name]:g}, is at the edge of the grid")
    say(f"in {request.output}/tuned.json; use it with --tuned {request.output}/tuned.json")


def row_of(choice: Choice, criterion: str) -> dict:
    """Row of tuned.json for a point: the mean validation risk; None if a fold has failed."""
    import numpy as np

    records = [plan.record() for plan in choice.plans]
    risks = [r.result[f"{criterion}_risk"] for r in records if r]
    whole = len(risks) == len(choice.plans)
    return choice.options | {
        "risk": float(np.mean(risks)) if whole else None,
        "std": float(np.std(risks, ddof=1)) if whole else None,
        "folds": risks,
    }


if __name__ == "__main__":
    run(main)
