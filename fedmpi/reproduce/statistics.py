"""Numbers of many runs: how a run is named and ordered, and its means over the seeds.

Tables, claims and the report all take their names, orders and means from here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmpi import data as datasets
from fedmpi import methods
from fedmpi.data.partition import SETTINGS as HETEROGENEITY
from fedmpi.errors import UserError
from fedmpi.intervals import Z
from fedmpi.methods.option import Option
from fedmpi.reproduce import paper
from fedmpi.run.config import IDENTITY, Config
from fedmpi.run.record import Record
from fedmpi.scoring import comparison
from fedmpi.scoring.comparison import ALPHA, estimate
from fedmpi.scoring.fairness import DIFFERENCES, RATES
from fedmpi.scoring.replicates import Replicates, read_replicates
from fedmpi.significance import Spread

PAPER = ("afl", "fedavg", "qfedavg", "term", "fedminmax", "localfedminmax", "centralized")
"""Methods of the paper's tables, in their order."""
ORDER = (*PAPER[:4], *(name for name in methods.FILES if name not in PAPER), *PAPER[4:])
"""Of our tables and figures: as the paper's, with the other methods before FedMinMax."""

RUN_OPTIONS = {
    "clients": "{} clients",
    "model": "{}",
    "loss": "{}",
    "rounds": "{} rounds",
    "lr": "η = {}",
    "skew": "skew {}",
    "limit_train": "{} training rows",
    "limit_test": "{} test rows",
    "rows": "{} rows",
    "states": "states {}",
    "dtype": "{}",
    "autocast": "trained in {}",
}
"""Options of every method that may differ between its runs, as they are said beside its title.

The options of the methods themselves declare their words: see fedmpi/methods/option.py.
"""

SETTINGS = ("ESG", "SSG", "PSG")
"""The order of the paper's tables, and so of ours.

Figures and claims have HETEROGENEITY instead, from shards that are alike to shards of one group:
there the eye follows a trend from left to right.
"""
SUMMARY = ("worst", "best", "average")
OF_GROUP = ("risk", "accuracy", "weight")
EXTREMES: tuple[tuple[str, str, Callable], ...] = (
    *(("risk", "worst", max), ("risk", "best", min)),
    *(("accuracy", "worst", min), ("accuracy", "best", max)),
)
"""Kind, column, and how it is found among the groups."""
PERSONAL = ("risk", "global_risk", "accuracy", "global_accuracy")
"""Of the clients' own models, and of the global model on the same rows, in result.json."""
COSTS = ("seconds", "seconds_per_round", "bytes_per_round", "peak_rss_mb")


OWN_TITLES: dict[str, str] = {}
"""Titles of methods of the user's own, by name, as the config.json of their runs have them.

The user's class is not imported for its title: a folder from elsewhere must not choose what is.
"""


def method_title(name: str) -> str:
    """Title of a method; for one of the user's own, what `run_of` has read, or its class's name."""
    if name in methods.FILES:
        return methods.find(name).title
    return OWN_TITLES.get(name) or name.rpartition(":")[2]


def dataset_title(name: str) -> str:
    """Title of a dataset; for a file or a class of the user's own, its name."""
    if name in datasets.FILES:
        return datasets.find(name).title
    kind, _, own = name.partition(":")
    return Path(own).name if kind == "csv" else own or name


@cache
def _declared() -> dict[str, Option]:
    return methods.all_options()


def own_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a method of the user's own was run with, of options that no method of ours has."""
    if config["method"] in methods.FILES:
        return {}
    known = {field.name for field in dataclasses.fields(Config)} | set(_declared())
    given = config.get(IDENTITY, config)
    return {name: x for name, x in given.items() if name not in known and x is not None}


def option_labels(config: Mapping[str, Any]) -> dict[str, str]:
    """Words for each option that may tell runs of a method apart, as in {"q": "q = 5"}.

    An option that was not given has no words.
    """
    labels = {name: _said(words, config.get(name)) for name, words in RUN_OPTIONS.items()}
    for name, option in _declared().items():
        value = config.get(name)
        labels[name] = "" if value is None else option.said(value)
    return labels | {name: _said(f"{name} = {{}}", x) for name, x in own_options(config).items()}


def option_facts(config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and values of the method's own options: the name is a sign where it has one."""
    formats = {name: option.label for name, option in _declared().items()}
    signs = {
        name: (label if isinstance(label, str) else "").partition(" = ")
        for name, label in formats.items()
    }
    facts = [
        (sign if equals else name.replace("_", " "), config.get(name))
        for name, (sign, equals, _) in signs.items()
    ]
    facts += own_options(config).items()
    return [(name, value) for name, value in facts if value is not None]


def _said(words: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        value = "+".join(map(str, value))
    text = f"{value:g}" if isinstance(value, float) else value
    return words.format(f"{text:,}" if isinstance(text, int) else text)


def label(method: str, details: Iterable[str] = ()) -> str:
    """Name of a run for people: the method's title, and in brackets what tells the run apart."""
    told = ", ".join(filter(None, details))
    return f"{method_title(method)} ({told})" if told else method_title(method)


def method_order(name: str) -> tuple:
    """Sort key of a method; methods of the user's own come last."""
    return _place(ORDER, name)


def dataset_order(name: str) -> tuple:
    """Sort key of a dataset; files of the user's own come last."""
    return _place(datasets.FILES, name)


def setting_order(name: str) -> tuple:
    """Sort key of a setting in figures."""
    return _place(HETEROGENEITY, name)


def _place(known: Iterable[str], name: str) -> tuple[int, str]:
    names = list(known)
    return names.index(name) if name in names else len(names), name


class Run(NamedTuple):
    """What was run, but for the seed. The centralized baseline has no clients and no setting."""

    clients: int
    setting: str
    method: str
    parameter: str
    """The method's own parameter as the paper's tables have it, as in "q=5.0"."""

    @property
    def order(self) -> tuple:
        """Sort key of the paper's tables; centralized last."""
        place = _place(SETTINGS, self.setting)
        return not self.setting, place, method_order(self.method), self.parameter, self.clients

    @property
    def label(self) -> str:
        """Name of the run in tables."""
        return label(self.method, [self.parameter])


class Mean(NamedTuple):
    """A mean over seeds; the sample standard deviation is None for one seed, or none printed."""

    mean: float
    std: float | None
    runs: int
    interval: tuple[float, float] | None = None
    """95% interval over seeds and test rows, where the runs have replicates (bootstrap.npz)."""


Means = dict[tuple[str, str], Mean]
"""Means of one Run by kind ("risk", "accuracy", "weight", a rate, a cost) and column (a group,
"worst", "best", "average", a value of the attribute, or nothing)."""


@dataclass
class Figures:
    """Means by kind ("risk", "accuracy", "weight", a rate), run, and group or other column."""

    groups: tuple[str, ...]
    cells: dict[tuple[str, Run, str], Mean] = field(default_factory=dict)
    priors: dict[str, float] = field(default_factory=dict)
    failures: dict[Run, list[str]] = field(default_factory=dict)
    results: dict[Run, dict[int, dict]] = field(default_factory=dict, compare=False)
    replicates: dict[Run, dict[int, Replicates]] = field(default_factory=dict, compare=False)
    """Contents of result.json, and replicates of the test rows, by seed."""

    @property
    def runs(self) -> list[Run]:
        """All runs that have figures or have failed, in the order of the paper."""
        found = {run for _, run, _ in self.cells} | set(self.failures)
        return sorted(found, key=lambda run: run.order)

    @property
    def clients(self) -> int:
        """K of the tables: the paper's 40, or the largest there is."""
        numbers = {run.clients for run in self.runs if run.setting}
        return paper.CLIENTS if paper.CLIENTS in numbers or not numbers else max(numbers)

    def get(self, kind: str, run: Run | None, column: str) -> Mean | None:
        """The mean in this cell, if there is one."""
        return self.cells.get((kind, run, column)) if run else None

    def find(self, method: str, setting: str, clients: int | None = None) -> Run | None:
        """The run of a method without regard to its parameter: the first there is."""
        clients = self.clients if clients is None else clients
        for run in self.runs:
            where = (run.clients, run.setting) if run.setting else (clients, setting)
            if run.method == method and where == (clients, setting):
                return run
        return None


def run_of(config: Mapping[str, Any]) -> Run:
    """What a run's config.json says was run."""
    name = config["method"]
    known = methods.find(name) if name in methods.FILES else None
    if not known and isinstance(title := config.get("title"), str):
        OWN_TITLES[name] = title
    options = known.options if known else ()
    tuned = config.get("tuned_options") or ()
    variants = [_variant(o, config.get(o.name)) for o in options if o.name not in tuned]
    variants += [f"{option}={value}" for option, value in own_options(config).items()]
    parameter = ", ".join(filter(None, variants))
    if known and known.single_client:
        return Run(0, "", name, parameter)
    return Run(config["clients"], config.get("setting") or "", name, parameter)


def _variant(option: Option, value: Any) -> str:
    """How a value tells rows of the paper's tables apart; nothing for an option that does not."""
    if not option.variant or value is None:
        return ""
    if isinstance(option.variant, str):
        return option.variant.format(option.type(value))
    return option.variant.get(value, "")


def number(value: Any) -> float | None:
    """`value` if it is a finite number, else None."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return value if known and math.isfinite(value) else None


def taking_part(config: Mapping[str, Any]) -> float:
    """Share of the clients that are in the cohort of a round."""
    cohort, clients = number(config.get("cohort")), number(config.get("clients"))
    return cohort / clients if cohort and clients else number(config.get("participation")) or 1


def passes_per_round(config: Mapping[str, Any], result: Mapping[str, Any]) -> float:
    """Passes over all training rows in a round: a batch and a cohort are parts of one."""
    rows = sum(number(group.get("n_train")) or 0 for group in result["groups"].values())
    batch = (number(config.get("batch_rows")) or 0) / rows if rows else 0
    return (number(config.get("local_epochs")) or min(batch, 1) or 1) * taking_part(config)


def over(numbers: Iterable[float | None]) -> Mean | None:
    """Mean and deviation of the numbers that are known; None if none is."""
    known = np.array([x for x in numbers if number(x) is not None], dtype=float)
    if not len(known):
        return None
    return Mean(
        float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else None, len(known)
    )


def means_of(records: Sequence[Record]) -> Means:
    """Means of the runs of one Run over their seeds.

    A record of a grid file knows means of as many runs or more, whose digits are whole (gridfile).
    """
    means: Means = dict(getattr(records[0], "means", {}))
    intervals = _intervals(replicates_of(records)) | rate_intervals([r.result for r in records])
    for kind, column, numbers in _columns([record.result for record in records]):
        mean, known = over(numbers), means.get((kind, column))
        if mean and not (known and known.runs >= mean.runs):
            means[kind, column] = mean._replace(interval=intervals.get((kind, column)))
    return means | _extremes(means)


def _extremes(means: Means) -> Means:
    """The worst and the best group of several runs: whose means are, as in the paper's tables.

    The mean of each run's own worst is larger, by the noise of every run's test rows.
    """
    found = {}
    for kind, column, pick in EXTREMES:
        of_groups = [m for (k, name), m in means.items() if k == kind and name not in SUMMARY]
        known = means.get((kind, column))
        if known and known.runs > 1 and of_groups:
            extreme = pick(of_groups, key=lambda mean: mean.mean)
            found[kind, column] = extreme._replace(interval=known.interval)
    return found


def replicates_of(records: Sequence[Record]) -> dict[int, Replicates]:
    """Replicates of runs that differ in their seed; none if not every run has its own."""
    found = {}
    for record in records:
        with contextlib.suppress(UserError):  # a file that cannot be read is as good as none
            if replicates := read_replicates(record.folder):
                found[record.result["seed"]] = replicates
    return found if len(found) == len(records) else {}


def _intervals(runs: dict[int, Replicates]) -> dict[tuple[str, str], tuple[float, float]]:
    """95% intervals over seeds and rows by kind and column, where there is one."""
    groups = next(iter(runs.values())).groups if runs else ()
    alike = all(run.groups == groups for run in runs.values())
    if not groups or not alike or set(groups) & set(SUMMARY):
        return {}
    found = {
        (kind, column): estimate(runs, column, kind).interval()
        for kind in comparison.KINDS
        for column in (*groups, *SUMMARY)
    }
    return {
        cell: (max(0.0, low), min(1.0, high) if cell[0] == "accuracy" else high)
        for cell, (low, high) in found.items()
        if not math.isnan(low + high)
    }


def rate_intervals(results: list[dict]) -> dict[tuple[str, str], tuple[float, float]]:
    """95% intervals over seeds and rows of the rates by attribute.

    The rows' part is Wilson's interval of one run, as if all seeds made their errors on the same
    rows: too wide where each seed has test rows of its own, never too narrow.
    """
    found = {}
    for value, rate, runs in _rates(results):
        numbers = [(run[rate], run.get(f"{rate}_interval")) for run in runs]
        known = [(x, ends) for x, ends in numbers if number(x) is not None and ends]
        if not known:
            continue
        means = np.array([x for x, _ in known])
        error = float(np.mean([high - low for _, (low, high) in known])) / (2 * Z)
        scatter = float(means.var(ddof=1)) / len(means) if len(means) > 1 else 0.0
        reach = Spread(scatter, len(means) - 1, error**2).reach(ALPHA / 2)
        mean = float(means.mean())
        found[rate, value] = max(0.0, mean - reach), min(1.0, mean + reach)
    return found


def _rates(results: list[dict]) -> Iterable[tuple[str, str, list[dict]]]:
    """Yield (value of the attribute, rate, what each run knows of the value)."""
    fairness = [f for result in results if isinstance(f := result.get("fairness"), dict)]
    by_value = [f["values"] for f in fairness if isinstance(f.get("values"), dict)]
    for value in dict.fromkeys(value for values in by_value for value in values):
        for rate in RATES:
            yield value, rate, [v[value] for v in by_value if rate in v.get(value, {})]


def _columns(results: list[dict]) -> Iterable[tuple[str, str, list]]:
    """Yield (kind, column, a number for each seed) of all that a table or a figure may show."""
    for name in dict.fromkeys(name for result in results for name in result["groups"]):
        of_group = [result["groups"].get(name, {}) for result in results]
        for kind in OF_GROUP:
            yield kind, name, [values.get(kind) for values in of_group]
    for column in SUMMARY:
        for kind in ("risk", "accuracy"):
            yield kind, column, [result.get(f"{column}_{kind}") for result in results]
    personal = [p for result in results if isinstance(p := result.get("personal"), dict)]
    for name in dict.fromkeys(name for p in personal for name in p["groups"]):
        for kind in PERSONAL:
            yield f"personal {kind}", name, [p["groups"].get(name, {}).get(kind) for p in personal]
    for cost in COSTS:
        yield cost, "", [result.get(cost) for result in results]
    fairness = [f for result in results if isinstance(f := result.get("fairness"), dict)]
    for value, rate, runs in _rates(results):
        yield rate, value, [run[rate] for run in runs]
    for difference in DIFFERENCES:
        yield difference, "", [f.get(difference) for f in fairness]


def priors_of(results: Sequence[dict]) -> dict[str, float]:
    """Shares of the groups in the training rows, averaged over the runs that know their rows."""
    shares: dict[str, list[float]] = {}
    for result in results:
        rows = {name: values.get("n_train") for name, values in result["groups"].items()}
        if None in rows.values() or not sum(rows.values()):
            continue
        for name, count in rows.items():
            shares.setdefault(name, []).append(count / sum(rows.values()))
    return {name: float(np.mean(found)) for name, found in shares.items()}


def shared_notes(records: Sequence[Record]) -> list[str]:
    """Notes that every run has: that the rows are those of one state, for one."""
    noted = [record.config.get("notes") or [] for record in records]
    first, others = (noted[0], noted[1:]) if noted else ([], [])
    return [f"{n}." for n in dict.fromkeys(first) if all(n in notes for notes in others)]


def figures_of(records: Sequence[Record], failures: Sequence[tuple[Run, str]] = ()) -> Figures:
    """The figures of finished runs, and of which there are none because they failed."""
    groups = tuple(dict.fromkeys(name for r in records for name in r.result["groups"]))
    figures = Figures(groups, priors=priors_of([record.result for record in records]))
    for run, why in failures:
        figures.failures.setdefault(run, []).append(why)
    by_run: dict[Run, list[Record]] = {}
    for record in records:
        by_run.setdefault(run_of(record.config), []).append(record)
    for run, found in by_run.items():
        if len(seeds := {record.result["seed"]: record.result for record in found}) == len(found):
            figures.results[run] = seeds
        figures.replicates[run] = replicates_of(found)
        for (kind, column), mean in means_of(found).items():
            figures.cells[kind, run, column] = mean
    return figures


def figures_of_paper(dataset: str) -> Figures | None:
    """Figures of the same kind from what the paper prints for a dataset; None if nothing.

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
            cell = Mean(p.mean, p.std, 3)
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
"""Shares of the training rows, where those of the paper's data are known."""
