"""Model of the time of a round, fitted to the measurements, and the model's predictions.

    seconds =   gamma × rows / min(client ranks, cores)
              + crowd × (alpha × ⌈log2 ranks⌉ + beta × 2 bytes (ranks − 1) / ranks)
              + alpha' × ⌈log2 hosts⌉ + beta' × 2 bytes (hosts − 1) / hosts

gamma is the computation of a row, one for each model; alpha the latency of a stage of the exchange;
beta the time of a byte of theta. `ranks` of the second line are the ranks of one host, and share
this host's cores: crowd = ranks / cores, at least 1. The third line is the network's, and can be
fitted only where several hosts were measured.
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
    """Input of the model: the numbers of a launch."""

    rows: float
    client_ranks: int
    ranks: int
    hosts: int
    cores: int
    """Number of cores of all hosts together."""
    bytes: int
    parameters: int

    def terms(self) -> dict[str, float]:
        """Factors that the model's constants are multiplied by, by name of the constant."""
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
    """Name of the constant gamma of a network with so many parameters."""
    return f"gamma {parameters:,}"


def layout_of(point: Measured) -> Layout:
    """Layout of a measured point."""
    r = point.row
    return Layout(r.rows, r.client_ranks, r.ranks, r.hosts, r.cores, r.bytes, r.parameters)


@dataclass
class Fit:
    """The constants, in seconds, and the model's errors at the measured points."""

    constants: dict[str, float]
    errors: list[float]
    """Relative error at each point."""

    def seconds(self, layout: Layout, network: dict[str, float] | None = None) -> float:
        """Seconds of a round; `network` has alpha' and beta' where these were not fitted."""
        constants = (network or {}) | self.constants
        return sum(constants[name] * times for name, times in layout.terms().items() if times)


def fit(layouts: list[Layout], seconds: list[float]) -> Fit | None:
    """Fit by non-negative least squares of the relative errors; None without enough points.

    The constants of the exchange are few, so all subsets of these constants are tried, and the best
    fit is taken in which no constant is below 0.
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
    """Cluster of nodes that are alike, with a client rank on every core."""

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
    """Predicted, not measured, seconds of a round on so many nodes."""

    nodes: int
    strong: float
    weak: float
    strong_efficiency: float
    weak_efficiency: float


def predict(
    found: Fit, base: Measured, cluster: Cluster, most: int, rows_per_rank: int
) -> list[Prediction]:
    """Predict for 1, 2, 4, ... nodes: strong, with the rows of `base`, and weak.

    Strong spreads the rows of `base` over all nodes; weak has `rows_per_rank` on each rank.
    """
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
