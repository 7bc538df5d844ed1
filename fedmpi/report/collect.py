"""Finished runs as plain data, which the page and the figures for papers both draw.

    title, version, grid
    partitions: [{groups, counts}]              each once, however many runs share it
    sections:   a dataset each
        groups, priors, settings, methods, notes, claims, optima, passes
        cells:  a method in a setting, over its seeds:
                {setting, method, seeds, stats, groups, h, trend}
        runs:   {name, path, method, setting, seed, facts, result, history, partition, h, ...}

A mean with its deviation is a pair [mean, std]; std is None where there is one seed.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fedmpi
from fedmpi.data import FILES
from fedmpi.data.partition import SETTINGS
from fedmpi.errors import UserError
from fedmpi.report.hypothesis import GRID, learned, optima
from fedmpi.run.record import Record

POINTS = 400
"""A curve of the history has at most this many points."""

TREND = 200
"""And one over the passes, which is drawn for every method."""

CLIENTS = 1000
"""The heat map shows at most this many clients."""

METHODS = {
    "fedavg": "FedAvg",
    "qfedavg": "q-FedAvg",
    "term": "TERM",
    "afl": "AFL",
    "localfedminmax": "LocalFedMinMax",
    "fedminmax": "FedMinMax",
    "centralized": "Centralized",
}
"""In the order of the figures: from those that weigh nothing to those that weigh groups."""

TITLES = {
    "synthetic": "Synthetic",
    "adult": "Adult",
    "fashionmnist": "FashionMNIST",
    "cifar10": "CIFAR-10",
    "acs-employment": "ACS Employment",
    "acs-race": "ACS Employment by race",
}

# What may differ between runs of one method, as it is said beside the method's name.
OPTIONS = {
    "clients": "{} clients",
    "model": "{}",
    "loss": "{}",
    "rounds": "{} rounds",
    "lr": "η = {}",
    "lr_mu": "η_μ = {}",
    "epsilon": "ε = {}",
    "adversary": "{}",
    "local_epochs": "E = {}",
    "batch_size": "batch {}",
    "q": "q = {}",
    "tilt": "t = {}",
    "tilt_level": "{} tilt",
    "skew": "skew {}",
    "limit_train": "{} training rows",
    "limit_test": "{} test rows",
    "rows": "{} rows",
    "states": "states {}",
    "dtype": "{}",
}
STATS = tuple(
    f"{which}_{what}" for what in ("risk", "accuracy") for which in ("worst", "average", "best")
)
COSTS = ("seconds", "seconds_per_round", "bytes_per_round", "peak_rss_mb")
OF_GROUP = ("n_train", "n_test", "risk", "accuracy", "weight", "risk_last", "accuracy_last")


def collect(records: Sequence[Record], folders: Iterable[Path]) -> dict:
    """All that is shown of `records`, which were found in `folders`."""
    by_section: dict[tuple, list[Record]] = defaultdict(list)
    for record in records:
        _check(record)
        by_section[record.result["dataset"], tuple(record.result["groups"])].append(record)
    partitions = _Partitions()
    order = list(FILES)
    keys = sorted(by_section, key=lambda k: (order.index(k[0]) if k[0] in order else len(order), k))
    sections = [_section(by_section[key], partitions) for key in keys]
    lost = _add_claims(sections, folders)
    return {
        "title": _title(sections, records),
        "version": fedmpi.__version__,
        "grid": GRID.tolist(),
        "partitions": partitions.distinct,
        "sections": sections,
        "claims": lost,
    }


def _title(sections: list[dict], records: Sequence[Record]) -> str:
    names = ", ".join(dict.fromkeys(section["title"] for section in sections))
    if len(records) > 1:
        return f"{names}: {len(records)} runs"
    run, section = sections[0]["runs"][0], sections[0]
    return f"{names}: {_run_label(section, run)}"


def _run_label(section: dict, run: dict) -> str:
    parts = [section["methods"][run["method"]]["label"], run["setting"], f"seed {run['seed']}"]
    return ", ".join(filter(None, parts))


def _check(record: Record) -> None:
    """UserError for a result.json that is not one of ours."""
    groups = record.result.get("groups") if isinstance(record.result, dict) else None
    for name in ("method", "dataset"):
        if not groups or not isinstance(record.result.get(name), str):
            missing = name if groups else "groups"
            raise UserError(f"{record.folder}/result.json has no {missing!r}: not a run of fedmpi.")
    if not isinstance(groups, dict) or not all(isinstance(g, dict) for g in groups.values()):
        raise UserError(f"{record.folder}/result.json: its groups are not as fedmpi writes them.")


def _setting(record: Record) -> str:
    """The setting, or nothing for the baseline that has one client: it ignores --setting."""
    return "" if record.result["method"] == "centralized" else record.result.get("setting") or ""


def _notes_of_all(records: list[Record]) -> list[str]:
    """What every run has noted: of data that are a part of the dataset, for one."""
    first, *others = [record.config.get("notes") or [] for record in records]
    return [f"{note}." for note in first if all(note in notes for notes in others)]


def _section(records: list[Record], partitions: _Partitions) -> dict:
    """One dataset."""
    dataset = records[0].result["dataset"]
    labels, notes = _labels(records)
    notes = [*_notes_of_all(records), *notes]
    order = list(METHODS)
    methods = sorted(
        dict.fromkeys(zip((r.result["method"] for r in records), labels, strict=True)),
        key=lambda m: (order.index(m[0]) if m[0] in order else -1, m[0], _natural(m[1])),
    )
    numbers = {label: i for i, (_, label) in enumerate(methods)}
    losses = sorted({str(r.config.get("loss")) for r in records})
    if len(losses) > 1:
        notes.append(f"Risks of different losses ({', '.join(losses)}) cannot be compared.")
    runs = [_run(r, numbers[label], partitions) for r, label in zip(records, labels, strict=True)]
    known = [run for run in runs if run["setting"]]
    settings = sorted({run["setting"] for run in known}, key=_setting_order) or [""]
    sizes = np.array([[g["n_train"] or 0 for g in run["groups"]] for run in runs], dtype=float)
    priors = (sizes / np.maximum(1, sizes.sum(axis=1, keepdims=True))).mean(axis=0)
    passes = np.linspace(0, max(_passes(run)[-1] for run in runs), TREND)
    title = TITLES.get(dataset, dataset)
    return {
        "dataset": dataset,
        "title": title if not dataset.startswith("csv:") else Path(dataset[4:]).name,
        "loss": losses[0] if len(losses) == 1 else None,
        "groups": list(records[0].result["groups"]),
        "priors": [_short(p) for p in priors],
        "settings": settings,
        "methods": [{"name": name, "label": label} for name, label in methods],
        "cells": _cells(runs, notes, methods, passes),
        "passes": [_short(value) for value in passes],
        "runs": runs,
        "notes": notes,
        "claims": [],
        "optima": optima() if any(run["h"] for run in runs) else None,
    }


def _setting_order(setting: str) -> tuple:
    return (SETTINGS.index(setting) if setting in SETTINGS else len(SETTINGS), setting)


def _natural(label: str) -> tuple:
    """q = 5 before q = 10."""
    return tuple((0, float(w), "") if _is_number(w) else (1, 0.0, w) for w in label.split())


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _labels(records: list[Record]) -> tuple[list[str], list[str]]:
    """The method's name for each run, with the options that tell its runs in a setting apart.

    Options that differ only between settings do not; they are said in a note.
    """
    labels, notes = {}, []
    by_method: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_method[record.result["method"]].append(record)
    for method, runs in by_method.items():
        name = METHODS.get(method, method.rpartition(":")[2])
        by_setting: dict[str, list[Record]] = defaultdict(list)
        for record in runs:
            by_setting[_setting(record)].append(record)
        telling = [
            option
            for option in OPTIONS
            if any(len({_option(r, option) for r in cell}) > 1 for cell in by_setting.values())
        ]
        for record in runs:
            tags = [_option(record, option) for option in telling]
            labels[id(record)] = ", ".join([name, *filter(None, tags)])
        for option in OPTIONS:
            values = {s: _option(cell[0], option) for s, cell in by_setting.items()}
            if option not in telling and len(set(values.values())) > 1:
                said = ", ".join(f"{value or 'none'} in {s}" for s, value in values.items())
                notes.append(f"{name} is not the same in all settings: {said}.")
    return [labels[id(record)] for record in records], notes


def _option(record: Record, option: str) -> str:
    value = record.config.get(option)
    if value is None:
        return ""
    if isinstance(value, list):
        value = "+".join(map(str, value))
    text = (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
    return OPTIONS[option].format(text)


def _run(record: Record, method: int, partitions: _Partitions) -> dict:
    """One run. What cannot be read is said in its notes."""
    result, config, notes = record.result, record.config, []
    groups = [
        {"name": name} | {key: _number(group.get(key)) for key in OF_GROUP}
        for name, group in result["groups"].items()
    ]
    history = partition = h = None
    try:
        history = _history(record, [g["name"] for g in groups])
        if history["rows"] > len(history["round"]):
            shown = f"{len(history['round'])} of {history['rows']:,}"
            notes.append(f"The curves show {shown} rows of history.csv, evenly spaced.")
    except FileNotFoundError:
        notes.append("There is no history.csv, so nothing over the rounds is drawn.")
    except (OSError, ValueError, KeyError) as error:
        notes.append(f"history.csv cannot be read, so nothing over the rounds is drawn: {error}.")
    try:
        partition = partitions.add(record)
    except FileNotFoundError:
        notes.append("There is no partition.npz, so who holds what is not drawn.")
    except Exception as error:  # numpy and zipfile raise all sorts on a damaged file
        notes.append(f"partition.npz cannot be read, so who holds what is not drawn: {error}.")
    if result["dataset"] == "synthetic":
        try:
            h = [_short(value) for value in learned(record)]
        except UserError as error:
            notes.append(str(error))
    return {
        "name": record.folder.resolve().name,
        "path": str(record.folder),
        "method": method,
        "setting": _setting(record),
        "seed": result.get("seed"),
        "facts": _facts(config, result),
        "stats": {key: _number(result.get(key)) for key in (*STATS, *COSTS)},
        "worst_group": result.get("worst_group"),
        "reported": result.get("model"),
        "groups": groups,
        "history": history,
        "partition": partition,
        "h": h,
        "epochs": _number(config.get("local_epochs")) or 1,
        "fairness": _fairness(result.get("fairness")),
        "notes": notes + [str(note) for note in config.get("notes") or []],
    }


def _facts(config: dict, result: dict) -> list[list[str]]:
    """What a reader asks first, as [name, value]."""
    layout, versions = config.get("layout") or {}, config.get("versions") or {}
    parameters = config.get("parameters")
    rows: list[tuple[str, Any]] = [
        ("rounds", result.get("rounds")),
        ("clients", result.get("clients")),
        ("ranks", layout.get("ranks")),
        ("model", config.get("model")),
        ("parameters", parameters),
        ("loss", config.get("loss")),
        ("η_θ", config.get("lr")),
        ("η_μ", config.get("lr_mu")),
        ("ε", config.get("epsilon")),
        ("local epochs", config.get("local_epochs")),
        ("batch", config.get("batch_size")),
        ("q", config.get("q")),
        ("t", config.get("tilt")),
        ("precision", config.get("dtype")),
        ("device", layout.get("device")),
        ("MPI", versions.get("mpi")),
        ("fedmpi", versions.get("fedmpi")),
    ]
    return [[k, f"{v:,}" if isinstance(v, int) else str(v)] for k, v in rows if v is not None]


def _history(record: Record, groups: list[str]) -> dict:
    """The curves of history.csv, of at most POINTS points."""
    columns = record.history
    rows = len(columns["round"])
    if not rows:
        raise ValueError("it has no rows")
    shown = np.unique(np.linspace(0, rows - 1, min(rows, POINTS)).round().astype(int))

    def curve(name: str) -> list | None:
        return [_short(value) for value in columns[name][shown]] if name in columns else None

    def curves(kind: str) -> list | None:
        found = [curve(f"{kind}/{group}") for group in groups]
        return found if all(found) else None

    return {
        "rows": rows,
        "round": [int(value) for value in columns["round"][shown]],
        "risk": curves("risk"),
        "weight": curves("weight"),
        "time": {name: curve(name) for name in ("compute", "exchange", "wait")}
        if all(name in columns for name in ("compute", "exchange", "wait"))
        else None,
    }


class _Partitions:
    """Who holds what. Runs of a setting and a seed share it, so it is kept once."""

    def __init__(self) -> None:
        self.distinct: list[dict] = []
        self.numbers: dict[str, int] = {}

    def add(self, record: Record) -> int:
        """The number of the run's partition."""
        arrays = record.partition
        counts = np.asarray(arrays["counts"], dtype=np.int64)
        found = {
            "groups": [str(name) for name in arrays["groups"]],
            "clients": counts.shape[1],
            "counts": counts[:, :CLIENTS].tolist(),
            "sizes": counts[:, :CLIENTS].sum(axis=0).tolist(),
        }
        key = json.dumps(found)
        if key not in self.numbers:
            self.numbers[key] = len(self.distinct)
            self.distinct.append(found)
        return self.numbers[key]


def _passes(run: dict) -> np.ndarray:
    """Over the training rows, before each round of the history: 0 alone where there is none.

    The risks of a round are of the theta that it began with.
    """
    return run["epochs"] * (np.array(run["history"]["round"] if run["history"] else [1]) - 1)


def _trend(runs: list[dict], passes: np.ndarray) -> list | None:
    """The worst group's training risk after so many passes, the mean over the seeds."""
    curves = [
        np.interp(
            passes,
            _passes(run),
            np.fmax.reduce(np.array(run["history"]["risk"], dtype=float)),  # nan: no rows
            right=np.nan,
        )
        for run in runs
        if run["history"] and run["history"]["risk"]
    ]
    return [_short(value) for value in np.mean(curves, axis=0)] if curves else None


def _cells(
    runs: list[dict], notes: list[str], methods: list[tuple[str, str]], passes: np.ndarray
) -> list[dict]:
    """Mean and deviation over the seeds, for each method in each setting."""
    by_cell: dict[tuple[str, int], dict[Any, dict]] = defaultdict(dict)
    for run in runs:
        cell = by_cell[run["setting"], run["method"]]
        if run["seed"] in cell:
            said = f"{methods[run['method']][1]}, {run['setting']}, seed {run['seed']}"
            notes.append(f"{said}: {run['path']} repeats a run, and is not counted in the means.")
        else:
            cell[run["seed"]] = run
    return [
        _cell(setting, method, list(cell.values()), passes)
        for (setting, method), cell in sorted(
            by_cell.items(), key=lambda item: (_setting_order(item[0][0]), item[0][1])
        )
    ]


def _cell(setting: str, method: int, runs: list[dict], passes: np.ndarray) -> dict:
    worst = list(dict.fromkeys(run["worst_group"] for run in runs if run["worst_group"]))
    h = [run["h"] for run in runs if run["h"]]
    return {
        "setting": setting,
        "method": method,
        "seeds": [run["seed"] for run in runs],
        "stats": {key: _mean_std(run["stats"][key] for run in runs) for key in (*STATS, *COSTS)},
        "worst_groups": worst,
        "groups": {
            key: [
                _mean_std(run["groups"][a][key] for run in runs)
                for a in range(len(runs[0]["groups"]))
            ]
            for key in OF_GROUP
        },
        "h": [_short(value) for value in np.mean(h, axis=0)] if h else None,
        "trend": _trend(runs, passes),
    }


def _mean_std(values: Iterable[float | None]) -> list[float | None] | None:
    """[mean, sample standard deviation], or None where nothing is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return [float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None]


def _number(value: Any) -> float | None:
    """`value` if it is a number that JSON can hold."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number and math.isfinite(value) else None


def _short(value: float) -> float | None:
    """Five digits: more cannot be seen in a figure, and the file is half as long."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _fairness(tree: Any) -> list[dict] | None:
    """Whatever the section `fairness` of result.json holds, as tables.

    A branch is a table, a row for each child: a number is in the column `value`, a branch of
    numbers fills columns of its own. Deeper branches are tables of their own.
    """
    tables: list[dict] = []
    if isinstance(tree, dict):
        _tables(tree, (), tables)
    return tables or None


def _tables(tree: dict, path: tuple[str, ...], tables: list[dict]) -> None:
    single = {k: v for k, v in tree.items() if not isinstance(v, dict | list)}
    several = {
        k: v
        for k, v in tree.items()
        if isinstance(v, dict) and v and not any(isinstance(x, dict | list) for x in v.values())
    }
    names = list(dict.fromkeys(name for child in several.values() for name in child))
    rows = [
        [str(key), *(_cell_value(child.get(n)) for n in names)] for key, child in several.items()
    ]
    if single:
        rows = [[*row, None] for row in rows]
        rows += [[str(key), *(None for _ in names), _cell_value(v)] for key, v in single.items()]
        names.append("value")
    if rows:
        columns = ["", *map(str, names)]
        tables.append({"title": " / ".join(path), "columns": columns, "rows": rows})
    for key, child in tree.items():
        if isinstance(child, dict) and key not in several:
            _tables(child, (*path, str(key)), tables)


def _cell_value(value: Any) -> Any:
    return value if isinstance(value, str) else _number(value)


def _add_claims(sections: list[dict], folders: Iterable[Path]) -> list[dict]:
    """Put what claims.json files say into the section of the runs beside them; return the rest."""
    files = {
        path.resolve(): None
        for folder in folders
        for path in [folder / "claims.json", *sorted(folder.rglob("*/claims.json"))]
        if path.is_file()
    }
    lost: list[dict] = []
    for path in files:
        beside = [
            section
            for section in sections
            if any(
                Path(run["path"]).resolve().is_relative_to(path.parent) for run in section["runs"]
            )
        ]
        target = beside[0] if len(beside) == 1 else None
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            claims = [_claim(entry) for entry in told["claims"]]
        except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
            notes = (target or sections[0])["notes"]
            notes.append(f"{path} cannot be read, so its claims are not shown: {error}.")
            continue
        (target["claims"] if target else lost).extend(claims)
    return lost


def _claim(entry: dict) -> dict:
    return {
        "number": int(entry["number"]),
        "claim": str(entry["claim"]),
        "verdict": str(entry["verdict"]),
        "paper": str(entry.get("paper_tables") or ""),
        "checks": [(str(check["verdict"]), str(check["figures"])) for check in entry["checks"]],
    }
