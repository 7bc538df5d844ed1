"""The figures of many runs, by what was run and over the seeds; ours, or the paper's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedmpi.federation.fairness import DIFFERENCES, RATES
from fedmpi.reproduce import paper
from fedmpi.run.record import Record

SETTINGS = ("ESG", "SSG", "PSG")
"""In the order of the paper's tables."""
ORDER = ("afl", "fedavg", "qfedavg", "term", "fedminmax", "localfedminmax", "centralized")
SUMMARY = ("worst", "best", "average")


class Run(NamedTuple):
    """What was run, but for the seed. The centralized baseline has no clients and no setting."""

    clients: int
    setting: str
    method: str
    parameter: str

    @property
    def order(self) -> tuple:
        """Of the paper's tables; centralized last."""
        single = not self.setting
        setting = SETTINGS.index(self.setting) if self.setting in SETTINGS else len(SETTINGS)
        method = ORDER.index(self.method) if self.method in ORDER else len(ORDER)
        return single, setting, method, self.method, self.parameter, self.clients


class Cell(NamedTuple):
    """A mean over seeds; the sample standard deviation is None for one seed, or none printed."""

    mean: float
    std: float | None
    runs: int


@dataclass
class Figures:
    """Means by kind ("risk", "accuracy", "weight", a rate), run, and group or other column."""

    groups: tuple[str, ...]
    cells: dict[tuple[str, Run, str], Cell] = field(default_factory=dict)
    priors: dict[str, float] = field(default_factory=dict)
    failures: dict[Run, list[str]] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """All that have figures or have failed, in the order of the paper."""
        found = {run for _, run, _ in self.cells} | set(self.failures)
        return sorted(found, key=lambda run: run.order)

    @property
    def clients(self) -> int:
        """K of the tables: the paper's 40, or the largest there is."""
        numbers = {run.clients for run in self.runs if run.setting}
        return paper.CLIENTS if paper.CLIENTS in numbers or not numbers else max(numbers)

    def get(self, kind: str, run: Run | None, column: str) -> Cell | None:
        return self.cells.get((kind, run, column)) if run else None

    def find(self, method: str, setting: str, clients: int | None = None) -> Run | None:
        """The run of a method without regard to its parameter: the first there is."""
        clients = self.clients if clients is None else clients
        for run in self.runs:
            where = (run.clients, run.setting) if run.setting else (clients, setting)
            if run.method == method and where == (clients, setting):
                return run
        return None


def run_of(config: dict) -> Run:
    """What a run's config.json says was run."""
    parameter = ""
    if config["method"] == "qfedavg":
        parameter = f"q={float(config['q'])}"
    elif config["method"] == "term":
        level = ", rows" if config["tilt_level"] == "sample" else ""
        parameter = f"t={float(config['tilt'])}{level}"
    if config["method"] == "centralized":
        return Run(0, "", config["method"], parameter)
    return Run(config["clients"], config["setting"], config["method"], parameter)


def over(numbers: Iterable[float | None]) -> Cell | None:
    """The mean and the deviation of what there is."""
    known = np.array([x for x in numbers if x is not None])
    if not len(known):
        return None
    return Cell(
        float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else None, len(known)
    )


def figures_of(records: list[Record], failures: list[tuple[Run, str]] = ()) -> Figures:  # type: ignore[assignment]
    """The figures of finished runs, and of which there are none because they failed."""
    groups = tuple(dict.fromkeys(name for r in records for name in r.result["groups"]))
    figures = Figures(groups)
    for run, why in failures:
        figures.failures.setdefault(run, []).append(why)
    by_run: dict[Run, list[dict]] = {}
    for record in records:
        by_run.setdefault(run_of(record.config), []).append(record.result)
    for run, results in by_run.items():
        for column, kind, numbers in _columns(groups, results):
            cell = over(numbers)
            if cell:
                figures.cells[kind, run, column] = cell
    for name in groups:
        prior = over(_prior(record.result, name) for record in records)
        figures.priors[name] = prior.mean if prior else 0.0
    return figures


def _prior(result: dict, name: str) -> float | None:
    rows = {group: values["n_train"] for group, values in result["groups"].items()}
    return rows[name] / sum(rows.values()) if name in rows else None


def _columns(groups: tuple[str, ...], results: list[dict]) -> Iterable[tuple[str, str, list]]:
    """(column, kind, a number for each seed) of all that a table may show."""
    for name in groups:
        of_group = [result["groups"].get(name, {}) for result in results]
        for kind in ("risk", "accuracy", "weight"):
            yield name, kind, [values.get(kind) for values in of_group]
    for column in SUMMARY:
        for kind in ("risk", "accuracy"):
            yield column, kind, [result[f"{column}_{kind}"] for result in results]
    fairness = [result["fairness"] for result in results if result.get("fairness")]
    for value in dict.fromkeys(value for f in fairness for value in f["values"]):
        for rate in RATES:
            yield value, rate, [f["values"].get(value, {}).get(rate) for f in fairness]
    for difference in DIFFERENCES:
        yield "", difference, [f[difference] for f in fairness]


def figures_of_paper(dataset: str) -> Figures | None:
    """What the paper prints for a dataset, as figures of the same kind; None if nothing.

    The worst group is the one with the highest printed mean, with its deviation: the paper prints
    no worst over runs but for the synthetic data, whose groups it calls worst and best.
    """
    names = (dataset, dataset + paper.LOCAL_GLOBAL)
    found = {kind: [p for p in paper.printed(kind) if p.dataset in names] for kind in KINDS}
    if not found["risk"]:
        return None
    figures = Figures(tuple(dict.fromkeys(p.group for p in found["risk"])))
    for kind, numbers in found.items():
        for p in numbers:
            run = Run(p.clients if p.setting else 0, p.setting, p.method, p.parameter)
            cell = Cell(p.mean, p.std, 3)
            figures.cells.setdefault((kind, run, p.group), cell)
    for run in figures.runs:
        risks = [figures.cells["risk", run, name] for name in figures.groups]
        figures.cells.setdefault(("risk", run, "worst"), max(risks))
    figures.priors = PRIORS.get(dataset, {})
    return figures


KINDS = ("risk", "weight")
PRIORS = {
    "synthetic": {"worst": 0.5, "best": 0.5},
    "adult": {
        "Males earning <= 50K": 15128 / 32561,
        "Males earning > 50K": 6662 / 32561,
        "Females earning <= 50K": 9592 / 32561,
        "Females earning > 50K": 1179 / 32561,
    },
} | {
    name: {p.group: 0.1 for p in paper.printed("weight") if p.dataset == name}
    for name in ("fashionmnist", "cifar10")
}
"""Of the training rows, where we know those of the paper's data."""
