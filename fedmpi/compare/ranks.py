"""Ranks of methods over blocks: Friedman's test, and Nemenyi's critical difference (Demšar 2006).

In each of N blocks the k methods have ranks, 1 for the lowest risk, means of ranks for equals. With
R_j the mean rank of method j over the blocks, Friedman's statistic

    χ² = 12 N / (k (k + 1)) (Σ_j R_j² - k (k + 1)² / 4)        (divided by 1 - ties)

is large if the methods are not all alike. Its p-value here is of permutations: if they are alike,
all orders within a block are equally likely. χ² with k - 1 degrees of freedom is their limit for
many blocks, and too rough for few. Two methods differ if their mean ranks differ by

    CD = q sqrt(k (k + 1) / (6 N)),

q the 95% point of the range of k standard normal numbers over √2 (Nemenyi 1963): that is a
correction for all k (k - 1) / 2 pairs. J. Demšar, "Statistical Comparisons of Classifiers over
Multiple Data Sets", Journal of Machine Learning Research 7, 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

ALPHA = 0.05
DRAWS = 20_000
STREAM = int.from_bytes(b"ranks", "big")


@dataclass(frozen=True)
class Ranks:
    """Ranks of k methods in N blocks, and what the tests make of them."""

    methods: tuple[str, ...]
    ranks: np.ndarray
    """Blocks × methods."""
    statistic: float
    p: float
    """Of Friedman's test; NaN for fewer than two blocks or methods."""
    critical: float
    """Nemenyi's critical difference of two mean ranks; NaN likewise."""

    @property
    def means(self) -> np.ndarray:
        return self.ranks.mean(axis=0)

    def alike(self) -> list[tuple[int, ...]]:
        """Largest sets of methods whose mean ranks are all within the critical difference.

        Numbers of methods, from the lowest rank; a set of one is left out.
        """
        order = np.argsort(self.means, kind="stable").tolist()
        sorted_means = self.means[order]
        found: list[tuple[int, ...]] = []
        reached = 0
        for i, first in enumerate(sorted_means):
            end = int(np.sum(sorted_means <= first + self.critical))
            if end > reached and end - i > 1:
                found.append(tuple(order[i:end]))
            reached = max(reached, end)
        return found


def rank_methods(methods: tuple[str, ...], scores: np.ndarray) -> Ranks:
    """Rank the methods by `scores`, blocks × methods, the lowest first; infinity is a failure."""
    ranks = ranks_of(scores)
    blocks, count = ranks.shape
    if blocks < 2 or count < 2:
        return Ranks(methods, ranks, math.nan, math.nan, math.nan)
    critical = range_quantile(count) / math.sqrt(2) * math.sqrt(count * (count + 1) / (6 * blocks))
    return Ranks(methods, ranks, friedman(ranks), permutation_p(ranks), critical)


def ranks_of(scores: np.ndarray) -> np.ndarray:
    """Rank of each number in its row, from 1; equal numbers have the mean of their ranks."""
    others = scores[..., None, :]
    lower = np.sum(others < scores[..., None], axis=-1)
    equal = np.sum(others == scores[..., None], axis=-1)
    return lower + (equal + 1) / 2


def friedman(ranks: np.ndarray) -> float:
    """Friedman's statistic, corrected for ties; 0 where all are equal in every block."""
    blocks, count = ranks.shape
    # A set of t equal ranks has a variance that is lower by (t³ - t) / 12.
    whole = blocks * count * (count**2 - 1) / 12
    left = float(np.sum((ranks - (count + 1) / 2) ** 2))
    between = blocks * float(np.sum((ranks.mean(axis=0) - (count + 1) / 2) ** 2))
    if not left:
        return 0.0
    return 12 * between / (count * (count + 1)) * (whole / left)


def permutation_p(ranks: np.ndarray) -> float:
    """P-value of Friedman's statistic: how often ranks in random order are as far apart."""
    rng = np.random.default_rng(STREAM)
    sums = np.zeros((DRAWS, ranks.shape[1]))
    for row in ranks:
        sums += rng.permuted(np.tile(row, (DRAWS, 1)), axis=1)
    found = np.sum(sums**2, axis=1)
    here = float(np.sum(ranks.sum(axis=0) ** 2))
    return float((1 + np.sum(found >= here - 1e-9)) / (DRAWS + 1))


def range_quantile(count: int, alpha: float = ALPHA) -> float:
    """Number that the range of `count` standard normal numbers exceeds with probability alpha.

    P(range <= q) = k ∫ φ(z) (Φ(z) - Φ(z - q))^(k - 1) dz, with z the largest of them.
    """
    z = np.linspace(-8, 8, 401)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

    def below(q: float) -> float:
        inner = (_normal(z) - _normal(z - q)) ** (count - 1)
        return count * float(np.sum(density * inner)) * (z[1] - z[0])

    low, high = 0.0, 20.0
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < 1 - alpha else (low, middle)
    return high


def _normal(x: np.ndarray) -> np.ndarray:
    """Distribution function of the standard normal."""
    return np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x])
