"""The figures of a run as matplotlib axes, for a notebook: see fedmpi/report for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedmpi.errors import UserError
from fedmpi.report.drawings import COLOURS, STYLE, add_curve, plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from fedmpi.interface.run import Run

SIZE = (5.5, 3.2)
MOST_CLIENTS = 20
"""Clients that have a tick each in the heat map."""


class Plots:
    """The figures of a run. Each is drawn on `ax`, or on a new one, and returned as that."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __repr__(self) -> str:
        return "<figures of a run: .risks(), .history(), .weights(), .partition()>"

    def risks(self, figure: str = "risk", ax: Axes | None = None) -> Axes:
        """Test risk (or "accuracy") of each group with its interval, the worst group marked."""
        groups = self._run.groups
        if figure not in ("risk", "accuracy"):
            raise UserError(f"risks({figure!r}): give 'risk' or 'accuracy'.")
        values = groups[figure]
        worst = values.idxmax() if figure == "risk" else values.idxmin()
        with styled(ax) as ax:
            places = np.arange(len(groups))
            ax.axvline(values.mean(), color="#59636e", linestyle=":", label="average")
            ax.scatter(values, places, color=COLOURS[0], zorder=3)
            ax.scatter(
                values[worst], places[groups.index == worst], color=COLOURS[1], marker="D", s=50,
                zorder=4, label="worst",
            )  # fmt: skip
            if f"{figure}_low" in groups:
                ends = groups[f"{figure}_low"], groups[f"{figure}_high"]
                ax.hlines(places, *ends, color="#59636e", zorder=2, label="95% interval")
            of_groups(ax, groups)
            ax.set_xlabel(f"test {figure}")
            # Above the axes: within them the sample of the worst group looks like a group.
            ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
        return ax

    def history(self, figure: str = "risk", ax: Axes | None = None) -> Axes:
        """Training risk (or "weight") of each group over the rounds."""
        history = self._run.history
        names = [name for name in self._run.groups.index if f"{figure}/{name}" in history]
        if not names:
            raise UserError(
                f"history({figure!r}): this run has no {figure} of groups over the rounds. Give "
                "'risk', or 'weight' for a method that weighs groups."
            )
        with styled(ax) as ax:
            for i, name in enumerate(names):
                rounds, values = history.index.tolist(), history[f"{figure}/{name}"].tolist()
                add_curve(ax, rounds, values, i, name)
            ax.set_xlabel("round")
            ax.set_ylabel("training risk" if figure == "risk" else "weight μ")
            ax.set_ylim(bottom=0)
            ax.legend()
        return ax

    def weights(self, ax: Axes | None = None) -> Axes:
        """Final weight of each group beside its share of the training rows."""
        groups = self._run.groups
        if groups["weight"].isna().all():
            raise UserError(f"--method {self._run.config['method']} does not weigh groups.")
        with styled(ax) as ax:
            places = np.arange(len(groups))
            share = groups["n_train"] / groups["n_train"].sum()
            ax.barh(places, groups["weight"], 0.6, color=COLOURS[0], label="weight μ")
            ax.vlines(
                share, places - 0.4, places + 0.4, color=COLOURS[1], linewidth=2,
                label="share of the training rows",
            )  # fmt: skip
            of_groups(ax, groups)
            ax.set_xlabel("weight")
            ax.legend()
        return ax

    def partition(self, ax: Axes | None = None) -> Axes:
        """Heat map of who holds whom: the share of each client's rows that each group has."""
        counts = self._run.partition
        shares = counts / counts.sum().clip(lower=1)
        with styled(ax) as ax:
            image = ax.imshow(
                shares, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest"
            )
            ax.grid(visible=False)
            of_groups(ax, counts)
            ticks = np.unique(np.linspace(0, counts.shape[1] - 1, MOST_CLIENTS).round().astype(int))
            names = [plain(str(name)) for name in counts.columns[ticks]]
            turned = 90 if max(map(len, names)) > 3 else 0
            ax.set_xticks(ticks, names, rotation=turned)
            ax.set_xlabel("client")
            ax.figure.colorbar(image, ax=ax, label="share of the client's rows")
        return ax


class styled:
    """An axes to draw on in the style of the report: the caller's, or a new one of pyplot's."""

    def __init__(self, ax: Axes | None) -> None:
        try:
            import matplotlib
            import matplotlib.pyplot as plt
        except ImportError:
            raise UserError(
                "figures need matplotlib: ./launch/setup.sh notebook, or pip install '.[notebook]'."
            ) from None
        self._context = matplotlib.rc_context({**STYLE, "font.size": 9})
        self._ax, self._plt = ax, plt

    def __enter__(self) -> Axes:
        # Before the context: the first figure chooses the backend, whose settings are to stay.
        given = self._ax
        figure = given.figure if given else self._plt.figure(figsize=SIZE, layout="constrained")
        self._context.__enter__()
        return given or figure.subplots()

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


def of_groups(ax: Axes, groups: pd.DataFrame) -> None:
    """Name the groups at the y axis, the first at the top."""
    ax.set_yticks(range(len(groups)), [plain(str(name)) for name in groups.index])
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
