"""Measure what is saved by computing equal rows once instead of each by itself.

    python benchmarks/equal_rows.py data/prepared/adult [...] [--ranks 1 2 8 40] [--repeats 5]

A full-batch step on the training rows of a rank, if the rows are allocated at random (ESG) to so
many ranks: the fewer ranks, the more rows are equal to another row of the same rank. One process,
one thread, CPU time; the two kinds of step take turns, the best time of each kind counts. The last
column is the time to find the equal rows, in steps.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from fedmpi import models
from fedmpi.federation.clients import Clients, Rows
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import cross_entropy
from fedmpi.models.micro_batch import rows_of_a_pass


def make(model: str, x: np.ndarray, y: np.ndarray) -> Clients:
    module = models.build(model, x.shape[1:], 2, seed=0)
    batch_rows = rows_of_a_pass(model, module, 4)
    flat = FlatModel(module, torch.float32, torch.device("cpu"), scalars=1)
    rows = Rows(torch.from_numpy(x), torch.from_numpy(y), torch.zeros(len(y), dtype=torch.int64))
    one, counts = np.zeros(1, dtype=np.int64), np.array([[len(y)]])
    return Clients(one, counts, rows, flat, cross_entropy, batch_rows, seed=0)


def step(some: Clients) -> float:
    """CPU time of one step."""
    began = time.process_time()
    some.full_batch_step(lambda: np.ones((1, 1)), 1e-6, lambda sums: None)
    return time.process_time() - began


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("prepared", nargs="+", type=Path)
    p.add_argument("--model", default="mlp")
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 8, 40])
    p.add_argument("--repeats", type=int, default=5)
    a = p.parse_args()
    torch.set_num_threads(1)
    print("data                       ranks    rows  kept  step: once / each  found in steps")
    for folder in a.prepared:
        x, y = (np.load(folder / f"train_{part}.npy") for part in ("x", "y"))
        order = np.random.default_rng(0).permutation(len(y))
        for ranks in a.ranks:
            mine = order[: len(y) // ranks]
            each, once = (make(a.model, x[mine], y[mine].astype(np.int64)) for _ in range(2))
            began = time.process_time()
            once.merge_equal_rows()
            found = time.process_time() - began
            times = [(step(each), step(once)) for _ in range(a.repeats + 1)][1:]
            apart, merged = (min(some) for some in zip(*times, strict=True))
            print(
                f"{folder.name:26} {ranks:5}  {len(mine):6}  {len(once.x) / len(mine):.2f}"
                f"  {merged / apart:17.2f}  {found / apart:14.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
