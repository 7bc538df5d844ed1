"""Run the paper's experiments on a dataset, and compare tables and claims with the paper's.

    mpirun -n 41 python -m fedmpi.reproduce adult
    mpirun -n 3 python -m fedmpi.reproduce adult                    # the same, 40 virtual clients
    mpirun -n 3 python -m fedmpi.reproduce adult --solver paper     # with the paper's fixed steps
    mpirun -n 3 python -m fedmpi.reproduce synthetic --quick        # a first look, in minutes
    mpirun -n 3 python -m fedmpi.reproduce fashionmnist --methods fedminmax localfedminmax \\
        --clients 10 40
    python -m fedmpi.reproduce adult --tables-only                  # from the runs that are there

This is fedmpi.compare with the paper's methods: every method is tuned by the same budget on folds
of the training rows; then every method, setting and seed runs, in this one launch. A launch can be
stopped at any time: the same command goes on from there. Results are in results/<dataset>/: tables
as CSV, Markdown and LaTeX, claims.md and claims.json, tuned.json, and grid.json, all runs in one
small file for fedmpi.report. With --solver paper nothing is tuned, and results are in
results/paper-steps/<dataset>/, which the tables of results/<dataset>/ show beside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedmpi.compare.launch import Program, launch
from fedmpi.compare.options import add_grid_options, take_grid_options
from fedmpi.mpi.start import run

if TYPE_CHECKING:
    from fedmpi.compare.plan import Cell
    from fedmpi.reproduce.grid import Request

INSTEAD = {
    "--dataset": "name the dataset first, as in `reproduce adult`",
    "--setting": "use --settings",
    "--method": "use --methods",
    "--seed": "use --seeds",
    "--resume": "it goes on by itself",
    "--on-client-failure": "a run of many ends with its ranks, and is tried again",
    "--fold": "use --folds",
    "--tuned": "it tunes by itself; --no-tune takes the defaults",
}


def main() -> int:
    return launch(Program(read, plan, write, ("claims.md",)))


def parser() -> argparse.ArgumentParser:
    """Parser with the options of the grid, and those of fedmpi.train that suit a whole grid."""
    from fedmpi.run.arguments import parser_of

    p = parser_of("python -m fedmpi.reproduce", __doc__ or "", INSTEAD)
    add_grid_options(p, "results", "the paper's")
    g = p.add_argument_group("the paper")
    text = "(40); of several, the largest is that of the tables, and the others compare "
    text += "FedMinMax with LocalFedMinMax"
    g.add_argument("--clients", nargs="+", type=int, default=[40], metavar="K", help=text)
    text = "few rounds, one seed, nothing tuned, a folder apart"
    g.add_argument("--quick", action="store_true", help=text)
    return p


def read() -> Request:
    """The checked request of the command line."""
    from fedmpi.compare.plan import bases_of
    from fedmpi.compare.variants import read_variant, unique
    from fedmpi.data.settings import canonical
    from fedmpi.reproduce.grid import Request, control, folder_name, methods_of

    a = parser().parse_args(sys.argv[1:])
    grid = take_grid_options(a, "clients", "quick")
    names = unique(grid.methods or methods_of(a.dataset, a.solver))
    variants = [read_variant(name) for name in names]
    untuned = grid.quick or grid.no_tune or a.solver == "paper"
    return Request(
        bases=bases_of(a, [a.dataset]),
        variants=variants,
        named=bool(grid.methods),
        settings=unique([canonical(name) for name in grid.settings or ()]),
        seeds=unique(grid.seeds or ([0] if grid.quick else [0, 1, 2])),
        clients=max(grid.clients),
        fewer_clients=sorted({*grid.clients} - {max(grid.clients)}, reverse=True),
        local_rounds=grid.local_rounds,
        criterion=grid.criterion,
        tune_by=grid.tune_by,
        budget=1 if untuned else grid.budget,
        folds=grid.folds,
        every_seed=grid.tune_every_seed,
        against=control(variants),
        output=Path(grid.output) / folder_name(a.dataset, a.solver, grid.quick),
        progress=a.progress,
        force=grid.force,
        tables_only=grid.tables_only,
        at_once=grid.at_once,
        quick=grid.quick,
    )


def plan(request: Request) -> list[Cell]:
    from fedmpi.reproduce.grid import plan_grid

    return plan_grid(request)


def write(request: Request, cells: Sequence[Cell]) -> None:
    from fedmpi.reproduce.tables import write_results

    write_results(request, cells)


if __name__ == "__main__":
    run(main)
