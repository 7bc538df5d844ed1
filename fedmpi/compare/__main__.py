"""Compare methods on datasets and settings: each tuned alike, several seeds, tests, ranks, costs.

    mpirun -n 3 python -m fedmpi.compare --datasets synthetic adult \\
        --methods fedminmax afl fedavg qfedavg --settings ESG PSG --output results/mine
    mpirun -n 3 python -m fedmpi.compare --datasets adult --no-tune --output results/defaults
    python -m fedmpi.compare --datasets csv:loans.csv --target paid --group sex
    python -m fedmpi.compare ... --output results/mine --tables-only     # from what is there

All runs are in this one launch. A launch can be stopped at any time: the same command goes on from
there, and trains nothing twice. Each method tries as many configurations (--budget) on folds of the
training rows; tuned.json has the choices. Results are in --output: overview, comparison, ranks and
choices as CSV, Markdown and LaTeX, ranks.svg, and files for fedmpi.report (docs/comparison.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedmpi.compare.launch import Program, launch
from fedmpi.compare.options import add_grid_options, take_grid_options
from fedmpi.errors import UserError
from fedmpi.mpi.start import run

if TYPE_CHECKING:
    from fedmpi.compare.plan import Cell, Request
    from fedmpi.compare.variants import Variant

CONTROL = "fedminmax"
INSTEAD = {
    "--dataset": "use --datasets",
    "--setting": "use --settings",
    "--method": "use --methods",
    "--seed": "use --seeds",
    "--resume": "it goes on by itself",
    "--on-client-failure": "a run of many ends with its ranks, and is tried again",
    "--fold": "use --folds",
    "--tuned": "it tunes by itself; --no-tune takes the defaults",
}


def main() -> int:
    return launch(Program(read, plan, write, ("overview.md", "ranks.md")))


def read() -> Request:
    return read_request(parser().parse_args(sys.argv[1:]))


def plan(request: Request) -> list[Cell]:
    from fedmpi.compare.plan import plan_cells

    return plan_cells(request)


def write(request: Request, cells: Sequence[Cell]) -> None:
    from fedmpi.compare.tables import write_results

    write_results(request, cells)


def parser() -> argparse.ArgumentParser:
    """Parser with the options of the comparison, and those of fedmpi.train that suit all runs."""
    from fedmpi.run.arguments import parser_without

    p = parser_without("python -m fedmpi.compare", __doc__ or "", INSTEAD)
    g = p.add_argument_group("the comparison")
    text = "names of `fedmpi.data list`, or csv:FILE"
    g.add_argument("--datasets", nargs="+", required=True, metavar="DATASET", help=text)
    text = f"method that the others are tested against ({CONTROL}, or the first)"
    g.add_argument("--against", metavar="METHOD", help=text)
    add_grid_options(p, "results/comparison", "all")
    return p


def read_request(a: argparse.Namespace) -> Request:
    """The checked request of a parsed command line."""
    from fedmpi.compare.plan import Request, bases_of
    from fedmpi.compare.variants import read_variant, unique
    from fedmpi.data.settings import canonical
    from fedmpi.methods import FILES
    from fedmpi.reproduce.statistics import method_order

    grid = take_grid_options(a, "datasets", "against")
    seeds = unique(grid.seeds or [0, 1, 2])
    if len(seeds) < 2:
        raise UserError(
            f"--seeds {' '.join(map(str, seeds))}: one seed says nothing of the others: give two "
            "or more, as 0 1 2."
        )
    names = grid.methods or sorted(FILES, key=method_order)
    variants = [read_variant(text) for text in unique(names)]
    return Request(
        bases=bases_of(a, unique(grid.datasets)),
        variants=variants,
        named=bool(grid.methods),
        settings=unique([canonical(name) for name in grid.settings or ()]),
        seeds=seeds,
        clients=a.clients,
        local_rounds=grid.local_rounds,
        criterion=grid.criterion,
        tune_by=grid.tune_by,
        budget=1 if grid.no_tune else grid.budget,
        folds=grid.folds,
        every_seed=grid.tune_every_seed,
        against=control(grid.against, variants),
        output=Path(grid.output),
        progress=a.progress,
        force=grid.force,
        tables_only=grid.tables_only,
        at_once=grid.at_once,
    )


def control(given: str | None, variants: list[Variant]) -> str:
    """The method that the others are tested against: as given, or FedMinMax, or the first."""
    federated = [v.text for v in variants if not v.method.single_client] or [variants[0].text]
    if given is None:
        return CONTROL if CONTROL in federated else federated[0]
    if given not in [v.text for v in variants]:
        raise UserError(f"--against {given}: must be one of --methods, {', '.join(federated)}.")
    return given


if __name__ == "__main__":
    run(main)
