"""Rows that are held out of training, by which the model to report is picked: --validate SHARE.

After each evaluated round every client rank scores what would be reported if the run ended now (the
mean of theta, or theta) on its part of the validation rows, and only sums by group travel. The
server keeps the model whose worst group does best, and ends the run when that has not improved for
--patience rounds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from fedmpi.scoring.scores import Scores


class Best:
    """The best model so far, on the server."""

    def __init__(self, groups: tuple[str, ...], patience: int | None) -> None:
        self.groups, self.patience = groups, patience
        self.round = 0
        self.risk = math.inf
        """Risk of the worst group on the validation rows, at the best round."""
        self.now = math.nan
        """The same at the round that was looked at last."""
        self.waited = 0
        """Rounds since the best."""
        self.theta: torch.Tensor | None = None
        self.risks = np.full(len(groups), np.nan)

    def look(self, t: int, scores: Scores, theta: torch.Tensor) -> None:
        """Keep `theta` if its worst group has a lower risk than that of any round before."""
        self.now = float(np.nanmax(scores.risk))
        if self.now < self.risk:
            self.round, self.risk, self.risks = t, self.now, scores.risk
            self.theta = theta.detach().cpu().double().clone()
        self.waited = t - self.round

    @property
    def done(self) -> bool:
        """Whether nothing has improved for as long as the user is patient."""
        return self.patience is not None and self.round > 0 and self.waited >= self.patience

    def saved(self) -> dict[str, Any]:
        """The part of a checkpoint, from which `restore` goes on."""
        empty = torch.zeros(0, dtype=torch.float64)
        return {
            "round": self.round,
            "waited": self.waited,
            "risk": self.risk,
            "risks": torch.from_numpy(self.risks),
            "theta": empty if self.theta is None else self.theta,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.round, self.waited, self.risk = state["round"], state["waited"], state["risk"]
        self.risks = state["risks"].numpy()
        self.theta = state["theta"] if len(state["theta"]) else None

    def result(self) -> dict[str, Any]:
        """The part of result.json: the round that is reported, and its risks."""
        risks = zip(self.groups, self.risks.tolist(), strict=True)
        return {
            "round": self.round,
            "worst_risk": self.risk,
            "groups": {name: risk if math.isfinite(risk) else None for name, risk in risks},
        }
