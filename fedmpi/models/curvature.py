"""Gradients of the groups and the Hessian of logistic regression, summed over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedmpi.models.flat import FlatModel


class Curvature:
    """First and second derivatives of the cross entropy of one linear layer, in theta's order.

    With p the probabilities of a row x, to which a 1 is appended for the biases, the row's gradient
    is (p - 1[y]) ⊗ x, and its Hessian (diag(p) - pp') ⊗ xx'.
    """

    def __init__(self, model: FlatModel, groups: int) -> None:
        self.model = model
        weight, bias = model.cut(torch.arange(model.size, device=model.theta.device))
        self.order = torch.cat([weight, bias[:, None]], dim=1)
        """Place in theta of the weight of each class (rows) and input (columns), the bias last."""
        classes, inputs = self.order.shape
        self.gradients = model.theta.new_zeros(groups, classes, inputs)
        """Sums of the gradients by group."""
        self.pairs = [(i, j) for i in range(classes) for j in range(i + 1)]
        self.blocks = model.theta.new_zeros(len(self.pairs), inputs, inputs)
        """Sums of the weighted Hessians, for each pair of classes."""

    @torch.no_grad()
    def add(self, x: Tensor, y: Tensor, of_groups: Tensor, of_rows: Tensor) -> None:
        """Add some rows to the sums.

        `of_groups` (groups × rows) says how often a row counts in each group, `of_rows` has the
        weight of each row in the Hessian.
        """
        p = torch.softmax(self.model(x), dim=1)
        x = self.model.standardised(x).flatten(1)
        x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        slope = p.clone()
        slope[torch.arange(len(y), device=y.device), y] -= 1
        for sums, counted in zip(self.gradients, of_groups, strict=True):
            sums.addmm_((slope * counted[:, None]).t(), x)
        for (i, j), block in zip(self.pairs, self.blocks, strict=True):
            curved = of_rows * p[:, i] * ((1.0 if i == j else 0.0) - p[:, j])
            block.addmm_((x * curved[:, None]).t(), x)

    def put(self, gradients: Tensor, hessian: Tensor) -> None:
        """Write the sums in theta's order, a row for each group and for each parameter."""
        gradients[:, self.order.reshape(-1)] = self.gradients.flatten(1)
        for (i, j), block in zip(self.pairs, self.blocks, strict=True):
            hessian[self.order[i][:, None], self.order[j]] = block
            hessian[self.order[j][:, None], self.order[i]] = block.t()
