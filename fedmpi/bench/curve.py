"""Worst group's training risk of a finished run over its rounds, and what a target cost to reach.

A row of history.csv has the risks at the theta that its round *began* with, of the running model
and not of a mean of theta. So a target counts as reached in the round in which the server learns
so, and this round is paid for.

With --batch-rows a row has the risks of a batch. The largest of noisy risks is too high on average
and too low now and then, so each group's risk is first averaged over the rounds in which its rows
came once (all rounds, until they have), and the worst group is taken then. The mean lags behind
theta by half of such a pass: while the risk falls, a target is found late, never early.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedmpi.federation.batches import batch_shares
from fedmpi.reproduce.statistics import passes_per_round
from fedmpi.run.record import Record


class Cost(NamedTuple):
    """What a run had spent by the end of a round."""

    rounds: int
    passes: float
    """Passes over all training rows: the epochs of a client, for methods with local epochs."""
    bytes: float
    """Bytes that the busiest rank handed to MPI."""
    seconds: float
    """Seconds in the rounds, without the start."""


@dataclass(frozen=True)
class Curve:
    """Worst group's training risk after `rounds`, and the costs."""

    rounds: np.ndarray
    seconds: np.ndarray
    worst: np.ndarray
    passes_per_round: float
    bytes_per_round: float

    def reach(self, target: float) -> Cost | None:
        """What it cost to get to `target` for the first time; None if the run never did."""
        below = np.flatnonzero(self.worst <= target)
        return self.cost(int(below[0])) if len(below) else None

    def stays(self, target: float) -> int | None:
        """The round from which on the risk is at or below `target`; None if it ends above."""
        above = np.flatnonzero(self.worst > target)
        after = int(above[-1]) + 1 if len(above) else 0
        return int(self.rounds[after]) if after < len(self.rounds) else None

    def cost(self, i: int) -> Cost:
        """What was spent by the end of the i-th round of the curve."""
        rounds = int(self.rounds[i])
        passes, handed = rounds * self.passes_per_round, rounds * self.bytes_per_round
        return Cost(rounds, passes, handed, float(self.seconds[i]))


def curve_of(record: Record) -> Curve:
    """The curve of a finished run."""
    history, groups = record.history, record.result["groups"]
    rounds = history["round"]
    sizes, shares = _rows(record)
    risks = [
        trailing_mean(history[f"risk/{name}"], rounds, math.ceil(size / share))
        for name, size, share in zip(groups, sizes, shares, strict=True)
        if size
    ]
    return Curve(
        rounds=rounds,
        seconds=history["seconds"],
        worst=np.max(risks, axis=0),
        passes_per_round=passes_per_round(record.config, record.result),
        bytes_per_round=record.result["bytes_per_round"],
    )


def _rows(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """Training rows of each group, and those of them in a round."""
    sizes = np.array([group["n_train"] for group in record.result["groups"].values()])
    batch_rows = record.config.get("batch_rows")
    return sizes, batch_shares(batch_rows, sizes) if batch_rows else sizes


def cost_of(record: Record) -> Cost:
    """What a whole run has cost; one that was ended early, up to there."""
    result = record.result
    rounds = round(result["seconds"] / result["seconds_per_round"])
    passes, handed = (
        rounds * passes_per_round(record.config, result),
        rounds * result["bytes_per_round"],
    )
    return Cost(rounds, passes, handed, result["seconds"])


def trailing_mean(values: np.ndarray, rounds: np.ndarray, window: int) -> np.ndarray:
    """Mean of the values of the last `window` rounds, for each of the `rounds`."""
    first = np.searchsorted(rounds, rounds - window, side="right")
    end = np.arange(1, len(rounds) + 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return (sums[end] - sums[first]) / (end - first)
