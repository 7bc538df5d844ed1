"""A grid that is tuned, run and written in one launch: what compare and reproduce share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from fedmpi.mpi.start import start

if TYPE_CHECKING:
    from fedmpi.compare.plan import Cell, Request
    from fedmpi.federation.grid import Plan

TABLES_EVERY = 60.0
R = TypeVar("R", bound="Request")


@dataclass(frozen=True)
class Program(Generic[R]):
    """What one of the commands does in its own way. The server alone calls these."""

    read: Callable[[], R]
    """Read and check the command line."""
    plan: Callable[[R], list[Cell]]
    write: Callable[[R, Sequence[Cell]], None]
    """Write all tables, from what is finished by now."""
    shown: tuple[str, ...]
    """Files that are printed at the end."""


def launch(program: Program[R]) -> int:
    """Tune, run and write on all ranks; return the exit code."""
    world = start()
    server = Server(program)
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


class Server(Generic[R]):
    """What rank 0 alone knows: the request, its cells, and the files that are written."""

    request: R
    cells: list[Cell]
    folds: list[Plan]
    with_models: list[Plan]
    """Folds whose models are still there."""
    runs: list[Plan]
    write_at: float

    def __init__(self, program: Program[R]) -> None:
        self.program = program

    def begin(self) -> tuple[list[Plan], str, int, bool]:
        """Read the command line; return the runs of folds, and how to run."""
        from fedmpi.compare.tuning import plan_tuning, read
        from fedmpi.run.display import say

        self.request = request = self.program.read()
        self.cells = self.program.plan(request)
        self.write_at = time.monotonic() + TABLES_EVERY
        noted = read(request.output)
        self.folds = [plan for cell in self.cells for plan in plan_tuning(request, cell, noted)]
        runs = sum(len(cell.seeds) for cell in self.cells)
        self.with_models = list(self.folds)
        say(f"{runs} runs, after {len(self.folds)} runs of tuning: {request.tuning}")
        if (kept := self.kept_without_folder()) and not request.tables_only:
            say(
                f"{request.output} has {len(kept)} runs in grid.json alone: the tables and this "
                "file are replaced by those of this launch (--output DIR keeps them)"
            )
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

    def write_now_and_then(self) -> None:
        """Write all files, in at most a twentieth of the time: all ranks wait meanwhile."""
        began = time.monotonic()
        if began > self.write_at:
            self.program.write(self.request, self.cells)
            ended = time.monotonic()
            self.write_at = ended + max(TABLES_EVERY, 20 * (ended - began))

    def drop_models(self) -> None:
        """Remove the models of folds that are done: nobody uses them, and they take gigabytes."""
        for plan in self.with_models:
            if plan.finished:
                (plan.folder / "model.pt").unlink(missing_ok=True)
        self.with_models = [plan for plan in self.with_models if not plan.finished]

    def conclude(self) -> int:
        """Write all files and the last lines; return the number of runs that failed.

        Tables stay that were made of more than is here now.
        """
        from fedmpi.reproduce.gridfile import runs_of, write_grid
        from fedmpi.run.display import say

        output, kept = self.request.output, self.kept_without_folder()
        there = all((output / name).is_file() for name in self.program.shown)
        if kept and there and self.request.tables_only:
            say(
                f"the tables in {output} stay as they are: tests and intervals take the folders of "
                f"the runs, and {len(kept)} runs are in grid.json alone"
            )
        else:
            self.program.write(self.request, self.cells)
        for dataset in self.request.bases:
            folder = self.request.folder(dataset)
            write_grid(folder, runs_of(folder))
        for name in self.program.shown:
            say((output / name).read_text(encoding="utf-8"))
        untuned = [cell for cell in self.cells if cell.chosen is None]
        failed = [plan for plan in self.runs if plan.failure]
        for cell in untuned:
            say(f"NOT TUNED {cell.title}: {cell.failure or 'its folds are not run'}")
        for plan in failed:
            say(f"FAILED {plan.title}: {plan.failure}")
        finished = sum(plan.finished or plan.folder in kept for plan in self.runs)
        total = sum(len(cell.seeds) for cell in self.cells)
        say(f"{finished} of {total} runs finished, {len(failed)} failed; in {output}")
        return len(failed) + sum(cell.failure is not None for cell in untuned)

    def kept_without_folder(self) -> set[Path]:
        """Folders of the runs that a grid.json has, and that are not here; planned now or not."""
        from fedmpi.reproduce.gridfile import KeptRecord, runs_of

        folders = map(self.request.folder, self.request.bases)
        found = [record for folder in folders for record in runs_of(folder)]
        return {record.folder for record in found if isinstance(record, KeptRecord)}
