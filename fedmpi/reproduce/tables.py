"""Tables as in the paper, with our figures beside the paper's: as CSV, Markdown and LaTeX."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fedmpi.compare.formats import Table, write_rows, write_table, write_text
from fedmpi.compare.tables import run_rows, write_comparison
from fedmpi.reproduce import paper
from fedmpi.reproduce.claims import OPEN, QUICK, decide
from fedmpi.reproduce.gridfile import runs_of
from fedmpi.reproduce.statistics import (
    HETEROGENEITY,
    PERSONAL,
    SUMMARY,
    Figures,
    Mean,
    Run,
    figures_of,
    figures_of_paper,
    method_title,
    run_of,
    shared_notes,
)
from fedmpi.run.config import IDENTITY
from fedmpi.run.folder import RunFolder
from fedmpi.run.record import Record
from fedmpi.scoring.fairness import DIFFERENCES, RATES

if TYPE_CHECKING:
    from fedmpi.compare.plan import Cell
    from fedmpi.reproduce.grid import Request

OF_SEEDS = ("output", "seed", "data")


def write_results(request: Request, cells: Sequence[Cell]) -> None:
    """Write all tables and claims of a dataset's results, from what is finished by now.

    Beside the paper's are those of the comparison, with tests against FedMinMax and costs.
    """
    plans = [plan for cell in cells for plan in cell.runs.values()]
    if not request.quick:
        write_comparison(request, [cell for cell in cells if not cell.follows])
    output, quick, dataset = request.output, request.quick, request.dataset
    output.mkdir(parents=True, exist_ok=True)
    records = runs_of(output)
    failures = [(run_of(p.config.saved()), f"{p.title}: {p.failure}") for p in plans if p.failure]
    figures = figures_of(records, failures)
    steps = steps_of(request)
    notes = ([QUICK] if quick else []) + notes_on(records, failures)
    if request.budget > 1:
        notes.append(f"Tuning: {request.tuning}.")
    if steps:
        notes.append("Paper's steps: the same with --solver paper, nothing tuned.")
    if any(cell.interval for cell in figures.cells.values()):
        notes.append("In brackets: 95% interval over seeds and test rows (docs/statistics.md).")
    marks = {"quick": "yes"} if quick else {}
    folder = RunFolder(output)
    missing = {run_of(plan.config.saved()) for plan in plans}
    asked = sorted(missing | set(figures.runs), key=lambda run: run.order)
    for table in tables_of(figures, steps, dataset, asked):
        write_table(folder, table, notes, marks)
    if counts := confusion_rows(records):
        write_rows(folder, "confusion.csv", counts, marks)
    write_rows(folder, "runs.csv", run_rows(records, plans), marks)
    write_claims(folder, figures, steps, dataset, notes, quick)


def steps_of(request: Request) -> Figures | None:
    """Figures of the same experiments with the paper's fixed steps, if they were run."""
    folder = request.paper_steps
    records = runs_of(folder) if folder and not request.quick else ()
    return figures_of(records) if records else None


def notes_on(records: Sequence[Record], failures: list[tuple[Run, str]]) -> list[str]:
    """Notes for a reader of the tables: how many seeds, what was not alike, what failed."""
    notes = []
    if records:
        seeds = sorted({record.result["seed"] for record in records})
        notes.append(
            f"Mean ± sample standard deviation over seeds {', '.join(map(str, seeds))}; below it, "
            "where the paper prints one, its value and the difference. Worst and best are the "
            "groups whose means are, as in the paper's tables."
        )
        notes += fewer_seeds(records, seeds)
        notes += [f"Note: {note}" for note in shared_notes(records)]
    by_method: dict[str, list[dict]] = {}
    for record in records:
        identity = {k: v for k, v in record.config.get(IDENTITY, {}).items() if k not in OF_SEEDS}
        by_method.setdefault(run_of(record.config).label, []).append(identity)
    for name, runs in by_method.items():
        mixed = _differing(runs, but=("setting", "clients"))
        if mixed:
            notes.append(f"Note: runs of {name} are not all alike: {mixed}.")
    common = (
        "model",
        "loss",
        "dtype",
        "autocast",
        "skew",
        "limit_train",
        "limit_test",
        "rows",
        "states",
    )
    everything = [{k: r.get(k) for k in common} for runs in by_method.values() for r in runs]
    if mixed := _differing(everything):
        notes.append(f"Note: methods were not run alike: {mixed}.")
    notes += [f"Failed: {why}" for _, why in failures]
    return notes


def fewer_seeds(records: Sequence[Record], seeds: list[int]) -> list[str]:
    """Notes on what was run with only some of the seeds."""
    seeds_of: dict[Run, set[int]] = {}
    for record in records:
        seeds_of.setdefault(run_of(record.config), set()).add(record.result["seed"])
    several = len({run.clients for run in seeds_of if run.setting}) > 1
    settings_of: dict[tuple[str, str], list[str]] = {}
    for run in sorted(seeds_of, key=lambda run: run.order):
        if len(seeds_of[run]) < len(seeds):
            clients = f" with {run.clients} clients" if several and run.setting else ""
            known = ", ".join(map(str, sorted(seeds_of[run])))
            settings_of.setdefault((known, run.label + clients), []).append(run.setting)
    return [
        f"Note: seed {known} alone: {name}{' in ' if all(settings) else ''}{', '.join(settings)}."
        for (known, name), settings in settings_of.items()
    ]


def _differing(runs: list[dict], but: tuple[str, ...] = ()) -> str:
    found = []
    for name in runs[0] if runs else ():
        values = list(dict.fromkeys(json.dumps(run.get(name)) for run in runs))
        if len(values) > 1 and name not in but:
            found.append(f"{name} {' or '.join(values)}")
    return ", ".join(found)


def tables_of(
    figures: Figures, steps: Figures | None, dataset: str, asked: list[Run]
) -> Iterable[Table]:
    """Yield the tables of risks, accuracies, weights, local against global, and rates if known."""
    main = [run for run in asked if run.clients in (figures.clients, 0)]
    for name, kind, what in (
        ("risks", "risk", "Test risk"),
        ("accuracies", "accuracy", "Test accuracy"),
        ("weights", "weight", "Final weight"),
    ):
        columns = [*figures.groups, *(SUMMARY if kind != "weight" else ())]
        runs = [
            run
            for run in main
            if kind != "weight"
            or run.method in ("afl", "fedminmax", "localfedminmax", "centralized")
            or any(figures.get(kind, run, column) for column in columns)
        ]
        caption = f"{what} by group, {dataset}, {figures.clients} clients"
        yield by_setting(
            figures, steps, dataset, name, caption, runs, [(kind, c, c) for c in columns]
        )
    if any(run.method == "localfedminmax" for run in asked):
        yield local_global(figures, steps, dataset, asked)
    if any(kind in RATES for kind, _, _ in figures.cells):
        values = list(dict.fromkeys(c for kind, _, c in figures.cells if kind == RATES[0]))
        columns3 = [(rate, value, f"{words(rate)}, {value}") for rate in RATES for value in values]
        columns3 += [(difference, "", words(difference)) for difference in DIFFERENCES]
        caption = f"Rates by attribute on the test rows, {dataset}, {figures.clients} clients"
        yield by_setting(figures, steps, dataset, "fairness", caption, main, columns3)
    if personal := personal_table(figures, dataset, main):
        yield personal


def personal_table(figures: Figures, dataset: str, runs: list[Run]) -> Table | None:
    """Table of the clients' own models, for the methods that have them; None if none has."""
    runs = [r for r in runs if any(figures.get("personal risk", r, g) for g in figures.groups)]
    columns = [
        (f"personal {kind}", name, f"{words(kind)}, {name}")
        for kind in PERSONAL
        for name in figures.groups
    ]
    caption = f"Clients' own models, each on its client's rows, by group, {dataset}"
    return by_setting(figures, None, dataset, "personal", caption, runs, columns) if runs else None


def words(name: str) -> str:
    return name.replace("_", " ")


def by_setting(
    figures: Figures,
    steps: Figures | None,
    dataset: str,
    name: str,
    caption: str,
    runs: list[Run],
    columns: list[tuple[str, str, str]],
) -> Table:
    """Table of runs by columns of (kind, column, heading), with a rule between settings."""
    rows: list[list[list[str]]] = []
    rules: list[int] = []
    data: list[dict] = []
    setting = None
    for run in runs:
        if run.setting != setting:
            setting = run.setting
            rules.append(len(rows))
        row = [[run.setting or "-"], [run.label]]
        for kind, column, _ in columns:
            cell = figures.get(kind, run, column)
            fixed = with_steps(steps, kind, run, column)
            printed = printed_for(figures, kind, dataset, run, column)
            row.append(text_of(cell, fixed, printed, run in figures.failures, column == "worst"))
            data.append(_as_data(kind, dataset, run, column, cell, fixed, printed))
        rows.append(row)
    return Table(
        name, caption, ["Setting", "Method", *(h for _, _, h in columns)], rows, rules, data
    )


def local_global(figures: Figures, steps: Figures | None, dataset: str, asked: list[Run]) -> Table:
    """Table of the worst group's risk with FedMinMax and LocalFedMinMax, by clients and setting."""
    clients = sorted({run.clients for run in asked if run.method == "localfedminmax"})
    settings = [s for s in HETEROGENEITY if any(run.setting == s for run in asked)]
    rows: list[list[list[str]]] = []
    data: list[dict] = []
    of_paper = figures_of_paper(dataset)
    for method in ("localfedminmax", "fedminmax"):
        row = [[method_title(method)]]
        for k in clients:
            for setting in settings:
                run = Run(k, setting, method, "")
                cell = figures.get("risk", run, "worst")
                printed = of_paper.get("risk", run, "worst") if of_paper else None
                fixed = with_steps(steps, "risk", run, "worst")
                row.append(text_of(cell, fixed, printed, run in figures.failures))
                data.append(_as_data("risk", dataset, run, "worst", cell, fixed, printed))
        rows.append(row)
    head = ["Method", *(f"{s}, {k} clients" for k in clients for s in settings)]
    return Table("local_global", f"Test risk of the worst group, {dataset}", head, rows, [0], data)


def with_steps(steps: Figures | None, kind: str, run: Run, column: str) -> Mean | None:
    """The figure of this cell with the paper's steps, whose runs name options that were tuned here.

    Of several such runs the first counts: q-FedAvg with the smaller q.
    """
    if not steps:
        return None
    named = set(filter(None, run.parameter.split(", ")))
    where = (run.clients, run.setting, run.method)
    alike = [r for r in steps.runs if (r.clients, r.setting, r.method) == where]
    alike = [r for r in alike if named <= set(r.parameter.split(", "))]
    best = min(alike, key=lambda r: len(r.parameter.split(", ")), default=None)
    return steps.get(kind, best, column)


def printed_for(figures: Figures, kind: str, dataset: str, run: Run, column: str) -> Mean | None:
    """The paper's figure for this cell. Of synthetic the paper has the worst and the best group."""
    if kind not in ("risk", "weight"):
        return None
    if kind == "weight" and dataset == "synthetic":
        risks = {g: cell.mean for g in figures.groups if (cell := figures.get("risk", run, g))}
        if len(risks) == 2:
            column = "worst" if column == max(risks, key=lambda g: risks[g]) else "best"
    clients = run.clients or paper.CLIENTS
    found = paper.lookup(kind, dataset, clients, run.setting, run.method, run.parameter, column)
    return Mean(found.mean, found.std, 3) if found else None


def text_of(
    cell: Mean | None,
    steps: Mean | None,
    printed: Mean | None,
    failed: bool,
    interval: bool = False,
) -> list[str]:
    """Lines of a cell: our figure, with its interval if wanted; with the paper's steps; theirs."""
    if cell is None:
        ours = "failed" if failed else "-"
    else:
        std = f" ± {cell.std:.3f}" if cell.std is not None else ""
        ends = interval and cell.interval
        between = f" [{ends[0]:.3f}, {ends[1]:.3f}]" if ends else ""
        ours = f"{cell.mean:.3f}{std}{between}{' (some failed)' if failed else ''}"
    lines = [ours]
    if steps:
        lines.append(f"paper's steps {steps.mean:.3f}")
    if printed:
        beside = f" ({cell.mean - printed.mean:+.3f})" if cell else ""
        lines.append(f"paper {printed.mean:.3f}{beside}")
    return lines


def _as_data(
    kind: str,
    dataset: str,
    run: Run,
    column: str,
    cell: Mean | None,
    steps: Mean | None,
    printed: Mean | None,
) -> dict:
    return {
        "dataset": dataset,
        "clients": run.clients or "",
        "setting": run.setting,
        "method": run.method,
        "parameter": run.parameter,
        "kind": kind,
        "group": column,
        "mean": cell.mean if cell else "",
        "std": cell.std if cell and cell.std is not None else "",
        "runs": cell.runs if cell else 0,
        "low": cell.interval[0] if cell and cell.interval else "",
        "high": cell.interval[1] if cell and cell.interval else "",
        "paper_steps_mean": steps.mean if steps else "",
        "paper_steps_std": steps.std if steps and steps.std is not None else "",
        "paper_mean": printed.mean if printed else "",
        "paper_std": printed.std if printed and printed.std is not None else "",
        "difference": round(cell.mean - printed.mean, 6) if cell and printed else "",
    }


def confusion_rows(records: Sequence[Record]) -> list[dict]:
    """Rows of confusion.csv: for each run, test rows by group, true and predicted class, but 0."""
    return [
        {
            "run": record.folder.name,
            "seed": record.result["seed"],
            "group": name,
            "true": true,
            "predicted": predicted,
            "rows": count,
        }
        for record in records
        for name, group in record.result["groups"].items()
        for true, counts in enumerate(group.get("confusion", ()))
        for predicted, count in enumerate(counts)
        if count
    ]


def write_claims(
    folder: RunFolder,
    figures: Figures,
    steps: Figures | None,
    dataset: str,
    notes: list[str],
    quick: bool,
) -> None:
    """Write claims.json and claims.md: verdicts, the figures that decide, the paper's verdicts."""
    beside = {"paper_steps": steps, "paper_tables": figures_of_paper(dataset)}
    verdicts = {
        name: {c.number: c.verdict for c in decide(other)} if other else {}
        for name, other in beside.items()
    }
    claims = [claim.as_dict() for claim in decide(figures)]
    for told in claims:
        told |= {name: found.get(told["number"]) for name, found in verdicts.items()}
        if quick:
            told["verdict"] = told["rule"] = OPEN
            told["checks"] = [{"figures": check["figures"]} for check in told["checks"]]
    folder.write_json(
        "claims.json",
        {
            "dataset": dataset,
            "clients": figures.clients,
            "quick": quick,
            "verdict": "by tests: paired over seeds and test rows, 5%, Holm-corrected in a claim",
            "rule": "equal: within max(.01, 2 standard deviations)",
            "claims": claims,
            "notes": notes,
        },
    )
    lines = [f"**The paper's claims, {dataset}, {figures.clients} clients**", ""]
    lines += ["| | claim | here | by the rule | with the paper's steps | by the paper's tables |"]
    lines += ["|---|---|---|---|---|---|"]
    for claim in claims:
        row = [claim[name] or "-" for name in ("number", "claim", "verdict", "rule", *beside)]
        lines.append(f"| {' | '.join(map(str, row))} |")
    for claim in claims:
        lines += ["", f"{claim['number']}. {claim['claim']}: {claim['verdict']}", ""]
        lines += [f"- {check_line(check)}" for check in claim["checks"]]
    lines += ["", *(f"{note}  " for note in notes)]
    write_text(folder, "claims.md", "\n".join(lines) + "\n")


def check_line(check: Mapping[str, str]) -> str:
    """A check for people: its figures, the verdict, and where tests decide, test and rule."""
    if "verdict" not in check:  # of a quick look
        return check["figures"]
    if "test" not in check:
        return f"{check['figures']}: {check['verdict']}"
    test = f"By test, {check['test']}: {check['verdict']}; by the rule: {check['rule']}"
    return f"{check['figures']}. {test}"
