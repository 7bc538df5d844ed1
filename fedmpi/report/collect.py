"""Finished runs as plain data, which the page and the figures for papers both draw.

    title, version, grid
    partitions: [{groups, clients, names, counts, sizes}]   each once, however many runs share it
    sections:   one for each dataset, and for each grid of fedmpi.reproduce
        data, groups, priors, settings, methods, notes, claims, optima, passes
        cells:  a method in a setting, over its seeds:
                {run, setting, method, seeds, stats, groups, worst_groups, intervals, h, trend}
        runs:   {name, path, method, setting, seed, facts, stats, groups, history, partition, ...}

A mean with its deviation is a pair [mean, std]; std is None where there is one seed. What is not
known is None. Names, orders and means are those of fedmpi.reproduce.statistics.
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
from fedmpi.card.baseline import find_baseline
from fedmpi.card.contents import card_of, data_facts
from fedmpi.data.settings import in_words
from fedmpi.errors import UserError
from fedmpi.report.hypothesis import GRID, learned, optima
from fedmpi.reproduce.claims import QUICK
from fedmpi.reproduce.gridfile import CLIENTS, NAME, TIMES, KeptRecord, short, thinned
from fedmpi.reproduce.statistics import (
    COSTS,
    OF_GROUP,
    SUMMARY,
    Mean,
    Means,
    dataset_order,
    dataset_title,
    label,
    means_of,
    method_order,
    method_title,
    number,
    option_facts,
    option_labels,
    passes_per_round,
    priors_of,
    run_of,
    setting_order,
    shared_notes,
)
from fedmpi.run.record import Record

POINTS = 400
"""A curve of the history has at most this many points."""

TREND = 200
"""A curve over the passes, which is drawn for every method, has this many points."""

TUNED_APART = "Options were tuned in each setting by itself: a run's are with its figures, below."

STATS = tuple((what, which) for what in ("risk", "accuracy") for which in SUMMARY)
GROUP = ("n_train", "n_test", *OF_GROUP, "risk_last", "accuracy_last")
INTERVALS = ("risk", "accuracy")


def collect(records: Sequence[Record], folders: Iterable[Path]) -> dict:
    """All that is shown of `records`, which were found in `folders`."""
    by_section: dict[tuple, list[Record]] = defaultdict(list)
    for record in records:
        _check(record)
        dataset, groups = record.result["dataset"], tuple(record.result["groups"])
        by_section[dataset_order(dataset), groups, _grid(record)].append(record)
    partitions = _Partitions()
    sections = [_section(by_section[key], partitions) for key in sorted(by_section)]
    _tell_apart(sections, [grid for _, _, grid in sorted(by_section)])
    lost = _add_claims(sections, folders)
    return {
        "title": _title(sections, records),
        "version": fedmpi.__version__,
        "grid": GRID.tolist(),
        "partitions": partitions.distinct,
        "sections": sections,
        "claims": lost,
    }


def _grid(record: Record) -> str:
    """The folder of the grid that a run is of, or "" for a run of its own.

    Grids stay apart: a quick look would otherwise be counted among the seeds of the whole.
    """
    if isinstance(record, KeptRecord):
        return str(record.folder.parent.parent.resolve())
    for folder in record.folder.resolve().parents[:2]:
        if any((folder / name).is_file() for name in ("claims.json", NAME)):
            return str(folder)
    return ""


def _tell_apart(sections: list[dict], grids: list[str]) -> None:
    """Add to titles that are the same what tells them apart, and nothing more.

    That is the folder of the file, the columns of the groups, the folder that the grid's is in, the
    grid's own, a number. Grids in results/ are the ones that the documentation calls solved.
    """
    names = [s["dataset"] for s in sections]
    files = [Path(name[4:]) if name.startswith("csv:") else None for name in names]
    near = [file.parent.name if file else "" for file in files]
    far = [str(file.parent) if file else "" for file in files]
    columns = [dict(s["data"]).get("groups by", "") for s in sections]
    of_grids = [Path(grid).name if grid else "" for grid in grids]
    above = [Path(grid).parent.name if grid else "" for grid in grids]
    above = ["solved" if name == "results" else name for name in above]
    numbers = [str(i + 1) for i in range(len(sections))]
    added: list[list[str]] = [[] for _ in sections]
    for kind in (near, far, columns, above, of_grids, numbers):
        same: dict[tuple, list[int]] = defaultdict(list)
        for i, section in enumerate(sections):
            same[(section["title"], *added[i])].append(i)
        for some in same.values():
            if len({kind[i] for i in some}) > 1:
                for i in some:
                    added[i] += [kind[i]] if kind[i] else []
    for section, words in zip(sections, added, strict=True):
        section["title"] += f" ({', '.join(words)})" if words else ""


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
    """Raise UserError for a result.json or config.json that is not one of ours."""
    groups = record.result.get("groups") if isinstance(record.result, dict) else None
    for name in ("method", "dataset"):
        if not groups or not isinstance(record.result.get(name), str):
            missing = name if groups else "groups"
            raise UserError(f"{record.folder}/result.json has no {missing!r}: not a run of fedmpi.")
    if not isinstance(groups, dict) or not all(isinstance(g, dict) for g in groups.values()):
        raise UserError(f"{record.folder}/result.json: its groups are not as fedmpi writes them.")
    try:
        run_of(record.config)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{record.folder}/config.json: not of a run of fedmpi ({error}).") from None


def _section(records: list[Record], partitions: _Partitions) -> dict:
    """Section of one dataset, or of one grid of the dataset."""
    dataset = records[0].result["dataset"]
    labels, notes = _labels(records)
    notes = [*shared_notes(records), *notes]
    methods = sorted(
        dict.fromkeys(zip((r.result["method"] for r in records), labels, strict=True)),
        key=lambda m: (method_order(m[0]), _natural(m[1])),
    )
    numbers = {label: i for i, (_, label) in enumerate(methods)}
    losses = sorted({str(loss) for r in records if (loss := r.config.get("loss"))})
    if len(losses) > 1:
        notes.append(f"Risks of different losses ({', '.join(losses)}) cannot be compared.")
    runs = [_run(r, numbers[label], partitions) for r, label in zip(records, labels, strict=True)]
    for run in runs:  # what stands above the figures already is not said again
        run["notes"] = [note for note in run["notes"] if f"{note}." not in notes]
    known = [run for run in runs if run["setting"]]
    settings = sorted({run["setting"] for run in known}, key=setting_order) or [""]
    groups = list(records[0].result["groups"])
    priors = priors_of([record.result for record in records])
    passes = np.linspace(0, max(_passes(run)[-1] for run in runs), TREND)
    section = {
        "dataset": dataset,
        "title": dataset_title(dataset),
        "data": _data(records),
        "loss": losses[0] if len(losses) == 1 else None,
        "groups": groups,
        "priors": [short(priors[name]) for name in groups] if priors else None,
        "settings": settings,
        "methods": [{"name": name, "label": label} for name, label in methods],
        "cells": _cells(runs, records, notes, methods, passes),
        "passes": [short(value) for value in passes],
        "runs": runs,
        "notes": notes,
        "claims": [],
        "optima": optima() if any(run["h"] for run in runs) else None,
    }
    if isinstance(records[0], KeptRecord):
        notes.append(_from_file(section, records[0].folder.parent.parent / NAME))
    return section


def _data(records: list[Record]) -> list[list[str]]:
    """What the rows are, as [name, value]: where from, target, groups, counts, who holds them."""
    rows: list[tuple[str, str | None]] = [*data_facts(records[0])]
    for title, key in (("training rows", "n_train"), ("test rows", "n_test")):
        counts = {_total(record.result["groups"], key) for record in records} - {None}
        if counts:
            least, most = min(counts), max(counts)  # type: ignore[type-var]
            rows.append((title, f"{least:,}" if least == most else f"{least:,} to {most:,}"))
    settings = sorted({run_of(record.config).setting for record in records}, key=setting_order)
    rows += [(setting, in_words(setting)) for setting in settings]
    return [[name, str(value)] for name, value in rows if value]


def _total(groups: dict, key: str) -> int | None:
    numbers = [number(group.get(key)) for group in groups.values()]
    return None if None in numbers else int(sum(numbers))  # type: ignore[arg-type]


def _from_file(section: dict, path: Path) -> str:
    """One line that says what is not shown because a grid file does not have it."""
    runs = section["runs"]
    known = {(c["setting"], c["method"]) for c in section["cells"] if any(c["groups"]["risk"])}
    without = [run for run in runs if not any(group["risk"] for group in run["groups"])]
    never = [r["method"] for r in without if (r["setting"], r["method"]) not in known]
    labels = ", ".join(section["methods"][m]["label"] for m in sorted(set(never)))
    of_groups = "the groups' risks and weights"
    drawn = sum(bool(run["history"]) for run in runs)
    lacks = {
        "curves over the rounds": not drawn,
        "curves and rates of seeds after the first three": 0 < drawn < len(runs),
        "who holds what": all(run["partition"] is None for run in runs),
        "h(x)": section["dataset"] == "synthetic" and not section["optima"],
        "the groups' shares of the training rows": not section["priors"],
        f"{of_groups} in single runs (their means are)": len(without) > len(never),
        f"{of_groups} with {labels}": bool(never),
    }
    missing = [name for name, lacking in lacks.items() if lacking]
    told = f" Not in it, and so not shown: {'; '.join(missing)}." if missing else ""
    return f"The folders of these runs are not here: this is from {path}.{told}"


def _natural(label: str) -> tuple:
    """Sort key of a label, with q = 5 before q = 10."""
    words = label.replace("(", "").replace(")", "").replace(",", "").split()
    return tuple((0, float(w), "") if _is_number(w) else (1, 0.0, w) for w in words)


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _labels(records: list[Record]) -> tuple[list[str], list[str]]:
    """Label of each run: the method's title, with the options that tell runs in a setting apart.

    Options that differ only between settings do not tell runs apart; a note says them. Nor do
    options that were tuned.
    """
    labels, notes = {}, []
    by_method: dict[str, list[tuple[Record, dict[str, str]]]] = defaultdict(list)
    for record in records:
        by_method[record.result["method"]].append((record, option_labels(record.config)))
    for method, runs in by_method.items():
        by_setting: dict[str, list[dict[str, str]]] = defaultdict(list)
        alike: dict[str, list[dict[str, str]]] = defaultdict(list)
        for record, said in runs:
            setting = run_of(record.config).setting
            by_setting[setting].append(said)
            alike[setting].append(given_of(record, said))
        names = list(dict.fromkeys(name for _, said in runs for name in said))
        telling = [
            name
            for name in names
            if any(len({said.get(name) for said in cell}) > 1 for cell in alike.values())
        ]
        for record, said in runs:
            given = given_of(record, said)
            labels[id(record)] = label(method, [given.get(name, "") for name in telling])
        tuned = {n for record, _ in runs for n in record.config.get("tuned_options") or ()}
        for name in names:
            values = {s: dict.fromkeys(x.get(name, "") for x in c) for s, c in by_setting.items()}
            if name in telling or len({x for found in values.values() for x in found}) < 2:
                continue
            if name in tuned:
                notes.append(TUNED_APART)
            else:
                told = ", ".join(
                    f"{' or '.join(x or 'none' for x in found)} in {setting}"
                    for setting, found in values.items()
                )
                notes.append(f"{method_title(method)} is not the same in all settings: {told}.")
    return [labels[id(record)] for record in records], list(dict.fromkeys(notes))


def given_of(record: Record, said: dict[str, str]) -> dict[str, str]:
    """What is said of a run's options, without those that were tuned."""
    tuned = record.config.get("tuned_options") or ()
    return {name: words for name, words in said.items() if name not in tuned}


def _run(record: Record, method: int, partitions: _Partitions) -> dict:
    """Data of one run, with notes on what cannot be read.

    What a grid file does not have is said once, in a note of the section.
    """
    result, config, notes = record.result, record.config, []
    groups = [
        {"name": name}
        | {key: number(group.get(key)) for key in GROUP}
        | {f"{key}_interval": _interval(group, key) for key in INTERVALS}
        for name, group in result["groups"].items()
    ]
    history = partition = None
    h: list[float | None] | None = None
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
    if isinstance(record, KeptRecord):
        h = record.h
        notes = [note for note in notes if history and "evenly" in note]
    elif result["dataset"] == "synthetic":
        try:
            h = [short(value) for value in learned(record)]
        except UserError as error:
            notes.append(str(error))
    stats = {f"{which}_{what}": result.get(f"{which}_{what}") for what, which in STATS}
    stats |= {cost: result.get(cost) for cost in COSTS}
    return {
        "name": record.folder.resolve().name,
        "path": str(record.folder),
        "method": method,
        "setting": run_of(config).setting,
        "seed": result.get("seed"),
        "facts": _facts(config, result),
        "stats": {key: number(value) for key, value in stats.items()},
        "worst_group": result.get("worst_group"),
        "intervals": {f"worst_{key}": _interval(result, f"worst_{key}") for key in INTERVALS},
        "reported": result.get("model"),
        "groups": groups,
        "history": history,
        "partition": partition,
        "h": h,
        "epochs": passes_per_round(config, result),
        "fairness": _fairness(_with_metrics(result)),
        "personal": _fairness(result.get("personal")),
        "notes": notes + [str(note) for note in config.get("notes") or []],
        "card": None if isinstance(record, KeptRecord) else card_of(record, find_baseline(record)),
    }


def _interval(values: dict, key: str) -> list[float] | None:
    """The 95% interval of a figure, as [low, high], to five digits as grid.json has it.

    None in the results of before.
    """
    ends = values.get(f"{key}_interval")
    if not isinstance(ends, list) or len(ends) != 2 or None in map(number, ends):
        return None
    return [x for x in map(short, ends) if x is not None]


def _facts(config: dict, result: dict) -> list[list[str]]:
    """Facts that a reader asks for first, as [name, value]."""
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
        *option_facts(config),
        ("precision", config.get("dtype")),
        ("training passes in", config.get("autocast")),
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
    shown = thinned(rows, POINTS)

    def curve(name: str) -> list | None:
        return [short(value) for value in columns[name][shown]] if name in columns else None

    def curves(kind: str) -> list | None:
        found = [curve(f"{kind}/{group}") for group in groups]
        return found if all(found) else None

    return {
        "rows": record.rows if isinstance(record, KeptRecord) else rows,
        "round": [int(value) for value in columns["round"][shown]],
        "risk": curves("risk"),
        "weight": curves("weight"),
        "time": {name: curve(name) for name in TIMES}
        if all(name in columns for name in TIMES)
        else None,
    }


class _Partitions:
    """Partitions of all runs: runs of a setting and a seed share one, so each is kept once."""

    def __init__(self) -> None:
        self.distinct: list[dict] = []
        self.numbers: dict[str, int] = {}

    def add(self, record: Record) -> int:
        """Number of the run's partition."""
        arrays = record.partition
        counts = np.asarray(arrays["counts"], dtype=np.int64)
        found = {
            "groups": [str(name) for name in arrays["groups"]],
            "clients": record.clients if isinstance(record, KeptRecord) else counts.shape[1],
            "names": [str(name) for name in arrays.get("clients", ())][:CLIENTS],
            "counts": counts[:, :CLIENTS].tolist(),
            "sizes": counts[:, :CLIENTS].sum(axis=0).tolist(),
        }
        key = json.dumps(found)
        if key not in self.numbers:
            self.numbers[key] = len(self.distinct)
            self.distinct.append(found)
        return self.numbers[key]


def _passes(run: dict) -> np.ndarray:
    """Passes over the training rows before each round of the history; 0 alone without a history.

    The risks of a round are of the theta that the round began with.
    """
    return run["epochs"] * (np.array(run["history"]["round"] if run["history"] else [1]) - 1)


def _trend(runs: list[dict], passes: np.ndarray) -> list | None:
    """Training risk of the worst group after so many passes, averaged over the seeds."""
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
    return [short(value) for value in np.mean(curves, axis=0)] if curves else None


def _cells(
    runs: list[dict],
    records: list[Record],
    notes: list[str],
    methods: list[tuple[str, str]],
    passes: np.ndarray,
) -> list[dict]:
    """Mean and deviation over the seeds, for each method in each setting."""
    by_cell: dict[tuple[str, int], dict[Any, tuple[dict, Record]]] = defaultdict(dict)
    for run, record in zip(runs, records, strict=True):
        cell = by_cell[run["setting"], run["method"]]
        if run["seed"] in cell:
            said = f"{methods[run['method']][1]}, {run['setting']}, seed {run['seed']}"
            notes.append(f"{said}: {run['path']} repeats a run, and is not counted in the means.")
        else:
            cell[run["seed"]] = run, record
    return [
        _cell([run for run, _ in cell.values()], [record for _, record in cell.values()], passes)
        for _, cell in sorted(
            by_cell.items(), key=lambda item: (setting_order(item[0][0]), item[0][1])
        )
    ]


def _cell(runs: list[dict], records: list[Record], passes: np.ndarray) -> dict:
    means = means_of(records)
    h = [run["h"] for run in runs if run["h"]]
    return {
        "run": list(run_of(records[0].config)),
        "setting": runs[0]["setting"],
        "method": runs[0]["method"],
        "seeds": [run["seed"] for run in runs],
        "stats": {f"{which}_{what}": _pair(means.get((what, which))) for what, which in STATS}
        | {cost: _pair(means.get((cost, ""))) for cost in COSTS},
        "worst_groups": list(dict.fromkeys(r["worst_group"] for r in runs if r["worst_group"])),
        "groups": {
            kind: [_pair(means.get((kind, group["name"]))) for group in runs[0]["groups"]]
            for kind in OF_GROUP
        },
        "intervals": _intervals(runs, means),
        "h": [short(value) for value in np.mean(h, axis=0)] if h else None,
        "trend": _trend(runs, passes),
    }


def _intervals(runs: list[dict], means: Means) -> dict | None:
    """Intervals of one run's groups and of its worst figures, or of means over seeds and rows.

    None of several runs without replicates of their test rows, of which only deviations are known.
    """
    if len(runs) > 1:
        known = {
            (kind, column): list(mean.interval)
            for (kind, column), mean in means.items()
            if mean.interval and kind in INTERVALS
        }
        of_means: dict = {f"{which}_{what}": known.get((what, which)) for what, which in STATS}
        for key in INTERVALS:
            of_means[key] = [known.get((key, group["name"])) for group in runs[0]["groups"]]
        return of_means if known else None
    of_groups = {key: [g[f"{key}_interval"] for g in runs[0]["groups"]] for key in INTERVALS}
    return runs[0]["intervals"] | of_groups


def _pair(mean: Mean | None) -> list[float | None] | None:
    return [mean.mean, mean.std] if mean else None


def _with_metrics(result: dict) -> Any:
    """The section `fairness` of result.json, with the figures of --metrics, if there are any."""
    told, fairness = result.get("metrics"), result.get("fairness")
    if not isinstance(told, dict):
        return fairness
    # Two of the numbers are in both sections.
    over = {name.replace(" ", "_"): x for name, x in (told.get("over_values") or {}).items()}
    figures = {**(told.get("values") or {}), "all": told.get("all")}
    return (fairness or {}) | over | {f"metrics by {told.get('by')}": figures}


def _fairness(tree: Any) -> list[dict] | None:
    """Tables of whatever the section `fairness`, or `personal`, of result.json holds.

    A branch is a table with a row for each child: a number is in the column `value`, a branch of
    numbers fills further columns. Deeper branches are further tables.
    """
    tables: list[dict] = []
    if isinstance(tree, dict):
        _tables(_with_intervals(tree), (), tables)
    return tables or None


def _with_intervals(tree: dict) -> dict:
    """`tree` with its intervals as text: a list would be no cell of a table."""
    told: dict = {}
    for name, value in tree.items():
        figure = name.removesuffix("_interval")
        if figure != name and figure in tree:
            told[f"{figure}, 95% interval"] = "–".join(f"{x:.3f}" for x in value or [])
        else:
            told[name] = _with_intervals(value) if isinstance(value, dict) else value
    return told


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
    return value if isinstance(value, str) else number(value)


def _add_claims(sections: list[dict], folders: Iterable[Path]) -> list[dict]:
    """Put the claims of claims.json files into the section of the runs beside; return the rest."""
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
            quick = [QUICK] if told.get("quick") else []
        except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
            notes = (target or sections[0])["notes"]
            notes.append(f"{path} cannot be read, so its claims are not shown: {error}.")
            continue
        (target["claims"] if target else lost).extend(claims)
        if target:
            target["notes"][:0] = quick
    return lost


def _claim(entry: dict) -> dict:
    return {
        "number": int(entry["number"]),
        "claim": str(entry["claim"]),
        "verdict": str(entry["verdict"]),
        "rule": str(entry.get("rule") or ""),
        "steps": str(entry.get("paper_steps") or ""),
        "paper": str(entry.get("paper_tables") or ""),
        "checks": [_check_of_claim(check) for check in entry["checks"]],
    }


def _check_of_claim(check: dict) -> tuple[str | None, str]:
    """Verdict of a check and its figures. A quick look decides nothing, so it has no verdict."""
    test = f". By test: {check['test']}; by the rule: {check['rule']}" if "test" in check else ""
    return check.get("verdict"), f"{check['figures']}{test}"
