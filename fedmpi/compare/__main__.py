"""Compare methods on datasets and settings: each tuned alike, several seeds, tests, ranks, costs.

    mpirun -n 3 python -m fedmpi.compare --datasets synthetic adult \\
        --methods fedminmax afl fedavg qfedavg --settings ESG PSG --output results/mine
    mpirun -n 3 python -m fedmpi.compare --datasets adult --no-tune --output results/defaults
    python -m fedmpi.compare --datasets csv:loans.csv --target paid --group sex
    python -m fedmpi.compare ... --output results/mine --tables-only     # from what is there

All runs are in this one launch. A launch can be stopped at any time: the same command goes on from
there, and trains nothing twice. Each method tries as many configurations (--budget) on folds of the
training rows; tuned.json has the choices. Results are in --output: comparison, ranks and choices as
CSV, Markdown and LaTeX, ranks.svg, and files for fedmpi.report. More: docs/comparison.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fedmpi.errors import UserError
from fedmpi.mpi.start import run, start
from fedmpi.tune import CRITERIA

if TYPE_CHECKING:
    from fedmpi.compare.plan import Cell, Request
    from fedmpi.compare.variants import Variant
    from fedmpi.federation.grid import Plan

BUDGET = 8
CONTROL = "fedminmax"
TABLES_EVERY = 60.0
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
    world = start()
    server = Server()
    folds, kind, at_once, tables_only = world.on_server(server.begin)
    from fedmpi.federation.grid import run_grid

    # What a broadcast returns is a copy, also on the server, whose cells have the plans themselves.
    if not tables_only:
        folds = server.folds if world.is_server else folds
        run_grid(world, folds, kind, at_once, after=server.drop_models)
    runs = world.on_server(server.choose)
    if not tables_only:
        runs = server.runs if world.is_server else runs
        run_grid(world, runs, kind, at_once, after=server.write_now_and_then)
    failed = world.on_server(server.conclude)
    return 1 if failed else 0


class Server:
    """What rank 0 alone knows: the request, its cells, and the files that are written."""

    request: Request
    cells: list[Cell]
    folds: list[Plan]
    with_models: list[Plan]
    """Folds whose models are still there."""
    runs: list[Plan]
    write_at: float

    def begin(self) -> tuple[list[Plan], str, int, bool]:
        """Read the command line; return the runs of folds, and how to run."""
        from fedmpi.compare.plan import plan_cells
        from fedmpi.compare.tuning import plan_tuning, read
        from fedmpi.run.display import say

        self.request = request = read_request(parser().parse_args(sys.argv[1:]))
        self.cells = plan_cells(request)
        self.write_at = time.monotonic() + TABLES_EVERY
        noted = read(request.output)
        self.folds = [plan for cell in self.cells for plan in plan_tuning(request, cell, noted)]
        runs = sum(len(cell.seeds) for cell in self.cells)
        self.with_models = list(self.folds)
        say(f"{runs} runs, after {len(self.folds)} runs of tuning: {request.tuning}")
        return self.folds, request.progress, request.at_once, request.tables_only

    def choose(self) -> list[Plan]:
        """Choose the options of each cell; return the runs with them."""
        from fedmpi.compare.plan import plan_runs
        from fedmpi.compare.tuning import choose

        self.drop_models()
        choose(self.request, self.cells)
        for cell in self.cells:
            if cell.chosen is not None:
                plan_runs(self.request, cell)
        self.runs = [plan for cell in self.cells for plan in cell.runs.values()]
        return self.runs

    def write(self) -> None:
        from fedmpi.compare.tables import write_results

        write_results(self.request, self.cells)

    def write_now_and_then(self) -> None:
        """Write all files, in at most a twentieth of the time: all ranks wait meanwhile."""
        began = time.monotonic()
        if began > self.write_at:
            self.write()
            ended = time.monotonic()
            self.write_at = ended + max(TABLES_EVERY, 20 * (ended - began))

    def drop_models(self) -> None:
        """Remove the models of folds that are done: nobody uses them, and they take gigabytes."""
        for plan in self.with_models:
            if plan.finished:
                (plan.folder / "model.pt").unlink(missing_ok=True)
        self.with_models = [plan for plan in self.with_models if not plan.finished]

    def conclude(self) -> int:
        """Write all files and the last lines; return the number of runs that failed."""
        from fedmpi.reproduce.gridfile import runs_of, write_grid
        from fedmpi.run.display import say

        output = self.request.output
        self.write()
        for dataset in self.request.bases:
            folder = self.request.folder(dataset)
            write_grid(folder, runs_of(folder))
        for name in ("comparison.md", "ranks.md"):
            say((output / name).read_text(encoding="utf-8"))
        untuned = [cell for cell in self.cells if cell.chosen is None]
        failed = [plan for plan in self.runs if plan.failure]
        for cell in untuned:
            say(f"NOT TUNED {cell.title}: {cell.failure or 'its folds are not run'}")
        for plan in failed:
            say(f"FAILED {plan.title}: {plan.failure}")
        finished = sum(plan.finished for plan in self.runs)
        total = sum(len(cell.seeds) for cell in self.cells)
        say(f"{finished} of {total} runs finished, {len(failed)} failed; in {output}")
        return len(failed) + sum(cell.failure is not None for cell in untuned)


def parser() -> argparse.ArgumentParser:
    """Parser with the options of the comparison, and those of fedmpi.train that suit all runs."""
    from fedmpi.methods import FILES
    from fedmpi.run.arguments import parser_without

    p = parser_without("python -m fedmpi.compare", __doc__ or "", INSTEAD)
    g = p.add_argument_group("the comparison")
    text = "names of `fedmpi.data list`, or csv:FILE"
    g.add_argument("--datasets", nargs="+", required=True, metavar="DATASET", help=text)
    text = f"of {', '.join(FILES)}; with options of its own as in qfedavg,q=5 (all)"
    g.add_argument("--methods", nargs="+", metavar="METHOD", help=text)
    text = "who holds which rows, as ESG, dirichlet:.3, by:COLUMN (ESG PSG SSG)"
    g.add_argument("--settings", nargs="+", metavar="SETTING", help=text)
    g.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="(0 1 2)")
    text = f"method that the others are tested against ({CONTROL}, or the first)"
    g.add_argument("--against", metavar="METHOD", help=text)
    g.add_argument("--local-rounds", type=int, metavar="T", help="of methods with local epochs")
    g.add_argument("--output", default="results/comparison", metavar="DIR", help="(%(default)s)")
    g.add_argument("--force", action="store_true", help="replace runs of other configurations")
    g.add_argument("--tables-only", action="store_true", help="run nothing")
    g.add_argument("--at-once", type=int, default=1, metavar="N", help="runs at a time (1)")
    g = p.add_argument_group("tuning")
    text = f"configurations that each method tries, its defaults among them ({BUDGET})"
    g.add_argument("--budget", type=int, default=BUDGET, metavar="N", help=text)
    g.add_argument("--no-tune", action="store_true", help="take the defaults of all methods")
    g.add_argument("--folds", type=int, default=3, metavar="N", help="(3)")
    text = "the risk to be lowest, in tuning and ranks: of the worst group, or the average (worst)"
    g.add_argument("--criterion", default="worst", help=text)
    text = "choose for each seed by itself, not by the first for all"
    g.add_argument("--tune-every-seed", action="store_true", help=text)
    return p


OF_THE_COMPARISON = (
    *("datasets", "methods", "settings", "seeds", "against", "local_rounds", "output", "force"),
    *("tables_only", "at_once", "budget", "no_tune", "folds", "criterion", "tune_every_seed"),
)


def read_request(a: argparse.Namespace) -> Request:
    """The checked request of a parsed command line."""
    from fedmpi.compare.plan import Request, bases_of
    from fedmpi.compare.variants import read_variant, unique
    from fedmpi.data.settings import canonical
    from fedmpi.methods import FILES, all_options
    from fedmpi.reproduce.statistics import method_order

    given = argparse.Namespace(**{name: vars(a).pop(name) for name in OF_THE_COMPARISON})
    for name in all_options():  # bgl has a --budget, too, which a variant can still set
        vars(a).setdefault(name, None)
    a.method = a.setting = a.seed = a.fold = a.tuned = a.output = None
    a.resume, a.force, a.on_client_failure = False, False, "end"
    seeds = unique(given.seeds)
    if len(seeds) < 2:
        raise UserError(
            f"--seeds {' '.join(map(str, seeds))}: one seed says nothing of the others: give two "
            "or more, as 0 1 2."
        )
    if given.criterion not in CRITERIA:
        raise UserError(f"--criterion {given.criterion}: must be {' or '.join(CRITERIA)}.")
    for name, least in {"budget": 1, "folds": 2, "at_once": 1}.items():
        if getattr(given, name) < least:
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} {getattr(given, name)}: must be at least {least}.")
    names = given.methods or sorted(FILES, key=method_order)
    variants = [read_variant(text) for text in unique(names)]
    return Request(
        bases=bases_of(a, unique(given.datasets)),
        variants=variants,
        named=bool(given.methods),
        settings=unique([canonical(name) for name in given.settings or ()]),
        seeds=seeds,
        clients=a.clients,
        local_rounds=given.local_rounds,
        criterion=given.criterion,
        budget=1 if given.no_tune else given.budget,
        folds=given.folds,
        every_seed=given.tune_every_seed,
        against=control(given.against, variants),
        output=Path(given.output),
        progress=a.progress,
        force=given.force,
        tables_only=given.tables_only,
        at_once=given.at_once,
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
