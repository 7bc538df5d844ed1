"""Time rounds with exact (--sums exact) and secure (--secure) sums over rounds with sums of floats.

    python benchmarks/sums.py [--cases adult-3 ...] [--repeats N] [-- options of fedmpi.train]

Each case is one launch, in which the three kinds take blocks of rounds in turn: floats, exact,
floats, floats, secure, floats, and so on. A ratio is over the mean of the blocks of floats before
and after; the table has medians over the repeats, and the range. CPU time is that of all ranks.
Then what one of many ranks spends on masks: it is run in this process, with the keys of all ranks
that there would be. That it holds for a federation of so many is a prediction.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedmpi.bench.launch import MARK, launch


class Case(NamedTuple):
    """Rounds to time: `repeats` blocks of so many rounds."""

    title: str
    ranks: int
    options: list[str]
    repeats: int
    block: int


ADULT = ["--dataset", "adult", "--setting", "PSG", "--clients", "40"]
BATCHES = [*ADULT, "--batch-rows", "250"]
CIFAR = ["--dataset", "cifar10", "--limit-train", "2000", "--solver", "paper", "--clients"]
CASES = {
    "adult-3": Case("MLP of Adult", 3, ADULT, 15, 8),
    "adult-41": Case("MLP of Adult", 41, ADULT, 15, 6),
    "batches-3": Case("the same, `--batch-rows 250`", 3, BATCHES, 11, 20),
    "batches-41": Case("the same, `--batch-rows 250`", 41, BATCHES, 11, 10),
    "resnet-2": Case("ResNet-18, 2 clients of 1,000 images", 3, [*CIFAR, "2"], 3, 1),
    "resnet-40": Case("ResNet-18, 40 clients of 50 images", 3, [*CIFAR, "40"], 3, 1),
}
KINDS = {"exact": ["--sums", "exact"], "secure": ["--secure"]}
MODELS = {"MLP of Adult": 48_131, "ResNet-18": 11_172_043}
"""Numbers that a round sums."""
MASKED = 5
"""Number of rounds whose masks are timed."""
MANY = (100, 1_000, 10_000)
TIMEOUT = 3600


def measure(job: dict) -> None:
    """Time one case, on the ranks of a launch; the server prints a line of JSON."""
    from fedmpi.bench.rounds import Federation, compete
    from fedmpi.mpi.init import MPI
    from fedmpi.mpi.ranks import Ranks

    ranks = Ranks(MPI.COMM_WORLD, stall_timeout=float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        contestants = {
            kind: Federation(ranks, [*job["options"], *flags], f"{folder}/{kind}")
            for kind, flags in ({"float": []} | KINDS).items()
        }
        found: dict = {kind: {} for kind in KINDS} | {"bytes": {}}
        for kind, contestant in contestants.items():
            contestant.rounds(1)
            before = ranks.bytes_handed
            contestant.rounds(1)
            found["bytes"][kind] = ranks.bytes_handed - before
        for _ in range(job["repeats"]):
            for kind in KINDS:
                pair = contestants["float"], contestants[kind]
                for name, values in compete(ranks, *pair, 1, job["block"]).items():
                    found[kind].setdefault(name, []).extend(values)
        for contestant in contestants.values():
            contestant.end()
        ranks.meet()
    if ranks.is_server:
        print(MARK + json.dumps(found), flush=True)


def line(case: Case, found: dict) -> str:
    """A line of the table of rounds."""
    cells = [case.title, str(case.ranks)]
    for times in ("base_seconds", "base_cpu_seconds"):
        base = [seconds for kind in KINDS for seconds in found[kind][times]]
        cells.append(f"{1000 * statistics.median(base):,.0f}")
    for kind in KINDS:
        for ratios in (found[kind]["ratios"], found[kind]["cpu_ratios"]):
            low, high = min(ratios), max(ratios)
            cells.append(f"{statistics.median(ratios):.2f} ({low:.2f}–{high:.2f})")
    cells += [f"{found['bytes'][kind] / 1e6:.3g}" for kind in ("float", "secure")]
    return f"| {' | '.join(cells)} |"


def one_of_many(ranks: int) -> list[tuple[int, float, float]]:
    """Neighbours of one of so many client ranks, CPU seconds of its start, and of a round's masks.

    One of each for each model; the start is the checking and deriving of keys, no messages.
    """
    from fedmpi.privacy.agreement import Party, Transcript  # MPI begins: not before the launches
    from fedmpi.privacy.masks import Masks, Message

    numbers = range(1, ranks + 1)
    parties = [Party(number, f"rank-{number}") for number in numbers]
    told = [party.introduction for party in parties]
    commitments = [introduction.commitment for introduction in told]
    began = time.process_time()
    transcript = Transcript.checked(numbers, commitments, told, "")
    parties[0].hear(transcript)
    masks = Masks(transcript, parties[0], numbers)
    start, found = time.process_time() - began, []
    for length in MODELS.values():
        change, seconds = np.zeros(length, np.uint64), []
        for t in range(1 + MASKED):
            began = time.process_time()
            masks.add(change, t, len(found), Message.CHANGES)
            seconds.append(time.process_time() - began)
        found.append((len(masks.neighbours), start, statistics.median(seconds[1:])))
    return found


def predict() -> None:
    """Print what masks take of one of many client ranks."""
    heads = ["", "client ranks", "neighbours", "MB summed", "masks, CPU ms", "of all ranks, CPU s"]
    heads += ["ns a number a neighbour", "start, CPU ms"]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    by_ranks = {ranks: one_of_many(ranks) for ranks in MANY}
    for i, (model, length) in enumerate(MODELS.items()):
        for ranks, found in by_ranks.items():
            degree, start, seconds = found[i]
            each = seconds / length / degree * 1e9
            cells = [model, f"{ranks:,}", str(degree), f"{8 * length / 1e6:.3g}"]
            cells += [f"{1000 * seconds:.3g}", f"{ranks * seconds:,.1f}", f"{each:.2f}"]
            print(f"| {' | '.join([*cells, f'{1000 * start:.2g}'])} |")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    p.add_argument("--repeats", type=int)
    p.add_argument("train", nargs="*", help="options of fedmpi.train, after --")
    a = p.parse_args()
    python = Path(sys.executable)
    heads = ["", "ranks", "floats, ms", "CPU", "exact", "CPU", "secure", "CPU", "MB", "secure"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for case in (CASES[name] for name in a.cases):
        job = {"options": case.options + a.train, "block": case.block}
        job["repeats"] = a.repeats or case.repeats
        launcher = [str(python.with_name("mpirun")), "-n", str(case.ranks)]
        found = launch(python, launcher, [__file__, json.dumps(job)], TIMEOUT)
        print(line(case, found), flush=True)
    predict()


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("{"):  # on the ranks of a launch
        from fedmpi.mpi.start import run

        run(lambda: measure(json.loads(sys.argv[1])))
    else:
        main()
