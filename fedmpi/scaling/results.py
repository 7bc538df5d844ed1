"""Measurements, as a CSV file that grows point by point, and as tables in Markdown."""

from __future__ import annotations

import csv
import dataclasses
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from fedmpi.errors import UserError
from fedmpi.scaling.studies import STUDIES

TIMES = ("seconds", "compute", "exchange", "wait", "cpu")


@dataclass
class Row:
    """One repeat of one point. Times are seconds of a round; `cpu` is of all ranks together."""

    study: str
    x: str
    ranks: int
    client_ranks: int
    options: str
    mpi: str
    reduce: str
    hosts: int
    cores: int
    rows: int
    groups: int
    parameters: int
    bytes: int
    repeat: int
    rounds: int
    seconds: float
    compute: float
    exchange: float
    wait: float
    cpu: float
    load: float
    """Load of the machine, a minute's mean when the launch began: the machine's other work."""

    @property
    def key(self) -> tuple[str, str, str]:
        return str(self.ranks), self.options, self.mpi

    @property
    def work(self) -> float:
        """Rows for each core that a client rank uses; ideally, the time is proportional to it."""
        return self.rows / min(self.client_ranks, self.cores)


def read(path: Path) -> list[Row]:
    """Read the rows of an earlier measurement; an empty list if there was none."""
    if not path.exists():
        return []
    kinds = {"int": int, "float": float, "str": str}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return [
                Row(**{f.name: kinds[str(f.type)](line[f.name]) for f in dataclasses.fields(Row)})
                for line in csv.DictReader(file)
            ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} is not a table of fedmpi.scaling ({type(error).__name__}: {error}): give "
            "another --output, or move it away."
        ) from None


def write(path: Path, rows: list[Row]) -> None:
    """Write all rows, to a file that appears whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [f.name for f in dataclasses.fields(Row)])
            writer.writeheader()
            writer.writerows(dataclasses.asdict(row) for row in rows)
        os.replace(aside, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}.") from None


@dataclass
class Measured:
    """One point: the medians of the repeats, and the ideal time to compare with."""

    row: Row
    lowest: float
    highest: float
    ideal: float | None = None
    """Seconds if the time were proportional to the rows of a core; None where not defined."""

    @property
    def efficiency(self) -> float | None:
        return self.ideal / self.row.seconds if self.ideal else None

    def share(self, part: str) -> float:
        """Share of the round's time in a part: compute, exchange or wait."""
        return getattr(self.row, part) / self.row.seconds


def medians(rows: list[Row], study: str | None = None) -> list[Measured]:
    """Points of one study or of all studies, each launch once, from the smallest."""
    by_point: dict[tuple, list[Row]] = {}
    for row in rows:
        if study in (None, row.study):
            by_point.setdefault((study and row.x, *row.key), []).append(row)
    found = []
    for some in by_point.values():
        if study is None:
            some = [row for row in some if row.study == some[0].study]
        middle = {name: statistics.median(getattr(row, name) for row in some) for name in TIMES}
        seconds = [row.seconds for row in some]
        found.append(Measured(dataclasses.replace(some[0], **middle), min(seconds), max(seconds)))
    found.sort(key=lambda point: _order(point.row))
    for point in found:
        if study and study != "reduce":
            base = next(p.row for p in found if study != "models" or p.row.x == point.row.x)
            point.ideal = base.seconds * point.row.work / base.work
    return found


def _order(row: Row) -> tuple:
    """Sort key of a study's points: by what is varied, whenever the point was measured."""
    varied = int(row.x) if row.study in ("clients", "groups") else row.parameters
    return varied, row.client_ranks


HEAD = (
    *("", "ranks", "rows", "parameters", "seconds a round", "range", "ideal", "efficiency"),
    *("compute", "exchange", "wait", "CPU, s", "sums", "load"),
)


def cells(point: Measured) -> list[str]:
    """Cells of a line of a study's table."""
    row = point.row
    ideal = f"{point.ideal:.4g}" if point.ideal else ""
    efficiency = f"{point.efficiency:.2f}" if point.efficiency else ""
    shares = [f"{point.share(part):.0%}" for part in ("compute", "exchange", "wait")]
    time = [f"{row.seconds:.4g}", f"{point.lowest:.4g}–{point.highest:.4g}", ideal, efficiency]
    last = [f"{row.cpu:.4g}", row.reduce, f"{row.load:.1f}"]
    return [row.x, str(row.ranks), f"{row.rows:,}", f"{row.parameters:,}", *time, *shares, *last]


def markdown(head: tuple[str, ...], lines: list[list[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)]


def tables(rows: list[Row]) -> list[str]:
    """Lines of a table for each study."""
    text: list[str] = []
    for study, what in STUDIES.items():
        if points := medians(rows, study):
            text += [f"## {study}: {what}", ""]
            text += [*markdown(HEAD, [cells(point) for point in points]), ""]
    return text
