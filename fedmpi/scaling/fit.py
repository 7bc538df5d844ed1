"""A model of the time of a round, fitted to what was measured, and what it predicts.

    seconds =   gamma × rows / min(client ranks, cores)
              + crowd × (alpha × ⌈log2 ranks⌉ + beta × 2 bytes (ranks − 1) / ranks)
              + alpha' × ⌈log2 hosts⌉ + beta' × 2 bytes (hosts − 1) / hosts

gamma is the computation of a row, one for each model; alpha the latency of a stage of the exchange;
beta the time of a byte of theta. `ranks` of the second line are those of one host, whose cores they
share: crowd = ranks / cores, at least 1. The third line is the network's, and can be fitted only
where several hosts were measured.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from fedmpi.scaling.results import Measured

WITHIN, BETWEEN = ("alpha", "beta"), ("alpha'", "beta'")


@dataclass(frozen=True)
class Layout:
    """What the model knows of a launch."""

    rows: float
    client_ranks: int
    ranks: int
    hosts: int
    cores: int
    """Of all hosts together."""
    bytes: int
    parameters: int

    def terms(self) -> dict[str, float]:
        """What each of the model's constants is multiplied by."""
        here, cores = math.ceil(self.ranks / self.hosts), max(1, self.cores // self.hosts)
        crowd = max(1.0, here / cores)
        return {
            gamma(self.parameters): self.rows / min(self.client_ranks, self.cores),
            "alpha": crowd * math.ceil(math.log2(here)),
            "beta": crowd * 2 * self.bytes * (here - 1) / here,
            "alpha'": math.ceil(math.log2(self.hosts)),
            "beta'": 2 * self.bytes * (self.hosts - 1) / self.hosts,
        }


def gamma(parameters: int) -> str:
    """The name of a model's constant."""
    return f"gamma {parameters:,}"


def layout_of(point: Measured) -> Layout:
    """As it was measured."""
    r = point.row
    return Layout(r.rows, r.client_ranks, r.ranks, r.hosts, r.cores, r.bytes, r.parameters)


@dataclass
class Fit:
    """The constants, in seconds, and how far the model is from what was measured."""

    constants: dict[str, float]
    errors: list[float]
    """Relative, of each point."""

    def seconds(self, layout: Layout, network: dict[str, float] | None = None) -> float:
        """Of a round; `network` stands in for alpha' and beta' where these were not fitted."""
        constants = (network or {}) | self.constants
        return sum(constants[name] * times for name, times in layout.terms().items() if times)


def fit(layouts: list[Layout], seconds: list[float]) -> Fit | None:
    """Non-negative least squares of the relative errors; None without enough points.

    The constants of the exchange are few, so all subsets of them are tried, and the best taken
    that has nothing below 0.
    """
    table = [layout.terms() for layout in layouts]
    names = list(dict.fromkeys(name for terms in table for name in terms))
    names = [name for name in names if any(terms.get(name) for terms in table)]
    compute = [name for name in names if name not in WITHIN + BETWEEN]
    exchange = [name for name in names if name in WITHIN + BETWEEN]
    if len(layouts) < len(names) or not exchange:
        return None
    measured = np.array(seconds)
    best: tuple[float, dict[str, float], np.ndarray] | None = None
    for size in range(len(exchange) + 1):
        for some in itertools.combinations(exchange, size):
            chosen = [*compute, *some]
            matrix = np.array([[terms.get(n, 0.0) for n in chosen] for terms in table])
            matrix /= measured[:, None]
            scale = np.abs(matrix).max(axis=0)  # bytes and stages are orders of magnitude apart
            found = np.linalg.lstsq(matrix / scale, np.ones(len(measured)), rcond=None)[0] / scale
            errors = matrix @ found - 1
            if (found >= 0).all() and (best is None or errors @ errors < best[0]):
                values = dict(zip(chosen, found.tolist(), strict=True))
                best = float(errors @ errors), dict.fromkeys(names, 0.0) | values, errors
    return Fit(best[1], best[2].tolist()) if best else None


@dataclass
class Cluster:
    """Nodes that are alike, every core with a client rank."""

    node_cores: int
    latency: float
    """Seconds of a message between nodes."""
    bandwidth: float
    """Bytes a second between nodes."""

    @property
    def network(self) -> dict[str, float]:
        return {"alpha'": self.latency, "beta'": 1 / self.bandwidth}

    def layout(self, nodes: int, rows: float, bytes: int, parameters: int) -> Layout:
        cores = nodes * self.node_cores
        return Layout(rows, cores, cores, nodes, cores, bytes, parameters)


@dataclass
class Prediction:
    """Of a round on so many nodes; nobody measured it."""

    nodes: int
    strong: float
    weak: float
    strong_efficiency: float
    weak_efficiency: float


def predict(
    found: Fit, base: Measured, cluster: Cluster, most: int, rows_per_rank: int
) -> list[Prediction]:
    """For 1, 2, 4, ... nodes: the rows of `base` on all of them, and so many for each rank."""
    predictions: list[Prediction] = []
    r = base.row
    nodes = [2**power for power in range(most.bit_length()) if 2**power < most] + [most]
    for n in nodes:
        cores = n * cluster.node_cores
        strong, weak = (
            found.seconds(cluster.layout(n, rows, r.bytes, r.parameters), cluster.network)
            for rows in (r.rows, rows_per_rank * cores)
        )
        first = predictions[0] if predictions else Prediction(1, strong, weak, 1.0, 1.0)
        efficiency = (first.strong / strong / n, first.weak / weak)
        predictions.append(Prediction(n, strong, weak, *efficiency))
    return predictions
