"""Measure how the time of a round grows with ranks, rows, clients, models and groups.

    python -m fedmpi.scaling                        # all studies, on this machine
    python -m fedmpi.scaling --quick                # few points, in minutes
    python -m fedmpi.scaling --studies strong weak --ranks 1 2 4 8
    python -m fedmpi.scaling --launcher "mpirun --hostfile hosts"
    python -m fedmpi.scaling -- --dataset acs-employment --setting PSG    # options of fedmpi.train

    strong    the same rows on more ranks
    weak      the same rows a rank on more ranks
    clients   40, 400, 4,000 virtual clients with the same rows (SSG)
    models    logistic regression to ResNet-18, on images of cifar10
    groups    the same rows in 2 to 128 groups
    reduce    flat and hierarchical sums, on the ranks of `strong`

The command starts the ranks itself: with srun within a Slurm allocation, else with this Python's
mpirun. --ranks counts client ranks; a launch has a server beside them, except for 1, which is one
process. Each rank has one thread. A point that is in DIR/scaling.csv is not measured again, so a
measurement that was ended goes on where it was. In DIR (runs/scaling): scaling.csv, scaling.md with
the tables, the fitted model and its prediction, and with matplotlib scaling.png and scaling.svg.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import fedmpi
from fedmpi.bench.launch import launch
from fedmpi.errors import UserError
from fedmpi.run.arguments import Parser
from fedmpi.scaling.drawing import draw
from fedmpi.scaling.fit import Cluster
from fedmpi.scaling.page import page
from fedmpi.scaling.results import Row, cells, medians, read, write
from fedmpi.scaling.studies import STUDIES, Point, groups_file, make_groups, points

DEFAULTS = {
    "ranks": ([1, 2, 4, 8, 16, 40], [1, 2, 4]),
    "virtual": ([40, 400, 4000], [40, 400]),
    "models": (["logistic", "mlp", "cnn", "resnet18"], ["logistic", "cnn"]),
    "groups": ([2, 8, 32, 128], [2, 32]),
    "rows": (0, 4000),
    "rows_per_rank": (800, 800),
    "image_rows": (256, 64),
    "repeats": (5, 2),
    "seconds": (3.0, 0.5),
}
"""Defaults of the options, and those with --quick."""


def options() -> argparse.ArgumentParser:
    """Parser of the options of fedmpi.scaling."""
    p = Parser(
        prog="python -m fedmpi.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument("--studies", nargs="+", choices=STUDIES, default=list(STUDIES))
    p.add_argument("--ranks", nargs="+", type=int, help="client ranks (1 2 4 8 16 40)")
    p.add_argument("--rows", type=int, help="of all studies but weak, models, groups (all; 0)")
    p.add_argument("--rows-per-rank", type=int, metavar="N", help="weak (800)")
    p.add_argument("--clients", type=int, default=40, help="(40)")
    p.add_argument("--virtual", nargs="+", type=int, help="clients (40 400 4000)")
    p.add_argument("--models", nargs="+", help="(logistic mlp cnn resnet18)")
    p.add_argument("--image-rows", type=int, metavar="N", help="models (256)")
    p.add_argument("--groups", nargs="+", type=int, help="(2 8 32 128)")
    p.add_argument("--group-rows", type=int, default=8192, metavar="N", help="groups (8192)")
    p.add_argument("--repeats", type=int, help="of each point (5)")
    p.add_argument("--seconds", type=float, help="of rounds in a repeat, about (3)")
    p.add_argument("--quick", action="store_true", help="few points and rows, short repeats")
    p.add_argument("--launcher", help='the command before "-n RANKS", as "mpirun --hostfile F"')
    p.add_argument("--output", type=Path, metavar="DIR", help="(runs/scaling; scaling-quick)")
    p.add_argument("--timeout", type=float, default=3600, help="seconds for a launch (3600)")
    g = p.add_argument_group("the prediction")
    g.add_argument("--nodes", type=int, default=64, help="(64)")
    g.add_argument("--node-cores", type=int, help="(as many as a host that was measured)")
    text = "between nodes, where several were not measured: microseconds and Gbit/s (5 100)"
    g.add_argument("--network", nargs=2, type=float, default=[5, 100], metavar="X", help=text)
    p.add_argument("train", nargs="*", help="options of fedmpi.train, after --")
    return p


def read_command_line(
    arguments: list[str], environment: Mapping[str, str] = os.environ
) -> argparse.Namespace:
    """Parse the options, and fill in the defaults that depend on others; or raise a UserError."""
    a = options().parse_args(arguments)
    for name, (usual, quick) in DEFAULTS.items():
        if getattr(a, name) is None:
            setattr(a, name, quick if a.quick else usual)
    a.train = ["--solver", "paper", *(a.train or ["--dataset", "adult", "--setting", "PSG"])]
    a.output = a.output or Path("runs/scaling-quick" if a.quick else "runs/scaling")
    for name in ("ranks", "virtual", "groups", "models"):
        setattr(a, name, list(dict.fromkeys(getattr(a, name))))
    at_least = {"clients": 1, "rows_per_rank": 1, "image_rows": 1, "group_rows": 1, "repeats": 1}
    at_least |= {"ranks": 1, "virtual": 1, "groups": 1, "nodes": 1, "rows": 0}
    for name, low in at_least.items():
        value = getattr(a, name)
        if min(value if isinstance(value, list) else [value]) < low:
            raise UserError(f"--{name.replace('_', '-')}: at least {low}.")
    above = [a.seconds, a.timeout, *a.network, a.node_cores if a.node_cores is not None else 1]
    if not all(0 < value < float("inf") for value in above):
        raise UserError("--seconds, --timeout, --network and --node-cores: above 0, and finite.")
    if max(a.ranks) > a.clients:
        raise UserError(
            f"--ranks {max(a.ranks)}: a client lives on one rank, and there are {a.clients} "
            f"clients. Add --clients {max(a.ranks)}, or leave that many ranks out."
        )
    if "groups" in a.studies and max(a.groups) > a.group_rows:
        raise UserError(f"--groups {max(a.groups)}: more than the {a.group_rows} --group-rows.")
    if a.output.exists() and not a.output.is_dir():
        raise UserError(f"--output {a.output}: is a file; name a folder.")
    a.mpi, vendor = library()
    in_slurm = "SLURM_JOB_ID" in environment and bool(shutil.which("srun")) and not a.launcher
    tasks = environment.get("SLURM_NTASKS", "")
    a.most = int(tasks) if in_slurm and tasks.isdigit() else None
    a.launcher = launcher(a.launcher, in_slurm, vendor)
    return a


def launcher(given: str | None, in_slurm: bool, vendor: str) -> list[str]:
    """Command that starts ranks, up to -n."""
    if given:
        return shlex.split(given)
    if in_slurm:
        return ["srun", f"--mpi={'pmix' if vendor == 'Open MPI' else 'pmi2'}", "--kill-on-bad-exit"]
    beside = Path(sys.executable).parent / "mpirun"
    return [str(beside) if beside.exists() else "mpirun"]


def library() -> tuple[str, str]:
    """Version and vendor of the MPI that the ranks will load, without starting this MPI here."""
    import mpi4py

    mpi4py.rc.initialize = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UserError(f"mpi4py finds no MPI library: {error}.") from None

    vendor, version = MPI.get_vendor()
    return f"{vendor} {'.'.join(map(str, version))}", vendor


def measure(a: argparse.Namespace, point: Point) -> list[Row]:
    """Launch a point; return a row for each repeat."""
    if point.study == "groups":
        make_groups(groups_file(a, int(point.x)), int(point.x), a.group_rows)
    job = {"options": point.options, "repeats": a.repeats, "seconds": a.seconds}
    before = [*a.launcher, "-n", str(point.ranks)] if point.ranks > 1 else []
    load = os.getloadavg()[0]
    program = ["-m", "fedmpi.scaling.measure", json.dumps(job)]
    found = launch(Path(sys.executable), before, program, a.timeout)
    if point.study == "weak" and found["rows"] < a.rows_per_rank * int(point.x):
        raise UserError(
            f"the data have {found['rows']:,} rows, and {point.x} ranks of {a.rows_per_rank} need "
            "more: give fewer --rows-per-rank, or larger data after --."
        )
    names = ("reduce", "hosts", "cores", "rows", "groups", "parameters", "bytes")
    of_launch = {name: found[name] for name in names}
    of_point = {"study": point.study, "x": point.x, "ranks": point.ranks, "mpi": a.mpi}
    of_point |= {"client_ranks": max(1, point.ranks - 1), "options": " ".join(point.options)}
    return [
        Row(repeat=i, load=load, **of_point, **of_launch, **repeat)
        for i, repeat in enumerate(found["repeats"], 1)
    ]


def measure_all(a: argparse.Namespace) -> tuple[list[Row], int]:
    """Measure all points that the table lacks; return its rows, and how many launches failed."""
    rows, failed = read(a.output / "scaling.csv"), 0
    done = {(row.study, *row.key) for row in rows}
    for point in points(a):
        if (point.study, *point.key, a.mpi) in done:
            print(f"{point.study} {point.x}: is in {a.output / 'scaling.csv'}", flush=True)
            continue
        try:
            rows += measure(a, point)
        except UserError as error:
            print(f"fedmpi.scaling: {point.study} {point.x}: {error}", file=sys.stderr, flush=True)
            failed += 1
            continue
        write(a.output / "scaling.csv", rows)
        shown = medians(to_show(a, rows), point.study)
        last = next(p for p in shown if p.row.key == rows[-1].key)
        print(f"{point.study}  {'  '.join(cell for cell in cells(last) if cell)}", flush=True)
    return rows, failed


def to_show(a: argparse.Namespace, rows: list[Row]) -> list[Row]:
    """Rows of the points asked for now, and all rows of the studies not asked for now.

    The file may have more points of a study than were asked for.
    """
    wanted = {(point.study, *point.key) for point in points(a)}
    return [
        row
        for row in rows
        if row.mpi == a.mpi and (row.study not in a.studies or (row.study, *row.key[:2]) in wanted)
    ]


def main() -> int:
    try:
        a = read_command_line(sys.argv[1:])
        rows, failed = measure_all(a)
        rows = to_show(a, rows)
        if not rows:
            raise UserError("nothing was measured.")
        head = (
            f"fedmpi {fedmpi.__version__}, {a.mpi}, {datetime.date.today()}, {platform.machine()}, "
            f"{rows[0].cores} cores on {rows[0].hosts} host(s) at the first point"
        )
        latency, bandwidth = a.network
        cores = a.node_cores or max(row.cores // row.hosts for row in rows)
        cluster = Cluster(cores, latency * 1e-6, bandwidth * 1e9 / 8)
        text = page(head, rows, cluster, a.nodes, a.rows_per_rank)
        (a.output / "scaling.md").write_text(text, encoding="utf-8")
        drawn = draw(a.output, rows, head)
    except UserError as error:
        print(f"fedmpi.scaling: {error}", file=sys.stderr)
        return 2
    figures = ", scaling.png, scaling.svg" if drawn else " (no figure: matplotlib is not installed)"
    print(f"in {a.output}: scaling.csv, scaling.md{figures}")
    if failed:
        print(f"fedmpi.scaling: {failed} point(s) failed; the same command tries them again")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
