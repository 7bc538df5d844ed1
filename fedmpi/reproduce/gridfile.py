"""grid.json: all finished runs of a grid in one small file, which the report can read instead.

The folders of the runs are too large to be kept in git; this file is not. It holds

    format       1
    config       what the configurations of all runs share
    runs         one a line: {name, config, result, history, partition, h}
    partitions   counts of rows, groups x clients, each once, however many runs have it
    means        over the seeds, with all digits

`config` of a run has what it does not share, of the entries that tables and report use. `result` is
result.json without confusion counts; `history` is history.csv, thinned (`rows` says how many rows
there were). Their numbers have five digits. Only the first DETAILED seeds of a method in a setting
have a `history` and rates by attribute: with those of all seeds a file would be mostly curves.
`partition` is a number in `partitions`; `h` is the
learned function of the synthetic data. What is not known is left out. `means` has, for each
combination of clients, setting, method and parameter, {kind: {column: [mean, std, runs, [low,
high]]}}, with the 95% interval over seeds and test rows, where there is one. Of some results the
means are all that was kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedmpi.errors import UserError
from fedmpi.reproduce.statistics import (
    Mean,
    Means,
    Run,
    means_of,
    option_labels,
    own_options,
    run_of,
)
from fedmpi.run.config import IDENTITY
from fedmpi.run.folder import RunFolder
from fedmpi.run.record import Record, find_records, read_record

NAME = "grid.json"
TUNING = "tuning"
FORMAT = 1
NUMBERS = 40_000
"""The curves of a file have about this many numbers: 0.3 MB."""
POINTS = (16, 400)
"""A curve has at least and at most this many points."""
DETAILED = 3
"""Seeds of a method in a setting that keep their curves and rates."""
CLIENTS = 1000
"""A partition is kept of at most this many clients: more cannot be seen in a heat map."""
TIMES = ("compute", "exchange", "wait")
CONFIG = (
    *("method", "title", "dataset", "target", "group", "setting", "seed", "tuned"),
    "tuned_options",
    *("parameters", "notes"),
)
"""Entries of config.json that are kept, beside the options that `option_labels` has."""
NESTED = {"layout": ("ranks", "device"), "versions": ("fedmpi", "mpi")}
"""Entries of config.json of which some entries are kept. No path and no host is among them."""


@dataclass(frozen=True, eq=False)
class KeptRecord(Record):
    """A finished run that was read from a grid file. Its folder need not be there."""

    kept: dict = field(default_factory=dict)
    means: Means = field(default_factory=dict)
    """Means over the seeds of what was run, with all digits."""

    @cached_property
    def history(self) -> dict[str, np.ndarray]:
        """The columns of history.csv, thinned."""
        return {
            name: np.array([math.nan if x is None else x for x in column], dtype=float)
            for name, column in self._part("history")["columns"].items()
        }

    @property
    def rows(self) -> int:
        """Number of rows that history.csv had."""
        return self._part("history")["rows"]

    @cached_property
    def partition(self) -> dict[str, np.ndarray]:
        """`counts`, groups x clients, of at most CLIENTS clients, and the names of the `groups`."""
        part = self._part("partition")
        return {name: np.array(part[name]) for name in ("groups", "counts")}

    @property
    def clients(self) -> int:
        """Number of clients of the partition."""
        return self._part("partition")["clients"]

    @property
    def h(self) -> list[float | None] | None:
        """P(Y = 1 | x) of the reported model on the report's grid, synthetic data only."""
        return self.kept.get("h")

    def _part(self, name: str) -> dict:
        if name not in self.kept:
            raise FileNotFoundError(f"{NAME} has no {name} of this run")
        return self.kept[name]


def short(value: float) -> float | None:
    """`value` to five digits: more cannot be seen in a figure. None if it is not finite."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def thinned(count: int, points: int) -> np.ndarray:
    """Numbers of at most `points` of `count` rows, evenly spaced, first and last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, points)).round().astype(int))


def write_grid(folder: Path, records: Sequence[Record]) -> None:
    """Write the grid file of a folder of results, from the folders of its runs."""
    if not records or any(isinstance(record, KeptRecord) for record in records):
        return
    configs = [_config(record.config) for record in records]
    shared = {
        key: value
        for key, value in configs[0].items()
        if all(key in config and config[key] == value for config in configs)
    }
    detailed = _detailed(records)
    columns = sum(len(_curves(record)) for record in detailed)
    points = min(POINTS[1], max(POINTS[0], NUMBERS // max(1, columns)))
    partitions: list[dict] = []
    runs = []
    for record, config in zip(records, configs, strict=True):
        run: dict[str, Any] = {"name": record.folder.name}
        run["config"] = {key: value for key, value in config.items() if key not in shared}
        run["result"] = _result(record.result)
        if record not in detailed:
            run["result"].pop("fairness", None)
        elif history := _history(record, points):
            run["history"] = history
        if partition := _partition(record):
            if partition not in partitions:
                partitions.append(partition)
            run["partition"] = partitions.index(partition)
        if h := _learned(record):
            run["h"] = h
        runs.append(run)
    text = dumps(shared, runs, partitions, _means(records))
    RunFolder(folder).write(NAME, lambda file: file.write(text.encode()))


def _detailed(records: Sequence[Record]) -> list[Record]:
    """Return the records of the first seeds of each method in a setting."""
    by_run: dict[Run, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.result["seed"]):
        by_run.setdefault(run_of(record.config), []).append(record)
    return [record for found in by_run.values() for record in found[:DETAILED]]


def dumps(
    config: dict, runs: list[dict], partitions: list[dict], means: Sequence[dict] = ()
) -> str:
    """Text of a grid file: a line for each run, so that a change is seen where it is."""

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    parts = {"format": text(FORMAT), "config": text(config)}
    for name, entries in (("runs", runs), ("partitions", partitions), ("means", means)):
        parts[name] = "[\n" + ",\n".join(map(text, entries)) + "\n]" if entries else "[]"
    return "{\n" + ",\n".join(f'"{name}":{value}' for name, value in parts.items()) + "\n}\n"


def _means(records: Sequence[Record]) -> list[dict]:
    """Means over the seeds, of which the numbers of the runs in the file are too short."""
    by_run: dict[Run, list[Record]] = {}
    for record in records:
        by_run.setdefault(run_of(record.config), []).append(record)
    entries = []
    for run, found in by_run.items():
        means: dict[str, dict[str, list]] = {}
        for (kind, column), mean in means_of(found).items():
            ends = [list(mean.interval)] if mean.interval else []
            means.setdefault(kind, {})[column] = [*mean[:3], *ends]
        entries += [run._asdict() | {"means": means}] if means else []
    return entries


def _config(config: dict) -> dict:
    names = dict.fromkeys((*CONFIG, *option_labels(config)))
    found = {name: config[name] for name in names if config.get(name) not in (None, [])}
    found["dataset"] = without_folder(config["dataset"])
    if "tuned" in found:
        found["tuned"] = Path(found["tuned"]).name
    if own := own_options(config):
        found[IDENTITY] = own
    for name, entries in NESTED.items():
        inner = config.get(name) or {}
        found[name] = {entry: inner[entry] for entry in entries if entry in inner}
    return found


def without_folder(dataset: str) -> str:
    """Name of a dataset as it is kept with results: a file's without the folders of a machine."""
    kind, _, file = dataset.partition(":")
    return f"csv:{Path(file).name}" if kind == "csv" else dataset


def _result(result: dict) -> dict:
    groups = {
        name: {key: value for key, value in values.items() if key != "confusion"}
        for name, values in result["groups"].items()
    }
    return _kept(result | {"groups": groups, "dataset": without_folder(result["dataset"])})


def _kept(tree: Any) -> Any:
    """Return `tree` with short numbers, and None for those that JSON does not have."""
    if isinstance(tree, dict):
        return {key: _kept(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_kept(value) for value in tree]
    return short(tree) if isinstance(tree, float) else tree


def _curves(record: Record) -> list[str]:
    """Names of the columns of history.csv that the report draws; none if it cannot be read."""
    try:
        names = list(record.history)
    except (OSError, ValueError):
        return []
    return [n for n in names if n in ("round", *TIMES) or n.startswith(("risk/", "weight/"))]


def _history(record: Record, points: int) -> dict | None:
    names = _curves(record)
    rows = len(record.history["round"]) if "round" in names else 0
    if not rows:
        return None
    shown = thinned(rows, points)
    columns = {name: [short(x) for x in record.history[name][shown]] for name in names}
    columns["round"] = [int(x) for x in record.history["round"][shown]]
    return {"rows": rows, "columns": columns}


def _partition(record: Record) -> dict | None:
    try:
        arrays = record.partition
        counts = np.asarray(arrays["counts"], dtype=np.int64)
    except Exception:  # numpy and zipfile raise all sorts on a damaged file
        return None
    return {
        "groups": [str(name) for name in arrays["groups"]],
        "clients": counts.shape[1],
        "counts": counts[:, :CLIENTS].tolist(),
    }


def _learned(record: Record) -> list[float | None] | None:
    from fedmpi.report.hypothesis import learned

    if record.result["dataset"] != "synthetic":
        return None
    try:
        return [short(value) for value in learned(record)]
    except UserError:
        return None


def read_grid(path: Path) -> list[KeptRecord]:
    """The runs in a grid file."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["format"] != FORMAT:
            raise ValueError(f"its format is {told['format']}, and this fedmpi reads {FORMAT}")
        means: dict[Run, Means] = {}
        for entry in told["means"]:
            run = Run(entry["clients"], entry["setting"], entry["method"], entry["parameter"])
            means[run] = {
                (kind, column): _mean(*values)
                for kind, columns in entry["means"].items()
                for column, values in columns.items()
            }
        records = []
        for run in told["runs"]:
            kept = {name: run[name] for name in ("history", "h") if name in run}
            if "partition" in run:
                kept["partition"] = told["partitions"][run["partition"]]
            config = told["config"] | run["config"]
            folder = path.parent / "runs" / run["name"]
            known = means.get(run_of(config), {})
            records.append(KeptRecord(folder, config, run["result"], kept, known))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"{path} cannot be read as a grid of runs: {error!r}.") from None
    return records


def _mean(
    mean: float, std: float | None, runs: int, interval: Sequence[float] | None = None
) -> Mean:
    return Mean(mean, std, runs, (interval[0], interval[1]) if interval else None)


def runs_of(folder: Path) -> Sequence[Record]:
    """The finished runs of one folder of results: its run folders if it has any, else grid.json."""
    found = [read_record(path.parent) for path in sorted(folder.glob("runs/*/result.json"))]
    if found or not (folder / NAME).is_file():
        return found
    return read_grid(folder / NAME)


def find_runs(folders: Iterable[Path]) -> list[Record]:
    """The finished runs in `folders` and below them, each once, in the order of their paths.

    A grid file is read where its folder has no run folders, which know more. The folds that a grid
    was tuned on, in the folder TUNING beside the file, are none of its results.
    """
    found: dict[Path, Record] = {}
    for folder in folders:
        files = [folder / NAME, *sorted(folder.rglob(f"*/{NAME}"))] if folder.is_dir() else []
        files = [path for path in files if path.is_file()]
        alone = [path for path in files if not any(path.parent.glob("runs/*/result.json"))]
        if not alone or any(folder.rglob("result.json")):
            records = find_records([folder])
            folds = [path.parent / TUNING for path in files]
            found |= {
                record.folder.resolve(): record
                for record in records
                if not any(record.folder.is_relative_to(folder) for folder in folds)
            }
        for path in alone:
            found |= {record.folder.resolve(): record for record in read_grid(path)}
    return list(found.values())
