"""Integer noise: its distribution with a fixed secret, its shares, and the bound on their sum."""

import math
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from fedmpi.privacy import noise as module
from fedmpi.privacy.noise import AT_ONCE, LEAST_DEVIATION, Noise, share_deviation

SECRET = bytes(range(32))
MANY = 400_001


@pytest.mark.parametrize("deviation", [2.0**10, 12345.6, 2.0**40])
def test_the_numbers_are_gaussian(deviation):
    found = Noise(SECRET).rounded(MANY, deviation)
    assert found.dtype == np.int64 and len(found) == MANY
    scaled = found / deviation
    assert abs(scaled.mean()) < 4 / math.sqrt(MANY)
    assert abs(scaled.var() - 1) < 4 * math.sqrt(2 / MANY)
    assert abs(stats.skew(scaled)) < 4 * math.sqrt(6 / MANY)
    assert abs(stats.kurtosis(scaled)) < 4 * math.sqrt(24 / MANY)
    # Half a unit is spread again, so that the smallest deviation has no steps to be seen.
    spread = found + np.random.default_rng(0).uniform(-0.5, 0.5, MANY)
    assert stats.kstest(spread / deviation, stats.norm.cdf).pvalue > 0.01


def test_integers_have_their_probabilities():
    """Chi-square tests of bins of 32 integers and the two tails, and of the last 5 bits."""
    deviation = 2.0**10
    found = Noise(SECRET).rounded(MANY, deviation)
    edges = np.arange(-3 * 1024, 3 * 1024 + 1, 32) + 0.5  # 32 integers each
    counted = np.histogram(found, [-np.inf, *edges, np.inf])[0]
    expected = np.diff([0, *stats.norm.cdf(edges / deviation), 1]) * MANY
    assert expected.min() > 5
    assert stats.chisquare(counted, expected).pvalue > 0.01
    last_bits = np.bincount(found & 31, minlength=32)
    assert stats.chisquare(last_bits).pvalue > 0.01


def test_calls_and_their_halves_are_independent():
    one = Noise(SECRET)
    first, second = one.rounded(MANY, 1e6), one.rounded(MANY, 1e6)
    half = AT_ONCE // 2
    pieces = first[: MANY // AT_ONCE * AT_ONCE].reshape(-1, 2, half)
    pairs = [
        (first, second),
        (first[1:], first[:-1]),
        (pieces[:, 0].ravel(), pieces[:, 1].ravel()),  # a pair shares its radius
    ]
    for a, b in pairs:
        for f in (np.asarray, np.abs):
            assert abs(np.corrcoef(f(a / 1e6), f(b / 1e6))[0, 1]) < 4 / math.sqrt(len(a))


def test_the_stream_is_that_of_the_cipher_and_goes_on():
    """Integers are AES-256 of 0, 1, 2, ...: no block is used twice, whatever was asked for."""
    count = 3 * AT_ONCE
    blocks = b"".join(i.to_bytes(16, "big") for i in range(count))
    cipher = Cipher(algorithms.AES256(SECRET), modes.ECB()).encryptor()  # each block alone
    expected = np.frombuffer(cipher.update(blocks), dtype=np.uint64)
    one, q = Noise(SECRET), 0.3
    found = np.concatenate([one.sample(n, q) for n in (5, AT_ONCE + 1, 2, 7000)])
    limit = int(q * 2**64)
    assert found.tolist() == [int(k) < limit for k in expected[: len(found)]]
    assert (Noise(SECRET).rounded(9, 1e6) == Noise(SECRET).rounded(9, 1e6)).all()
    assert (Noise(SECRET).rounded(9, 1e6) != Noise(bytes(32)).rounded(9, 1e6)).all()


def test_without_a_secret_given_each_has_its_own():
    assert (Noise().rounded(50, 1e9) != Noise().rounded(50, 1e9)).any()
    with pytest.raises(ValueError, match="16 bytes"):
        Noise(bytes(16))


class Scripted(Noise):
    """Noise from integers that are given."""

    def __init__(self, *integers: int) -> None:
        self.left = list(integers)

    def _integers(self, number: int) -> np.ndarray:
        taken, self.left = self.left[:number], self.left[number:]
        return np.array(taken, dtype=np.uint64)


@pytest.mark.parametrize(
    ("integers", "expected"),
    [
        ((0, 0), 129 * math.log(2)),
        ((0, 2**63), 65 * math.log(2)),
        ((2**64 - 1, 2**64 - 1), 2.0**-129),
        ((2**64 - 1, 0), 2.0**-64),
        ((2**64 - 2**43, 0), 2.0**-21 + 2.0**-43),
        ((2**43, 0), 21 * math.log(2)),
        ((2**63,), math.log(2)),
    ],
)
def test_both_ends_of_a_uniform_number_are_precise(integers, expected):
    assert Scripted(*integers)._exponential(1)[0] == pytest.approx(expected, rel=1e-13)


def test_numbers_with_more_bits_have_the_same_distribution(monkeypatch):
    monkeypatch.setattr(module, "RARE", 2**62)  # every second number
    found = Noise(SECRET)._exponential(AT_ONCE)
    assert stats.kstest(found, stats.expon.cdf).pvalue > 0.01


@pytest.mark.parametrize("deviation", [0, 1, LEAST_DEVIATION * 0.999, 2.0**41, math.nan, math.inf])
def test_a_deviation_that_integers_cannot_hold_is_refused(deviation):
    with pytest.raises(ValueError, match="choose a finer or a coarser unit"):
        Noise(SECRET).rounded(3, deviation)


def test_shares_sum_to_what_is_asked_for_and_are_left_when_some_collude():
    ranks, colluding, deviation, length = 7, 2, 1e7, 100_000
    share = share_deviation(deviation, ranks, colluding)
    shares = [Noise(bytes([r] * 32)).rounded(length, share) for r in range(ranks)]
    left = np.sum(shares[colluding:], axis=0) / deviation
    assert abs(left.var() - 1) < 4 * math.sqrt(2 / length)
    assert stats.kstest(left, stats.norm.cdf).pvalue > 0.01
    total = np.sum(shares, axis=0) / deviation
    assert abs(total.var() - ranks / (ranks - colluding)) < 8 * math.sqrt(2 / length)
    assert share_deviation(1, 4) == 0.5
    with pytest.raises(ValueError, match="3 of 3"):
        share_deviation(1, 3, 3)


@pytest.mark.parametrize("s", [0.5, 0.6, 0.7])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_rounded_shares_are_one_rounded_gaussian_within_the_bound(ranks, s):
    """The docstring's bound, at deviations so small that it can be seen."""
    k = np.arange(-60, 61)
    one = stats.norm.cdf((k + 0.5) / s) - stats.norm.cdf((k - 0.5) / s)
    shares = one
    for _ in range(ranks - 1):
        shares = np.convolve(shares, one)[60:-60]
    # The density of a Gaussian and as many uniforms as ranks, at k: by the midpoint rule.
    steps = 200
    of_uniforms, uniform = np.ones(1), np.ones(steps) / steps
    for _ in range(ranks):
        of_uniforms = np.convolve(of_uniforms, uniform)
    at = (np.arange(len(of_uniforms)) - (len(of_uniforms) - 1) / 2) / steps
    whole = stats.norm.pdf(k[:, None] - at, scale=s * math.sqrt(ranks)) @ of_uniforms
    t = 2.1 * sum(math.exp(-2 * math.pi**2 * s * s * r / (r + 1)) for r in range(1, ranks))
    seen = np.abs(k) <= 6 * s * math.sqrt(ranks)
    worst = np.abs(np.log(shares[seen] / whole[seen])).max()
    assert t / 20 < worst <= t


@pytest.mark.parametrize("q", [0.001, 0.1, 0.5, 1 - 2**-10])
def test_rows_are_sampled_with_the_probability_asked_for(q):
    one, rows = Noise(SECRET), 2_000_003
    chosen = one.sample(rows, q)
    assert chosen.dtype == bool and len(chosen) == rows
    deviation = math.sqrt(q * (1 - q) * rows)
    assert abs(chosen.sum() - q * rows) < 4 * deviation
    both = (chosen[1:] & chosen[:-1]).sum(), (chosen & one.sample(rows, q)).sum()
    for found in both:
        assert abs(found - q * q * rows) < 6 * q * math.sqrt(rows) + 10


def test_a_probability_of_one_takes_all_rows_and_zero_is_refused():
    assert Noise(SECRET).sample(5, 1.0).all()
    for q in (0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="sampling probability"):
            Noise(SECRET).sample(5, q)


def test_nothing_asked_for_is_nothing():
    assert Noise(SECRET).rounded(0, 1e6).shape == Noise(SECRET).sample(0, 0.5).shape == (0,)


PROGRAM = """
import sys
sys.modules["cryptography"] = None
from fedmpi.privacy.noise import Noise
try:
    Noise()
except Exception as error:
    print(type(error).__name__, error, "numpy.random" in sys.modules)
"""


def test_a_missing_package_is_named_and_no_other_generator_is_used():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.startswith("UserError") and "pip install '.[secure]'" in done.stdout
    assert done.stdout.split()[-1] == "False"
