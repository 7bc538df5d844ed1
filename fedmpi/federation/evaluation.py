"""Risk and accuracy of a model on the test rows, of which every client rank holds a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.errors import UserError
from fedmpi.federation.clients import Rows
from fedmpi.models.fixed_point import LOSS_LIMIT, FixedPoint
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import Loss
from fedmpi.mpi.ranks import Ranks
from fedmpi.scoring.scores import Scores

if TYPE_CHECKING:
    from fedmpi.scoring.bootstrap import Bootstrap


@dataclass
class ExactScores:
    """Sums of scores that have the same bits on any layout: integers, added for each unit."""

    rows: int
    """Number of rows that all ranks score together."""
    runs: list[int]
    """Lengths of the runs of this rank's rows that share no pass."""
    mask: Callable[[np.ndarray], None] | None = None
    """Function that masks this rank's sums, if they are secret."""

    def scales(self, scores: Scores) -> np.ndarray:
        """Scale of each of the sums: of losses, of squares, of probabilities, and of counts."""
        limits = {LOSS_LIMIT: scores.losses, LOSS_LIMIT**2: scores.squares}
        limits[1.0] = scores.probabilities
        kinds = [FixedPoint(limit, self.rows).scale for limit in limits]
        sizes = [part.size for part in limits.values()]
        return np.repeat([*kinds, 1.0], [*sizes, len(scores.sums) - sum(sizes)])

    def units(self, micro_batch: int) -> list[slice]:
        """The rows of each pass."""
        ends = np.cumsum(self.runs, dtype=np.int64).tolist()
        starts = [0, *ends[:-1]]
        return [
            slice(first, min(first + micro_batch, end))
            for start, end in zip(starts, ends, strict=False)
            for first in range(start, end, micro_batch)
        ]


def evaluate(
    ranks: Ranks,
    model: FlatModel,
    loss: Loss,
    rows: Rows | None,
    groups: int,
    classes: int,
    micro_batch: int,
    exact: ExactScores | None = None,
    bootstrap: Bootstrap | None = None,
    histograms: bool = False,
) -> Scores:
    """Score the model at its theta; on the server, the Scores are summed over all ranks.

    So are the sums over replicates of the rows, if a `bootstrap` is given.
    """
    scores = Scores(groups, classes, histograms)
    if exact:
        _evaluate_exactly(ranks, model, loss, rows, scores, micro_batch, exact, bootstrap)
    else:
        if rows is not None:
            for start in range(0, len(rows.x), micro_batch):
                batch = slice(start, start + micro_batch)
                _score(model, loss, rows, batch, scores, bootstrap)
        ranks.wait(ranks.Ireduce(scores.sums))
    if bootstrap:
        if rows is not None:
            bootstrap.add_up(rows.group.cpu().numpy())
        ranks.wait(ranks.Ireduce(bootstrap.sums))
    return scores


@torch.no_grad()
def evaluate_personal(
    ranks: Ranks,
    model: FlatModel,
    loss: Loss,
    rows: Rows | None,
    groups: int,
    classes: int,
    micro_batch: int,
    sizes: Sequence[int],
    thetas: torch.Tensor,
) -> Scores:
    """Score each hosted client's own theta on its own rows; on the server, summed over all ranks.

    `rows` are in the order of the clients, which have `sizes` of them.
    """
    scores, received = Scores(groups, classes), model.theta.clone()
    ends = np.cumsum([0, *sizes]).tolist()
    for theta, start, end in zip(thetas, ends[:-1], ends[1:], strict=True):
        assert rows is not None
        model.theta.copy_(theta)
        for first in range(start, end, micro_batch):
            _score(model, loss, rows, slice(first, min(first + micro_batch, end)), scores, None)
    model.theta.copy_(received)
    ranks.wait(ranks.Ireduce(scores.sums))
    return scores


@torch.no_grad()
def _score(
    model: FlatModel,
    loss: Loss,
    rows: Rows,
    batch: slice,
    scores: Scores,
    bootstrap: Bootstrap | None,
) -> None:
    """Add the scores of a batch of the rows."""
    y, group = rows.y[batch], rows.group[batch]
    logits = model(rows.x[batch])
    losses = loss(logits, y)
    scores.add(losses, logits, y, group)
    if bootstrap:
        bootstrap.keep(batch, losses, logits.argmax(1) == y)


def _evaluate_exactly(
    ranks: Ranks,
    model: FlatModel,
    loss: Loss,
    rows: Rows | None,
    scores: Scores,
    micro_batch: int,
    exact: ExactScores,
    bootstrap: Bootstrap | None,
) -> None:
    """Evaluate with sums of integers; `scores`, still zero, is for the result."""
    scales, totals = exact.scales(scores), np.zeros(len(scores.sums), dtype=np.uint64)
    if rows is not None:
        for batch in exact.units(micro_batch):
            unit = Scores(*scores.shape)
            _score(model, loss, rows, batch, unit, bootstrap)
            if not (unit.losses <= LOSS_LIMIT * np.maximum(unit.rows, 1)).all():  # or NaN
                raise UserError(
                    f"a loss is not finite, or beyond {LOSS_LIMIT:,.0f}, the most that --sums "
                    "exact can add: use --sums float."
                )
            totals += np.rint(unit.sums * scales).astype(np.int64).view(np.uint64)
    if exact.mask:
        exact.mask(totals)
    ranks.wait(ranks.Ireduce(totals))
    scores.sums[:] = totals.view(np.int64) / scales
