"""A run's model evaluated on other labelled rows, as DataFrames: see fedmpi/evaluate.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmpi.errors import UserError
from fedmpi.interface.tables import table
from fedmpi.scoring.evaluation import add_scores, figures
from fedmpi.scoring.inputs import Tally, require
from fedmpi.scoring.model import Model
from fedmpi.scoring.scores import Scores
from fedmpi.scoring.sources import Part, Source, open_source, wanted_columns

if TYPE_CHECKING:
    import pandas as pd

THE_FRAME = "the DataFrame"


@dataclass
class FrameRows:
    """Rows of a DataFrame, as a source of rows to score."""

    frame: pd.DataFrame
    name = THE_FRAME
    separator = ","
    header = b""
    columns = ()

    def parts(self, tally: Tally) -> Iterator[Part]:
        yield Part(self.frame, [])


@dataclass(frozen=True)
class Evaluation:
    """Figures of a model on some rows, with 95% intervals."""

    figures: dict[str, Any]
    """All of it, as `python -m fedmpi.evaluate --output` writes it."""
    notes: list[str]
    """What was odd in the rows: values not seen in training, rows left out."""

    @cached_property
    def groups(self) -> pd.DataFrame:
        """A row for each group: rows, risk and accuracy, each with the ends of its interval."""
        return table(self.figures["groups"], "group")

    @cached_property
    def rates(self) -> pd.DataFrame | None:
        """A row for each value of the attribute: selection, true and false positive rate.

        None where there is no attribute, or are more than two classes.
        """
        fairness = self.figures["fairness"]
        return table(fairness["values"], fairness["attribute"]) if fairness else None

    def __repr__(self) -> str:
        f = self.figures
        return f"<Evaluation: worst group {f['worst_group']!r}, risk {f['worst_risk']:.4f}>"

    def _repr_html_(self) -> str:
        return self.groups.to_html(na_rep="")


def evaluate(model: Model, rows: pd.DataFrame | str | Path, data_dir: str | Path) -> Evaluation:
    """Evaluate `model` on labelled rows: a DataFrame, a file, or "test"."""
    import pandas as pd

    tally = Tally()
    source: Source
    if isinstance(rows, pd.DataFrame):
        if model.encoding is None:
            model.encode(rows)  # says what the model takes
        require(wanted_columns(model, labelled=True), rows.columns, THE_FRAME)
        source = FrameRows(rows)
    else:
        source = open_source(str(rows), model, Path(data_dir), tally, labelled=True)
    scores = Scores(len(model.groups), len(model.classes))
    add_scores(model, source, scores, tally)
    if not scores.rows.any():
        raise UserError(f"{source.name} has no row of a class and a group that were trained on.")
    return Evaluation(figures(model, scores), tally.lines())
