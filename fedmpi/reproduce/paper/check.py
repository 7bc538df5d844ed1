"""Checks whether the paper's tables agree with each other, and with the paper's text."""

from __future__ import annotations

from collections.abc import Iterator

from fedmpi.reproduce.claims import FAIL, SLACK, decide, show
from fedmpi.reproduce.paper import LOCAL_GLOBAL, Printed, printed
from fedmpi.reproduce.statistics import HETEROGENEITY, Figures, figures_of_paper

DATASETS = ("synthetic", "adult", "fashionmnist", "cifar10", "acs-employment", "acs-race")
DIGIT = 0.0005
"""Largest difference that rounding to three digits can hide."""


def findings() -> Iterator[str]:
    """Yield a line for everything that does not fit together."""
    yield from sums_of_weights()
    yield from numbers_printed_twice()
    yield from rows_printed_twice()
    yield from worst_of_the_summary()
    yield from groups_the_wrong_way_round()
    for dataset in DATASETS:
        figures = figures_of_paper(dataset)
        assert figures
        yield from beaten(dataset, figures)
        yield from risk_of_fedavg(dataset, figures)
        for claim in decide(figures):
            if claim.verdict == FAIL:
                for holds, text in claim.checks:
                    if holds is False:
                        yield f"{dataset}: claim {claim.number} fails by the rule: {text}"


def tables(kind: str) -> dict[tuple, list[Printed]]:
    """Numbers of a kind, by row of their table."""
    rows: dict[tuple, list[Printed]] = {}
    for p in printed(kind):
        rows.setdefault((p.dataset, p.clients, p.setting, p.method, p.parameter), []).append(p)
    return rows


def sums_of_weights() -> Iterator[str]:
    """Yield rows of final weights that do not sum to one, to rounding."""
    for (dataset, _, setting, method, _), row in tables("weight").items():
        total = sum(p.mean for p in row)
        if abs(total - 1) > DIGIT * len(row) + SLACK:
            where = f"{setting} {method}".strip()
            yield f"{dataset}: the weights of {where} sum to {total:.3f}"


def numbers_printed_twice() -> Iterator[str]:
    """Yield cells of FedMinMax at 40 clients that differ between the two tables that have it."""
    main = tables("risk")
    for (dataset, clients, setting, method, parameter), row in main.items():
        twin = main.get((dataset.removesuffix(LOCAL_GLOBAL), clients, setting, method, parameter))
        if dataset.endswith(LOCAL_GLOBAL) and twin:
            for p, other in zip(row, twin, strict=True):
                if (p.mean, p.std) != (other.mean, other.std):
                    yield (
                        f"{dataset}: {setting} {method} {p.group} is {p.mean}±{p.std}, in the main "
                        f"table {other.mean}±{other.std}"
                    )


def rows_printed_twice() -> Iterator[str]:
    """Yield rows of a table that agree in most groups: two runs would hardly do so."""
    rows = [(key, row) for key, row in tables("risk").items() if LOCAL_GLOBAL not in key[0]]
    for i, (first, row) in enumerate(rows):
        for second, other in rows[i + 1 :]:
            if first[0] == second[0]:
                pairs = zip(row, other, strict=True)
                same = sum((p.mean, p.std) == (q.mean, q.std) for p, q in pairs)
                if same > max(2, len(row) / 2):  # two alike may be chance
                    names = " and ".join(f"{key[2]} {key[3]}".strip() for key in (first, second))
                    yield f"{first[0]}: {same} of {len(row)} cells of {names} are equal"


SUMMARY = {
    ("fashionmnist", "localfedminmax"): (
        *((10, "ESG", 0.316, 0.092), (10, "PSG", 0.331, 0.007), (10, "SSG", 0.309, 0.013)),
        *((40, "ESG", 0.346, 0.081), (40, "PSG", 0.331, 0.021), (40, "SSG", 0.31, 0.005)),
    ),
    ("fashionmnist", "fedminmax"): (
        *((10, "ESG", 0.31, 0.005), (10, "PSG", 0.308, 0.012), (10, "SSG", 0.308, 0.003)),
        *((40, "ESG", 0.307, 0.01), (40, "PSG", 0.31, 0.008), (40, "SSG", 0.309, 0.011)),
    ),
    ("cifar10", "localfedminmax"): (
        *((10, "ESG", 0.358, 0.008), (10, "PSG", 0.353, 0.042), (10, "SSG", 0.352, 0.0)),
        *((40, "ESG", 0.381, 0.004), (40, "PSG", 0.378, 0.005), (40, "SSG", 0.352, 0.007)),
    ),
    ("cifar10", "fedminmax"): (
        *((10, "ESG", 0.352, 0.02), (10, "PSG", 0.351, 0.005), (10, "SSG", 0.351, 0.0)),
        *((40, "ESG", 0.351, 0.002), (40, "PSG", 0.351, 0.009), (40, "SSG", 0.351, 0.002)),
    ),
}
"""The paper's table of worst groups, of FedMinMax against LocalFedMinMax."""


def worst_of_the_summary() -> Iterator[str]:
    """Yield worst groups of the text's table that are not the worst of the appendix's columns."""
    rows = tables("risk")
    for (dataset, method), cells in SUMMARY.items():
        for clients, setting, mean, std in cells:
            row = rows[dataset + LOCAL_GLOBAL, clients, setting, method, ""]
            worst = max(row, key=lambda p: p.mean)
            if (worst.mean, worst.std) != (mean, std):
                yield (
                    f"{dataset}: {clients} clients, {setting} {method}: the summary has "
                    f"{mean}±{std}, the worst column ({worst.group}) {worst.mean}±{worst.std}"
                )


def groups_the_wrong_way_round() -> Iterator[str]:
    """Yield, for each race of ACS, how often the employed are worse off than the others."""
    figures = figures_of_paper("acs-employment")
    assert figures
    for race in ("White", "Black", "Other"):
        harder = easier = 0
        for run in figures.runs:
            employed = figures.cells["risk", run, f"Employed {race}"].mean
            others = figures.cells["risk", run, f"Unemployed {race}"].mean
            if run.method in ("fedavg", "qfedavg", "term"):
                harder, easier = harder + (employed > others), easier + (employed < others)
        yield (
            f"acs-employment: FedAvg, q-FedAvg and TERM have the higher risk on Employed {race} in "
            f"{harder} rows, on Unemployed {race} in {easier}"
        )


def beaten(dataset: str, figures: Figures) -> Iterator[str]:
    """Yield methods with a lower printed risk of the worst group than FedMinMax."""
    for setting in HETEROGENEITY:
        ours = figures.get("risk", figures.find("fedminmax", setting), "worst")
        for run in figures.runs:
            theirs = figures.get("risk", run, "worst")
            here = (run.clients, run.setting) == (figures.clients, setting)
            if here and ours and theirs and theirs.mean < ours.mean:
                yield (
                    f"{dataset}: {setting}, worst group: {run.method} {show(theirs)}, below "
                    f"FedMinMax's {show(ours)}"
                )


def risk_of_fedavg(dataset: str, figures: Figures) -> Iterator[str]:
    """Yield datasets on which FedAvg's worst risk does not rise from ESG to SSG.

    The text says so of the worst group's accuracy.
    """
    cells = {
        setting: cell
        for setting in HETEROGENEITY
        if (cell := figures.get("risk", figures.find("fedavg", setting), "worst"))
    }
    if cells["SSG"].mean <= cells["ESG"].mean:
        shown = ", ".join(f"{setting} {show(cell)}" for setting, cell in cells.items())
        yield f"{dataset}: FedAvg's worst risk does not rise from ESG to SSG: {shown}"
