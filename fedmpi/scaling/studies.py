"""The studies: the points of each, and the data that are generated for the points."""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, replace
from pathlib import Path

STUDIES = {
    "strong": "the same rows on more ranks",
    "weak": "the same rows a rank on more ranks",
    "clients": "the same rows in more virtual clients",
    "models": "the same rows through larger models",
    "groups": "the same rows in more groups",
    "reduce": "flat and hierarchical sums on the same ranks",
}
SERVER = 1
FEATURES = 8


@dataclass(frozen=True)
class Point:
    """One launch: what is varied, and the options of fedmpi.train."""

    study: str
    x: str
    """Value at this point of what the study varies."""
    ranks: int
    """Number of ranks of the launch: the server and the client ranks, or one process."""
    options: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Key by which a finished point is recognised: equal for equal launches of any study."""
        return str(self.ranks), " ".join(self.options)


def of_clients(client_ranks: int) -> int:
    """Number of ranks of a launch: the client ranks and a server, except for one process alone."""
    return client_ranks + SERVER if client_ranks > 1 else 1


def points(a: argparse.Namespace) -> list[Point]:
    """Make all points that were asked for, each once."""
    found: dict[tuple, Point] = {}
    for study in a.studies:
        for point in MAKERS[study](a):
            if not a.most or point.ranks <= a.most:
                found.setdefault((point.study, *point.key), point)
    return list(found.values())


def _rounds(a: argparse.Namespace, *options: str, clients: int | None = None) -> tuple[str, ...]:
    return (*a.train, "--clients", str(clients or a.clients), "--method", "fedminmax", *options)


def _strong(a: argparse.Namespace) -> list[Point]:
    limit = ("--limit-train", str(a.rows)) if a.rows else ()
    return [Point("strong", str(r), of_clients(r), _rounds(a, *limit)) for r in a.ranks]


def _weak(a: argparse.Namespace) -> list[Point]:
    return [
        Point("weak", str(r), of_clients(r), _rounds(a, "--limit-train", str(a.rows_per_rank * r)))
        for r in a.ranks
    ]


def _few(a: argparse.Namespace) -> int:
    """Number of ranks where something else than ranks is varied: two client ranks, a server."""
    return of_clients(min(2, max(a.ranks)))


def _clients(a: argparse.Namespace) -> list[Point]:
    limit = ("--limit-train", str(a.rows)) if a.rows else ()
    return [
        Point("clients", str(k), _few(a), _rounds(a, *limit, "--setting", "SSG", clients=k))
        for k in a.virtual
    ]


def _models(a: argparse.Namespace) -> list[Point]:
    data = ("--dataset", "cifar10", "--limit-train", str(a.image_rows))
    common = ("--clients", "4", "--method", "fedminmax", *_data_dir(a))
    return [  # in one process, too: the difference is the exchange of so many parameters
        Point("models", model, ranks, (*data, "--model", model, *common))
        for model in a.models
        for ranks in dict.fromkeys((1, _few(a)))
    ]


def _groups(a: argparse.Namespace) -> list[Point]:
    of_file = ("--target", "y", "--group", "g", "--drop", "g", "--model", "mlp", "--clients", "4")
    common = (*of_file, "--method", "fedminmax", *_data_dir(a))
    return [
        Point("groups", str(g), _few(a), ("--dataset", f"csv:{groups_file(a, g)}", *common))
        for g in a.groups
    ]


def _reduce(a: argparse.Namespace) -> list[Point]:
    points = [point for point in _strong(a) if point.ranks > 2]
    return [
        replace(p, study="reduce", x=f"{p.x} {kind}", options=(*p.options, "--reduce", kind))
        for p in points
        for kind in ("flat", "hierarchical")
    ]


def _data_dir(a: argparse.Namespace) -> tuple[str, ...]:
    """Option with the user's data folder, for points of other data than the user's."""
    if "--data-dir" not in a.train:
        return ()
    return tuple(a.train[a.train.index("--data-dir") :][:2])


MAKERS = {
    "strong": _strong,
    "weak": _weak,
    "clients": _clients,
    "models": _models,
    "groups": _groups,
    "reduce": _reduce,
}


def groups_file(a: argparse.Namespace, groups: int) -> Path:
    """Path of the generated table of the study of groups."""
    return a.output / f"groups-{groups}-{a.group_rows}.csv"


def make_groups(path: Path, groups: int, rows: int) -> None:
    """Write a table of random numbers in so many groups; the same numbers every time."""
    draw = random.Random(groups)
    names = ",".join(f"u{i}" for i in range(FEATURES))
    lines = [f"{names},g,y"]
    for row in range(rows):
        x = [draw.gauss(0, 1) for _ in range(FEATURES)]
        y = int(sum(x) + draw.gauss(0, 1) > 0)
        lines.append(",".join([*(f"{u:.4f}" for u in x), f"g{row % groups}", str(y)]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
