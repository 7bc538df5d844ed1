"""Results of the part `targets` of fedmpi.bench: tables, the sanity check, and a figure."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedmpi.bench.curve import Cost, Curve, curve_of
from fedmpi.bench.results import markdown
from fedmpi.reproduce.statistics import Mean, over
from fedmpi.run.record import Record

COLOURS = {
    "paper": "#8fb8c6",
    "fast": "#1f6f8b",
    "afl": "#7a5c99",
    "fedavg": "#e0a458",
    "plain": "#b0413e",
}
DRAWN = 100
"""Points of a line of the figure at most."""
PLAIN = {"fedavg": "FedAvg", "plain": "the same steps without adversary"}
"""Contestants without an adversary, in the words of the sanity check."""


@dataclass
class Run:
    """One run of a study; it has no curve if it diverged."""

    dataset: str
    contestant: str
    title: str
    setting: str
    seed: int
    targets: tuple[float, ...]
    curve: Curve | None = None
    worst_test: float | None = None
    """Worst group's test risk of the reported model."""
    note: str = ""

    def take(self, record: Record) -> None:
        """Take the figures of the finished run."""
        self.curve, self.worst_test = curve_of(record), record.result["worst_risk"]

    def reach(self, target: float) -> Cost | None:
        """What it cost to get to `target`, if the run did."""
        return self.curve.reach(target) if self.curve else None

    def stays(self, target: float) -> int | None:
        """The round from which on the risk is at or below `target`, if there is one."""
        return self.curve.stays(target) if self.curve else None

    def line(self) -> str:
        """Line of the run on the screen."""
        words = [self.dataset, self.title, self.setting, f"seed {self.seed}"]
        if self.curve is None:
            return "  ".join([*words, self.note])
        for target in self.targets:
            cost = self.reach(target)
            words.append(f"{target:g}: {cost.rounds:,}" if cost else f"{target:g}: no")
        words += [f"rounds {int(self.curve.rounds[-1]):,}", f"test {self.worst_test:.4f}"]
        return "  ".join(words)

    def records(self) -> list[dict[str, Any]]:
        """Lines of the run in targets.csv, one for each target."""
        curve, found = self.curve, []
        for target in self.targets:
            cost = self.reach(target)
            line: dict[str, Any] = {"dataset": self.dataset, "contestant": self.contestant}
            line |= {"method": self.title, "setting": self.setting, "seed": self.seed}
            line |= {"target": target, **(cost._asdict() if cost else dict.fromkeys(Cost._fields))}
            line["stays_from"] = self.stays(target)
            line["rounds_of_run"] = int(curve.rounds[-1]) if curve else None
            line["worst_train_at_end"] = float(curve.worst[-1]) if curve else None
            found.append(line | {"worst_test": self.worst_test, "note": self.note})
        return found


def write(folder: Path, head: list[str], runs: list[Run], whys: dict[str, str]) -> None:
    """Write targets.csv and targets.md."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line for run in runs for line in run.records()]
    with open(folder / "targets.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    page = [*head, ""]
    page += [
        "Rounds (lowest and highest over the seeds), passes over the rows, bytes of a rank and "
        "seconds until the worst group's training risk is at a target: of the run with the median "
        "rounds. Where the risk rises above the target again, the round from which on it stays "
        "below, or that it does not. Test: the worst group of the reported model.",
        "",
    ]
    for dataset in dict.fromkeys(run.dataset for run in runs):
        page += [*table([run for run in runs if run.dataset == dataset], whys[dataset]), ""]
    (folder / "targets.md").write_text("\n".join(page))


def table(runs: list[Run], why: str) -> list[str]:
    """The part of targets.md on one dataset."""
    targets = runs[0].targets
    head = ["", "setting", *(f"≤ {target:g}" for target in targets), "test"]
    lines = [f"## {runs[0].dataset}", "", f"Targets: {why}.", "", markdown(head)]
    lines.append(markdown(["---"] * len(head)))
    for name in dict.fromkeys(run.contestant for run in runs):
        mine = [run for run in runs if run.contestant == name]
        cells = [cell(mine, target) for target in targets]
        tests = said(over(run.worst_test for run in mine)) or mine[0].note
        lines.append(markdown([mine[0].title, mine[0].setting, *cells, tests]))
    return [*lines, "", *(f"- {line}" for line in sanity_lines(runs))]


def cell(runs: Sequence[Run], target: float) -> str:
    """What the seeds spent to get to a target; a seed that did not get there counts as endless."""
    order = sorted(runs, key=lambda run: cost.rounds if (cost := run.reach(target)) else math.inf)
    costs = [run.reach(target) for run in order]
    median = order[len(order) // 2]  # of an even number the higher: it is a run, not a mean
    middle, stays = median.reach(target), median.stays(target)
    if middle is None:
        lengths = [int(run.curve.rounds[-1]) for run in runs if run.curve]
        reached = sum(cost is not None for cost in costs)
        some = f" ({reached} of {len(costs)} seeds did)" if reached else ""
        return f"not in {max(lengths):,}{some}" if lengths else runs[0].note
    first, last = costs[0], costs[-1]
    assert first
    spread = f" ({first.rounds:,}–{f'{last.rounds:,}' if last else 'not'})"
    rounds = f"{middle.rounds:,}{spread if len(costs) > 1 else ''}"
    if stays != middle.rounds:
        rounds += f", stays from {stays:,}" if stays else ", does not stay"
    return f"{rounds}; {middle.passes:.3g} passes; {size(middle.bytes)}; {middle.seconds:.3g} s"


def size(count: float) -> str:
    """A number of bytes, with a unit."""
    power = min(3, int(math.log10(max(count, 1)) // 3))
    return f"{count / 1000**power:.3g} {('B', 'kB', 'MB', 'GB')[power]}"


def said(mean: Mean | None) -> str:
    """A mean with its deviation, where there is one."""
    if mean is None:
        return ""
    return f"{mean.mean:.4f}" + ("" if mean.std is None else f" ± {mean.std:.4f}")


def sanity_lines(runs: Sequence[Run]) -> list[str]:
    """What FedMinMax gains over training without an adversary, a line for each such contestant."""
    lines = []
    for dataset in dict.fromkeys(run.dataset for run in runs):
        tests = {
            name: {
                r.seed: r.worst_test for r in runs if (r.dataset, r.contestant) == (dataset, name)
            }
            for name in ("fast", *PLAIN)
        }
        for name, words in PLAIN.items():
            if tests["fast"] and tests[name]:
                lines.append(f"{dataset}, over {words}: {verdict(tests['fast'], tests[name])}")
    return lines


def verdict(minimax: dict[int, float | None], plain: dict[int, float | None]) -> str:
    """Whether the worst group's test risk (by seed) is lower with minimax than without.

    Runs of a seed have the same rows and the same start, so their differences are compared with two
    deviations of these differences. With three seeds, normal differences around 0 would pass for a
    gain in one of 27 cases.
    """
    pairs = [(minimax[seed], plain[seed]) for seed in minimax if seed in plain]
    gains = [without - ours for ours, without in pairs if ours is not None and without is not None]
    if len(gains) < 3:
        return "not decided, which takes three seeds that have not diverged"
    mean, deviation = statistics.mean(gains), statistics.stdev(gains)
    figures = f"(worst group's test risk lower by {mean:.4f} ± {deviation:.4f}, {len(gains)} seeds)"
    if mean > 2 * deviation:
        return f"minimax helps {figures}"
    if mean < -2 * deviation:
        return f"minimax harms {figures}"
    return f"minimax gives nothing over plain training here {figures}"


def draw(path: Path, runs: Sequence[Run]) -> bool:
    """Draw the worst group's risk over rounds and over bytes; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    runs = [run for run in runs if run.curve]
    if not runs:
        return False
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update({"svg.hashsalt": "fedmpi", "font.size": 9})
    datasets = list(dict.fromkeys(run.dataset for run in runs))
    size = (7.2, 0.6 + 2.3 * len(datasets))
    figure, panels = plt.subplots(len(datasets), 2, figsize=size, sharey="row", squeeze=False)
    for (left, right), dataset in zip(panels, datasets, strict=True):
        mine = [run for run in runs if run.dataset == dataset]
        _lines(left, mine, lambda curve: curve.rounds)
        _lines(right, mine, lambda curve: curve.rounds * curve.bytes_per_round)
        left.set_ylabel(f"{dataset}\nworst group's training risk")
    panels[-1][0].set_xlabel("rounds")
    panels[-1][1].set_xlabel("bytes of a rank")
    named = {str(line.get_label()): line for axes in figure.axes for line in axes.get_lines()}
    lines = [line for label, line in named.items() if not label.startswith("_")]
    figure.legend(handles=lines, loc="upper center", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.5 / size[1]))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def _lines(axes: Any, runs: Sequence[Run], spent: Callable[[Curve], np.ndarray]) -> None:
    """Draw a line for each run, over what `spent` makes of its curve, and the targets."""
    targets = runs[0].targets
    for target in targets:
        axes.axhline(target, color="#555555", linewidth=0.5, linestyle=":")
    curves = [run.curve for run in runs if run.curve]
    for run, curve in zip(runs, curves, strict=True):
        at = np.unique(np.geomspace(1, len(curve.worst), DRAWN).astype(int)) - 1
        colour = COLOURS[run.contestant]
        axes.plot(spent(curve)[at], curve.worst[at], color=colour, linewidth=1, label=run.title)
    axes.set_xscale("log")
    # A swing at the start is not to hide what happens at the targets.
    low = min(*targets, *(float(curve.worst.min()) for curve in curves))
    high = max(*targets, *(float(curve.worst[-1]) for curve in curves))
    axes.set_ylim(low - 0.1 * (high - low), high + 0.2 * (high - low))
    axes.spines[["top", "right"]].set_visible(False)
