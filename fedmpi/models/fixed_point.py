"""Sums of integers: the same bits whoever is added first, --sums exact.

A sum of floating-point numbers depends on the order of its addends, so on the number of ranks, on
the MPI library and on how this library adds. A sum of integers does not. So each unit of work (the
change of one client, which has the same bits on any layout) is rounded once, to a multiple of
2^-bits, and the multiples are added as integers of 64 bits, modulo 2^64:

    integer = round(number × 2^bits),    bits = 62 - log2(limit) - ⌈log2(addends)⌉

With at most `addends` addends, none beyond ±limit, a sum is within ±2^62, and what is read back is
the sum itself, not the sum modulo 2^64. An addend beyond the limit is not added: its rank tells all
ranks by the flag that is summed with the changes, and the round ends with a line.

For Adult (40 clients, limit 2^7) a change of theta is a multiple of 2^-47: a float32 of theta's
size, 0.1, has a last digit that is a million times as large.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

CHANGE_LIMIT = 2.0**7
"""Largest change of one parameter that a client may ask for."""
LOSS_LIMIT = 2.0**16
"""Largest loss of a row."""
CHUNK = 2**14
"""Numbers that are converted at a time: what is between float and integer stays in the cache."""

NOT_FINITE, BEYOND = 2**40, 2**50
"""Parts of the flag that is summed with the changes: of ranks whose change is not finite, and of
ranks whose change is beyond the limit. Below are what floats tell, too: stop, or done."""


def units_of(client_sizes: np.ndarray) -> int:
    """Bound of the number of units of a round, from numbers that no layout changes.

    Each client with rows has one. Four times as many, because ranks may add shares of noise.
    """
    return 4 * int(np.count_nonzero(client_sizes))


class FixedPoint:
    """Multiples of 2^-bits, of which any `addends` within ±limit sum to less than 2^63."""

    def __init__(self, limit: float, addends: int, most_bits: int = 62) -> None:
        self.limit = limit
        bits = 62 - math.ceil(math.log2(limit)) - max(0, addends - 1).bit_length()
        self.bits = min(bits, most_bits)
        self.scale = 2.0**self.bits

    def integers(self, numbers: np.ndarray) -> np.ndarray:
        """Round numbers, all of them within the limit times their rows, to integers mod 2^64."""
        return np.rint(numbers * self.scale).astype(np.int64).view(np.uint64)

    def numbers(self, integers: np.ndarray) -> np.ndarray:
        """Return the numbers that these integers mod 2^64 are multiples of 2^-bits of."""
        return integers.view(np.int64) / self.scale


def is_whole(numbers: np.ndarray) -> bool:
    """Return whether integers mod 2^64, a flag the last, are a sum, and not masked numbers.

    Masked numbers are uniform. A sum is within ±2^62, and what its flag has below NOT_FINITE is
    within ±2^21: by chance P masked numbers and a flag are so with probability 2^-(P + 18). Zeros
    are no sum, but what the server, which has no mask, adds to one.
    """
    sums, flag = numbers[:-1], int(numbers[-1:].view(np.int64)[0])
    within = sums + np.uint64(2**62) <= np.uint64(2**63)  # modulo 2^64
    return bool((flag + 2**21) % NOT_FINITE < 2**22 and sums.any() and within.all())


class ExactSum:
    """The sum of the units of a rank as integers, and then of all ranks; the flag is last."""

    def __init__(self, buffer: np.ndarray, fixed: FixedPoint, secret: bool = False) -> None:
        """Sum in `buffer`, the memory that MPI sums; if it is `secret`, in memory of its own.

        The ranks of a host may share the buffer: what is secret gets there when it is masked.
        """
        self.buffer, self.fixed = buffer, fixed
        self.own = np.empty_like(buffer) if secret else buffer
        """This rank's sum, until the ranks' sums are added."""
        self.total = self.own[:-1].view(np.int64)
        self._float = np.empty(CHUNK)
        self._integers = np.empty(CHUNK, dtype=np.int64)
        self.clear()

    def clear(self) -> None:
        """Begin another sum. Its first unit overwrites the numbers of the sum before."""
        self.own[-1] = 0
        self._empty = True
        self.beyond = self.not_finite = False

    def add(self, change: Tensor) -> None:
        """Add a unit's change, rounded once; one that is not within the limit is noted instead."""
        numbers = change.numpy()
        largest = max(-float(numbers.min()), float(numbers.max()))
        if not math.isfinite(largest):
            self.not_finite = True
        elif largest > self.fixed.limit:
            self.beyond = True
        else:
            for part in chunks(len(numbers)):
                # By a power of two: float32 loses no bit, and takes half of the memory.
                scaled = self._float.view(numbers.dtype)[: len(numbers[part])]
                np.multiply(numbers[part], self.fixed.scale, out=scaled)
                self._add_to(part, np.rint(scaled, out=scaled))
            self._empty = False

    def add_integers(self, integers: np.ndarray) -> None:
        """Add multiples of 2^-bits, as noise."""
        for part in chunks(len(integers)):
            self._add_to(part, integers[part])
        self._empty = False

    def _add_to(self, part: slice, whole: np.ndarray) -> None:
        """Add whole numbers, integers or floats, to a part of the sum."""
        if self._empty:
            self.total[part] = whole
        else:
            integers = self._integers[: len(whole)]
            integers[:] = whole
            self.total[part] += integers

    def may_add(self, losses: Tensor) -> bool:
        """Return whether the losses of rows are all within the limit; note it if they are not."""
        low, high = (float(end) for end in torch.aminmax(losses)) if len(losses) else (0.0, 0.0)
        self.not_finite |= not (math.isfinite(low) and math.isfinite(high))
        self.beyond |= max(-low, high) > LOSS_LIMIT
        return not (self.not_finite or self.beyond)

    def put_flag(self, flag: float) -> None:
        """End the rank's sum with its flag, with what `add` has noted, as an integer."""
        code = int(flag) if math.isfinite(flag) else NOT_FINITE
        code += NOT_FINITE * self.not_finite + BEYOND * self.beyond
        self.own[-1] = np.int64(code).view(np.uint64)
        if self._empty:
            self.total[:] = 0

    def flag(self) -> float:
        """Return the sum of all ranks' flags: NaN if a change of any rank could not be added."""
        code = int(self.buffer[-1].view(np.int64))
        self.beyond = code >= BEYOND // 2
        return math.nan if code >= NOT_FINITE // 2 else float(code)

    def read(self, into: Tensor) -> None:
        """Write the sum of all ranks, as numbers, to `into`."""
        numbers, unit, total = into.numpy(), 1 / self.fixed.scale, self.buffer[:-1].view(np.int64)
        for part in chunks(len(numbers)):
            scaled = self._float[: len(numbers[part])]
            scaled[:] = total[part]
            numbers[part] = np.multiply(scaled, unit, out=scaled)


def chunks(length: int) -> list[slice]:
    """Cut `length` numbers into chunks."""
    return [slice(start, start + CHUNK) for start in range(0, length, CHUNK)]


def in_lines(x: Tensor) -> Tensor:
    """Return a table whose rows each begin a cache line; the same numbers.

    The last bits of a matrix product may depend on where in a line its factors begin. The rows of a
    client begin at another place on another layout, so each row begins at the same.
    """
    if x.dim() != 2 or not x.is_floating_point():
        return x
    of_line = 64 // x.element_size()
    wide = -(-x.shape[1] // of_line) * of_line
    table = x.new_zeros(len(x), wide)[:, : x.shape[1]]
    return table.copy_(x)
