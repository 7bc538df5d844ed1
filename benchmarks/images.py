"""Time passes of the CNN over images: layers as the paper lists them, and as fedmpi orders them.

    python benchmarks/images.py [--rows 32 64 128 256 512 1024] [--repeats 9]

FashionMNIST's shape, random bytes, one process, one thread. All forms take turns, and CPU seconds
are counted, not those of the clock: a busy machine then changes the ratios little.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from fedmpi import models
from fedmpi.models.cnn import CHANNELS
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import brier

SHAPE, CLASSES = (1, 28, 28), 10
SCALE = {"mean": [72.94], "std": [90.02]}
LISTED = 128
"""Number of rows of a pass through the layers as listed."""


def as_listed() -> nn.Module:
    """Network with ReLU, then max-pool, on images stored channel after channel."""
    first, second = CHANNELS
    return nn.Sequential(
        *(nn.Conv2d(1, first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(second * 49, CLASSES)),
    )


def passes(module: nn.Module, rows: int) -> Callable[[], None]:
    """Function that does a forward and a backward pass over so many images, as a rank does."""
    model = FlatModel(module, torch.float32, torch.device("cpu"), 0, SCALE)
    x = torch.randint(0, 256, (rows, *SHAPE), dtype=torch.uint8)
    y, weights = torch.randint(0, CLASSES, (rows,)), torch.full((rows,), 1 / rows)
    return lambda: model.add_gradient(x, y, brier, lambda losses: weights)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rows", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024])
    p.add_argument("--repeats", type=int, default=9)
    a = p.parse_args()
    torch.set_num_threads(1)
    forms = {f"as listed, {LISTED} rows": (passes(as_listed(), LISTED), LISTED)}
    for rows in a.rows:
        module = models.build("cnn", SHAPE, CLASSES, seed=0)
        forms[f"as ordered, {rows} rows"] = passes(module, rows), rows
    cpu: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(a.repeats + 1):  # the first repeat is to warm up
        for name, (work, rows) in forms.items():
            times = max(1, 1024 // rows)
            began = time.process_time()
            for _ in range(times):
                work()
            cpu[name].append((time.process_time() - began) / (times * rows))
    base, *_ = cpu.values()
    for name, some in cpu.items():
        ratio = statistics.median(t / b for t, b in zip(some[1:], base[1:], strict=True))
        print(f"{name:24} {ratio:5.2f}   {1000 * statistics.median(some[1:]):6.3f} ms a row")


if __name__ == "__main__":
    main()
