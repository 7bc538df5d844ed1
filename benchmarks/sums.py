"""Time rounds with exact (--sums exact) and secure (--secure) sums over rounds with sums of floats.

    python benchmarks/sums.py [--cases adult-3 ...] [--repeats N] [-- options of fedmpi.train]

Each case is one launch, in which the three kinds take blocks of rounds in turn: floats, exact,
floats, floats, secure, floats, and so on. A ratio is over the mean of the blocks of floats before
and after; the tables have medians over the repeats, and the range. CPU time is that of all ranks.
Then what a mask costs, measured on one rank while the others sleep, and what follows for many
ranks: a prediction, of which nothing was run.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from fedmpi.bench.launch import MARK, launch
from fedmpi.privacy.graph import degree

ADULT = ["--dataset", "adult", "--setting", "PSG", "--clients", "40"]
CIFAR = ["--dataset", "cifar10", "--setting", "ESG", "--clients", "40", "--limit-train", "2000"]
CASES: dict[str, tuple[str, int, list[str], int, int]] = {
    "adult-3": ("MLP of Adult, full batches", 3, ADULT, 15, 8),
    "adult-41": ("MLP of Adult, full batches", 41, ADULT, 15, 6),
    "batches-3": ("MLP of Adult, `--batch-rows 250`", 3, [*ADULT, "--batch-rows", "250"], 11, 20),
    "batches-41": ("MLP of Adult, `--batch-rows 250`", 41, [*ADULT, "--batch-rows", "250"], 11, 10),
    "resnet-3": ("ResNet-18, 2,000 images", 3, [*CIFAR, "--solver", "paper"], 3, 1),
    "resnet-batches-3": ("ResNet-18, `--batch-rows 250`", 3, CIFAR, 3, 1),
}
"""For each case what is trained, on how many ranks, repeats, and rounds of a block."""
KINDS = {"exact": ["--sums", "exact"], "secure": ["--secure"]}
MASKED = 15
"""Number of vectors that are masked to time a mask."""
NO_ATTEMPT = 2**16 - 1
"""Attempt under which no message is sent: its masks are free to be timed."""
MANY = (100, 1_000, 10_000)
TIMEOUT = 3600


def measure(job: dict) -> None:
    """Time one case, on the ranks of a launch; the server prints a line of JSON."""
    from fedmpi.bench.rounds import Federation, compete
    from fedmpi.mpi.init import MPI
    from fedmpi.mpi.ranks import Ranks

    ranks = Ranks(MPI.COMM_WORLD, stall_timeout=float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        floats = Federation(ranks, job["options"], f"{folder}/float")
        others = {
            kind: Federation(ranks, [*job["options"], *flags], f"{folder}/{kind}")
            for kind, flags in KINDS.items()
        }
        for each in (floats, *others.values()):
            each.rounds(2)
        found: dict = {kind: {} for kind in KINDS}
        for _ in range(job["repeats"]):
            for kind, other in others.items():
                for name, values in compete(ranks, floats, other, 1, job["block"]).items():
                    found[kind].setdefault(name, []).extend(values)
        found |= cost_of_masks(ranks, others["secure"])
        found["bytes"] = {kind: bytes_of_a_round(ranks, other) for kind, other in others.items()}
        found["bytes"]["float"] = bytes_of_a_round(ranks, floats)
        for each in (floats, *others.values()):
            each.end()
        ranks.meet()
    if ranks.is_server:
        print(MARK + json.dumps(found), flush=True)


def cost_of_masks(ranks, secure) -> dict:
    """CPU nanoseconds that a mask of one number costs rank 1 for each of its neighbours."""
    import numpy as np

    from fedmpi.bench.rounds import sleep_until_all_are_here
    from fedmpi.privacy.masks import Message

    exchange, seconds = secure.training.exchange, []
    numbers = np.zeros_like(exchange.model.buffer)
    for i in range(MASKED if ranks.rank == 1 else 0):
        began = time.process_time()
        exchange.masks.add(numbers, i, NO_ATTEMPT, Message.CHANGES)
        seconds.append(time.process_time() - began)
    sleep_until_all_are_here(ranks)
    neighbours = len(exchange.masks.neighbours)
    mine = statistics.median(seconds) / len(numbers) / neighbours * 1e9 if seconds else 0.0
    return {"length": len(numbers), "mask_ns": ranks.comm.bcast(mine, root=1)}


def bytes_of_a_round(ranks, federation) -> int:
    """Bytes that this rank gives to MPI or to shared memory in a round."""
    before = ranks.bytes_handed
    federation.rounds(1)
    return ranks.bytes_handed - before


def middle(values: list[float], form: str = ".2f") -> str:
    """Median and range of some ratios."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def line(case: str, found: dict) -> str:
    """A line of the table."""
    title, ranks = CASES[case][:2]
    cells = [title, str(ranks)]
    base = [s for kind in KINDS for s in found[kind]["base_seconds"]]
    cells.append(f"{1000 * statistics.median(base):.3g}")
    for kind in KINDS:
        cells += [middle(found[kind]["ratios"]), middle(found[kind]["cpu_ratios"])]
    cells += [f"{found['bytes'][kind] / 1e6:.3g}" for kind in ("float", "secure")]
    return f"| {' | '.join(cells)} |"


def prediction(length: int, mask_ns: float) -> list[str]:
    """Lines of what masks of `length` numbers take on many client ranks, from a measured cost."""
    lines = []
    for ranks in MANY:
        k = degree(ranks)
        seconds = k * length * mask_ns / 1e9
        cells = [f"{length:,}", f"{ranks:,}", str(k), f"{8 * length / 1e6:.3g}"]
        cells += [f"{seconds:.3g}", f"{seconds * ranks:.3g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    if sys.argv[1:] and sys.argv[1].startswith("{"):
        measure(json.loads(sys.argv[1]))
        return
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    p.add_argument("--repeats", type=int)
    p.add_argument("train", nargs="*", help="options of fedmpi.train, after --")
    a = p.parse_args()
    python, costs = Path(sys.executable), {}
    print("| | ranks | floats, ms | exact: wall | CPU | secure: wall | CPU | MB: floats | secure |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in a.cases:
        _, ranks, options, repeats, block = CASES[case]
        job = {"options": options + a.train, "repeats": a.repeats or repeats, "block": block}
        launcher = [str(python.with_name("mpirun")), "-n", str(ranks)]
        found = launch(python, launcher, [__file__, json.dumps(job)], TIMEOUT)
        costs.setdefault(found["length"], []).append(found["mask_ns"])
        print(line(case, found), flush=True)
    print("\n| numbers | client ranks | degree | MB a rank | CPU s a rank | CPU s in all |")
    print("|---|---|---|---|---|---|")
    for length, mask_ns in costs.items():
        print("\n".join(prediction(length, statistics.median(mask_ns))))
    for length, mask_ns in costs.items():
        each = ", ".join(f"{ns:.2f}" for ns in mask_ns)
        print(f"\nns a number a neighbour, of {length:,} numbers: {each}")


if __name__ == "__main__":
    from fedmpi.mpi.start import run

    if sys.argv[1:] and sys.argv[1].startswith("{"):
        run(main)
    else:
        main()
