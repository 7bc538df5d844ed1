"""The description that a run puts into model.pt beside the weights: see model.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

import fedmpi
from fedmpi.data.options import options_from
from fedmpi.scoring.model import FORMAT, plain

if TYPE_CHECKING:
    from fedmpi.data.dataset import Dataset
    from fedmpi.data.owners import OwnedRows
    from fedmpi.data.store import Prepared
    from fedmpi.run.config import Config

OF_THE_RUN = ("method", "setting", "clients", "rounds", "seed")
OF_A_GROUP = ("n_train", "n_test", "risk", "risk_error", "accuracy", "weight", "confusion")


def describe(
    config: Config, dataset: Dataset, prepared: Prepared | OwnedRows, result: dict
) -> dict:
    """Return all that scoring raw rows takes beside weights, as plain data.

    Of owners of rows it has what they agreed on, and neither their names nor their counts.
    """
    options = options_from(config)
    attribute = dataset.attribute(prepared.groups, options)
    sources = getattr(prepared, "sources", ())
    return plain(
        {
            "format": FORMAT,
            "model": config.model,
            "row_shape": prepared.array("train_x").shape[1:],
            "dtype": config.dtype,
            "loss": config.loss,
            "reports": result["model"],
            "classes": prepared.classes,
            "groups": prepared.groups,
            "attribute": attribute and {"name": attribute[0], "values": attribute[1]},
            "features": prepared.features,
            "encoding": prepared.encoding,
            "scale": prepared.scale,
            "trained_on": {
                "dataset": config.dataset,
                "options": dataset.used(options),
                "data": config.data_key,
                # Not the origin, which is a path on somebody's machine.
                "files": [
                    {key: source[key] for key in ("file", "sha256") if key in source}
                    for source in sources
                ],
            },
            "run": {name: result[name] for name in OF_THE_RUN},
            "figures": {
                group: {name: known(figures.get(name)) for name in OF_A_GROUP}
                for group, figures in result["groups"].items()
            },
            "versions": {
                "fedmpi": fedmpi.__version__,
                "torch": torch.__version__,
                "numpy": np.__version__,
            },
        }
    )


def known(value: object) -> object:
    """Return `value`, or None for a NaN, which JSON does not have."""
    return None if isinstance(value, float) and value != value else value
