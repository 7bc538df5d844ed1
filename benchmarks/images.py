"""Time passes of the CNN over images: layers as the paper lists them, and as fedmpi orders them.

    python benchmarks/images.py [--rows 32 64 128 256 512 1024] [--repeats 9]
    python benchmarks/images.py --autocast [--rows 128 250] [--repeats 5]

Random bytes, one process, one thread: in FashionMNIST's shape; with --autocast in CIFAR-10's,
through ResNet-18 and the CNN, with products in float32 and in bfloat16. All forms take turns, and
CPU seconds are counted, not those of the clock: a busy machine then changes the ratios little.
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

SHAPE, COLOURED, CLASSES = (1, 28, 28), (3, 32, 32), 10
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


def passes(
    module: nn.Module,
    rows: int,
    shape: tuple[int, ...] = SHAPE,
    autocast: torch.dtype | None = None,
) -> Callable[[], None]:
    """Function that does a forward and a backward pass over so many images, as a rank does."""
    scale = {"mean": [72.94] * shape[0], "std": [90.02] * shape[0]}
    model = FlatModel(module, torch.float32, torch.device("cpu"), 0, scale, autocast=autocast)
    x = torch.randint(0, 256, (rows, *shape), dtype=torch.uint8)
    y, weights = torch.randint(0, CLASSES, (rows,)), torch.full((rows,), 1 / rows)
    return lambda: model.add_gradient(x, y, brier, lambda losses: weights)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rows", type=int, nargs="+")
    p.add_argument("--repeats", type=int, default=9)
    p.add_argument("--autocast", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.autocast:
        for model in ("resnet18", "cnn"):
            compare(in_both_types(model, a.rows or [128, 250]), a.repeats)
    else:
        compare(in_both_orders(a.rows or [32, 64, 128, 256, 512, 1024]), a.repeats)


Forms = dict[str, tuple[Callable[[], None], int]]
"""What is timed, by name: a pass, and its number of rows."""


def in_both_orders(sizes: list[int]) -> Forms:
    """The CNN's layers as the paper lists them, and as fedmpi orders them."""
    forms = {f"as listed, {LISTED} rows": (passes(as_listed(), LISTED), LISTED)}
    for rows in sizes:
        module = models.build("cnn", SHAPE, CLASSES, seed=0)
        forms[f"as ordered, {rows} rows"] = passes(module, rows), rows
    return forms


def in_both_types(model: str, sizes: list[int]) -> Forms:
    """A model with products in float32, and in bfloat16."""
    forms = {}
    for rows in sizes:
        for name, autocast in (("float32", None), ("bfloat16", torch.bfloat16)):
            module = models.build(model, COLOURED, CLASSES, seed=0)
            forms[f"{model}, {rows} rows, {name}"] = passes(module, rows, COLOURED, autocast), rows
    return forms


def compare(forms: Forms, repeats: int) -> None:
    """Time the forms in turn, and print each one's CPU time over that of the first."""
    cpu: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats + 1):  # the first repeat is to warm up
        for name, (work, rows) in forms.items():
            times = max(1, 1024 // rows)
            began = time.process_time()
            for _ in range(times):
                work()
            cpu[name].append((time.process_time() - began) / (times * rows))
    base, *_ = cpu.values()
    for name, some in cpu.items():
        ratio = statistics.median(t / b for t, b in zip(some[1:], base[1:], strict=True))
        print(f"{name:30} {ratio:5.2f}   {1000 * statistics.median(some[1:]):6.3f} ms a row")


if __name__ == "__main__":
    main()
