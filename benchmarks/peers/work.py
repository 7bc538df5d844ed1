"""What the drivers share: the shards, the model, the clock, the line that they end with.

It needs numpy and torch alone, for each peer lives in an environment of its own. Rows are never
shuffled, so that every system must end at the same model; the test loss that each prints says
whether it did. The environment: PEERS_SHARDS (a file of shards.py), PEERS_TASK, PEERS_ROUNDS.
"""

import json
import os
import time

import numpy as np
import torch
from torch import nn

SHARDS = os.environ.get("PEERS_SHARDS", "shards.npz")
TASK = os.environ.get("PEERS_TASK", "epoch")
ROUNDS = int(os.environ.get("PEERS_ROUNDS", "20"))
WARM = 3
"""Rounds that do not count."""
LR = 0.01


class Net(nn.Module):
    """The MLP of Adult."""

    def __init__(self, inputs: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)  # every system begins at the same model
        inputs = inputs or int(np.load(SHARDS)["inputs"])
        self.hidden, self.out = nn.Linear(inputs, 512), nn.Linear(512, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.hidden(x).relu())


def shards(only: list[int] | None = None) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """The rows and targets of each client."""
    with np.load(SHARDS) as file:
        x, y, ends = file["x"], file["y"], file["ends"]
    starts = np.concatenate([[0], ends[:-1]])
    wanted = range(len(ends)) if only is None else only
    return {
        k: tuple(torch.from_numpy(a[starts[k] : ends[k]].copy()) for a in (x, y)) for k in wanted
    }


def clients() -> int:
    """K."""
    with np.load(SHARDS) as file:
        return len(file["ends"])


def test_loss(module: nn.Module) -> float:
    with np.load(SHARDS) as file, torch.no_grad():
        logits = module(torch.from_numpy(file["test_x"]))
        return float(nn.functional.cross_entropy(logits, torch.from_numpy(file["test_y"])))


class Clock:
    """When each round ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def tick(self) -> None:
        self.times.append(time.time())

    def tell(self, system: str, module: nn.Module) -> None:
        """Leave what run_peers.py reads in PEERS_RESULT, and print it."""
        rounds = np.diff(self.times)[WARM - 1 :]
        result = {"system": system, "seconds": float(np.median(rounds))}
        result |= {"first_round": self.times[0], "loss": test_loss(module)}
        print(json.dumps(result), flush=True)
        if to := os.environ.get("PEERS_RESULT"):  # some peers keep stdout to themselves
            with open(to, "w") as file:
                json.dump(result, file)
