"""How much privacy the rounds of a run have spent: (epsilon, delta) of Gaussian mechanisms.

A round is one Gaussian mechanism: noise of deviation multiplier × L2 sensitivity. With full batches
T rounds are together one such mechanism of multiplier z / sqrt(T), and mu = sqrt(T) / z gives

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

exactly (Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", 2018, Theorem
8; Dong, Roth and Su, "Gaussian Differential Privacy", 2019, Corollary 2.13 and Corollary 3.3). If
each row is in a round's batch with probability q, and nobody sees who is, there is no closed form:
dp-accounting composes the distribution of the privacy loss on a grid, rounded to the safe side.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from fedmpi.errors import UserError

GRID = 4096
"""Points of the grid on which the loss of one round lies. Four times as many take four times the
time, and lower epsilon by less than 1e-3 of it (tests/privacy/test_accountant.py)."""
MOST_ROUNDS = 10**6
"""Where a search for the number of rounds ends by default: their composition takes memory."""
CLOSE = 1e-4
"""How near, relatively, a multiplier that is searched for comes to the smallest one."""


class Accountant:
    """Privacy spent by rounds of one Gaussian mechanism each, on full or on Poisson batches."""

    def __init__(self, delta: float, multiplier: float, sampling: float = 1.0) -> None:
        """Count rounds with noise of deviation `multiplier` × sensitivity.

        `sampling` is the probability with which a row is in a batch, drawn anew for each round and
        each row; 1 for full batches.
        """
        check_delta(delta)
        check_sampling(sampling)
        if not 0 <= multiplier < math.inf:
            raise UserError(f"a noise multiplier of {multiplier}: give 0 or more.")
        self.delta, self.multiplier, self.sampling = delta, multiplier, sampling
        self._known: dict[int, float] = {0: 0.0}

    def epsilon(self, rounds: int) -> float:
        """Return the epsilon that so many rounds have spent, rounded up if at all.

        A new number of rounds costs some 0.1 ms with full batches, and 10 ms with sampled ones.
        """
        if rounds < 0:
            raise ValueError(f"{rounds} rounds")
        if rounds not in self._known:
            self._known[rounds] = self._compose(rounds)
        return self._known[rounds]

    def rounds_within(self, epsilon: float, most: int = MOST_ROUNDS) -> int:
        """Return the largest number of rounds, up to `most`, that spend at most `epsilon`."""
        check_epsilon(epsilon)
        good, bad = 0, 1
        while bad <= most and self.epsilon(bad) <= epsilon:
            good, bad = bad, 2 * bad
        bad = min(bad, most + 1)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.epsilon(middle) <= epsilon else (good, middle)
        return good

    def _compose(self, rounds: int) -> float:
        if not self.multiplier:
            return math.inf
        if self.sampling == 1:
            return epsilon_of(math.sqrt(rounds) / self.multiplier, self.delta)
        # The truncated tails count as lost: a thousandth of delta is for them.
        composed = self._one_round.self_compose(rounds, tail_mass_truncation=self.delta / 1000)
        return float(composed.get_epsilon_for_delta(self.delta))

    @cached_property
    def _one_round(self) -> Any:
        """The distribution of one round's privacy loss."""
        z, q = self.multiplier, self.sampling
        # Of 10 deviations either side; an unsampled row's loss is at least log(1 - q).
        most = 10 / z + 1 / (2 * z * z)
        gain = most + math.log(q + (1 - q) * math.exp(-most))
        return sampled_gaussian(z, q, (gain - max(-most, math.log1p(-q))) / GRID)


def multiplier_for(epsilon: float, delta: float, rounds: int, sampling: float = 1.0) -> float:
    """Return the smallest multiplier, within 1e-4, with which `rounds` spend at most `epsilon`."""
    check_epsilon(epsilon)
    check_delta(delta)
    check_sampling(sampling)
    if rounds < 1:
        raise UserError(f"noise for {rounds} rounds: give 1 or more.")

    def holds(z: float) -> bool:
        return Accountant(delta, z, sampling).epsilon(rounds) <= epsilon

    # Sampling divides mu, in the limit of many rounds: mu = q sqrt(T (e^(1/z^2) - 1)).
    mu = mu_within(epsilon, delta)
    near = mu * mu / (sampling * sampling * rounds)
    enough = 1 / math.sqrt(math.log1p(near)) if sampling < 1 else math.sqrt(rounds) / mu
    while not holds(enough):
        enough *= 1.1
    few = enough / 1.1
    while holds(few):
        enough, few = few, few / 1.1
    while enough > few * (1 + CLOSE / 2):
        middle = (few + enough) / 2
        few, enough = (few, middle) if holds(middle) else (middle, enough)
    return enough


def log_delta(epsilon: float, mu: float) -> float:
    """Return log delta(epsilon) of a Gaussian mechanism, of deviation sensitivity / mu."""
    # With a = epsilon/mu - mu/2 and b = epsilon/mu + mu/2, e^epsilon is phi(a) / phi(b). So delta
    # is phi(a) (Q(a) / phi(a) - Q(b) / phi(b)), in which nothing overflows.
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    log_density = -a * a / 2 - math.log(2 * math.pi) / 2
    if a < 0:
        return math.log(upper_tail(a) - math.exp(log_density) * mills_ratio(b))
    difference = mills_ratio(a) - mills_ratio(b)
    return log_density + math.log(difference) if difference > 0 else -math.inf


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest epsilon with which a Gaussian mechanism is (epsilon, delta)-private.

    It is 0 where delta alone is enough.
    """
    wanted = math.log(delta)
    if log_delta(0, mu) <= wanted:
        return 0.0
    few, enough = 0.0, mu
    while log_delta(enough, mu) > wanted:
        few, enough = enough, 2 * enough
    while enough - few > 1e-12 * enough:
        middle = (few + enough) / 2
        few, enough = (few, middle) if log_delta(middle, mu) <= wanted else (middle, enough)
    return enough


def mu_within(epsilon: float, delta: float) -> float:
    """Return the largest mu with which a Gaussian mechanism is (epsilon, delta)-private."""
    wanted = math.log(delta)
    good, bad = 0.0, 1.0
    while log_delta(epsilon, bad) <= wanted:
        good, bad = bad, 2 * bad
    while bad - good > 1e-12 * bad:
        middle = (good + bad) / 2
        good, bad = (middle, bad) if log_delta(epsilon, middle) <= wanted else (good, middle)
    return good


def upper_tail(x: float) -> float:
    """Return the probability that a standard Gaussian is above `x`."""
    return math.erfc(x / math.sqrt(2)) / 2


def mills_ratio(x: float) -> float:
    """Return the upper tail of a standard Gaussian over its density, at an x of 0 or more."""
    if x < 10:
        return upper_tail(x) * math.sqrt(2 * math.pi) * math.exp(x * x / 2)
    # Laplace's continued fraction, 1 / (x + 1 / (x + 2 / (x + ...))): 30 steps are enough from 10
    # on, where the difference of two of these ratios needs all digits.
    ratio = x
    for k in range(30, 0, -1):
        ratio = x + k / ratio
    return 1 / ratio


def sampled_gaussian(multiplier: float, sampling: float, interval: float) -> Any:
    """Return dp-accounting's privacy loss distribution of one round on a Poisson batch."""
    try:
        from dp_accounting.pld import privacy_loss_distribution as losses
    except ImportError as missing:
        raise UserError(
            f"the privacy of sampled batches needs {missing.name}: ./launch/setup.sh private, or "
            "pip install '.[private]'."
        ) from missing
    return losses.from_gaussian_mechanism(
        multiplier,
        sampling_prob=sampling,
        value_discretization_interval=interval,
        # A row's contribution is there or is zero: the counts are public.
        neighboring_relation=losses.NeighborRel.REPLACE_SPECIAL,
    )


def check_epsilon(epsilon: float) -> None:
    """Raise a UserError unless `epsilon` is a positive number."""
    if not 0 < epsilon < math.inf:
        raise UserError(f"an epsilon of {epsilon}: give a number above 0, such as 3.")


def check_delta(delta: float) -> None:
    """Raise a UserError unless `delta` is a probability that may be reached."""
    if not 1e-12 <= delta < 1:
        raise UserError(
            f"a delta of {delta}: give a number from 1e-12 to below 1, and well below 1 / rows: "
            "1e-5 is usual."
        )


def check_sampling(sampling: float) -> None:
    """Raise a UserError unless `sampling` is a probability above 0."""
    if not 0 < sampling <= 1:
        raise UserError(f"a sampling probability of {sampling}: give one above 0, and at most 1.")
