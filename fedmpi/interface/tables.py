"""Figures of groups as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def table(rows: dict[str, dict[str, Any]], index: str) -> pd.DataFrame:
    """A DataFrame of figures: an interval becomes two columns; what is no number is left out."""
    import pandas as pd

    columns = {name: numbers_of(figures) for name, figures in rows.items()}
    frame = pd.DataFrame.from_dict(columns, orient="index").rename_axis(index)
    return frame.astype({name: float for name in frame.columns if name[:2] != "n_"})


def numbers_of(figures: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a group by column."""
    columns: dict[str, Any] = {}
    for name, value in figures.items():
        if name.endswith("_interval"):
            kind = name.removesuffix("interval")
            columns[f"{kind}low"], columns[f"{kind}high"] = value or (None, None)
        elif not isinstance(value, dict | list):
            columns[name] = value
    return columns | figures.get("metrics", {})
