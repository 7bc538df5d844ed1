"""Figures of a method over seeds and test rows, and the difference of two methods: tests, verdicts.

The figure is that of a method: each group's risk is averaged over the seeds, and then the worst
(best, average, some) group is taken, as in the paper's tables. Two methods are compared at the same
seeds on the same test rows, by paired differences. (The mean of each run's own worst group is no
figure to test: it is too large by the noise of the rows of every single run, which more seeds do
not take away.)

The largest of several measured risks is too large: on the average by 0 if one group is clearly the
worst, by 1.5 standard errors if ten groups tie, as they do after minimax training. The bootstrap of
the largest adds the same bias once more, so its percentiles are no remedy. A difference of
two worst groups is therefore bounded from both sides. With a and b the groups' true risks,

    max a - max b = max_g min_h (a_g - b_h),

and for the group g that is truly A's worst, a_g - b_h is at least max a - max b for every h. Each
of their measured values is too low by more than reach_gh(p / H) with a probability of p / H, so any
of B's H groups' with at most p (Bonferroni), however they are correlated and however few the seeds
are. So

    upper = max_g min_h (a_g - b_h + reach_gh(p / H))

is not exceeded but for that probability: no bias is left to hope for. g runs over the groups that
may be A's worst: the others are below the largest but for a probability of IMPLAUSIBLE. If both
models are nearly the same, h = g has a small reach, and so has the bound. The lower bound is
- upper(b, a).

`significance` has the reach of a mean over seeds. Assumed: normal errors of the rows (groups of 30
rows or more), and normal, independent effects of the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedmpi.errors import UserError, unknown_name
from fedmpi.scoring.replicates import Replicates
from fedmpi.significance import Spread, holm, spread_of

Seeds = Mapping[int, Replicates]
"""Replicates of the runs of one method, by seed."""
K = TypeVar("K", bound=Hashable)

KINDS = ("risk", "accuracy")
FIGURES = ("worst", "best", "average")
IMPLAUSIBLE = 1e-3
MARGIN = 0.01
"""Difference of two risks or accuracies below which they count as equal."""
ALPHA = 0.05
ROUNDING = 1e-9
"""A difference of means up to this is none: two layouts of one run differ by as much."""
EQUAL, LOWER, HIGHER, OPEN = "equal", "lower", "higher", "not decided"


Line = tuple[float, Spread]
"""A difference of two groups, and its spread."""


@dataclass(frozen=True)
class Bound:
    """Upper bound of a figure: the largest over some groups of the least of some lines."""

    groups: tuple[tuple[Line, ...], ...]

    def end(self, alpha: float) -> float:
        """Number that the figure exceeds with a probability of at most `alpha`."""
        return self._of(lambda value, spread, lines: value + spread.reach(alpha / lines))

    def p_below(self, limit: float) -> float:
        """P-value of "the figure is below the limit"."""

        def p_value(value: float, spread: Spread, lines: int) -> float:
            excess = limit - value
            if abs(excess) <= ROUNDING:
                return 0.5
            return float(np.minimum(lines * spread.p_value(excess), 1.0))

        return self._of(p_value)

    def _of(self, number: Callable[[float, Spread, int], float]) -> float:
        ends = [np.min([number(*line, len(lines)) for line in lines]) for lines in self.groups]
        return float(np.max(ends))


@dataclass(frozen=True)
class Difference:
    """A's figure less B's, between bounds. Of one seed: of these models alone."""

    value: float
    upper: Bound
    mirrored: Bound
    """Upper bound of B's figure less A's."""
    seeds: int

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Low and high end, which miss the true difference with a probability of `alpha`."""
        return -self.mirrored.end(alpha / 2), self.upper.end(alpha / 2)

    @property
    def low(self) -> float:
        return self.interval()[0]

    @property
    def high(self) -> float:
        return self.interval()[1]

    @property
    def p_lower(self) -> float:
        """One-sided p-value of "A's figure is lower"."""
        return self.upper.p_below(0.0)

    @property
    def p_higher(self) -> float:
        """One-sided p-value of "A's figure is higher"."""
        return self.mirrored.p_below(0.0)

    @property
    def p_different(self) -> float:
        """Two-sided p-value; NaN, as all of them, where a group has one row."""
        return min(2 * min(self.p_lower, self.p_higher), 1.0)

    def p_not_above(self, margin: float = MARGIN) -> float:
        """P-value of "A's figure is higher by less than the margin, or lower"."""
        return self.upper.p_below(margin)

    def p_not_below(self, margin: float = MARGIN) -> float:
        """P-value of "A's figure is lower by less than the margin, or higher"."""
        return self.mirrored.p_below(margin)

    def p_equal(self, margin: float = MARGIN) -> float:
        """P-value of "the figures differ by less than the margin": two one-sided tests."""
        return max(self.p_not_above(margin), self.p_not_below(margin))


def difference(a: Seeds, b: Seeds, figure: str = "worst", kind: str = "risk") -> Difference:
    """Compare A with B at the seeds that both have; UserError if that cannot be done in pairs."""
    seeds = sorted(set(a) & set(b))
    if not seeds:
        raise UserError("no seed is common to the two: run both with the same --seed.")
    for seed in seeds:
        refuse_unpaired(a[seed], b[seed], seed)
    pair = _numbers([a[s] for s in seeds], [b[s] for s in seeds], figure, kind)
    return _between(*pair, smallest(figure, kind))


def estimate(runs: Seeds, figure: str = "worst", kind: str = "risk") -> Difference:
    """Figure of one method over its seeds: its difference from nothing, so with an interval."""
    if not runs:
        raise UserError("there are no runs with replicates: train without --bootstrap 0.")
    numbers, _ = _numbers(list(runs.values()), [], figure, kind)
    return _between(numbers, np.zeros((*numbers.shape[:2], 1)), smallest(figure, kind))


def over_seeds(values: np.ndarray) -> Difference:
    """Difference of a figure that no test row has a part in (a weight), from that of each seed."""
    mean, spread = float(values.mean()), spread_of(values, np.zeros((len(values), 2)))
    upper, mirrored = (Bound((((sign * mean, spread),),)) for sign in (1, -1))
    return Difference(mean, upper, mirrored, len(values))


def refuse_unpaired(a: Replicates, b: Replicates, seed: int) -> None:
    """Raise a UserError for runs whose test rows or groups are not the same."""
    if a.groups != b.groups:
        raise UserError(f"the runs of seed {seed} have other groups, and cannot be compared.")
    if a.test_rows != b.test_rows:
        raise UserError(
            f"the runs of seed {seed} were tested on other rows ({a.test_rows}, {b.test_rows}): "
            "compare runs on the same data, with the same --limit-test."
        )


def _numbers(
    a: list[Replicates], b: list[Replicates], figure: str, kind: str
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of A's runs and of B's of which the figure is taken: seeds × (1 + B) × groups each.

    A group that has no test rows at some seed has no part.
    """
    everywhere = np.all([run.rows[0] > 0 for run in (*a, *b)], axis=0)
    least = min(len(run.losses) for run in (*a, *b))
    found = []
    for runs in (a, b):
        columns = [_columns(run, figure, kind, everywhere)[:least] for run in runs]
        found.append(np.stack(columns) if runs else np.empty((0, least, 0)))
    return found[0], found[1]


def smallest(figure: str, kind: str) -> bool:
    """Whether the figure is the smallest of some numbers, and not the largest."""
    return (figure == "best") != (kind == "accuracy")


def _columns(run: Replicates, figure: str, kind: str, everywhere: np.ndarray) -> np.ndarray:
    """A run's numbers, (1 + B) × groups: all groups', one group's, or their average.

    A group with a single row has no spread: it is NaN. In a replicate that has no row of a group,
    the group has the risk that it has on all rows.
    """
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    numbers = run.risk if kind == "risk" else run.accuracy
    numbers = np.where(np.isnan(numbers), numbers[:1], numbers)
    numbers[1:, run.rows[0] == 1] = np.nan
    if figure in run.groups:
        return numbers[:, [run.groups.index(figure)]]
    if figure not in FIGURES:
        raise unknown_name("figure", figure, (*FIGURES, *run.groups))
    numbers = numbers[:, everywhere]
    return numbers.mean(axis=1, keepdims=True) if figure == "average" else numbers


def _between(a: np.ndarray, b: np.ndarray, smallest: bool) -> Difference:
    """Difference of the largest (smallest) mean over the seeds of A's numbers and of B's."""
    if smallest:  # min a - min b = max -b - max -a
        a, b = -b, -a
    value = a[:, 0].mean(axis=0).max() - b[:, 0].mean(axis=0).max()
    return Difference(float(value), _upper(a, b), _upper(b, a), len(a))


def _upper(a: np.ndarray, b: np.ndarray) -> Bound:
    others = b[..., _plausible(b)]
    return Bound(tuple(_lines(a[..., [g]] - others) for g in _plausible(a)))


def _lines(numbers: np.ndarray) -> tuple[Line, ...]:
    """Each of some numbers, seeds × (1 + B) × these: its mean over the seeds, and the spread."""
    values, noise = numbers[:, 0], numbers[:, 1:] - numbers[:, :1]
    return tuple(
        (float(v.mean()), spread_of(v, e))
        for v, e in zip(values.T, np.moveaxis(noise, 2, 0), strict=True)
    )


def _plausible(numbers: np.ndarray) -> np.ndarray:
    """Places of the numbers that may truly be the largest."""
    largest = int(np.argmax(numbers[:, 0].mean(axis=0)))
    ahead = _lines(numbers[..., [largest]] - numbers)
    return np.flatnonzero([not mean > spread.reach(IMPLAUSIBLE) for mean, spread in ahead])


def decide(
    differences: Mapping[K, Difference], margin: float = MARGIN, alpha: float = ALPHA
) -> dict[K, str]:
    """Verdict on each of the differences, Holm-corrected over all of them.

    "equal", if two one-sided tests find the difference within the margin, whichever sign it has;
    else "lower" or "higher" (A's figure than B's), if the two-sided test finds one; else "not
    decided". The tests for equality are one family, those for a difference another: each is wrong
    about any of the differences with a probability of at most alpha.
    """
    told = list(differences.values())
    within = holm([d.p_equal(margin) for d in told])
    apart = holm([d.p_different for d in told])
    verdicts = {}
    for key, d, p_equal, p_different in zip(differences, told, within, apart, strict=True):
        verdict = OPEN
        if p_equal <= alpha:
            verdict = EQUAL
        elif p_different <= alpha:
            verdict = LOWER if d.p_lower < d.p_higher else HIGHER
        verdicts[key] = verdict
    return verdicts
