"""Run the paper's experiments on a dataset, and compare tables and claims with the paper's.

    mpirun -n 41 python -m fedmpi.reproduce adult
    mpirun -n 3 python -m fedmpi.reproduce adult                    # the same, 40 virtual clients
    mpirun -n 3 python -m fedmpi.reproduce synthetic --quick        # a first look, in minutes
    mpirun -n 3 python -m fedmpi.reproduce fashionmnist --methods fedminmax localfedminmax \\
        --clients 10 40
    python -m fedmpi.reproduce adult --tables-only                  # from the runs that are there

Every method, setting and seed runs in this one launch. A launch can be stopped at any time: the
same command goes on from there. Results are in results/<dataset>/: tables as CSV, Markdown and
LaTeX, claims.md and claims.json, and grid.json, all runs in one small file for fedmpi.report. The
runs themselves are in results/<dataset>/runs/.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedmpi.errors import UserError
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run, start

if TYPE_CHECKING:
    from fedmpi.compare.variants import Variant
    from fedmpi.federation.grid import Plan

VARIANTS = {"term": ("term", "term,tilt-level=sample")}
"""Methods that are run more than once: what TERM's t tilts the paper does not say."""
EXTRA = {"synthetic": ("qfedavg,q=5",)}
"""Variants that the paper's table of a dataset has beside the methods."""
LOCAL_GLOBAL = ("fedminmax", "localfedminmax")
TABLES_EVERY = 60.0
QUICK_ROWS = 4000
"""Images to train and to test on in a quick look: an image costs as much as a thousand people."""


@dataclass
class Request:
    """The command line: the grid, and the options of fedmpi.train for every run of the grid."""

    options: argparse.Namespace
    methods: list[str]
    settings: list[str]
    seeds: list[int]
    clients: list[int]
    output: Path
    """The folder of this dataset's results."""
    quick: bool
    tables_only: bool
    at_once: int


def main() -> int:
    world = start()
    request, plans = world.on_server(lambda: read_command_line(world))
    from fedmpi.federation.grid import run_grid

    def write() -> None:
        from fedmpi.reproduce.tables import write_results

        write_results(request.output, plans, request.quick)

    written = time.monotonic()

    def write_now_and_then() -> None:
        nonlocal written
        if time.monotonic() - written > TABLES_EVERY:
            write()
            written = time.monotonic()

    if not request.tables_only:
        kind, at_once = request.options.progress, request.at_once
        run_grid(world, plans, kind, at_once, after=write_now_and_then)
    failed = world.on_server(lambda: conclude(request, plans, write))
    return 1 if failed else 0


def conclude(request: Request, plans: list[Plan], write: Callable[[], None]) -> int:
    """Write all files and the last lines, on the server; return the number of runs that failed."""
    from fedmpi.reproduce.gridfile import runs_of, write_grid
    from fedmpi.run.display import say

    write()
    write_grid(request.output, runs_of(request.output))
    say((request.output / "claims.md").read_text(encoding="utf-8"))
    failed = [plan for plan in plans if plan.failure]
    for plan in failed:
        say(f"FAILED {plan.title}: {plan.failure}")
    finished = sum(plan.finished for plan in plans)
    say(f"{finished} of {len(plans)} runs finished, {len(failed)} failed; in {request.output}")
    return len(failed)


INSTEAD = {
    "--dataset": "name the dataset first, as in `reproduce adult`",
    "--setting": "use --settings",
    "--method": "use --methods",
    "--seed": "use --seeds",
    "--resume": "it goes on by itself",
    "--on-client-failure": "a run of many ends with its ranks, and is tried again",
    "--fold": "that is for fedmpi.tune",
}


def parser() -> argparse.ArgumentParser:
    """Parser with the options of the grid, and those of fedmpi.train that suit a whole grid."""
    from fedmpi.methods import FILES
    from fedmpi.run.arguments import parser_of

    p = parser_of("python -m fedmpi.reproduce", __doc__, INSTEAD)
    g = p.add_argument_group("the grid")
    g.add_argument(
        "--methods",
        nargs="+",
        metavar="METHOD",
        help=f"of {', '.join(FILES)}; with options of its own as in qfedavg,q=5 (the paper's)",
    )
    g.add_argument(
        "--settings",
        nargs="+",
        metavar="SETTING",
        help="of ESG, SSG, PSG (all), dirichlet:.3 or another",
    )
    g.add_argument("--seeds", nargs="+", type=int, help="(0 1 2)")
    g.add_argument(
        "--clients",
        nargs="+",
        type=int,
        default=[40],
        metavar="K",
        help="(40); of several, the largest is that of the tables, and the others compare "
        "FedMinMax with LocalFedMinMax",
    )
    g.add_argument("--local-rounds", type=int, metavar="T", help="of methods with local epochs")
    g.add_argument("--tuned", nargs="+", default=[], metavar="FILE", help="what fedmpi.tune chose")
    g.add_argument("--output", default="results", metavar="DIR", help="(results)")
    g.add_argument("--quick", action="store_true", help="few rounds, one seed, a folder apart")
    g.add_argument("--tables-only", action="store_true", help="run nothing")
    g.add_argument("--at-once", type=int, default=1, metavar="N", help="runs at a time (1)")
    return p


OF_THE_GRID = (
    *("methods", "settings", "seeds", "clients", "local_rounds", "tuned", "output"),
    *("quick", "tables_only", "at_once"),
)


def read_command_line(world: Ranks) -> tuple[Request, list[Plan]]:
    """The request and its runs; each run is checked, and looked for on the disk."""
    from fedmpi.compare.variants import unique
    from fedmpi.data.settings import canonical
    from fedmpi.federation.grid import look
    from fedmpi.run.arguments import short_name

    a = parser().parse_args(sys.argv[1:])
    grid = {name: vars(a).pop(name) for name in OF_THE_GRID}
    a.setting = a.method = a.seed = a.fold = None
    a.resume, a.on_client_failure = False, "end"
    quick = grid["quick"]
    request = Request(
        options=a,
        methods=unique(grid["methods"] or methods_of(a.dataset)),
        settings=unique([canonical(name) for name in grid["settings"] or settings_of(a)]),
        seeds=unique(grid["seeds"] or ([0] if quick else [0, 1, 2])),
        clients=unique(grid["clients"]),
        output=Path(grid["output"]) / (short_name(a.dataset) + ("-quick" if quick else "")),
        quick=quick,
        tables_only=grid["tables_only"],
        at_once=grid["at_once"],
    )
    if request.at_once < 1:
        raise UserError(f"--at-once {request.at_once}: must be at least 1.")
    tuned = tuned_files(grid["tuned"], request)
    plans = plan_grid(request, tuned, grid["local_rounds"])
    for plan in plans:
        look(plan)
    return request, plans


def methods_of(dataset: str) -> list[str]:
    """Methods of the paper's tables, in their order, and what the dataset's table adds."""
    from fedmpi.reproduce.statistics import PAPER

    found = [variant for name in PAPER for variant in VARIANTS.get(name, (name,))]
    return [*found, *EXTRA.get(dataset, ())]


def settings_of(a: argparse.Namespace) -> tuple[str, ...]:
    """All settings, but without PSG for two groups, on which PSG is the same as SSG."""
    from fedmpi.compare.variants import groups_of
    from fedmpi.reproduce.statistics import SETTINGS

    return SETTINGS if len(groups_of(a)) > 2 else SETTINGS[:2]


def tuned_files(paths: list[str], request: Request) -> dict[str, str]:
    """Path of the tuned.json of each method that has one."""
    from fedmpi.run.tuned import read_tuned

    files: dict[str, str] = {}
    names = {name.partition(",")[0] for name in request.methods}
    for path in paths:
        method = read_tuned(Path(path))["method"]
        if method not in names or method in files:
            what = "a second file of" if method in files else "of another method,"
            raise UserError(f"--tuned {path} is {what} {method}; the grid has {', '.join(names)}.")
        files[method] = path
    return files


def plan_grid(request: Request, tuned: dict[str, str], local_rounds: int | None) -> list[Plan]:
    """A run for each method, setting, seed and number of clients; centralized once a seed."""
    from fedmpi.compare.variants import check_options, read_variant

    plans: list[Plan] = []
    largest = max(request.clients)
    variants = [read_variant(text) for text in request.methods]
    check_options(request.options, variants)
    for clients in sorted(request.clients, reverse=True):
        for seed in request.seeds:
            for variant in variants:
                if clients < largest and variant.text not in LOCAL_GLOBAL:
                    continue
                plans += plan_method(request, variant, seed, clients, tuned, local_rounds)
    return plans


def plan_method(
    request: Request,
    variant: Variant,
    seed: int,
    clients: int,
    tuned: dict[str, str],
    local_rounds: int | None,
) -> list[Plan]:
    """The runs of one method with one seed, a setting each."""
    from fedmpi.compare.variants import run_name, run_options
    from fedmpi.federation.grid import Plan
    from fedmpi.run.arguments import DEFAULT_CLIENTS, resolve_options

    single = variant.method.single_client
    plans = []
    for setting in ["ESG"] if single else request.settings:
        a = run_options(request.options, variant, setting, seed, clients, local_rounds)
        a.tuned = tuned.get(variant.name)
        if request.quick:
            make_quick(a, variant.method.trains_locally)
        a.output = str(request.output / "runs" / run_name(a, variant))
        title = f"{variant.text} {'' if single else setting + ' '}s{seed}"
        title += f" k{clients}" if clients != DEFAULT_CLIENTS and not single else ""
        plans.append(Plan(resolve_options(a, 1, one_process=False), title))
    return plans


def make_quick(a: argparse.Namespace, local: bool) -> None:
    """Shorten a run from minutes to seconds, in place: fewer rounds, epochs and images."""
    from fedmpi import data as datasets

    preset = datasets.find(a.dataset).preset
    if a.rounds is None:
        a.rounds = max(3, preset.local_rounds // 10) if local else max(20, preset.rounds // 30)
    if local and a.local_epochs is None:
        a.local_epochs = min(3, preset.local_epochs)
    if (a.model or preset.model) in ("cnn", "resnet18", "resnet18-cifar"):
        a.limit_train = a.limit_train or QUICK_ROWS
        a.limit_test = a.limit_test or QUICK_ROWS


if __name__ == "__main__":
    run(main)
