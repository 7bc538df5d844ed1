"""The plain loop on the peers' shards: what they are measured against. PYTHONPATH: this clone."""

import torch
from work import LR, ROUNDS, TASK, Clock, Net, shards

from fedmpi.bench.plain import PlainLoop

torch.set_num_threads(1)
clock, loop = (
    Clock(),
    PlainLoop(
        Net(), list(shards().values()), "cross-entropy", LR, 100 if TASK == "epoch" else None
    ),
)
for _ in range(ROUNDS):
    loop.round()
    clock.tick()
clock.tell("plain loop", loop.module)
