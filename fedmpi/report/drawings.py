"""The figures for papers, by matplotlib: one file each.

The words are those of the page. Nothing is told by colour alone: bars have hatches, curves have
dashes and markers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmpi.errors import UserError

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8508f", "#3a9bd9", "#c98500", "#16191d", "#7a5c2e")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1.5, 2)), (0, (3, 1.5)))
MARKERS = "os^Dv P*X"
BARS = (("worst", COLOURS[1], ""), ("average", COLOURS[0], "////"), ("best", COLOURS[2], "...."))
TIMES = (
    ("compute", COLOURS[0], ""),
    ("exchange", COLOURS[5], "////"),
    ("wait", COLOURS[3], "...."),
)
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.6,
    "hatch.color": "white",
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # TrueType: journals refuse type 3
    "svg.fonttype": "none",
    "svg.hashsalt": "fedmpi",
    "savefig.dpi": 300,
}
MOST_NAMES = 30
"""Clients of whom the heat map has the names; of more it has some numbers."""
Save = Callable[[Any], Any]


def draw_all(data: dict, named: set[Path], form: str) -> Iterator[tuple[str, Save]]:
    """Yield (file name, function that writes the file) of each dataset and of the `named` runs."""
    try:
        import matplotlib
    except ImportError:
        raise UserError(
            f'--format {form} needs matplotlib: pip install -c constraints.txt ".[report]".'
        ) from None
    matplotlib.use("Agg")
    seen: Counter[str] = Counter()
    with matplotlib.rc_context(STYLE):
        for section in data["sections"]:
            figures = _of_section(data, section)
            for run in section["runs"]:
                if Path(run["path"]).resolve() in named:
                    figures += _of_run(data, section, run)
            for name, figure in figures:
                seen[name] += 1  # runs of one name may lie in different folders
                number = f"-{seen[name]}" if seen[name] > 1 else ""
                yield f"{name}{number}.{form}", partial(save, figure, form)


def save(figure: Any, form: str, file: Any) -> None:
    """Write the figure; the same figure gives the same bytes."""
    # No date in the file: the same runs give the same bytes.
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(file, format=form, bbox_inches="tight", metadata=dates.get(form))
    figure.clear()


def _of_section(data: dict, section: dict) -> list[tuple[str, Any]]:
    dataset = section["dataset"]
    base = _file_name(Path(dataset[4:]).stem if dataset.startswith("csv:") else dataset)
    figures = [(f"{base}-{what}", _bars(section, what)) for what in ("risk", "accuracy")]
    figures.append((f"{base}-group-risk", _groups(section, "risk", "test risk")))
    if any(cell["groups"]["weight"][0] for cell in section["cells"]):
        figures.append((f"{base}-weights", _groups(section, "weight", "weight μ")))
    if panels := _panels_with(section, "trend"):
        figures.append((f"{base}-trend", _trends(section, panels)))
    if section["optima"]:
        panels = _panels_with(section, "h")
        figures.append((f"{base}-h", _hypotheses(data, section, panels)))
    return figures


def _panels_with(section: dict, key: str) -> list[tuple[str, list[dict]]]:
    """Settings, each with its cells that have a curve of that name."""
    panels = [
        (setting, [cell for cell in _cells(section, setting) if cell[key]])
        for setting in section["settings"]
    ]
    return [(setting, cells) for setting, cells in panels if cells]


def _of_run(data: dict, section: dict, run: dict) -> list[tuple[str, Any]]:
    base = _file_name(run["name"])
    figures = []
    history = run["history"]
    for kind, name in (("risk", "training risk"), ("weight", "weight μ")):
        if history and history[kind]:
            figures.append((f"{base}-history-{kind}", _history(section, history, kind, name)))
    if history and history["time"]:
        figures.append((f"{base}-time", _time(history)))
    if run["partition"] is not None:
        figures.append((f"{base}-partition", _partition(data["partitions"][run["partition"]])))
    if run["h"]:
        figures.append((f"{base}-h", _hypotheses(data, section, [(run["setting"], [run])])))
    return figures


def _file_name(text: str) -> str:
    """File name made of `text` that every file system allows."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "unnamed"


def plain(text: str) -> str:
    """`text` with each `$` escaped: in a group's name it is no mathematics."""
    return text.replace("$", r"\$")


def _cells(section: dict, setting: str) -> list[dict]:
    """Cells of a setting; those of the centralized baseline, which has no setting, are in all."""
    return [cell for cell in section["cells"] if cell["setting"] in (setting, "")]


def _panels(count: int, width: float, height: float, **options: Any) -> tuple[Any, list]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count + 0.6, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, count, **options)))


def _bars(section: dict, what: str) -> Any:
    """Figure of worst, average and best by method, a panel a setting (the paper's Figure 3)."""
    methods, settings = section["methods"], section["settings"]
    figure, axes = _panels(len(settings), 2.3, 0.42 * len(methods) + 1.1, sharey=True, sharex=True)
    for ax, setting in zip(axes, settings, strict=True):
        for i, (which, colour, hatch) in enumerate(BARS):
            cells = [c for c in _cells(section, setting) if c["stats"][f"{which}_{what}"]]
            pairs = [c["stats"][f"{which}_{what}"] for c in cells]
            ax.barh(
                [c["method"] + (i - 1) * 0.27 for c in cells],
                [mean for mean, _ in pairs],
                xerr=(errors := _errors(pairs, [_interval(c, f"{which}_{what}") for c in cells])),
                height=0.25,
                color=colour,
                hatch=hatch,
                error_kw={"elinewidth": 0.8, "capsize": 1.5 if np.any(errors > 0) else 0},
                label=which,
            )
        ax.set_title(setting or "one client", loc="left", fontweight="bold", fontsize=8)
        ax.set_xlabel(f"test {what}")
        ax.grid(axis="y", visible=False)
    axes[0].set_xlim(left=0)  # shared by all panels; set last, as it ends autoscaling
    axes[0].set_yticks(range(len(methods)), [plain(m["label"]) for m in methods])
    axes[0].set_ylim(len(methods) - 0.5, -0.5)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def _groups(section: dict, key: str, unit: str) -> Any:
    """Figure of a value of each group by method; weights with priors (the paper's Figure 4)."""
    groups, settings = section["groups"], section["settings"]
    used = sorted({c["method"] for c in section["cells"] if any(c["groups"][key])})
    height = len(groups) * max(0.22, 0.09 * len(used)) + 1.2
    figure, axes = _panels(len(settings), 2.3, height, sharey=True, sharex=True)
    shown: dict[str, Any] = {}
    for ax, setting in zip(axes, settings, strict=True):
        if key == "weight" and section["priors"]:
            ys = np.arange(len(groups))
            shown["share of the training rows"] = ax.vlines(
                section["priors"], ys - 0.4, ys + 0.4, color="#59636e", linewidth=2
            )
        for cell in _cells(section, setting):
            points = [(a, p) for a, p in enumerate(cell["groups"][key]) if p]
            if not points:
                continue
            m = cell["method"]
            offset = (used.index(m) - (len(used) - 1) / 2) * 0.8 / len(used)
            label = plain(section["methods"][m]["label"])
            shown[label] = ax.errorbar(
                [p[0] for _, p in points],
                [a + offset for a, _ in points],
                xerr=_errors([p for _, p in points], [_interval(cell, key, a) for a, _ in points]),
                clip_on=False,  # a marker at an end of the axis is seen whole
                fmt=_marker(m),
                color=COLOURS[m % len(COLOURS)],
                markersize=4,
                elinewidth=0.8,
            )
        ax.set_title(setting or "one client", loc="left", fontweight="bold", fontsize=8)
        ax.set_xlabel(unit)
    if key == "weight":  # a share; risks would lie on each other if their axis began at 0
        axes[0].set_xlim(left=-0.03 * axes[0].get_xlim()[1])
    axes[0].set_yticks(range(len(groups)), [plain(name) for name in groups])
    axes[0].set_ylim(len(groups) - 0.5, -0.5)
    figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=4)
    return figure


def _interval(cell: dict, key: str, a: int | None = None) -> list[float] | None:
    """95% interval of a cell's figure, or of its group `a`; None where there is none."""
    found = (cell["intervals"] or {}).get(key)
    return found if a is None or found is None else found[a]


def _errors(pairs: list[list], intervals: list[list[float] | None]) -> np.ndarray:
    """Lengths of error bars, 2 × points: the interval, or else the deviation over the seeds."""
    lengths = []
    for (mean, std), ends in zip(pairs, intervals, strict=True):
        low, high = ends or (mean - (std or 0), mean + (std or 0))
        known = std is not None or ends
        lengths.append((max(0, mean - low), max(0, high - mean)) if known else (np.nan, np.nan))
    return np.array(lengths, dtype=float).reshape(-1, 2).T


def _marker(i: int) -> str:
    return MARKERS.replace(" ", "")[i % 8]


def add_curve(ax: Any, x: list, y: list, i: int, label: str) -> None:
    values = [np.nan if value is None else value for value in y]
    every = max(1, len(x) // 6)
    ax.plot(
        x,
        values,
        color=COLOURS[i % len(COLOURS)],
        linestyle=DASHES[(i + i // len(COLOURS)) % len(DASHES)],
        marker=_marker(i + 3 * (i // len(COLOURS))),
        markevery=(every * (i % 5) // 5, every),
        markersize=4,
        linewidth=1.3,
        clip_on=False,  # a marker at the edge is seen whole
        label=plain(label),
    )


def _history(section: dict, history: dict, kind: str, name: str) -> Any:
    figure, (ax,) = _panels(1, 3.2, 2.6)
    for i, group in enumerate(section["groups"]):
        add_curve(ax, history["round"], history[kind][i], i, group)
    ax.set_xlabel("round")
    ax.set_ylabel(name)
    ax.set_ylim(bottom=0)
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _trends(section: dict, panels: list[tuple[str, list[dict]]]) -> Any:
    """Figure of the worst group's risk over the passes through the rows, by method."""
    figure, axes = _panels(len(panels), 2.6, 2.6, sharey=True)
    for ax, (setting, cells) in zip(axes, panels, strict=True):
        for cell in cells:
            label = section["methods"][cell["method"]]["label"]
            add_curve(ax, section["passes"], cell["trend"], cell["method"], label)
        ax.set_title(setting or "one client", loc="left", fontweight="bold", fontsize=8)
        ax.set_xlabel("passes over the training rows")
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("training risk, worst group")
    _one_legend(figure, axes)
    return figure


def _one_legend(figure: Any, axes: list) -> None:
    """Draw one legend above all panels, with each label once."""
    handles: dict[str, Any] = {}
    for ax in axes:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)


def _time(history: dict) -> Any:
    figure, (ax,) = _panels(1, 3.2, 2.2)
    edges = [0, *history["round"]]
    base = np.zeros(len(history["round"]))
    for name, colour, hatch in TIMES:
        part = 1000 * np.array([value or 0 for value in history["time"][name]])
        ax.stairs(
            base + part, edges, baseline=base, fill=True, color=colour, hatch=hatch, label=name
        )
        base += part
    # The first round warms up and would flatten all others.
    ax.set_ylim(0, 1.05 * max(base[1:] if len(base) > 3 else base))
    ax.set_xlabel("round")
    ax.set_ylabel("ms a round")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def _partition(partition: dict) -> Any:
    counts, sizes = np.array(partition["counts"]), np.array(partition["sizes"])
    figure, (ax,) = _panels(1, 4.2, 0.2 * len(partition["groups"]) + 1.1)
    shares = counts / np.maximum(1, sizes)
    image = ax.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    ax.grid(visible=False)
    ax.set_yticks(range(len(partition["groups"])), [plain(name) for name in partition["groups"]])
    names = partition["names"]
    if names and len(names) <= MOST_NAMES:
        long = len(names) * max(map(len, names)) > 50
        ax.set_xticks(range(len(names)), [plain(name) for name in names], rotation=90 * long)
    else:
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlim(-0.5, len(sizes) - 0.5)
        ax.set_xticks([k for k in ax.get_xticks() if 0 <= k < len(sizes)])
    ax.set_xlabel("client")
    figure.colorbar(image, ax=ax, label="share $P_A$")
    return figure


def _hypotheses(data: dict, section: dict, panels: list[tuple[str, list[dict]]]) -> Any:
    """Figure of h(x) over the groups' optima and the density of x (the paper's Figure 2)."""
    x = np.array(data["grid"])
    figure, axes = _panels(len(panels), 2.9, 2.5, sharey=True)
    for ax, (setting, curves) in zip(axes, panels, strict=True):
        density = 0.25 * np.exp(-(x**2) / 2)
        ax.fill_between(x, density, color="#e3e6ea", linewidth=0, label="density of x")
        for (name, values), dash in zip(section["optima"].items(), ((0, (6, 2)), ":"), strict=True):
            ax.plot(
                x, values, color="#59636e", linestyle=dash, linewidth=1.8, label=f"best for {name}"
            )
        for curve in curves:
            label = f"h, {section['methods'][curve['method']]['label']}"
            if len(curves) == 1:
                ax.plot(x, curve["h"], color="black", linewidth=1.6, label=plain(label))
            else:
                add_curve(ax, x.tolist(), curve["h"], curve["method"], label)
        ax.set_title(setting or "one client", loc="left", fontweight="bold", fontsize=8)
        ax.set_xlabel("x")
        ax.set_ylim(0, 1)
    axes[0].set_ylabel("P(Y = 1 | x)")
    _one_legend(figure, axes)
    return figure
