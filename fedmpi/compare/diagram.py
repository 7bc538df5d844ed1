"""The critical-difference diagram: mean ranks on a line, and bars over what is not told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedmpi.compare.ranks import Ranks
from fedmpi.report.drawings import STYLE, plain, save
from fedmpi.run.folder import RunFolder

LINE, TEXT = 0.22, 0.09
"""Height of a method's line and of a bar, in inches."""
BAR = "#d55e00"


def draw_ranks(folder: RunFolder, titles: Sequence[str], ranks: Ranks, what: str) -> bool:
    """Draw ranks.svg; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    with matplotlib.rc_context(STYLE):
        figure = diagram([plain(title) for title in titles], ranks, what)
        folder.write("ranks.svg", lambda file: save(figure, "svg", file))
    return True


def diagram(titles: Sequence[str], ranks: Ranks, what: str) -> Any:
    """Figure of the mean ranks: the better half has its names on the left, the other on the right.

    Heights are in inches below the axis.
    """
    from matplotlib.figure import Figure

    count = len(titles)
    means, order = ranks.means, ranks.means.argsort(kind="stable").tolist()
    bars = ranks.alike() if not math.isnan(ranks.critical) else []
    top = 0.15 + TEXT * len(bars)
    depth = top + LINE * math.ceil(count / 2) + 0.1
    figure = Figure(figsize=(6.4, depth + 0.75), layout="constrained")
    ax = figure.subplots()
    ax.set_xlim(1, max(2, count))
    ax.set_ylim(depth, -0.35)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.spines["top"].set(visible=True, position=("data", 0))
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xticks(range(1, max(2, count) + 1))
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.set_xlabel(f"mean rank by {what}, {len(ranks.ranks)} blocks", labelpad=16)
    for place, j in enumerate(order):
        left = place < math.ceil(count / 2)
        y = top + LINE * (place if left else count - 1 - place)
        end, side = (0, "right") if left else (1, "left")
        to = ax.get_yaxis_transform()
        ax.plot([means[j], means[j]], [0, y], color="#16191d", linewidth=0.8, clip_on=False)
        _to_the_edge(ax, float(means[j]), y, end)
        shift = -0.01 if left else 0.01
        name = f"{titles[j]}  {means[j]:.2f}" if left else f"{means[j]:.2f}  {titles[j]}"
        ax.text(end + shift, y, name, transform=to, ha=side, va="center")
    for i, members in enumerate(bars):
        y = 0.12 + TEXT * i
        ends = means[list(members)]
        ax.plot([ends.min(), ends.max()], [y, y], color=BAR, linewidth=3, solid_capstyle="round")
    if not math.isnan(ranks.critical):
        _ruler(ax, ranks.critical, count)
    return figure


def _to_the_edge(ax: Any, x: float, y: float, end: int) -> None:
    """Draw a line from a mean rank to the left (0) or right (1) end of the axis."""
    edge = ax.get_xlim()[end]
    ax.plot([x, edge], [y, y], color="#16191d", linewidth=0.8, clip_on=False)


def _ruler(ax: Any, critical: float, count: int) -> None:
    """Draw the critical difference as a length above the axis."""
    end = min(1 + critical, max(2, count))
    cut = "" if 1 + critical <= max(2, count) else " (longer than the axis)"
    ax.plot([1, end], [-0.25, -0.25], color=BAR, linewidth=1.5, marker="|", clip_on=False)
    ax.text(end, -0.25, f"  critical difference {critical:.2f}{cut}", va="center", ha="left")
