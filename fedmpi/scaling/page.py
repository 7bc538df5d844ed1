"""The page scaling.md: the tables, the fitted model, and the model's predictions."""

from __future__ import annotations

import statistics

from fedmpi.scaling.fit import BETWEEN, Cluster, Fit, fit, layout_of, predict
from fedmpi.scaling.results import Measured, Row, markdown, medians, tables

UNITS = {
    "alpha": ("α", "latency of a stage, within a host", 1e6, "µs"),
    "beta": ("β", "time of a byte of θ, within a host", 1e9, "ns"),
    "alpha'": ("α'", "latency of a stage, between hosts", 1e6, "µs"),
    "beta'": ("β'", "time of a byte of θ, between hosts", 1e9, "ns"),
}


def page(head: str, rows: list[Row], cluster: Cluster, nodes: int, rows_per_rank: int) -> str:
    """Text of the whole file."""
    text = ["# Scaling", "", head, "", *tables(rows)]
    # Without the points of `reduce`: half of these have the kind of sum that a run would not take.
    every = medians([row for row in rows if row.study != "reduce"])
    found = fit([layout_of(point) for point in every], [point.row.seconds for point in every])
    text += ["## The model", ""]
    if found is None:
        text += ["Too few points to fit it: measure one process and several numbers of ranks.", ""]
        return "\n".join(text)
    text += [*_constants(found, len(every)), ""]
    base = (medians(rows, "strong") or every)[0]
    return "\n".join([*text, *_prediction(found, base, cluster, nodes, rows_per_rank), ""])


def _constants(found: Fit, points: int) -> list[str]:
    lines = []
    for name, value in found.constants.items():
        row = f"computation of a row, model of {name.split()[-1]} parameters"
        letter, what, factor, unit = UNITS.get(name, ("γ", row, 1e6, "µs"))
        lines.append([letter, what, f"{value * factor:.4g} {unit}"])
    middle = statistics.median(abs(error) for error in found.errors)
    worst = max(abs(error) for error in found.errors)
    return [
        "    seconds = γ rows / min(client ranks, cores)",
        "            + crowd (α ⌈log2 ranks⌉ + β 2 bytes (ranks − 1) / ranks)    within a host",
        "            + α' ⌈log2 hosts⌉ + β' 2 bytes (hosts − 1) / hosts          between hosts",
        "",
        f"Fitted to {points} points by least squares of the relative errors, nothing below 0.",
        f"The median error is {middle:.0%}, the largest {worst:.0%}. (crowd: ranks of a host for",
        "each of its cores, at least 1. A constant that is 0 could not be told from the others.)",
        "",
        *markdown(("constant", "what", "fitted"), lines),
    ]


def _prediction(
    found: Fit, base: Measured, cluster: Cluster, nodes: int, rows_per_rank: int
) -> list[str]:
    fitted = all(name in found.constants for name in BETWEEN)
    network = (
        "The network's constants are the fitted ones."
        if fitted
        else f"The network is assumed, not measured: {cluster.latency * 1e6:g} µs and "
        f"{cluster.bandwidth * 8 / 1e9:g} Gbit/s (--network)."
    )
    lines = [
        [
            str(p.nodes),
            str(p.nodes * cluster.node_cores),
            f"{p.strong:.4g}",
            f"{p.strong_efficiency:.2f}",
            f"{p.weak:.4g}",
            f"{p.weak_efficiency:.2f}",
        ]
        for p in predict(found, base, cluster, nodes, rows_per_rank)
    ]
    head = ("nodes", "client ranks", "strong, s", "efficiency", "weak, s", "efficiency")
    return [
        f"## Predicted, not measured: {nodes} nodes",
        "",
        f"Seconds a round on nodes of {cluster.node_cores} core(s), a client rank on each. Strong: "
        f"{base.row.rows:,} rows in all. Weak: {rows_per_rank:,} rows for each rank. The model has "
        f"{base.row.parameters:,} parameters.",
        "",
        "Assumed: cores as fast as those measured, and no slower when all of a node work at once;",
        "rows shared out evenly; sums within a node first, then between nodes, with as many stages",
        "as the logarithm of the nodes; the server beside a client rank on a core, at no cost; no",
        f"other traffic. {network}",
        "",
        *markdown(head, lines),
    ]
