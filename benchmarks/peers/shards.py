"""Write the clients' rows to one file, from which every system takes them.

python benchmarks/peers/shards.py shards.npz --dataset adult --setting PSG --clients 40
"""

import sys

import numpy as np

from fedmpi.bench.plain import shards
from fedmpi.run.arguments import resolve


def main(path: str, *options: str) -> None:
    prepared, clients = shards(resolve(list(options), 1, one_process=True))
    x, y = (
        np.concatenate([part.numpy() for part in parts]) for parts in zip(*clients, strict=True)
    )
    every = np.arange(prepared.rows("test"))
    np.savez(
        path,
        x=x,
        y=y,
        ends=np.cumsum([len(y) for _, y in clients]),
        test_x=prepared.take("test_x", every).astype(x.dtype),
        test_y=prepared.take("test_y", every).astype(np.int64),
        inputs=x.shape[1],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
