"""Run --sums exact and --secure on several layouts of one launch, each run in a folder of OUT.

mpirun -n 6 python tests/helpers/exact_layouts.py OUT quick|slow
"""

import sys
from pathlib import Path

import numpy as np
from images import write_fashionmnist
from mpi4py import MPI

from fedmpi.data.datasets.fashionmnist import FashionMNIST
from fedmpi.federation.job import Job
from fedmpi.mpi.ranks import Ranks
from fedmpi.mpi.start import run
from fedmpi.run.arguments import resolve

CLIENTS, OWNERS, ROUNDS = 11, 7, 6
EXACT = {
    f"{size}-{kind}": (size, f"--sums exact --reduce {kind} --bootstrap 40")
    for size in (1, 3, 6)
    for kind in ("flat", "hierarchical")
    if (size, kind) != (1, "hierarchical")
}
SECURE = {
    f"secure-{size}-{kind}": (size, f"--secure --reduce {kind}")
    for size, kind in ((4, "flat"), (6, "hierarchical"))
}
LAYOUTS = EXACT | SECURE
"""Number of ranks, and options of the sums. Of 6 ranks, five share the clients."""

LOCAL = "--method fedavg --local-epochs 2 --batch-size 10"
KINDS = {
    "all": "",
    "batches": "--batch-rows 37",
    "nesterov": "--optimizer nesterov --batch-rows 37",
    "adam": "--optimizer adam --lr 0.02 --adversary multiplicative",
    "fedavg": LOCAL,
    "term": LOCAL.replace("fedavg", "term --tilt-level sample"),
    "cohort": "--cohort 4",
    "fedavg-cohort": f"{LOCAL} --participation .4",
    "validate": "--validate .2 --eval-every 2 --metrics auc,calibration,odds",
    "brier": "--loss brier --average tail",
    "cnn": "--model cnn --micro-batch 16 --rounds 2",
    "owners": "",
    "owners-batches": "--batch-rows 37 --validate .2",
}
PLAIN = ("cohort", "fedavg-cohort")
"""Kinds that are not secure."""
QUICK = ("all", "nesterov", "fedavg", "validate", "owners-batches")
"""Kinds of the quick tests: steps, local epochs, metrics, and owners."""
KINDS_OF = {"quick": QUICK, "slow": [kind for kind in KINDS if kind not in QUICK]}


def people(rows: int) -> list[str]:
    """Rows of four groups whose sizes differ by an order of magnitude, with a head."""
    rng = np.random.default_rng(0)
    group = rng.choice(4, size=rows, p=[0.5, 0.3, 0.13, 0.07])
    x = rng.normal(size=(rows, 3)) + group[:, None] / 2
    y = (x.sum(1) + group + rng.normal(size=rows) > 2).astype(int)
    told = zip(x, group, y, strict=True)
    return ["u,v,w,g,y", *(f"{a},{b},{c},{g},{t}" for (a, b, c), g, t in told)]


def write_people(out: Path) -> None:
    """Write the rows as one file, and as files of owners who have ever more of them."""
    head, *rows = people(500)
    (out / "people.csv").write_text("\n".join([head, *rows]) + "\n")
    (out / "owners").mkdir()
    ends = np.cumsum(np.arange(1, OWNERS + 1) ** 2) + 40 * np.arange(1, OWNERS + 1)
    for i, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        mine = "\n".join([head, *rows[start:end]])
        (out / f"owners/{'klmnopq'[i]}.csv").write_text(mine + "\n")


def write_images(data: Path) -> None:
    """Write 200 and 60 images of 8 × 8, and tell the dataset to expect these."""
    rng = np.random.default_rng(1)
    content = []
    for rows in (200, 60):
        content.append(rng.integers(0, 256, (rows, 8, 8), dtype=np.uint8))
        content.append(np.arange(rows, dtype=np.uint8) % 10)
    FashionMNIST.files = write_fashionmnist(data, content)


def arguments(kind: str, out: Path, output: str) -> list[str]:
    """Options of a small run in float32 with unequal shards, whose clients lack groups."""
    whose = f"csv:{out / 'people.csv'} --skew 2 --setting PSG --clients {CLIENTS}"
    names = "--target y --group g"
    if kind == "cnn":
        whose, names = f"fashionmnist --setting SSG --clients {CLIENTS}", ""
    elif kind.startswith("owners"):
        whose = f"csv:{out / 'owners'}/"
    adversary = [] if kind.startswith(("fedavg", "term")) else ["--lr-mu", "0.1"]
    return [
        *("--dataset", *whose.split(), *names.split(), "--dtype", "float32", "--seed", "3"),
        *("--rounds", str(ROUNDS), "--progress", "none", "--solver", "paper", "--lr", "0.1"),
        *("--model", "mlp", "--micro-batch", "20", "--data-dir", str(out / "data"), *adversary),
        *("--output", str(out / output), *KINDS[kind].split()),
    ]


def main() -> int:
    out, which = Path(sys.argv[1]), sys.argv[2]
    world = Ranks(MPI.COMM_WORLD)
    if world.is_server:
        if not (out / "people.csv").exists():
            write_people(out)
        write_images(out / "data")
        world.bcast(FashionMNIST.files)
    else:
        FashionMNIST.files = world.bcast(None)
    teams = {size: world.first(size) for size, _ in LAYOUTS.values()}
    for kind in KINDS_OF[which]:
        for layout, (size, sums) in LAYOUTS.items():
            options = [*arguments(kind, out, f"{kind}-{layout}"), *sums.split()]
            if kind in PLAIN and layout in SECURE:
                continue
            if team := teams[size]:
                Job(team, resolve(options, max(1, size - 1), one_process=size == 1)).run()
            world.meet()
    return 0


if __name__ == "__main__":
    run(main)
