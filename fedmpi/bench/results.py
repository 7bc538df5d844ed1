"""Results of fedmpi.bench: a table of ratios as CSV and Markdown, and a figure."""

from __future__ import annotations

import csv
import dataclasses
from dataclasses import dataclass
from pathlib import Path

TASK_NAMES = {"epoch": "FedAvg, 1 epoch", "step": "one full-batch step"}
COLOURS = {"epoch": "#e0a458", "step": "#1f6f8b"}  # as in the README's picture


@dataclass
class Row:
    """One measurement against its base: the median and the range of the repeats' ratios."""

    part: str
    task: str
    what: str
    ranks: int
    mpi: str
    ratio: float
    lowest: float
    highest: float
    cpu_ratio: float | None
    """Ratio of the CPU seconds of all ranks together, which a busy machine changes little."""
    value: float
    base: float
    """Median of the base, as `value` is of the measurement: seconds a round, seconds to the first
    round, or MB."""
    repeats: int
    load: float
    note: str = ""

    def cells(self) -> list[str]:
        """Cells of the row in the Markdown table."""
        cpu = "" if self.cpu_ratio is None else f"{self.cpu_ratio:.2f}"
        spread = f"{self.lowest:.2f}–{self.highest:.2f}"
        numbers = [f"{self.ratio:.2f}", spread, cpu, f"{self.value:.3g}", f"{self.base:.3g}"]
        task = "" if self.part == "startup" else TASK_NAMES[self.task]
        return [self.what, task, self.mpi, *numbers, f"{self.load:.1f}", self.note]

    def line(self) -> str:
        """Line of the row on the screen."""
        return "  ".join(cell for cell in self.cells() if cell)


HEAD = ("", "task", "MPI", "ratio", "range", "CPU", "measured", "base", "load", "note")


def write(folder: Path, head: list[str], rows: list[Row]) -> None:
    """Write bench.csv and bench.md."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "bench.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in dataclasses.fields(Row)])
        writer.writeheader()
        writer.writerows(dataclasses.asdict(row) for row in rows)
    lines = [*head, "", markdown(HEAD), markdown(["---"] * len(HEAD))]
    lines += [markdown(row.cells()) for row in rows]
    (folder / "bench.md").write_text("\n".join(lines) + "\n")


def markdown(cells) -> str:
    """Line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def draw(path: Path, rows: list[Row]) -> bool:
    """Draw ratios to the plain loop as bars; False without matplotlib, or without such rows."""
    rows = [row for row in rows if row.part in ("floor", "rounds", "peers")]
    try:
        import matplotlib
    except ImportError:
        return False
    if not rows:
        return False
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update({"svg.hashsalt": "fedmpi", "font.size": 9})
    several = len({row.mpi for row in rows}) > 1
    names = [row.what + (f" ({row.mpi})" if several and row.mpi else "") for row in rows]
    order = list(dict.fromkeys(names))
    figure, axes = plt.subplots(figsize=(7.2, 0.8 + 0.42 * len(order)))
    for i, task in enumerate(TASK_NAMES):
        bars = [(order.index(n), r) for n, r in zip(names, rows, strict=True) if r.task == task]
        if not bars:
            continue
        at, ratios = [y + 0.36 * (i - 0.5) for y, _ in bars], [r.ratio for _, r in bars]
        drawn = axes.barh(at, ratios, 0.34, color=COLOURS[task], label=TASK_NAMES[task])
        axes.bar_label(drawn, fmt=" %.2f", fontsize=7)
    axes.axvline(1, color="#555555", linewidth=0.8)
    axes.set_yticks(range(len(order)), order)
    axes.invert_yaxis()
    axes.set_xlabel("seconds a round, over a plain loop in one thread")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True
