"""The figure: measured and ideal time, efficiency, and where the time goes."""

from __future__ import annotations

from pathlib import Path

from fedmpi.scaling.results import Measured, Row, medians

COLOURS = {"compute": "#1f6f8b", "exchange": "#e0a458", "wait": "#b8b8b8"}
IDEAL = "#555555"


def draw(folder: Path, rows: list[Row], note: str) -> bool:
    """Draw scaling.png and scaling.svg; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update({"svg.hashsalt": "fedmpi", "font.size": 8})
    figure, ((strong, weak, efficiency), (shares, flat, models)) = plt.subplots(
        2, 3, figsize=(10.5, 6.2)
    )
    of = {study: medians(rows, study) for study in ("strong", "weak", "clients", "groups")}
    _times(strong, of["strong"], "strong: the same rows on more client ranks")
    _times(weak, of["weak"], "weak: the same rows for each client rank")
    _efficiency(efficiency, {name: of[name] for name in ("strong", "weak")})
    _shares(shares, of["strong"])
    _growth(flat, {name: of[name] for name in ("clients", "groups")})
    _models(models, medians(rows, "models"))
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        if not axes.has_data():
            axes.set_axis_off()
    figure.text(0.01, 0.005, note, fontsize=6, color=IDEAL)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("png", "svg"):
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(folder / f"scaling.{kind}", dpi=150, metadata=metadata)
    plt.close(figure)
    return True


def _logarithmic(axes, points: list[Measured], label: str) -> None:
    ranks = [point.row.client_ranks for point in points]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [str(r) for r in ranks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(label)


def _times(axes, points: list[Measured], title: str) -> None:
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    if not points:
        return
    x = [point.row.client_ranks for point in points]
    seconds = [point.row.seconds for point in points]
    spread = [
        [p.row.seconds - p.lowest for p in points],
        [p.highest - p.row.seconds for p in points],
    ]
    axes.plot(x, [p.ideal for p in points], "--", color=IDEAL, linewidth=0.9, label="ideal")
    style = {"color": COLOURS["compute"], "markersize": 4, "capsize": 2}
    axes.errorbar(x, seconds, spread, fmt="o-", label="measured", **style)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    axes.set_yticks([], minor=True)
    _logarithmic(axes, points, f"client ranks ({points[0].row.cores} cores)")
    axes.set_ylabel("seconds a round")
    axes.set_title(title, fontsize=8)
    axes.legend(frameon=False)


def _efficiency(axes, studies: dict[str, list[Measured]]) -> None:
    for (name, points), colour in zip(studies.items(), COLOURS.values(), strict=False):
        if points:
            x = [point.row.client_ranks for point in points]
            y = [point.efficiency for point in points]
            axes.plot(x, y, "o-", color=colour, markersize=4, label=name)
            _logarithmic(axes, points, "client ranks")
    if axes.has_data():
        axes.axhline(1, linestyle="--", color=IDEAL, linewidth=0.9)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("efficiency: ideal / measured")
        axes.legend(frameon=False)


def _shares(axes, points: list[Measured]) -> None:
    if points:
        _stack(axes, points)
        axes.set_xticks(range(len(points)), [str(point.row.client_ranks) for point in points])
        axes.set_xlabel("client ranks, strong")


def _growth(axes, studies: dict[str, list[Measured]]) -> None:
    """Draw the time over that of the first point: ideally 1."""
    for (name, points), colour in zip(studies.items(), COLOURS.values(), strict=False):
        if points:
            x = [float(point.row.x) for point in points]
            y = [point.row.seconds / points[0].row.seconds for point in points]
            axes.plot(x, y, "o-", color=colour, markersize=4, label=name)
    if axes.has_data():
        axes.axhline(1, linestyle="--", color=IDEAL, linewidth=0.9, label="ideal")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("clients, or groups")
        axes.set_ylabel("time over that of the fewest")
        axes.legend(frameon=False)


def _models(axes, points: list[Measured]) -> None:
    points = [point for point in points if point.row.ranks > 1]
    if points:
        _stack(axes, points)
        names = [f"{p.row.x}\n{p.row.parameters:,}\n{p.row.seconds:.3g} s" for p in points]
        axes.set_xticks(range(len(points)), names)
        axes.set_xlabel("model, parameters, seconds a round")


def _stack(axes, points: list[Measured]) -> None:
    """Draw shares as bars that add up to the round."""
    bottom = [0.0] * len(points)
    for part, colour in COLOURS.items():
        height = [point.share(part) for point in points]
        axes.bar(range(len(points)), height, 0.7, bottom, color=colour, label=part)
        bottom = [low + high for low, high in zip(bottom, height, strict=True)]
    axes.set_ylabel("share of a round")
    axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
