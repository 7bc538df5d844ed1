"""Measure fedmpi against plain torch on the same rows and against the least that MPI needs.

    python -m fedmpi.bench                      # about an hour on two quiet cores
    python -m fedmpi.bench --quick              # 1 and 3 ranks, few rounds
    python -m fedmpi.bench --parts rounds --ranks 3 41 --tasks step
    python -m fedmpi.bench --peers              # and other systems, which are installed first
    python -m fedmpi.bench -- --dataset acs-employment --setting PSG    # options of fedmpi.train
    python -m fedmpi.bench --parts targets --datasets adult --seeds 0 1

Every time is measured in turn with the base time, in one launch, and the ratio of the two is given:
the median over the repeats. 1.00 is a plain loop over the clients in one thread, and on two cores
no ratio can be under 0.50.

    rounds    seconds a round at 1, 3, 9 and 41 ranks, over those of the plain loop
    floor     the plain loop on all cores, `step` in batches of the best size, without messages
    startup   launch to the first round, and memory of a client rank, over a bare script's
    clients   4,000 virtual clients (SSG), over 40; with local epochs, at equal numbers of batches
    peers     other systems, each in an environment of its own
    targets   rounds, passes, bytes and seconds to levels of the worst group's risk, by solver and
              method; only if asked for, because it takes some hours. The same command goes on

The tasks: `epoch` is FedAvg, one local epoch in batches of 100; `step` is one step on all rows
(FedMinMax without the ascent, so that plain torch does the same). In DIR (runs/bench): bench.csv,
bench.md, and bench.svg where matplotlib is installed; targets.csv, .md and .svg of the targets.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fedmpi
from fedmpi.bench import targets
from fedmpi.bench.launch import REPOSITORY, launch
from fedmpi.bench.results import Row, draw, write
from fedmpi.errors import UserError

HERE = Path(__file__).parent
TASKS = {
    "epoch": ["--method", "fedavg", "--local-epochs", "1", "--batch-size", "100"],
    "step": ["--method", "fedminmax", "--lr-mu", "0"],
}
PARTS = ("rounds", "floor", "startup", "clients", "peers")
"""The parts that are measured by default."""
CLIENTS = 40
MANY = 4000
TIMEOUT = 1800
SMALL_BATCH = ["--batch-size", "8"]
PEERS = Path(".venv-peers")


def options() -> argparse.ArgumentParser:
    """Parser of the options of fedmpi.bench."""
    p = argparse.ArgumentParser(
        prog="python -m fedmpi.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--parts", nargs="+", choices=(*PARTS, "targets"), default=list(PARTS))
    p.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    p.add_argument("--ranks", nargs="+", type=int, help="(1 3 9 41)")
    p.add_argument("--repeats", type=int, help="of each measurement (5)")
    p.add_argument("--block", type=int, help="rounds at a time (5)")
    p.add_argument("--clients", type=int, default=CLIENTS, help=f"({CLIENTS})")
    p.add_argument("--many", type=int, default=MANY, help=f"virtual clients ({MANY})")
    p.add_argument("--quick", action="store_true", help="1 and 3 ranks, 3 repeats of 2 rounds")
    text = "of each environment to measure, with a mpirun beside it (this one, and .venv-openmpi)"
    p.add_argument("--pythons", nargs="+", type=Path, metavar="PYTHON", help=text)
    text = f"measure the peers too; their environments are in DIR ({PEERS}), or are made there"
    p.add_argument("--peers", type=Path, nargs="?", const=PEERS, metavar="DIR", help=text)
    p.add_argument("--output", type=Path, default=Path("runs/bench"), metavar="DIR")
    targets.add_options(p)
    text = f"seconds for a launch ({TIMEOUT}; {targets.TIMEOUT:.0f} for a run of targets)"
    p.add_argument("--timeout", type=float, help=text)
    p.add_argument("train", nargs="*", help="options of fedmpi.train, after --")
    return p


def read_command_line(arguments: list[str]) -> argparse.Namespace:
    """Parse the options, and fill in the defaults that depend on others; or raise a UserError."""
    a = options().parse_args(arguments)
    a.ranks = a.ranks or ([1, 3] if a.quick else [1, 3, 9, 41])
    a.repeats = a.repeats or (3 if a.quick else 5)
    a.block = a.block or (2 if a.quick else 5)
    # A round is Algorithm 1's, as the plain loop's: its step is one sum of vectors.
    a.given, a.train = a.train, a.train or ["--dataset", "adult", "--setting", "PSG"]
    a.train = ["--solver", "paper", *a.train]
    other = REPOSITORY / ".venv-openmpi/bin"  # has no mpirun yet while it is being made
    here = [Path(sys.executable), *([other / "python"] if (other / "mpirun").exists() else [])]
    a.pythons = a.pythons or list(dict.fromkeys(here))
    if min(*a.ranks, a.repeats, a.block, a.clients, a.many) < 1:
        raise UserError("--ranks, --repeats, --block, --clients and --many: at least 1.")
    for python in a.pythons:
        if not (python.parent / "mpirun").exists():
            raise UserError(f"{python} has no mpirun beside it: name one of an environment.")
    if max(a.ranks) > a.clients + 1:
        raise UserError(f"--ranks {max(a.ranks)}: {a.clients} clients fill {a.clients + 1} ranks.")
    return a


class Bench:
    """The launches, and the rows of the table that the launches give."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        self.cores = len(os.sched_getaffinity(0))

    def launch(self, python: Path, ranks: int, *program: str) -> dict:
        """Launch; return the line that the server printed, and when the launch began."""
        launcher = [str(python.parent / "mpirun"), "-n", str(ranks)] if ranks > 1 else []
        return launch(python, launcher, list(program), self.a.timeout or TIMEOUT)

    def compete(self, python: Path, ranks: int, kind: str, first: list, second: list) -> dict:
        """Launch two contestants together: see fedmpi.bench.rounds."""
        job = {"kind": kind, "repeats": self.a.repeats, "block": self.a.block}
        job |= {"first": self.a.train + first, "second": self.a.train + second}
        return self.launch(python, ranks, "-m", "fedmpi.bench.rounds", json.dumps(job))

    def rounds(self, python: Path) -> Iterator[Row]:
        """Measure fedmpi over the plain loop."""
        clients = ["--clients", str(self.a.clients)]
        for ranks in self.a.ranks:
            for task in self.a.tasks:
                both = clients + TASKS[task]
                found = self.compete(python, ranks, "rounds", both, both)
                if not found["difference"] < 1e-4:
                    raise UserError(
                        f"{task}, {ranks} ranks: theta differs from the plain loop's by "
                        f"{found['difference']:.1e}: it is not the same work."
                    )
                row = self.row("rounds", task, f"fedmpi, {of(ranks)}", ranks, found)
                if 1 < ranks <= self.cores + 1:  # else the ranks take the cores from each other
                    row.note = evenness(found)
                yield row

    def floor(self, python: Path) -> Iterator[Row]:
        """Measure what the cores can do at best, over the plain loop."""
        clients = ["--clients", str(self.a.clients)]
        for task in self.a.tasks:
            both = clients + TASKS[task]
            found = self.compete(python, self.cores, "floor", both, both)
            batch = f"batches of {found['batch']} rows" if found["batch"] else "plain loop"
            what = f"{batch} on {self.cores} core{'s' * (self.cores > 1)}, no messages"
            yield self.row("floor", task, what, self.cores, found)

    def clients(self, python: Path) -> Iterator[Row]:
        """Measure many virtual clients over few, on the same rows."""
        ranks = 3 if 3 in self.a.ranks else self.a.ranks[0]
        for task in self.a.tasks:
            both = ["--setting", "SSG", *TASKS[task], *(SMALL_BATCH if task == "epoch" else [])]
            few, many = (["--clients", str(n), *both] for n in (self.a.clients, self.a.many))
            found = self.compete(python, ranks, "clients", few, many)
            # Small shards end in batches that are not full: count the time of a batch.
            fewer, more = found["batches"]
            for name in ("ratios", "cpu_ratios"):
                found[name] = [ratio * fewer / more for ratio in found[name]]
            what = f"{self.a.many:,} clients over {self.a.clients}, {of(ranks)}"
            row = self.row("clients", task, what, ranks, found)
            if task == "epoch":
                row.note = f"time of a batch; {more:,} batches over {fewer:,}; {evenness(found)}"
            yield row

    def startup(self, python: Path) -> Iterator[Row]:
        """Measure launch to first round, and memory, over a script that only imports and meets."""
        task = self.a.tasks[-1]
        options = [*self.a.train, "--clients", str(self.a.clients), *TASKS[task]]
        for ranks in [n for n in self.a.ranks if n > 1]:
            self.launch(python, ranks, str(HERE / "bare.py"))  # warm-up: loads files into memory
            bare, ours = [], []
            for _ in range(self.a.repeats):
                bare.append(self.launch(python, ranks, str(HERE / "bare.py")))
                ours.append(self.launch(python, ranks, "-m", "fedmpi.bench.first_round", *options))
            base, seconds = ([f["time"] - f["began"] for f in some] for some in (bare, ours))
            found = {"ratios": [s / b for s, b in zip(seconds, base, strict=True)]}
            found |= {"seconds": seconds, "base_seconds": base, "mpi": ours[0].get("mpi", "")}
            yield self.row("startup", task, f"launch to first round, {of(ranks)}", ranks, found)
            base, memory = ([f["memory_mb"] for f in some] for some in (bare, ours))
            found |= {"ratios": [m / b for m, b in zip(memory, base, strict=True)]}
            found |= {"seconds": memory, "base_seconds": base}
            what = f"peak memory of a client rank (MB), {of(ranks)}"
            yield self.row("startup", task, what, ranks, found)

    def peers(self) -> Iterator[Row]:
        """Measure other systems, each in an environment of its own, over a plain loop.

        The plain loop is timed before and after each system.
        """
        drivers = REPOSITORY / "benchmarks" / "peers"
        if not self.a.peers or not drivers.exists():
            print("peers: none (--peers installs and measures them)")
            return
        sys.path.insert(0, str(drivers))
        import run_peers  # type: ignore[import-not-found]

        setup = [str(drivers / "setup.sh"), str(self.a.peers)]
        if subprocess.run(setup, env=os.environ | {"PYTHON": sys.executable}).returncode:
            raise UserError(f"{' '.join(setup)}: not all peers could be installed.")
        a = self.a
        yield from run_peers.rows(a.peers, a.tasks, a.repeats, a.train, a.timeout or TIMEOUT)

    def row(self, part: str, task: str, what: str, ranks: int, found: dict) -> Row:
        """Make a line of the table."""
        cpu = found.get("cpu_ratios")
        return Row(
            part=part,
            task=task,
            what=what,
            ranks=ranks,
            mpi=found.get("mpi", ""),
            ratio=statistics.median(found["ratios"]),
            lowest=min(found["ratios"]),
            highest=max(found["ratios"]),
            cpu_ratio=statistics.median(cpu) if cpu else None,
            value=statistics.median(found["seconds"]),
            base=statistics.median(found["base_seconds"]),
            repeats=len(found["ratios"]),
            load=os.getloadavg()[0],
        )

    def run(self) -> list[Row]:
        """Measure all parts that were asked for; print a line for each row."""
        rows: list[Row] = []
        for part in (part for part in self.a.parts if part in PARTS):
            measured = (
                self.peers()
                if part == "peers"
                else (row for python in self.a.pythons for row in getattr(self, part)(python))
            )
            for row in measured:
                print(row.line(), flush=True)
                rows.append(row)
                self.save(rows)
        return rows

    def save(self, rows: list[Row]) -> None:
        """Write all rows measured so far: a long measurement may be ended early."""
        head = [
            f"fedmpi {fedmpi.__version__}, {datetime.date.today()}, {platform.machine()}, "
            f"{self.cores} cores, load at the start of the last row {rows[-1].load:.1f}",
            f"`{' '.join(self.a.train)}`, {self.a.repeats} repeats of {self.a.block} rounds",
        ]
        write(self.a.output, head, rows)


def evenness(found: dict) -> str:
    """Note on how evenly the client ranks worked, and the share of the time in messages."""
    within, exchange = f"{found['uneven']:.1%}", f"{found['exchange']:.1%}"
    return f"client ranks within {within} of each other; exchange beyond that {exchange}"


def of(ranks: int) -> str:
    """Number of ranks, in words."""
    return "one process" if ranks == 1 else f"{ranks} ranks"


def main() -> int:
    try:
        a = read_command_line(sys.argv[1:])
        study = targets.Targets(a, a.given) if "targets" in a.parts else None
        rows = Bench(a).run()
        if rows:
            drawn = draw(a.output / "bench.svg", rows)
            print(f"in {a.output}: bench.csv, bench.md" + (", bench.svg" if drawn else ""))
        if study:
            study.run()
    except UserError as error:
        print(f"fedmpi.bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
