"""Time the arithmetic of a rank: passes by hand, autograd's, and a plain loop's, in CPU time.

    python benchmarks/passes.py [--rows 8000] [--clients 10] [--batch 100] [--repeats 9]
    python benchmarks/passes.py --model mlp4 --inputs 1 --batches 256 768 2048

The MLP of Adult, or another perceptron, on random rows, one process, one thread, nothing sent. The
forms take turns, and CPU seconds are counted, not those of the clock: a busy machine then changes
the ratios little.
"""

import argparse
import statistics
import time
from types import SimpleNamespace

import numpy as np
import torch

from fedmpi import models
from fedmpi.bench.plain import PlainLoop
from fedmpi.federation.clients import Clients, Rows
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import cross_entropy

LR = 0.01


class Rank:
    """A client rank without a federation."""

    def __init__(
        self, model: str, rows: Rows, sizes: np.ndarray, batch: int, batch_rows: int, by_hand: bool
    ):
        module = models.build(model, rows.x.shape[1:], 2, seed=0)
        self.model = FlatModel(module, torch.float32, torch.device("cpu"), scalars=1)
        if not by_hand:
            self.model._dense = None
        numbers, counts = np.arange(len(sizes)), sizes[None]
        self.clients = Clients(numbers, counts, rows, self.model, cross_entropy, batch_rows, seed=0)
        self.config = SimpleNamespace(local_epochs=1, batch_size=batch, lr=LR)
        self.total, self.t = sizes.sum(), 0

    def epoch(self) -> None:
        self.t += 1
        self.model.sums.zero_()
        shares = self.clients.sizes / self.total
        self.clients.add_local_changes(self.t, self.config, lambda: shares)
        self.model.theta.add_(self.model.change)

    def step(self) -> None:
        self.model.sums.zero_()
        weight = np.full(1, 1 / self.total)
        self.clients.full_batch_step(lambda: weight, LR, lambda sums: None)
        self.model.theta.add_(self.model.change)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", default="mlp")
    p.add_argument("--inputs", type=int, default=91)
    p.add_argument("--rows", type=int, default=8000)
    p.add_argument("--clients", type=int, default=10)
    p.add_argument("--batch", type=int, default=100)
    p.add_argument("--batches", type=int, nargs="+", default=[128, 256, 512, 1024, 2048])
    p.add_argument("--repeats", type=int, default=9)
    a = p.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    sizes = 1 + rng.multinomial(a.rows - a.clients, rng.dirichlet([50] * a.clients))
    x, y = torch.randn(a.rows, a.inputs), torch.randint(0, 2, (a.rows,))
    rows = Rows(x, y, torch.zeros(a.rows, dtype=torch.int64))
    shards = list(zip(x.split(sizes.tolist()), y.split(sizes.tolist()), strict=True))

    def plain(batch: int | None) -> PlainLoop:
        return PlainLoop(
            models.build(a.model, (a.inputs,), 2, seed=0), shards, "cross-entropy", LR, batch
        )

    tasks = {
        f"an epoch in batches of {a.batch}": {
            "plain loop": plain(a.batch).round,
            "autograd": Rank(a.model, rows, sizes, a.batch, 1024, by_hand=False).epoch,
            "by hand": Rank(a.model, rows, sizes, a.batch, 1024, by_hand=True).epoch,
        },
        "one step on all rows": {
            "plain loop": plain(None).round,
            "autograd, batches of 1024": Rank(
                a.model, rows, sizes, a.batch, 1024, by_hand=False
            ).step,
            **{
                f"by hand, batches of {n}": Rank(
                    a.model, rows, sizes, a.batch, n, by_hand=True
                ).step
                for n in a.batches
            },
        },
    }
    for task, forms in tasks.items():
        cpu: dict[str, list[float]] = {name: [] for name in forms}
        for _ in range(a.repeats + 1):
            for name, work in forms.items():
                began = time.process_time()
                work()
                cpu[name].append(time.process_time() - began)
        print(f"{task}: {a.rows} rows, {a.clients} clients", flush=True)
        base = cpu["plain loop"][1:]
        for name, times in cpu.items():
            ratio = statistics.median(t / b for t, b in zip(times[1:], base, strict=True))
            ms = 1000 * statistics.median(times[1:])
            print(f"  {name:26} {ratio:5.2f} of the plain loop   {ms:7.1f} ms", flush=True)


if __name__ == "__main__":
    main()
