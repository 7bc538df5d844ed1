"""The function of x that a run on the synthetic data has learned (the paper's Figure 2)."""

from __future__ import annotations

import numpy as np

from fedmpi import models
from fedmpi.data.datasets.synthetic import U
from fedmpi.errors import UserError
from fedmpi.run.record import Record

GRID = np.round(np.linspace(-3, 3, 240), 4)
"""An even number of points around 0, where the optima jump."""


def optima() -> dict[str, list[float]]:
    """P(Y = 1 | x) on the grid, by group: no model on x does better for that group."""
    above = (GRID > 0).astype(int)
    return {f"A={a}": U[a, above].tolist() for a in range(len(U))}


def learned(record: Record) -> list[float]:
    """P(Y = 1 | x) of the reported model on the grid."""
    name = record.config.get("model", "")
    if name not in models.MODELS:
        # A folder from elsewhere must not choose what is imported here.
        raise UserError(f"h(x) is not drawn: it is for fedmpi's own models, and this is {name}.")
    path = record.folder / "model.pt"
    if not path.is_file():
        raise UserError("h(x) is not drawn: there is no model.pt.")
    import torch

    try:
        state = torch.load(path, weights_only=True, map_location="cpu")[record.result["model"]]
        module = models.build(name, (1,), 2, seed=0).to(next(iter(state.values())).dtype)
        module.load_state_dict(state)
        x = torch.tensor(GRID[:, None], dtype=next(module.parameters()).dtype)
        with torch.no_grad():
            return torch.softmax(module(x), dim=1)[:, 1].tolist()
    except Exception as error:  # whatever a damaged file makes torch raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"h(x) is not drawn: model.pt cannot be used ({reason}).") from None
