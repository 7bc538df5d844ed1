"""Risk and accuracy of a model on the test rows, of which every client rank holds a part."""

from __future__ import annotations

import torch

from fedmpi.federation.clients import Rows
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import Loss
from fedmpi.mpi.ranks import Ranks
from fedmpi.scoring.scores import Scores


def evaluate(
    ranks: Ranks,
    model: FlatModel,
    loss: Loss,
    rows: Rows | None,
    groups: int,
    classes: int,
    micro_batch: int,
) -> Scores:
    """Score the model at its theta; on the server, the Scores are summed over all ranks."""
    scores = Scores(groups, classes)
    if rows is not None:
        with torch.no_grad():
            for start in range(0, len(rows.x), micro_batch):
                batch = slice(start, start + micro_batch)
                y, group = rows.y[batch], rows.group[batch]
                logits = model(rows.x[batch])
                scores.add(loss(logits, y), logits.argmax(1), y, group)
    ranks.wait(ranks.Ireduce(scores.sums))
    return scores
