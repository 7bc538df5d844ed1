"""Measure up to how many rows it pays to train small clients together, not one by one.

    python benchmarks/small_clients.py [--rows 4096] [--repeats 3]

Clients of 32 to 512 rows, an epoch in batches of 8, 32 and 100, of the perceptron models, on random
rows. One process, one thread, CPU time. `fedmpi.models.batched_clients.FEW` is from this benchmark.
"""

import argparse
import time
from types import SimpleNamespace

import numpy as np
import torch

from fedmpi import models
from fedmpi.federation import clients
from fedmpi.federation.clients import Clients, Rows
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import cross_entropy

INPUTS = {"mlp": 91, "mlp4": 1, "logistic": 91}


def make(model: str, rows: Rows, sizes: np.ndarray) -> Clients:
    module = models.build(model, rows.x.shape[1:], 2, seed=0)
    flat = FlatModel(module, torch.float32, torch.device("cpu"), scalars=1)
    numbers = np.arange(len(sizes))
    return Clients(numbers, sizes[None], rows, flat, cross_entropy, 512, seed=0)


def seconds(some: Clients, few: int, batch: int, t: int) -> float:
    """CPU time of an epoch, if clients with up to `few` rows are trained together."""
    clients.FEW = few
    config = SimpleNamespace(local_epochs=1, batch_size=batch, lr=0.01)
    shares = some.sizes / some.sizes.sum()
    began = time.process_time()
    some.model.sums.zero_()
    some.add_local_changes(t, config, lambda: shares)
    return time.process_time() - began


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rows", type=int, default=4096)
    p.add_argument("--repeats", type=int, default=3)
    a = p.parse_args()
    torch.set_num_threads(1)
    print("model     batch  rows of a client  together / one by one", flush=True)
    for model, inputs in INPUTS.items():
        for batch in (8, 32, 100):
            for size in (32, 64, 128, 256, 512):
                if size <= batch:  # one step: such clients are always trained together
                    continue
                sizes = np.full(max(1, a.rows // size), size)
                x, y = torch.randn(sizes.sum(), inputs), torch.randint(0, 2, (sizes.sum(),))
                rows = Rows(x, y, torch.zeros_like(y))
                forms = {few: make(model, rows, sizes) for few in (0, size)}
                least = dict.fromkeys(forms, float("inf"))
                for t in range(a.repeats + 1):
                    for few, some in forms.items():
                        taken = seconds(some, few, batch, t + 1)
                        least[few] = min(least[few], taken)
                print(f"{model:9} {batch:5}  {size:16}  {least[size] / least[0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
