"""Every method again, as the papers state it: loops over clients, groups and batches, float64.

A second opinion on fedmpi.methods. This module takes from the program the prepared rows, the
partition, the first theta and the order of the batches; nothing of how the program trains,
exchanges or projects.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import quadprog
import torch
from torch import Tensor

from fedmpi.federation.clients import batch_order

Theta = list[Tensor]
"""The weight and the bias of each layer in turn."""

Objective = Callable[[Theta, list[int]], Tensor]
"""Function that a local step descends on, of theta and the rows of a batch."""


@dataclass
class Federation:
    """The rows of all clients, and the numbers of the rows that each client holds, ascending."""

    x: Tensor
    y: Tensor
    group: list[int]
    groups: int
    clients: list[list[int]]
    theta: Theta
    """First theta, theta^0."""
    loss: str
    seed: int

    @property
    def n(self) -> int:
        return len(self.group)

    def of_group(self, rows: Sequence[int], a: int) -> list[int]:
        return [i for i in rows if self.group[i] == a]

    def n_a(self, a: int) -> int:
        return len(self.of_group(range(self.n), a))

    def n_ak(self, a: int, k: int) -> int:
        return len(self.of_group(self.clients[k], a))

    def cells(self) -> list[tuple[int, int]]:
        """Cells (a, k) that have rows."""
        clients = range(len(self.clients))
        return [(a, k) for k in clients for a in range(self.groups) if self.n_ak(a, k)]

    def losses(self, theta: Theta, rows: Sequence[int]) -> Tensor:
        """Loss of each of `rows`."""
        rows = list(rows)
        h = self.x[rows]
        for layer in range(0, len(theta), 2):
            h = (h if layer == 0 else torch.clamp(h, min=0)) @ theta[layer].T + theta[layer + 1]
        h = h - h.max(dim=1, keepdim=True).values.detach()
        p = torch.exp(h) / torch.exp(h).sum(dim=1, keepdim=True)
        target = torch.eye(h.shape[1], dtype=h.dtype)[self.y[rows]]
        if self.loss == "brier":
            return ((p - target) ** 2).sum(dim=1)
        return -(target * torch.log(p)).sum(dim=1)

    def risk(self, theta: Theta, rows: Sequence[int]) -> Tensor:
        return self.losses(theta, rows).mean()


@dataclass
class Trace:
    """Theta, risks and weights of every round of a training."""

    theta: Theta
    thetas: list[np.ndarray] = field(default_factory=list)
    """Vectors theta^1 ... theta^T."""
    risks: list[list[float]] = field(default_factory=list)
    """Group risks of the theta with which each round began."""
    group_weights: list[list[float]] = field(default_factory=list)
    """Group weights after each round; empty where the method has none."""
    client_weights: list[list[float]] = field(default_factory=list)

    def add(
        self,
        theta: Theta,
        risks: list[float],
        group_weights: Sequence[float] = (),
        client_weights: Sequence[float] = (),
    ) -> None:
        self.theta = theta
        self.thetas.append(flat(theta))
        self.risks.append(risks)
        self.group_weights.append(list(group_weights))
        self.client_weights.append(list(client_weights))


def flat(theta: Theta) -> np.ndarray:
    """Concatenate theta to one vector."""
    return torch.cat([p.reshape(-1) for p in theta]).numpy()


def gradient(theta: Theta, objective: Callable[[Theta], Tensor]) -> Theta:
    leaves = [p.clone().requires_grad_() for p in theta]
    return list(torch.autograd.grad(objective(leaves), leaves))


def step(theta: Theta, lr: float, direction: Theta) -> Theta:
    return [p - lr * d for p, d in zip(theta, direction, strict=True)]


def combine(coefficients: Sequence[float], models: Sequence[Theta]) -> Theta:
    """Sum of coefficient times model."""
    total = [torch.zeros_like(p) for p in models[0]]
    for coefficient, model in zip(coefficients, models, strict=True):
        total = [s + coefficient * p for s, p in zip(total, model, strict=True)]
    return total


def shares(f: Federation) -> list[float]:
    """Shares n_k/n of the clients."""
    return [len(rows) / f.n for rows in f.clients]


def rho(f: Federation) -> list[float]:
    """Shares rho_a = n_a/n of the groups."""
    return [f.n_a(a) / f.n for a in range(f.groups)]


def group_risks(f: Federation, theta: Theta) -> list[float]:
    return [float(f.risk(theta, f.of_group(range(f.n), a))) for a in range(f.groups)]


def project(v: Sequence[float], floor: float) -> list[float]:
    """Nearest point of {x: sum x = 1, x >= floor}, by a quadratic-programming solver."""
    size = len(v)
    constraints = np.hstack([np.ones((size, 1)), np.eye(size)])
    bounds = np.concatenate([[1.0], np.full(size, floor)])
    return quadprog.solve_qp(np.eye(size), np.array(v), constraints, bounds, meq=1)[0].tolist()


def project_in_divergence(v: Sequence[float], floor: float) -> list[float]:
    """Nearest such point in Kullback-Leibler divergence: max(c v, floor), with c by bisection."""
    low, high = 0.0, 1 / min(x for x in v if x > 0)
    for _ in range(400):
        c = (low + high) / 2
        if sum(max(c * x, floor) for x in v) < 1:
            low = c
        else:
            high = c
    return [max(high * x, floor) for x in v]


def ascend(
    mu: Sequence[float], risks: Sequence[float], lr_mu: float, floor: float, adversary: str
) -> list[float]:
    """Take the adversary's step: projected, or multiplicative."""
    pairs = list(zip(mu, risks, strict=True))
    if adversary == "projected":
        return project([m + lr_mu * r for m, r in pairs], floor)
    return project_in_divergence([m * math.exp(lr_mu * r) for m, r in pairs], floor)


def fedminmax(
    f: Federation,
    rounds: int,
    lr: float,
    lr_mu: float,
    epsilon: float,
    adversary: str = "projected",
    local_epochs: int | None = None,
    batch_size: int = 100,
) -> Trace:
    """Algorithm 1; with local epochs a batch's loss is the mean of w_a times the row's loss."""
    mu, trace = rho(f), Trace(f.theta)
    for t in range(1, rounds + 1):
        theta, w = trace.theta, [m / r for m, r in zip(mu, rho(f), strict=True)]
        models, risks = [], [0.0] * f.groups
        for k, rows in enumerate(f.clients):
            held = [a for a in range(f.groups) if f.n_ak(a, k)]

            def r_k(theta, k=k, rows=rows, held=held, w=w):
                return sum(
                    f.n_ak(a, k) / len(rows) * w[a] * f.risk(theta, f.of_group(rows, a))
                    for a in held
                )

            def weighted_mean(theta, batch, w=w):
                return sum(w[f.group[i]] * f.risk(theta, [i]) for i in batch) / len(batch)

            if local_epochs is None:
                models.append(step(theta, lr, gradient(theta, r_k)))
            else:
                models.append(local(f, theta, k, t, lr, local_epochs, batch_size, weighted_mean))
            for a in held:
                risks[a] += f.n_ak(a, k) / f.n_a(a) * float(f.risk(theta, f.of_group(rows, a)))
        mu = ascend(mu, risks, lr_mu, epsilon, adversary)
        trace.add(combine(shares(f), models), risks, mu)
    return trace


def centralized(
    f: Federation,
    rounds: int,
    lr: float,
    lr_mu: float,
    epsilon: float,
    adversary: str = "projected",
) -> Trace:
    """Algorithm 2: the gradient of sum_a mu_a r_a, with nothing said of clients."""
    mu, trace = rho(f), Trace(f.theta)
    everybody = range(f.n)
    for _ in range(rounds):
        theta = trace.theta

        def objective(theta, mu=mu):
            return sum(m * f.risk(theta, f.of_group(everybody, a)) for a, m in enumerate(mu))

        risks = group_risks(f, theta)
        mu = ascend(mu, risks, lr_mu, epsilon, adversary)
        trace.add(step(theta, lr, gradient(theta, objective)), risks, mu)
    return trace


def localfedminmax(
    f: Federation,
    rounds: int,
    lr: float,
    lr_mu: float,
    epsilon: float,
    adversary: str = "projected",
) -> Trace:
    """LocalFedMinMax of the appendix: a weight for each group of each client, floor epsilon/K."""
    cells, trace = f.cells(), Trace(f.theta)
    start = [f.n_ak(a, k) / f.n for a, k in cells]
    mu = start
    for _ in range(rounds):
        theta = trace.theta
        w = {cell: m / r for cell, m, r in zip(cells, mu, start, strict=True)}
        models = []
        for k, rows in enumerate(f.clients):

            def r_k(theta, k=k, rows=rows, w=w):
                return sum(
                    f.n_ak(a, k) / len(rows) * w[a, k] * f.risk(theta, f.of_group(rows, a))
                    for a in range(f.groups)
                    if f.n_ak(a, k)
                )

            models.append(step(theta, lr, gradient(theta, r_k)))
        risks = [float(f.risk(theta, f.of_group(f.clients[k], a))) for a, k in cells]
        mu = ascend(mu, risks, lr_mu, epsilon / len(f.clients), adversary)
        of_group = [0.0] * f.groups
        for (a, _), m in zip(cells, mu, strict=True):
            of_group[a] += m
        trace.add(combine(shares(f), models), group_risks(f, theta), of_group)
    return trace


def afl(f: Federation, rounds: int, lr: float, lr_mu: float, adversary: str = "projected") -> Trace:
    """Agnostic federated learning (Mohri et al. 2019), with full batches."""
    lambda_, trace = shares(f), Trace(f.theta)
    for _ in range(rounds):
        theta = trace.theta
        models = [
            step(theta, lr, gradient(theta, lambda theta, rows=rows: f.risk(theta, rows)))
            for rows in f.clients
        ]
        new = combine(lambda_, models)
        risks = [float(f.risk(theta, rows)) for rows in f.clients]
        lambda_ = ascend(lambda_, risks, lr_mu, 0.0, adversary)
        trace.add(new, group_risks(f, theta), of_groups(f, lambda_), lambda_)
    return trace


def of_groups(f: Federation, lambda_: Sequence[float]) -> list[float]:
    """Group weights that client weights amount to (Lemma 1)."""
    return [
        sum(weight * f.n_ak(a, k) / len(f.clients[k]) for k, weight in enumerate(lambda_))
        for a in range(f.groups)
    ]


def local(
    f: Federation,
    theta: Theta,
    k: int,
    t: int,
    lr: float,
    epochs: int,
    batch_size: int,
    objective: Objective,
) -> Theta:
    """Train client k; return theta_k after `epochs` of batches, whose last may be shorter."""
    rows = f.clients[k]
    for epoch in range(epochs):
        order = batch_order(len(rows), f.seed, k, t, epoch)
        for first in range(0, len(rows), batch_size):
            batch = [rows[i] for i in order[first : first + batch_size]]
            theta = step(theta, lr, gradient(theta, lambda p, batch=batch: objective(p, batch)))
    return theta


def fedavg(
    f: Federation,
    rounds: int,
    lr: float,
    local_epochs: int,
    batch_size: int,
    objective: Objective | None = None,
) -> Trace:
    """Federated averaging (McMahan et al. 2017); `objective` is by default a batch's mean loss."""
    trace = Trace(f.theta)
    for t in range(1, rounds + 1):
        theta = trace.theta
        models = [
            local(f, theta, k, t, lr, local_epochs, batch_size, objective or f.risk)
            for k in range(len(f.clients))
        ]
        trace.add(combine(shares(f), models), group_risks(f, theta))
    return trace


def qfedavg(
    f: Federation, rounds: int, lr: float, local_epochs: int, batch_size: int, q: float
) -> Trace:
    """q-FedAvg (Li et al. 2020), L = 1/lr."""
    trace = Trace(f.theta)
    for t in range(1, rounds + 1):
        theta = trace.theta
        deltas, hs = [], []
        for k, rows in enumerate(f.clients):
            loss = float(f.risk(theta, rows))
            theta_k = local(f, theta, k, t, lr, local_epochs, batch_size, f.risk)
            g = [(p - p_k) / lr for p, p_k in zip(theta, theta_k, strict=True)]
            deltas.append([loss**q * p for p in g])
            squared_norm = sum(float((p * p).sum()) for p in g)
            hs.append(q * loss ** (q - 1) * squared_norm + loss**q / lr)
        change = combine([1 / sum(hs)] * len(deltas), deltas)
        trace.add(step(theta, 1.0, change), group_risks(f, theta))
    return trace


def term(
    f: Federation,
    rounds: int,
    lr: float,
    local_epochs: int,
    batch_size: int,
    tilt: float,
    tilt_level: str,
) -> Trace:
    """TERM (Li et al. 2021): tilted weights of the clients, or of the rows within a batch."""
    if tilt_level == "sample":

        def tilted(theta, batch):
            return torch.log(torch.exp(tilt * f.losses(theta, batch)).mean()) / tilt

        return fedavg(f, rounds, lr, local_epochs, batch_size, tilted)
    trace = Trace(f.theta)
    for t in range(1, rounds + 1):
        theta = trace.theta
        models, tilts = [], []
        for k, rows in enumerate(f.clients):
            tilts.append(len(rows) / f.n * math.exp(tilt * float(f.risk(theta, rows))))
            models.append(local(f, theta, k, t, lr, local_epochs, batch_size, f.risk))
        weights = [tilted / sum(tilts) for tilted in tilts]
        trace.add(combine(weights, models), group_risks(f, theta), client_weights=weights)
    return trace


METHODS = {
    method.__name__: method
    for method in (fedminmax, centralized, localfedminmax, afl, fedavg, qfedavg, term)
}
