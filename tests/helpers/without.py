"""Training whose ranks die, stated plainly: autograd over all rows at once, in float64.

A second opinion on fedmpi.federation.failures. This module takes from the program the prepared
rows, the partition, the first theta, the order of the batches and who is in a cohort. A client of a
dead rank takes part up to its last round.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedmpi import data as datasets
from fedmpi import models
from fedmpi.data.options import options_from
from fedmpi.data.partition import partition
from fedmpi.data.prepare import prepare
from fedmpi.federation.batches import Batches, places_in_groups
from fedmpi.federation.clients import batch_order
from fedmpi.federation.cohorts import Cohorts
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.run.config import Config


def project(v: np.ndarray, floor: float) -> np.ndarray:
    """Nearest weights of sum one above a floor: max(floor, v - x), with x by bisection."""
    low, high = v.min() - 1.0, v.max()
    for _ in range(200):
        x = (low + high) / 2
        low, high = (x, high) if np.maximum(floor, v - x).sum() > 1 else (low, x)
    return np.maximum(floor, v - low)


def multiply(weights: np.ndarray, ascent: np.ndarray, floor: float) -> np.ndarray:
    """Weights times exp(ascent), of sum one above a floor: max(floor, x v), with x by bisection."""
    v = weights * np.exp(ascent)
    low, high = 0.0, 1 / v.max()
    for _ in range(200):
        x = (low + high) / 2
        low, high = (x, high) if np.maximum(floor, x * v).sum() < 1 else (low, x)
    return np.maximum(floor, low * v)


def rescaled(weights: dict, left: list, anew: dict) -> dict:
    """Weights of the keys in `left`, in the same proportions; `anew` if these were all 0."""
    total = sum(weights[i] for i in left)
    return {i: weights[i] / total if total > 0 else anew[i] for i in left}


@dataclass
class Federation:
    """The rows of all clients, and how many rounds each client takes part in."""

    config: Config
    last_round: dict[int, int] = field(default_factory=dict)
    """Last round of each client of a dead rank."""

    def __post_init__(self) -> None:
        c = self.config
        dataset = datasets.find(c.dataset)
        data = prepare(dataset, Path(c.data_dir), options_from(c))
        x, y, self.group = (np.array(data.array(f"train_{part}")) for part in ("x", "y", "group"))
        if data.clients:
            self.client = np.array(data.array("train_client"))
        else:
            who = data.groups, c.clients, c.setting, dataset
            self.client = partition(self.group, *who, skew=c.skew, seed=c.seed).client_of_row
        self.clients = range(len(data.clients) or c.clients)
        self.x, self.y = torch.from_numpy(x).double(), torch.from_numpy(y.astype(np.int64))
        module = models.build(c.model, x.shape[1:], len(data.classes), c.seed)
        self.theta = [p.detach().double() for p in module.parameters()]
        self.stepped = [p.clone().requires_grad_() for p in self.theta]
        self.optimizer = {
            "adam": lambda: torch.optim.Adam(self.stepped, c.lr),
            "nesterov": lambda: torch.optim.SGD(self.stepped, c.lr, 0.9, nesterov=True),
        }.get(c.options.get("optimizer"), lambda: torch.optim.SGD(self.stepped, c.lr))()

    def losses(self, theta: list[Tensor], rows: np.ndarray) -> Tensor:
        h = self.x[rows]
        for i in range(0, len(theta), 2):
            h = (h if i == 0 else torch.relu(h)) @ theta[i].T + theta[i + 1]
        return torch.nn.functional.cross_entropy(h, self.y[rows], reduction="none")

    def descend(self, theta: list[Tensor], rows: np.ndarray, weights: np.ndarray) -> list[Tensor]:
        """Take a step down the weighted sum of the rows' losses."""
        slopes = self.slopes(theta, rows, weights)
        return [p - self.config.lr * g for p, g in zip(theta, slopes, strict=True)]

    def slopes(self, theta: list[Tensor], rows: np.ndarray, weights: np.ndarray) -> tuple:
        leaves = [p.clone().requires_grad_() for p in theta]
        total = self.losses(leaves, rows) @ torch.from_numpy(weights)
        return torch.autograd.grad(total, leaves)

    def batch(self, t: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places in `rows` of a round's batch, and how many of the rows each place counts for."""
        wanted = self.config.options.get("batch_rows")
        if self.config.options.get("cohort"):
            return self.cohort(t, self.client[rows])
        if not wanted:
            return np.arange(len(rows)), np.ones(len(rows))
        group = self.group[rows]
        sizes = np.bincount(group, minlength=self.group.max() + 1)
        place = places_in_groups(group, np.zeros_like(sizes))
        chosen = Batches(self.config.seed, wanted, sizes, group, place).rows(t)
        drawn = np.bincount(group[chosen], minlength=len(sizes))
        assert ((drawn > 0) == (sizes > 0)).all()  # no group that has rows is without a risk
        return chosen, (sizes / np.maximum(drawn, 1))[group[chosen]]

    def cohort(self, t: int, client: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places of the rows of a round's cohort, and how many rows each counts for."""
        cohorts = Cohorts(FedMinMax(self.config), self.config)
        cohorts.sizes = np.bincount(client, minlength=self.config.clients)
        drawn = cohorts.of_round(t).clients
        places = np.flatnonzero(np.isin(client, drawn))
        return places, np.full(len(places), len(np.unique(client)) / len(drawn))

    def train_locally(self, theta: list[Tensor], k: int, t: int) -> list[Tensor]:
        c, mine = self.config, np.flatnonzero(self.client == k)
        for epoch in range(c.local_epochs):
            order = mine[batch_order(len(mine), c.seed, k, t, epoch)]
            for first in range(0, len(mine), c.batch_size):
                batch = order[first : first + c.batch_size]
                theta = self.descend(theta, batch, np.full(len(batch), 1 / len(batch)))
        return theta

    def train(self) -> tuple[np.ndarray, np.ndarray]:
        """Train; return the last theta and the mean theta."""
        thetas, theta = [], self.theta
        self.weights: dict | None = None
        for t in range(1, self.config.rounds + 1):
            left = [k for k in self.clients if self.last_round.get(k, t) >= t]
            rows = np.flatnonzero(np.isin(self.client, left))
            with torch.no_grad():
                losses = self.losses(theta, rows).numpy()
            one_round = getattr(self, self.config.method)
            theta = one_round(t, theta, left, rows, losses)
            thetas.append(torch.cat([p.reshape(-1) for p in theta]).numpy())
        first = 3 * len(thetas) // 4 if self.config.options.get("average") == "tail" else 0
        return thetas[-1], np.mean(thetas[first:], axis=0)

    def minimax(self, t, theta, rows, losses, key: np.ndarray, anew: dict, floor: float):
        """Take a minimax step with weights on the values of `key`: group, client or both."""
        c, left = self.config, sorted(anew)
        before = anew if self.weights is None else rescaled(self.weights, left, anew)
        weights = np.array([before[i] for i in left])
        batch, counts = self.batch(t, rows)
        of = np.searchsorted(left, key)
        sizes = np.bincount(of, minlength=len(left))
        risks = np.bincount(of[batch], counts * losses[batch], len(left)) / sizes
        if c.options.get("adversary") == "multiplicative":
            after = multiply(weights, c.lr_mu * risks, floor)
        else:
            after = project(weights + c.lr_mu * risks, floor)
        self.weights = dict(zip(left, after, strict=True))
        slopes = self.slopes(theta, rows[batch], counts * (weights / sizes)[of[batch]])
        return self.step(t, theta, slopes)

    def step(self, t: int, theta: list[Tensor], slopes: tuple) -> list[Tensor]:
        """Take a step of torch's optimizer, which remembers the rounds before."""
        c = self.config
        cosine = c.options.get("schedule") == "cosine"
        factor = (1 + np.cos(np.pi * (t - 1) / c.rounds)) / 2 if cosine else 1.0
        for p, old, slope in zip(self.stepped, theta, slopes, strict=True):
            p.data.copy_(old)
            p.grad = slope * factor
        self.optimizer.step()
        return [p.detach().clone() for p in self.stepped]

    def fedminmax(self, t, theta, left, rows, losses):
        key = self.group[rows]
        rho = {a: float(np.mean(key == a)) for a in np.unique(key)}
        return self.minimax(t, theta, rows, losses, key, rho, self.config.epsilon)

    def afl(self, t, theta, left, rows, losses):
        key = self.client[rows]
        return self.minimax(t, theta, rows, losses, key, {k: np.mean(key == k) for k in left}, 0.0)

    def localfedminmax(self, t, theta, left, rows, losses):
        key = self.client[rows] * 1000 + self.group[rows]
        share = {cell: float(np.mean(key == cell)) for cell in np.unique(key)}
        return self.minimax(t, theta, rows, losses, key, share, self.config.epsilon / len(left))

    def mean_of(self, t, theta, shares: dict[int, float]):
        models = {k: self.train_locally(theta, k, t) for k in shares}
        return [sum(share * models[k][i] for k, share in shares.items()) for i in range(len(theta))]

    def fedavg(self, t, theta, left, rows, losses):
        return self.mean_of(t, theta, {k: np.mean(self.client[rows] == k) for k in left})

    def term(self, t, theta, left, rows, losses):
        key = self.client[rows]
        tilted = {
            k: np.mean(key == k) * np.exp(self.config.tilt * losses[key == k].mean()) for k in left
        }
        return self.mean_of(t, theta, {k: v / sum(tilted.values()) for k, v in tilted.items()})

    def qfedavg(self, t, theta, left, rows, losses):
        q, lr, key = self.config.q, self.config.lr, self.client[rows]
        total, sum_h = [torch.zeros_like(p) for p in theta], 0.0
        for k in left:
            loss = losses[key == k].mean()
            model = self.train_locally(theta, k, t)
            g = [(p - m) / lr for p, m in zip(theta, model, strict=True)]
            squared = sum(float((p**2).sum()) for p in g)
            sum_h += q * loss ** (q - 1) * squared + loss**q / lr
            total = [s + loss**q * p for s, p in zip(total, g, strict=True)]
        return [p - s / sum_h for p, s in zip(theta, total, strict=True)]
