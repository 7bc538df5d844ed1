"""Rounds of training on losses that are weighed by group, in plain loops.

For statements of methods that differ in their weights alone; as `statements`, it has nothing of how
the program trains.
"""

from collections.abc import Callable, Sequence

import torch
from statements import (
    Federation,
    Theta,
    Trace,
    combine,
    gradient,
    group_risks,
    local,
    shares,
    step,
)
from torch import Tensor

Weigh = Callable[[list[float]], Sequence[float]]
"""Function from the group risks at the theta of a round to the next weights of the groups' rows."""


def weighted_mean(f: Federation, theta: Theta, rows: Sequence[int], w: Sequence[float]) -> Tensor:
    """Mean over the rows of w_a times the row's loss."""
    of_rows = torch.tensor([w[f.group[i]] for i in rows], dtype=torch.float64)
    return (of_rows * f.losses(theta, rows)).mean()


def weighted_rounds(
    f: Federation,
    rounds: int,
    lr: float,
    weigh: Weigh,
    local_epochs: int | None = None,
    batch_size: int = 100,
) -> Trace:
    """Train on (1/n) sum over rows of w_a loss, w = 1 in the first round.

    A round is one step on all rows, or local epochs of every client.
    """
    trace, w = Trace(f.theta), [1.0] * f.groups
    for t in range(1, rounds + 1):
        theta = trace.theta

        def objective(p, rows, w=w):
            return weighted_mean(f, p, rows, w)

        if local_epochs is None:
            new = step(theta, lr, gradient(theta, lambda p: objective(p, range(f.n))))
        else:
            trained = [
                local(f, theta, k, t, lr, local_epochs, batch_size, objective)
                for k in range(len(f.clients))
            ]
            new = combine(shares(f), trained)
        risks = group_risks(f, theta)
        w = list(weigh(risks))
        mass = [f.n_a(a) / f.n * w[a] for a in range(f.groups)]
        trace.add(new, risks, mass)
    return trace
