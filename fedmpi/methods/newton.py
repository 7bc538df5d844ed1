"""Newton's step in the game between theta and mu, for logistic regression: --optimizer newton.

The clients sum the gradient g_a of each group's risk and the Hessian H of the weighted risk, with
the change of theta, in the one reduction of a round. The server solves, with weight decay d,

    min over s   max over mu   sum_a mu_a (r_a + g_a's) + d/2 |theta + s|^2 + s'Hs / 2

(sequential quadratic programming). With M = H + dI the best s for weights mu is

    s(mu) = -M^-1 (sum_a mu_a g_a + d theta),

which leaves mu the maximum of a concave quadratic on its simplex, with a variable for each group.
Then theta <- theta + s, and mu weighs the next Hessian. Where the worst weighted risk has not
fallen, the next round tries half of the last step, from the theta that the step began at. Near the
optimum each round about doubles the right digits: there are no step sizes to choose.

The sums have p (1 + groups + p) numbers for p parameters, and theta comes back from the server,
because the ranks' processors need not solve linear systems to the same bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.errors import UserError
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.optimizer import Optimizer
from fedmpi.methods.simplex import maximize_on_simplex, worst_weighted

if TYPE_CHECKING:
    from torch import Tensor

    from fedmpi.methods.method import Method
    from fedmpi.models.flat import FlatModel

LARGEST = 2000
"""Number of parameters whose Hessian is summed: 32 MB in float64."""


def refuse_size(parameters: int) -> None:
    """Raise a UserError for a model whose Hessian would be too large to sum."""
    if parameters > LARGEST:
        raise UserError(
            f"--optimizer newton sums {parameters:,} × {parameters:,} numbers in each round; it is "
            f"for at most {LARGEST:,} parameters: give --optimizer nesterov."
        )


class Newton(Optimizer):
    """The step of theta and of mu, on the server."""

    second_order = True

    def state(self, model: FlatModel) -> dict[str, Tensor]:
        """The last theta that was better than those before, the step from it, and the search."""
        theta = model.theta.detach().double()
        search = torch.tensor([math.inf, 1.0], dtype=torch.float64)
        return {"accepted": theta.clone(), "step": torch.zeros_like(theta), "search": search}

    def begin_again(self) -> None:
        """Take the next theta whatever its risk is: other rows are another problem."""
        self.shared["search"][0] = math.inf

    def vectors_of(self, size: int, groups: int) -> int:
        return groups + size

    def apply(self, method: Method, model: FlatModel, t: int) -> None:
        assert isinstance(method, FedMinMax)  # which arguments.py makes sure of
        accepted, step, search = (self.shared[name] for name in ("accepted", "step", "search"))
        theta = model.theta.detach().double()
        decay, epsilon = self.config.decay, self.config.epsilon
        risks = method.risks[method.held]
        value = worst_weighted(risks, epsilon) + decay / 2 * float(theta @ theta)
        if value <= search[0]:
            accepted.copy_(theta)
            step.copy_(self._solve(method, model, theta, decay))
            search.copy_(torch.tensor([value, 1.0]))
        else:
            search[1] /= 2
        model.theta.copy_(accepted + search[1] * step)

    def _solve(self, method: FedMinMax, model: FlatModel, theta: Tensor, decay: float) -> Tensor:
        """Set the method's mu to the best weights against the step; return the step."""
        held, groups = method.held, len(method.held)
        sums = model.vectors.detach().double().cpu().numpy()
        gradients = sums[:groups][held] / method.sizes[held, None]
        pull = decay * theta.cpu().numpy()
        lower = factor(sums[groups:], decay)
        halves = np.linalg.solve(lower, np.c_[gradients.T, pull])
        of_groups, of_pull = halves[:, :-1], halves[:, -1]
        risks = method.risks[held] - of_groups.T @ of_pull
        mu = maximize_on_simplex(risks, of_groups.T @ of_groups, self.config.epsilon)
        method.mu[held] = mu
        step = -np.linalg.solve(lower.T, of_groups @ mu + of_pull)
        return torch.from_numpy(step).to(theta.device)


def factor(hessian: np.ndarray, decay: float) -> np.ndarray:
    """Cholesky factor of the Hessian with its decay, and with a little more where it is singular.

    Without decay it always is: a number added to all classes' weights changes no probability.
    """
    size = len(hessian)
    matrix = (hessian + hessian.T) / 2 + decay * np.eye(size)
    ridge = 1e-10 * max(float(np.trace(matrix)) / size, 1e-10)
    while True:
        try:
            return np.linalg.cholesky(matrix + ridge * np.eye(size))
        except np.linalg.LinAlgError:
            ridge *= 100
