"""Tuning with the same budget for every method, on folds of training rows; and tuned.json.

A method's candidates are its defaults and points of the grids that its options declare: the whole
product where the budget allows that, else a part that has all values of each option as soon as
it can. It contains that of a smaller budget. The candidate with the lowest mean validation risk is
chosen; of equals the first, so the defaults before all others.

tuned.json has each cell's choice, and of every candidate the risk of each fold. What is in it is
not trained again, with or without the folders of those runs.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedmpi.compare.plan import TUNED, Cell, Request, look_up, options_of
from fedmpi.compare.variants import run_name
from fedmpi.errors import UserError
from fedmpi.federation.grid import Plan
from fedmpi.reproduce.gridfile import TUNING
from fedmpi.run.arguments import resolve_options
from fedmpi.run.folder import RunFolder
from fedmpi.tune import Choice, grid_of, plan_folds, row_of

OF_A_FILE = ("dataset", "test")
"""Parts of a run's identity that name files, whose contents its data key stands for."""


def candidates(a: argparse.Namespace, budget: int) -> list[dict[str, Any]]:
    """Options to try for a run: the defaults first, then points of the grid, `budget` in all."""
    if budget == 1:
        return [{}]
    grid = grid_of(a)
    config = resolve_options(copy.deepcopy(a), 1, one_process=False)
    defaults = {name: getattr(config, name) for name in grid}
    first = tuple(defaults.values())
    points = dict.fromkeys((first, *spread(list(grid.values()), first)))
    return [dict(zip(grid, point, strict=True)) for point in itertools.islice(points, budget)]


def spread(grids: list[tuple], defaults: tuple) -> Iterator[tuple]:
    """Yield all points of a product of grids, in an order whose beginning is spread over them.

    As in a Latin square: among as many points as the longest grid has values, each value of each
    grid is there. Each grid begins one place later than the one before it, so that what is extreme
    in one is not in all.
    """
    orders = []
    for d, (values, default) in enumerate(zip(grids, defaults, strict=True)):
        order = far_first(values, default)
        orders.append(order[d % len(order) :] + order[: d % len(order)])
    longest = max(map(len, orders), default=0)
    for n in range(longest * longest):
        shift = n // longest
        yield tuple(order[(n + shift * d) % len(order)] for d, order in enumerate(orders))
    yield from itertools.product(*grids)


def far_first(values: tuple, default: Any) -> list:
    """Order of values in which each is as far as can be from the default and those before it.

    A budget of three should try a longer and a shorter step. The default itself comes last.
    """
    places = list(range(len(values)))
    taken = [values.index(default)] if default in values else [len(values) // 2]
    order: list[int] = []
    while len(order) < len(places):
        left = [i for i in places if i not in order and i != taken[0]] or taken[:1]
        order.append(max(left, key=lambda i: (min(abs(i - j) for j in taken), i)))
        taken.append(order[-1])
    return [values[i] for i in order]


def plan_tuning(request: Request, cell: Cell, noted: dict[tuple, dict]) -> list[Plan]:
    """Plan a cell's candidates; return the runs of folds whose risks are not `noted` yet."""
    if cell.follows:
        return []
    a = options_of(request, cell, cell.seeds[0])
    name = run_name(a, cell.variant)
    a.limit_test = a.bootstrap = None  # folds have no test rows
    points = candidates(a, request.budget)
    if len(points) == 1:
        cell.candidates = [Choice(points[0], [])]
        return []
    if not a.setting:
        raise UserError(
            f"{cell.block.dataset}: rows that stay with their owners are not cut into folds. "
            "Compare with --no-tune."
        )
    output, title = request.folder(cell.block.dataset) / TUNING / name, f"{cell.title}: "
    cell.candidates = [plan_folds(a, point, request.folds, output, title) for point in points]
    known = known_rows(request, cell, noted)
    plans = [plan for c in cell.candidates if digest(c) not in known for plan in c.plans]
    for plan in plans:
        look_up(plan, request.force)
    return plans


def digest(choice: Choice) -> str:
    """What tells the runs of a candidate's folds from all others."""
    identities = [plan.config.identity() for plan in choice.plans]
    told = [{k: v for k, v in i.items() if k not in OF_A_FILE} for i in identities]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def choose(request: Request, cells: list[Cell]) -> None:
    """Choose the best candidate of each cell whose folds are done, and write tuned.json."""
    noted, entries = read(request.output), {}
    for cell in cells:
        if cell.follows:
            continue
        if len(cell.candidates) == 1:
            cell.chosen = cell.candidates[0].options
            continue
        known = known_rows(request, cell, noted)
        rows = [
            known.get(digest(c)) or tried(c, request.criterion_of(cell)) for c in cell.candidates
        ]
        if any(row["risk"] is None and "failed" not in row for row in rows):
            continue  # folds are not run
        scored = [row for row in rows if row["risk"] is not None]
        if not scored:
            cell.failure = rows[0]["failed"]
            continue
        best = min(scored, key=lambda row: row["risk"])
        cell.chosen = best["options"]
        cell.entry = entries[cell.key] = entry(request, cell, best, rows)
    for cell in cells:
        if cell.follows:
            first = cell.follows
            cell.chosen, cell.entry, cell.failure = first.chosen, first.entry, first.failure
    if entries:
        write(request, noted | entries)


def tried(choice: Choice, criterion: str) -> dict[str, Any]:
    """A candidate as tuned.json has it: options, validation risks, why a fold failed."""
    row = row_of(choice, criterion)
    failures = [plan.failure for plan in choice.plans if plan.failure]
    risks = {name: row[name] for name in ("risk", "std", "folds")}
    told = {"options": choice.options, **risks, "runs": digest(choice)}
    return told | ({"failed": failures[0]} if failures else {})


def entry(request: Request, cell: Cell, best: dict, rows: list[dict]) -> dict[str, Any]:
    config = cell.candidates[0].plans[0].config
    dataset, setting, method, seed = cell.key
    return {
        "dataset": dataset,
        "setting": setting,
        "method": method,
        "seed": seed,
        "for_seeds": cell.seeds,
        "clients": config.clients,
        "rounds": config.rounds,
        "criterion": request.criterion_of(cell),
        "folds": request.folds,
        "options": best["options"],
        "risk": best["risk"],
        "std": best["std"],
        "tried": rows,
    }


def known_rows(request: Request, cell: Cell, entries: dict[tuple, dict]) -> dict[str, dict]:
    """Candidates of a cell whose folds are all `noted`, by the digest of their runs.

    What failed is tried again, if anything is to be run.
    """
    noted = entries.get(cell.key)
    if not noted or noted["criterion"] != request.criterion_of(cell):
        return {}
    rows = noted["tried"]
    return {row["runs"]: row for row in rows if row["risk"] is not None or request.tables_only}


def read(output: Path) -> dict[tuple, dict]:
    """Entries of tuned.json, by the keys of their cells."""
    path = output / TUNED
    if not path.is_file():
        return {}
    try:
        told = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return {(e["dataset"], e["setting"], e["method"], e["seed"]): e for e in told}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as choices of a comparison: {error!r}.") from None


def write(request: Request, entries: dict[tuple, dict]) -> None:
    """Write tuned.json, which keeps the entries of cells that are not asked for now."""
    told = [entries[key] for key in sorted(entries)]
    request.output.mkdir(parents=True, exist_ok=True)
    RunFolder(request.output).write_json(TUNED, {"cells": told})
