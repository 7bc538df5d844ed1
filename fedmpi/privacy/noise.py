"""Gaussian noise in integers, of which each rank adds a share; and batches that nobody knows.

Sums are sums of integers (`--sums exact`), so noise is integer as well: a Gaussian of deviation s
units, rounded. R ranks add shares of deviation sigma / sqrt(R) each, and no rank knows the sum.

What this costs beside one Gaussian of deviation sigma, which is what the accountant counts:

- One share is free. For an integer k, k + round(N) = round(k + N): a function of the output of a
  Gaussian mechanism.
- R shares are as good as free. Let f be the density of N + U, a Gaussian of variance s^2 plus what
  is uniform on [-1/2, 1/2]: P(round(N) = k) = f(k). The sum of r + 1 rounded shares is a sum over
  integers j, of f(j) g(k - j), where g is the density of r Gaussians and r uniforms. By Poisson's
  summation formula it differs from the integral, (f * g)(k), by the Fourier coefficients at the
  other integers m. Given the uniforms, f(j) g(k - j) is a Gaussian in j, of variance
  s^2 r / (r + 1), so these are at most exp(-2 pi^2 m^2 s^2 r / (r + 1)) of the integral. So the
  sum of R rounded shares has, within a factor e^t either way, the distribution of
  round(N(0, R s^2) + U_2 + ... + U_R), again a function of one Gaussian mechanism's output, with

      t <= 2.1 sum over r < R of exp(-2 pi^2 s^2 r / (r + 1)) <= 2.1 (R - 1) exp(-pi^2 s^2).

  (The exponents are those of Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism
  for Federated Learning with Secure Aggregation", 2021, for sums of discrete Gaussians: with a
  factor of 10.) A number adds 2 t to epsilon. At s = 2^10, the least that is allowed,
  exp(-pi^2 s^2) is 10^-4,494,000.
- c ranks that collude know their shares and take them off: (R - c) / R of the variance is left. A
  guarantee against c of them takes shares of deviation sigma / sqrt(R - c).
- Uniform numbers of 64 bits would cut the tail at 9.5 deviations, and leave gaps between the radii
  near the tail and near 0 that show in integers. The few numbers there get 64 bits more: the tail
  is cut at 13.4 deviations, with probability 2^-129 a pair, and radii and angles are less than a
  unit apart for deviations of up to 2^40, so no integer is left out.

Rounding the *data* is not free: a vector of P numbers, rounded to integers, moves by up to sqrt(P)
units more than the vector itself if a row is taken out. mechanism.py counts these.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import numpy as np

from fedmpi.errors import UserError

LEAST_DEVIATION = 2.0**10
MOST_DEVIATION = 2.0**40
RARE = 2**44
"""Of the 2^64 integers, how many at either end are given 64 bits more."""
AT_ONCE = 2**13
"""Numbers that are made at once: what they take of memory stays in a core's cache."""


class Noise:
    """A rank's own stream of secret random numbers: AES-256 in counter mode."""

    def __init__(self, secret: bytes | None = None) -> None:
        """Begin the stream of `secret`, 32 bytes; by default the system's best random ones.

        Whoever knows the secret can take the noise off. It is never sent and never stored: a run
        that resumes begins another stream.
        """
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        except ImportError as missing:
            raise UserError(
                f"noise needs {missing.name}: ./launch/setup.sh secure, or pip install '.[secure]'."
            ) from missing
        secret = os.urandom(32) if secret is None else secret
        if len(secret) != 32:
            raise ValueError(f"a secret of {len(secret)} bytes, not 32")
        self._stream = Cipher(algorithms.AES256(secret), modes.CTR(bytes(16))).encryptor()
        self._zeros = bytes(8 * AT_ONCE)

    def rounded(self, length: int, deviation: float) -> np.ndarray:
        """Return `length` Gaussian numbers of this deviation, rounded to integers (int64)."""
        if not LEAST_DEVIATION <= deviation <= MOST_DEVIATION:
            raise ValueError(
                f"noise of deviation {deviation:g} units: allowed are 2^10 to 2^40; choose a "
                "finer or a coarser unit."
            )
        noise = np.empty(length, dtype=np.int64)
        for part in parts(length):
            pairs = (part.stop - part.start + 1) // 2
            # Box and Muller: a radius and an angle give two Gaussian numbers.
            radius = self._exponential(pairs)
            radius *= 2 * deviation * deviation
            np.sqrt(radius, out=radius)
            angle = np.multiply(self._integers(pairs), 2 * math.pi * 2.0**-64)
            two = np.empty((2, pairs))
            np.cos(angle, out=two[0])
            np.sin(angle, out=two[1])
            two *= radius
            noise[part] = np.rint(two, out=two).reshape(-1)[: part.stop - part.start]
        return noise

    def sample(self, rows: int, q: float) -> np.ndarray:
        """Return for each of the rows whether it is in a batch: with probability `q`, each alone.

        The probability is q to 2^-64.
        """
        if not 0 < q <= 1:
            raise ValueError(f"a sampling probability of {q}")
        chosen = np.ones(rows, dtype=bool)
        if q < 1:
            limit = np.uint64(int(math.ldexp(q, 64)))
            for part in parts(rows):
                np.less(self._integers(part.stop - part.start), limit, out=chosen[part])
        return chosen

    def _exponential(self, number: int) -> np.ndarray:
        """-log of numbers that are uniform between 0 and 1, as precise as a double at both ends."""
        bits = self._integers(number)
        found = np.add(bits, 0.5, dtype=np.float64)
        found *= 2.0**-64
        np.log(found, out=found)
        np.negative(found, out=found)
        rare = np.flatnonzero(bits + np.uint64(RARE) < np.uint64(2 * RARE))  # modulo 2^64
        for i, more in zip(rare, self._integers(len(rare)), strict=True):
            # u = (k + 1/2) / 2^128, or its distance from 1
            k = (int(bits[i]) << 64) + int(more)
            if k < 2**127:
                found[i] = 129 * math.log(2) - math.log(2 * k + 1)
            else:
                found[i] = -math.log1p(-math.ldexp(2 * (2**128 - k) - 1, -129))
        return found

    def _integers(self, number: int) -> np.ndarray:
        """The next 64-bit integers of the stream."""
        return np.frombuffer(self._stream.update(self._zeros[: 8 * number]), dtype=np.uint64)


def share_deviation(deviation: float, ranks: int, colluding: int = 0) -> float:
    """Return the deviation of each rank's share of noise that has `deviation` in sum.

    The noise has it still when so many colluding ranks have taken their own shares off.
    """
    if not 0 <= colluding < ranks:
        raise ValueError(f"{colluding} of {ranks} ranks collude: at least one must not")
    return deviation / math.sqrt(ranks - colluding)


def parts(length: int) -> Iterator[slice]:
    """Cut `length` into pieces of AT_ONCE."""
    for start in range(0, length, AT_ONCE):
        yield slice(start, min(start + AT_ONCE, length))
