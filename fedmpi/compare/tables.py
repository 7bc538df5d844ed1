"""The tables of a comparison: an overview, figures with tests and costs, ranks, what was chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedmpi.compare.diagram import draw_ranks
from fedmpi.compare.formats import Table, write_rows, write_table
from fedmpi.compare.outcomes import Comparison, Outcome, compare
from fedmpi.compare.plan import Cell, Request
from fedmpi.compare.ranks import ALPHA, Ranks
from fedmpi.compare.variants import Variant
from fedmpi.methods import all_options
from fedmpi.reproduce.gridfile import without_folder
from fedmpi.reproduce.statistics import Mean, label, method_title, shared_notes
from fedmpi.run.display import warn
from fedmpi.run.folder import RunFolder
from fedmpi.run.record import Record
from fedmpi.scoring.comparison import EQUAL, HIGHER, LOWER, MARGIN

if TYPE_CHECKING:
    from fedmpi.federation.grid import Plan

NOTHING = "-"
MARKS = {LOWER: " ↓", HIGHER: " ↑", EQUAL: " ="}
"""Of the verdict against the control, behind a risk."""
OF_OVERVIEW = ("dataset", "setting", "risk", "other_risk", "p_holm", "verdict")
OF_A_RUN = ("dataset", "setting", "method", "clients", "seed", "rounds", "lr")


def write_results(request: Request, cells: Sequence[Cell]) -> None:
    """Write all files of a comparison, from what is finished by now."""
    folder = RunFolder(request.output)
    comparison = write_comparison(request, cells)
    write_table(folder, overview_table(comparison), overview_notes(comparison))
    variants, blocks, ranks = comparison.ranked()
    write_table(folder, ranks_table(comparison, ranks, blocks), rank_notes(comparison, ranks))
    titles = [title_of(variant) for variant in variants]
    if blocks and not draw_ranks(folder, titles, ranks, risk_of(request.criterion)):
        warn("ranks.svg is not drawn: it needs matplotlib, ./launch/setup.sh report")
    plans = [plan for cell in cells for plan in cell.runs.values()]
    records = [record for o in comparison.outcomes.values() for record in o.records.values()]
    write_rows(folder, "runs.csv", run_rows(records, plans))


def write_comparison(request: Request, cells: Sequence[Cell]) -> Comparison:
    """Write the tables of figures, tests and costs, and of what tuning has chosen."""
    request.output.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(request.output)
    comparison = compare(request, cells)
    write_table(folder, figures_table(comparison), notes_on(request, comparison))
    if any(cell.entry for cell in cells):
        write_table(folder, choices_table(cells), [f"Tuning: {request.tuning}."])
    return comparison


def run_rows(records: Sequence[Record], plans: Sequence[Plan]) -> list[dict]:
    """Rows of runs.csv: for each run its state, its options, the time it took, why it failed."""
    names = (*OF_A_RUN, *all_options())
    finished = {record.folder.name: record for record in records}
    planned = {plan.folder.name: plan for plan in plans}
    rows = []
    for name in dict.fromkeys([*planned, *finished]):
        record, plan = finished.get(name), planned.get(name)
        config = record.config if record else plan.config.saved() if plan else {}
        state = "finished" if record else "failed" if plan and plan.failure else "not run"
        result = record.result if record else {}
        rows.append(
            {"run": name, "state": state}
            | {key: config.get(key) for key in names}
            | {"dataset": without_folder(config["dataset"])}
            | {key: result.get(key) for key in ("seconds", "worst_group", "worst_risk")}
            | {"why": plan.failure if plan else None}
        )
    return rows


def title_of(variant: Variant) -> str:
    """Name of a method in tables, with the options that it alone is run with."""
    if ":" in variant.name:  # the user's own, which is imported anyway
        title = variant.method.title or method_title(variant.name)
        own = [f"{name} = {value}" for name, value in variant.own.items()]
        return f"{title} ({', '.join(own)})" if own else title
    options = all_options()
    words = [
        options[name].said(value) if name in options else f"{name} = {value}"
        for name, value in variant.own.items()
    ]
    return label(variant.name, words)


def risk_of(criterion: str) -> str:
    return "test risk of the worst group" if criterion == "worst" else "average test risk"


def number(value: float) -> str:
    return f"{value:.4f}"


def between(low: float, high: float, form: str = ".4f") -> str:
    return f"{low:{form}} to {high:{form}}"


def figures_table(comparison: Comparison) -> Table:
    """Table of each method in each block: risk, difference from the control, accuracy, costs."""
    control = next(v for v in comparison.variants if v.text == comparison.against)
    risk = f"{comparison.criterion} risk"
    other = "average risk" if comparison.criterion == "worst" else "worst risk"
    head = ["Data", "Method", risk, f"minus {title_of(control)}", "p (Holm)", other]
    head += ["worst accuracy", "rounds", "bytes"]
    rows: list[list[list[str]]] = []
    rules, data = [], []
    for block in comparison.blocks:
        rules.append(len(rows))
        for outcome in comparison.of(block):
            figures = figures_of(comparison, outcome)
            data.append(figures)
            rows.append(cells_of(figures, [block.title, title_of(outcome.variant)], outcome))
    caption = f"Methods compared, {risk_of(comparison.criterion)}"
    return Table("comparison", caption, head, rows, rules, data)


def figures_of(comparison: Comparison, outcome: Outcome) -> dict:
    """All figures of a method in a block, as the row of the CSV file; "" for what is not known."""
    criterion = comparison.criterion
    other = "average" if criterion == "worst" else "worst"
    mean = outcome.means.get(("risk", criterion))
    ends = mean.interval if mean else None
    test = comparison.tests.get((outcome.block, outcome.variant.text))
    cost = outcome.cost
    row = {
        "dataset": outcome.block.data,
        "setting": outcome.block.setting,
        "method": outcome.variant.text,
        "seeds": mean.runs if mean else 0,
        "failed": len(outcome.failures),
        "risk": mean.mean if mean else "",
        "std": mean.std if mean and mean.std is not None else "",
        "low": ends[0] if ends else "",
        "high": ends[1] if ends else "",
        "difference": test.difference.value if test else "",
        "difference_low": test.difference.low if test else "",
        "difference_high": test.difference.high if test else "",
        "p": test.difference.p_different if test else "",
        "p_holm": test.p if test else "",
        "verdict": test.verdict if test else "",
        "other_risk": _mean(outcome.means.get(("risk", other))),
        "worst_accuracy": _mean(outcome.means.get(("accuracy", "worst"))),
    }
    costs = cost._asdict() if cost else dict.fromkeys(("rounds", "passes", "bytes", "seconds"), "")
    return row | costs


def _mean(mean: Mean | None) -> float | str:
    return mean.mean if mean else ""


def cells_of(figures: dict, names: list[str], outcome: Outcome) -> list[list[str]]:
    """A row of the table for people: each cell is a figure, and below it what belongs to it."""
    f = figures
    cells = [[name] for name in names]
    if f["risk"] == "":
        state = "failed" if f["failed"] else "not run"
        return [*cells, [state], *([NOTHING] for _ in range(6))]
    std = f" ± {number(f['std'])}" if f["std"] != "" else ""
    failed = " (some failed)" if f["failed"] else ""
    ends = [between(f["low"], f["high"])] if f["low"] != "" else []
    cells.append([f"{number(f['risk'])}{std}{failed}", *ends])
    if f["difference"] == "":
        cells += [[NOTHING], [NOTHING]]
    else:
        ends = [between(f["difference_low"], f["difference_high"], "+.4f")]
        cells += [[f"{f['difference']:+.4f}", *ends], [f"{f['p_holm']:.2g}", f["verdict"]]]
    cells += [[number(f["other_risk"])], [number(f["worst_accuracy"])]]
    cells.append([f"{f['rounds']:,.0f}", f"{f['passes']:,.0f} passes"])
    cells.append([size(f["bytes"]), f"{f['seconds']:.3g} s"])
    return cells


def size(count: float) -> str:
    """Bytes for people, in powers of 1000."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def notes_on(request: Request, comparison: Comparison) -> list[str]:
    """Notes for a reader of the table: what its figures are, what was not run, what failed."""
    seeds = ", ".join(map(str, request.seeds))
    notes = [
        f"Mean ± sample standard deviation over seeds {seeds}; below it the 95% interval over "
        "seeds and test rows. The worst is the group whose mean is.",
        "Differences are of that figure, at the same seeds and test rows. p is two-sided, "
        f"Holm-corrected over the methods of a block; equal: surely within {MARGIN:g}, also "
        "Holm-corrected.",
        f"Tuning: {request.tuning}.",
        "Costs are of one run: rounds, passes over the training rows, bytes that the busiest rank "
        "handed to MPI, seconds of the rounds on this machine.",
    ]
    outcomes = list(comparison.outcomes.values())
    for dataset in request.bases:
        records = [r for o in outcomes if o.block.dataset == dataset for r in o.records.values()]
        notes += [f"{without_folder(dataset)}: {note}" for note in shared_notes(records)]
    if any(o.records and not o.replicates for o in outcomes):
        notes.append("Runs without bootstrap.npz in their folders have no test.")
    notes += comparison.untested
    failed = {(o.variant.text, o.block.title): o.failures for o in outcomes if o.failures}
    notes += [f"Failed: {name} on {where}: {why[0]}" for (name, where), why in failed.items()]
    return list(dict.fromkeys(notes))


def overview_table(comparison: Comparison) -> Table:
    """Table of the risk of each method in each block, marked by its verdict, and of the other."""
    rows, data = [], []
    for variant in comparison.variants:
        row = [[title_of(variant)]]
        for block in comparison.blocks:
            outcome = comparison.outcomes.get((block, variant.text))
            if not outcome:
                row.append([NOTHING])
                continue
            figures = figures_of(comparison, outcome)
            if figures["risk"] == "":
                row.append(["failed" if figures["failed"] else NOTHING])
                continue
            mark = MARKS.get(figures["verdict"], "")
            row.append([f"{figures['risk']:.3f}{mark}", f"{figures['other_risk']:.3f}"])
            data.append({name: figures[name] for name in ("method", *OF_OVERVIEW)})
        rows.append(row)
    caption = f"{risk_of(comparison.criterion).capitalize()}, means over the seeds"
    head = ["Method", *(block.title for block in comparison.blocks)]
    return Table("overview", caption, head, rows, [0], data)


def overview_notes(comparison: Comparison) -> list[str]:
    control = next(v for v in comparison.variants if v.text == comparison.against)
    other = "average" if comparison.criterion == "worst" else "worst"
    return [
        f"Below each: the {risk_of(other)}.",
        f"By a paired test against {title_of(control)}, Holm-corrected over the methods of a "
        "column: ↓ lower, ↑ higher, = within .01 of it; no mark: not decided.",
    ]


def ranks_table(comparison: Comparison, ranks: Ranks, blocks: list) -> Table:
    """Table of the mean rank of each federated method, and of its rank in each block."""
    variants = {v.text: title_of(v) for v in comparison.variants}
    columns = [block.title for block in blocks]
    order = ranks.means.argsort(kind="stable").tolist() if blocks else []
    rows, data = [], []
    for j in order:
        mine = ranks.ranks[:, j]
        rows.append(
            [[variants[ranks.methods[j]]], [f"{mine.mean():.2f}"], *([f"{r:g}"] for r in mine)]
        )
        told = {"method": ranks.methods[j], "mean_rank": float(mine.mean())}
        data.append(told | dict(zip(columns, mine.tolist(), strict=True)))
    caption = f"Ranks of the methods, {risk_of(comparison.criterion)}: 1 is the lowest"
    return Table("ranks", caption, ["Method", "mean rank", *columns], rows, [0], data)


def rank_notes(comparison: Comparison, ranks: Ranks) -> list[str]:
    """Notes for a reader of the ranks: what the tests say, and what has no rank."""
    variants = {v.text: title_of(v) for v in comparison.variants}
    blocks, count = ranks.ranks.shape
    notes = []
    if math.isnan(ranks.p):
        notes.append("Friedman's test needs two blocks and two methods, or more.")
    else:
        notes.append(
            f"Friedman's test over {blocks} blocks and {count} methods: χ² = "
            f"{ranks.statistic:.2f}, p = {ranks.p:.2g} (permutations). Nemenyi's critical "
            f"difference of mean ranks at {ALPHA:g} is {ranks.critical:.2f} (Demšar 2006)."
        )
        if ranks.p > ALPHA:
            notes.append("So these blocks do not show that the methods differ at all.")
        sets = ["; ".join(variants[ranks.methods[j]] for j in s) for s in ranks.alike()]
        notes += [f"Not told apart: {names}." for names in sets]
        notes.append(
            "Settings of one dataset share its rows: their ranks are less evidence than as many "
            "datasets would give."
        )
    left = [
        b.title
        for b in comparison.blocks
        if any(
            comparison.score(b, v) is None
            for v in comparison.variants
            if not v.method.single_client
        )
    ]
    if left:
        notes.append(f"Not ranked, because methods are not run there: {', '.join(left)}.")
    single = [title_of(v) for v in comparison.variants if v.method.single_client]
    if single:
        notes.append(f"{', '.join(single)}: has all rows in one place, and no rank.")
    notes.append("A method that failed in a block has the last rank there.")
    return notes


def choices_table(cells: Sequence[Cell]) -> Table:
    """Table of the options that tuning has chosen."""
    rows, data = [], []
    for cell in cells:
        if not (entry := cell.entry):
            continue
        failed = sum(row["risk"] is None for row in entry["tried"])
        count = f"{len(entry['tried'])}{f', {failed} failed' if failed else ''}"
        options = ", ".join(f"{name} {value:g}" for name, value in entry["options"].items())
        risk = f"{number(entry['risk'])} ± {number(entry['std'])}"
        names = [cell.block.title, title_of(cell.variant)]
        rows.append(
            [[text] for text in (*names, ", ".join(map(str, cell.seeds)), options, risk, count)]
        )
        told = {name: entry[name] for name in ("dataset", "setting", "method", "seed")}
        told |= {"options": options, "risk": entry["risk"], "std": entry["std"]}
        data.append(told | {"tried": len(entry["tried"]), "failed": failed})
    head = ["Data", "Method", "seeds", "chosen", "validation risk", "tried"]
    return Table("choices", "What tuning has chosen", head, rows, [0], data)
