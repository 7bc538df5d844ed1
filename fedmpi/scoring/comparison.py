"""Figures of a method over seeds and test rows, and the difference of two methods: tests, verdicts.

The figure is that of the tables: the mean over the seeds of each run's worst (best, average, some)
group. Two methods are compared at the same seeds on the same test rows, by paired differences.

The largest of several measured risks is too large: on the average by 0 if one group is clearly the
worst, by 1.5 standard errors if ten groups tie, as they do after minimax training. The bootstrap of
the largest adds the same bias once more, so its percentiles are no remedy. A difference of
two worst groups is therefore bounded from both sides. With a and b the groups' true risks,

    max a - max b = max_g min_h (a_g - b_h),

and for the group g that is truly A's worst, a_g - b_h is at least max a - max b for every h. Its
measured values have standard errors e_gh, from the replicates; they are all above the true ones
less (c + z) e_gh but for a probability of P(Z > z) at most, where c is the median of the largest
of their standardised errors over h: for normal errors the largest exceeds its median by z with no
greater probability than one of them exceeds 0 by z, however they are correlated (Borell 1975). So

    upper = max_g min_h (a_g - b_h + (c_g + z) e_gh)

is not exceeded but for that probability: no bias is left to hope for. g runs over the groups that
may be A's worst (within PLAUSIBLE standard errors of the largest), h over those that may be B's. If
one group is clearly the worst of each, c is 0 and this is the usual bound; if both models are
nearly the same, h = g has a small e_gh, and so has the bound. The lower bound is - upper(b, a).

Over seeds, `significance` combines a_g - b_h + c_g e_gh of each seed (the g and h that give the
bound at z = TYPICAL) with the variance between seeds and of the rows. Assumed: normal errors of the
rows (groups of 30 rows or more), and normal, independent effects of the seeds.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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
PLAUSIBLE = 3.0
TYPICAL = 2.0
MARGIN = 0.01
"""Difference of two risks or accuracies below which they count as equal."""
ALPHA = 0.05
ROUNDING = 1e-9
"""A difference of means up to this is none: two layouts of one run differ by as much."""
EQUAL, LOWER, HIGHER, OPEN = "equal", "lower", "higher", "not decided"


@dataclass(frozen=True)
class Bound:
    """Mean over seeds of values that are not too low, or not too high, and its spread."""

    value: float
    spread: Spread

    def p_below(self, limit: float) -> float:
        """P-value of "the figure is below the limit", for values that are not too low."""
        return self._p_value(limit - self.value)

    def p_above(self, limit: float) -> float:
        """P-value of "the figure is above the limit", for values that are not too high."""
        return self._p_value(self.value - limit)

    def _p_value(self, excess: float) -> float:
        return self.spread.p_value(0.0 if abs(excess) <= ROUNDING else excess)


@dataclass(frozen=True)
class Difference:
    """A's figure less B's: the mean over seeds, between bounds. One seed: of these models alone."""

    value: float
    lower: Bound
    upper: Bound
    seeds: int

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Low and high end, which miss the true difference with a probability of `alpha`."""
        low = self.lower.value - self.lower.spread.reach(alpha / 2)
        return low, self.upper.value + self.upper.spread.reach(alpha / 2)

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
        return self.lower.p_above(0.0)

    @property
    def p_different(self) -> float:
        """Two-sided p-value; NaN, as all of them, where a group has one row."""
        return min(2 * min(self.p_lower, self.p_higher), 1.0)

    def p_not_above(self, margin: float = MARGIN) -> float:
        """P-value of "A's figure is higher by less than the margin, or lower"."""
        return self.upper.p_below(margin)

    def p_not_below(self, margin: float = MARGIN) -> float:
        """P-value of "A's figure is lower by less than the margin, or higher"."""
        return self.lower.p_above(-margin)

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
    pairs = [(a[seed], b[seed]) for seed in seeds]
    columns = [tuple(columns_of(run, figure, kind) for run in pair) for pair in pairs]
    least = min(len(part) for pair in columns for part in pair)
    return _between([(x[:least], y[:least]) for x, y in columns], figure, kind)


def estimate(runs: Seeds, figure: str = "worst", kind: str = "risk") -> Difference:
    """Figure of one method over its seeds: its difference from nothing, so with an interval."""
    if not runs:
        raise UserError("there are no runs with replicates: train without --bootstrap 0.")
    columns = [columns_of(run, figure, kind) for _, run in sorted(runs.items())]
    least = min(map(len, columns))
    return _between([(x[:least], np.zeros((least, 1))) for x in columns], figure, kind)


def over_seeds(values: np.ndarray) -> Difference:
    """Difference of a figure that no test row has a part in (a weight), from that of each seed."""
    bound = Bound(float(values.mean()), spread_of(values, np.zeros((len(values), 2))))
    return Difference(bound.value, bound, bound, len(values))


def refuse_unpaired(a: Replicates, b: Replicates, seed: int) -> None:
    """Raise a UserError for runs whose test rows or groups are not the same."""
    if a.groups != b.groups:
        raise UserError(f"the runs of seed {seed} have other groups, and cannot be compared.")
    if a.test_rows != b.test_rows:
        raise UserError(
            f"the runs of seed {seed} were tested on other rows ({a.test_rows}, {b.test_rows}): "
            "compare runs on the same data, with the same --limit-test."
        )


def columns_of(run: Replicates, figure: str, kind: str) -> np.ndarray:
    """Numbers of which the figure is the largest (or the smallest), (1 + B) × these.

    A group without test rows has no part; one with a single row has no spread: it is NaN. In a
    replicate that has no row of a group, the group has the risk that it has on all rows.
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
    numbers = numbers[:, run.rows[0] > 0]
    return numbers.mean(axis=1, keepdims=True) if figure == "average" else numbers


def _between(pairs: list[tuple[np.ndarray, np.ndarray]], figure: str, kind: str) -> Difference:
    """Difference of the figures of each seed's pair, over the seeds."""
    if (figure == "best") != (kind == "accuracy"):  # the smallest: -min a + min b = max -a - max -b
        pairs = [(-y, -x) for x, y in pairs]
    values = [np.max(x[0]) - np.max(y[0]) for x, y in pairs]
    upper = _mean([_upper(x, y) for x, y in pairs], 1)
    lower = _mean([_upper(y, x) for x, y in pairs], -1)
    return Difference(float(np.mean(values)), lower, upper, len(pairs))


def _mean(seeds: list[tuple[float, np.ndarray]], sign: int) -> Bound:
    """Mean over the seeds of values, each with its errors in the replicates; negated, if -1."""
    values = sign * np.array([value for value, _ in seeds])
    return Bound(float(values.mean()), spread_of(values, np.stack([noise for _, noise in seeds])))


def _upper(a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
    """Value of max a - max b that is not too low, and its errors in the replicates."""
    others = b[:, _plausible(b)]
    bounds = [_least(a[:, [g]] - others) for g in _plausible(a)]
    _, value, noise = max(bounds, key=lambda bound: (np.isnan(bound[0]), bound[0]))
    return value, noise


def _least(numbers: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Bound of the least of some numbers, each with its replicates below it: at TYPICAL, at 0.

    Last are the errors of the number that gives the bound, in the replicates.
    """
    noise = numbers[1:] - numbers[0]
    error = noise.std(axis=0, ddof=1)
    largest = np.max(np.divide(-noise, error, out=np.zeros_like(noise), where=error != 0), axis=1)
    c = max(0.0, float(np.median(largest))) if numbers.shape[1] > 1 else 0.0
    h = int(np.argmin(numbers[0] + (c + TYPICAL) * error))
    value = float(numbers[0, h] + c * error[h])
    return value + TYPICAL * float(error[h]), value, noise[:, h]


def _plausible(numbers: np.ndarray) -> np.ndarray:
    """Places of the numbers that may truly be the largest."""
    behind = numbers[:, [int(np.argmax(numbers[0]))]] - numbers
    return np.flatnonzero(~(behind[0] > PLAUSIBLE * behind[1:].std(axis=0, ddof=1)))


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
