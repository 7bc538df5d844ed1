"""Sums of integers, against Python's integers and fractions, which never wrap or round."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from fedmpi.federation.exchange import DONE
from fedmpi.models.fixed_point import (
    BEYOND,
    CHANGE_LIMIT,
    CHUNK,
    LOSS_LIMIT,
    NOT_FINITE,
    ExactSum,
    FixedPoint,
    in_lines,
    is_whole,
    units_of,
)
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import cross_entropy

LIMITS_AND_ADDENDS = [
    (limit, addends)
    for limit in (CHANGE_LIMIT, LOSS_LIMIT, LOSS_LIMIT**2, 3.0)
    for addends in (1, 2, 3, 40, 64, 65, 10**6)
]


def nearest(number: float, bits: int) -> int:
    """The multiple of 2^-bits nearest to `number`, ties to even: by fractions."""
    return round(Fraction(number) * 2**bits)


def exact_sum(length: int, limit: float = CHANGE_LIMIT, addends: int = 40) -> ExactSum:
    return ExactSum(np.full(length + 1, 7, dtype=np.uint64), FixedPoint(limit, addends))


def test_adult_has_the_bits_that_are_documented():
    """40 clients, and the limit of a change: 2^-47."""
    assert FixedPoint(2.0**7, units_of(np.full(40, 754))).bits == 47


@pytest.mark.parametrize(("limit", "addends"), LIMITS_AND_ADDENDS)
def test_the_largest_addends_do_not_overflow_and_one_bit_more_might(limit, addends):
    fixed = FixedPoint(limit, addends)
    largest = int(fixed.integers(np.array([limit])).view(np.int64)[0])
    assert largest == nearest(limit, fixed.bits)
    assert addends * largest <= 2**62  # within an int64, with either sign
    # Not many bits are wasted: limit and addends are rounded up to powers of two, once each.
    assert 4 * addends * largest > 2**62 // (1 if addends > 1 else 2)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_the_largest_addends_come_back(sign):
    addends = 40
    fixed = FixedPoint(CHANGE_LIMIT, addends)
    total = np.zeros(3, dtype=np.uint64)
    for _ in range(addends):
        total += fixed.integers(np.full(3, sign * CHANGE_LIMIT))
    assert fixed.numbers(total).tolist() == [sign * addends * CHANGE_LIMIT] * 3


def test_numbers_come_back_to_half_a_unit():
    fixed = FixedPoint(CHANGE_LIMIT, 40)
    rng = np.random.default_rng(0)
    numbers = rng.uniform(-CHANGE_LIMIT, CHANGE_LIMIT, 1000) * 2.0 ** rng.integers(-60, 1, 1000)
    integers = fixed.integers(numbers)
    assert integers.dtype == np.uint64
    assert integers.view(np.int64).tolist() == [nearest(v, fixed.bits) for v in numbers.tolist()]
    assert np.abs(fixed.numbers(integers) - numbers).max() <= 2.0 ** -(fixed.bits + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, 5, CHUNK - 1, CHUNK, CHUNK + 3])
def test_a_sum_is_that_of_pythons_integers(dtype, length):
    units = 3
    rng = np.random.default_rng(length)
    changes = torch.from_numpy(rng.normal(size=(units, length)) * 20).clamp(-128, 128).to(dtype)
    total = exact_sum(length)
    for change in changes:
        total.add(change)
    total.put_flag(0.0)
    looked_at = [*range(min(length, 300)), length - 1]
    bits = total.fixed.bits
    sums = [sum(nearest(float(c[i]), bits) for c in changes) for i in looked_at]
    assert total.buffer.view(np.int64)[looked_at].tolist() == sums
    assert total.flag() == 0.0
    numbers = torch.empty(length, dtype=torch.float64)
    total.read(numbers)
    assert [Fraction(numbers[i].item()) for i in looked_at] == [
        Fraction(float(Fraction(s, 2**bits))) for s in sums
    ]


def test_noise_is_added_and_the_next_sum_begins_without_it():
    total = exact_sum(CHUNK + 1)
    noise, change = np.arange(CHUNK + 1), torch.ones(CHUNK + 1)
    one = nearest(1.0, total.fixed.bits)
    for before, expected in ((False, noise), (True, noise + one), (False, noise)):
        total.clear()
        if before:
            total.add(change)
        total.add_integers(noise)
        total.put_flag(0.0)
        assert (total.total == expected).all()
    total.clear()
    total.put_flag(3.0)
    assert not total.total.any() and total.flag() == 3.0


def test_the_order_of_the_addends_and_of_the_ranks_changes_no_bit():
    rng = np.random.default_rng(1)
    changes = torch.from_numpy(rng.normal(size=(12, 50)).astype(np.float32))
    by_layout = []
    for ranks in (1, 3, 5):
        parts = [exact_sum(50) for _ in range(ranks)]
        for i in rng.permutation(12):
            parts[i % ranks].add(changes[i])
        by_layout.append(sum((part.buffer for part in parts), np.zeros(51, dtype=np.uint64)))
    assert (by_layout[0] == by_layout[1]).all() and (by_layout[0] == by_layout[2]).all()
    floats = {
        tuple(changes[list(order)].sum(0).tolist()) for order in (range(12), range(11, -1, -1))
    }
    assert len(floats) == 2  # floats do depend on the order


def test_a_sum_of_integers_is_nearer_than_one_of_floats():
    """The float64 sum of float32 addends has so many digits more that it serves as the truth."""
    rng = np.random.default_rng(2)
    changes = torch.from_numpy((rng.normal(size=(40, 2000)) * 0.01).astype(np.float32))
    total = exact_sum(2000)
    in_float32 = torch.zeros(2000)
    for change in changes:
        total.add(change)
        in_float32 += change
    true = changes.double().sum(0)
    read = torch.empty(2000, dtype=torch.float64)
    total.read(read)
    error, error_of_floats = (read - true).abs(), (in_float32.double() - true).abs()
    assert error.max() <= 40 * 2.0 ** -(total.fixed.bits + 1)
    assert error.max() < error_of_floats.max() / 1e5


@pytest.mark.parametrize(
    ("value", "beyond"),
    [
        (math.nan, False),
        (math.inf, False),
        (-math.inf, False),
        (np.nextafter(CHANGE_LIMIT, math.inf), True),
        (-np.nextafter(CHANGE_LIMIT, math.inf), True),
        (1e300, True),
    ],
)
def test_what_cannot_be_added_is_noted_and_nothing_is_added(value, beyond):
    total = exact_sum(3)
    total.add(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
    before = total.buffer.copy()
    total.add(torch.tensor([0.0, value, 1.0], dtype=torch.float64))
    assert (total.buffer == before).all()
    assert (total.beyond, total.not_finite) == (beyond, not beyond)
    total.put_flag(0.0)
    assert math.isnan(total.flag()) and total.beyond == beyond
    total.clear()
    assert not total.beyond and not total.not_finite
    total.put_flag(0.0)
    assert not total.buffer.any()


def test_the_limit_itself_is_added():
    total = exact_sum(2)
    total.add(torch.tensor([CHANGE_LIMIT, -CHANGE_LIMIT]))
    total.put_flag(0.0)
    read = torch.empty(2)
    total.read(read)
    assert read.tolist() == [CHANGE_LIMIT, -CHANGE_LIMIT] and total.flag() == 0.0


@pytest.mark.parametrize(
    ("losses", "may", "beyond", "not_finite"),
    [
        ([0.0, LOSS_LIMIT], True, False, False),
        ([], True, False, False),
        ([1.0, LOSS_LIMIT * 1.001], False, True, False),
        ([1.0, math.nan], False, False, True),
        # No loss is infinite and within a limit.
        ([1.0, math.inf], False, True, True),
    ],
)
def test_losses_beyond_the_limit_are_noted(losses, may, beyond, not_finite):
    total = exact_sum(1)
    assert total.may_add(torch.tensor(losses, dtype=torch.float64)) is may
    assert (total.beyond, total.not_finite) == (beyond, not_finite)


@pytest.mark.parametrize("secret", [True, False])
def test_what_is_secret_is_not_in_the_memory_that_ranks_share(secret):
    """Until it is masked: whoever masks it, copies it there."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 2))
    shared, fixed = np.full(9, 7, dtype=np.uint64), FixedPoint(CHANGE_LIMIT, 4)
    cpu = torch.device("cpu")
    model = FlatModel(module, torch.float32, cpu, 1, buffer=shared, fixed=fixed, secret=secret)
    x, y = torch.ones(2, 3), torch.tensor([0, 1])
    untouched = []
    for _ in range(2):
        model.clear_sums()
        model.add_gradient(x, y, cross_entropy, lambda losses: torch.tensor([1.0, 2.0]))
        model.close_unit()
        model.to_mpi()
        untouched.append((shared == 7).all())
        model.exact.own[:] += np.uint64(1)
        shared[:] = model.exact.own
        assert model.flag() == 1.0
        model.from_mpi()
        assert model.change.any()
        shared[:] = 7
    assert untouched == [secret, secret]


def flag_over(ranks: list[ExactSum]) -> ExactSum:
    """The sum of the ranks' buffers, as MPI has it."""
    total = exact_sum(1)
    total.buffer[:] = np.sum([rank.buffer for rank in ranks], axis=0, dtype=np.uint64)
    return total


@pytest.mark.parametrize("size", [2, 3, 1000])
def test_flags_of_ranks_are_summed(size):
    def ranks_with(**flags: float) -> list[ExactSum]:
        ranks = [exact_sum(1) for _ in range(size)]
        for i, rank in enumerate(ranks):
            rank.put_flag(flags.get(f"rank{i}", flags.get("others", 0.0)))
        return ranks

    assert flag_over(ranks_with()).flag() == 0
    assert flag_over(ranks_with(rank1=1.0)).flag() == 1
    assert flag_over(ranks_with(others=1.0)).flag() == size
    # The server says that the run is done, whatever signals the other ranks have got.
    assert flag_over(ranks_with(rank0=DONE, others=1.0)).flag() == DONE + size - 1 < 0
    diverged = flag_over(ranks_with(rank0=math.nan, others=1.0))
    assert math.isnan(diverged.flag()) and not diverged.beyond
    assert math.isnan(flag_over(ranks_with(rank0=DONE, rank1=math.nan)).flag())


@pytest.mark.parametrize("size", [2, 500])
def test_flags_of_ranks_that_could_not_add_are_told_apart(size):
    """Also if all ranks have it, and if the server is done at the same time."""
    for value, beyond in ((math.nan, False), (1e9, True)):
        for bad in (1, size):
            for server in (0.0, 1.0, DONE):
                ranks = [exact_sum(1) for _ in range(size)]
                for rank in ranks[:bad]:
                    rank.add(torch.tensor([value]))
                for rank, flag in zip(ranks, [server] + [0.0] * (size - 1), strict=True):
                    rank.put_flag(flag)
                total = flag_over(ranks)
                assert math.isnan(total.flag()) and total.beyond is beyond, (value, bad, server)


@pytest.mark.parametrize(("dtype", "of_line"), [(torch.float32, 16), (torch.float64, 8)])
@pytest.mark.parametrize("width", [1, 7, 8, 16, 17, 100])
def test_rows_begin_at_lines_and_are_the_same(dtype, of_line, width):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(5, width))).to(dtype)
    table = in_lines(x)
    assert torch.equal(table, x) and table.shape == x.shape and table.dtype == dtype
    assert table.stride(0) % of_line == 0 and table.stride(1) == 1
    assert table.stride(0) - width < of_line
    assert all(row.data_ptr() % 64 == table.data_ptr() % 64 for row in table)


def test_images_and_bytes_stay_as_they_are():
    image, of_bytes = torch.zeros(2, 1, 28, 28), torch.zeros(3, 5, dtype=torch.uint8)
    assert in_lines(image) is image and in_lines(of_bytes) is of_bytes


def test_units_bound_the_clients_and_as_many_shares_of_noise():
    assert units_of(np.array([1, 0, 13, 100])) >= 2 * 3
    assert units_of(np.array([1, 0, 13, 100])) == units_of(np.array([500, 2, 7]))


@pytest.mark.parametrize("told", [0, 3, int(DONE), int(DONE) + 40, 5 * NOT_FINITE, 40 * BEYOND + 7])
def test_a_sum_is_told_from_masked_numbers(told):
    """Whatever the ranks' flags say in it. Zeros are the server's own part of a sum."""
    sums = np.array([2**62, -(2**62), 5, 0, *range(60)])
    whole = np.append(sums, told).astype(np.int64).view(np.uint64)
    assert is_whole(whole)
    assert not is_whole(np.append(np.zeros(64, np.uint64), whole[-1]))
    masks = np.random.default_rng(0).integers(0, 2**64, (1000, 65), dtype=np.uint64)
    assert not any(is_whole(whole + mask) for mask in masks)
    for place in (0, 1, 2):  # one number that is beyond, on either side
        for beyond in (2**62 + 1, 2**63):
            odd = whole.copy()
            odd[place] = beyond
            assert not is_whole(odd)
