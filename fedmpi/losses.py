"""Losses per row, so that risks of groups, clients and cells are sums of one vector."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """-log p_y of each row."""
    return F.cross_entropy(logits, y, reduction="none")


def brier(logits: Tensor, y: Tensor) -> Tensor:
    """The Brier score summed over the classes, sum_c (p_c - 1[y=c])^2, of each row."""
    p = torch.softmax(logits, dim=1)
    return (p - F.one_hot(y, p.shape[1])).square().sum(1)


LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "brier": brier}
