"""A finished run as Python has it: tables as DataFrames, the model, the figures."""

from __future__ import annotations

import html
import os
import secrets
import shutil
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmpi.errors import UserError
from fedmpi.interface.tables import table
from fedmpi.run.record import Record, read_record

if TYPE_CHECKING:
    import pandas as pd

    from fedmpi.interface.evaluation import Evaluation
    from fedmpi.interface.plot import Plots
    from fedmpi.scoring.model import Model


def load(folder: str | Path, model: Any = None) -> Run:
    """The finished run in `folder`; UserError if there is none. Neither MPI nor torch is needed.

    A run whose model is of the user's own needs that `model`, the function or its
    package.module:function, to score rows: a file must not choose what is imported.
    """
    return Run(folder, model=model)


class Run:
    """A finished run. What is large is read from the folder when it is asked for."""

    def __init__(self, folder: str | Path, temporary: bool = False, model: Any = None) -> None:
        """Read the run in `folder`, which goes with this object if it is `temporary`."""
        self._record: Record = read_record(Path(folder))
        self._architecture = model and named(model)
        if temporary:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """The folder with the files of the run."""
        return self._record.folder

    @property
    def config(self) -> dict[str, Any]:
        """config.json: everything that was resolved."""
        return self._record.config

    @property
    def result(self) -> dict[str, Any]:
        """result.json: what came out of it."""
        return self._record.result

    @property
    def notes(self) -> list[str]:
        """What the preparation of the data has to say: rows left out, values filled in."""
        return list(self.config.get("notes", ()))

    @cached_property
    def groups(self) -> pd.DataFrame:
        """A row for each group: rows, test risk, accuracy, weight, and the user's own metrics."""
        return table(self.result["groups"], "group")

    @cached_property
    def history(self) -> pd.DataFrame:
        """A row for each evaluated round, with the columns of history.csv."""
        import pandas as pd

        frame = pd.DataFrame(self._record.history)
        return frame.astype({"round": int}).set_index("round") if len(frame.columns) else frame

    @cached_property
    def partition(self) -> pd.DataFrame:
        """The number of training rows of each group (row) at each client (column)."""
        import pandas as pd

        arrays = self._record.partition
        clients = arrays.get("clients", ())
        columns = list(clients) if len(clients) else range(arrays["counts"].shape[1])
        return pd.DataFrame(
            arrays["counts"],
            index=pd.Index(arrays["groups"].tolist(), name="group"),
            columns=pd.Index(columns, name="client"),
        )

    @cached_property
    def model(self) -> Model:
        """The trained model, which takes rows as they were before preparation."""
        from fedmpi.scoring.model import Model

        return Model.load(self.folder, architecture=self._architecture)

    def evaluate(
        self, rows: pd.DataFrame | str | Path, data_dir: str | Path = "data"
    ) -> Evaluation:
        """Evaluate the model on rows with a target and groups: a DataFrame, or a file.

        "test" means the run's own test rows, which are prepared in `data_dir`.
        """
        from fedmpi.interface.evaluation import evaluate

        return evaluate(self.model, rows, data_dir)

    @property
    def plot(self) -> Plots:
        """The figures: run.plot.risks(), .history(), .weights(), .partition()."""
        from fedmpi.interface.plot import Plots

        return Plots(self)

    def save(self, folder: str | Path) -> Path:
        """Copy the run to `folder`, which must be new, and appears whole; return its path."""
        folder = Path(folder)
        if folder.exists():
            raise UserError(f"{folder} is there already: name a new folder.")
        aside = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(self.folder, aside)
            os.rename(aside, folder)
        except OSError as error:
            raise UserError(f"cannot write {folder}: {error.strerror or error}.") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return folder

    def __repr__(self) -> str:
        r = self.result
        what = " ".join(str(r[key]) for key in ("method", "dataset", "setting") if r.get(key))
        worst = f"worst group {r['worst_group']!r}, risk {r['worst_risk']:.4f}"
        return f"<fedmpi.Run {what}, {r['rounds']} rounds: {worst}; in {self.folder}>"

    def _repr_html_(self) -> str:
        columns = ["n_train", "n_test", "risk", "accuracy", "weight"]
        return f"<p>{html.escape(repr(self))}</p>{self.groups[columns].to_html(na_rep='')}"


def named(value: Any) -> Any:
    """`value` as the command line has it: package.module:Class for what the caller has defined."""
    if isinstance(value, list | tuple):
        return tuple(map(named, value))
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}:{value.__qualname__}"
    return value
