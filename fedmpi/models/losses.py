"""Losses per row, so that risks of groups, clients and cells are sums of one vector."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return -log p_y of each row."""
    return F.cross_entropy(logits, y, reduction="none")


def brier(logits: Tensor, y: Tensor) -> Tensor:
    """The Brier score summed over the classes, sum_c (p_c - 1[y=c])^2, of each row."""
    p = torch.softmax(logits, dim=1)
    # Not one_hot, which looks at the values of y: vmap (clipping.py) cannot.
    chosen = y[:, None] == torch.arange(p.shape[1], device=y.device)
    return (p - chosen.to(p.dtype)).square().sum(1)


LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "brier": brier}


def cross_entropy_gradient(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return -log p_y of each row, and its gradient p - 1[y=c]."""
    log_p = torch.log_softmax(logits, dim=1)
    losses = log_p.gather(1, y[:, None])[:, 0].neg_()
    return losses, log_p.exp_().scatter_add_(1, y[:, None], log_p.new_full((len(y), 1), -1.0))


def brier_gradient(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The Brier score of each row, and its gradient 2 p_c (d_c - sum_i p_i d_i), d = p - 1[y=c]."""
    p = torch.softmax(logits, dim=1)
    d = p - F.one_hot(y, p.shape[1])
    return d.square().sum(1), 2 * p * (d - (p * d).sum(1, keepdim=True))


GRADIENTS: dict[Loss, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    cross_entropy: cross_entropy_gradient,
    brier: brier_gradient,
}
"""Functions that return the rows' losses and their gradients in the logits, for passes by hand."""
