"""Masks without MPI: several parties in one process, from what they would tell each other."""

from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import chi2

from fedmpi.errors import UserError
from fedmpi.mpi.ranks import AgreedError
from fedmpi.privacy.agreement import Party, Transcript
from fedmpi.privacy.graph import ALL_PAIRS, too_few
from fedmpi.privacy.masks import CHUNK, Masks, MaskUsedTwice, Message, disagreement

LENGTHS = (1, 2, 3, 1001, CHUNK, 2 * CHUNK + 5)


def agreed(clients: int, run: str = "") -> list[Party]:
    """Client ranks 1, 2, ... that have heard each other."""
    parties = [Party(number, f"rank-{number}") for number in range(1, clients + 1)]
    told = [party.introduction for party in parties]
    for party in parties:
        party.hear(
            Transcript.checked(
                range(1, clients + 1), [intro.commitment for intro in told], told, run
            )
        )
    return parties


def masks_of(parties: list[Party], numbers: list[int] | None = None) -> list[Masks]:
    numbers = numbers or [party.number for party in parties]
    return [Masks(party.transcript, party, numbers) for party in parties]


def shrunk(numbers: list[int]) -> SimpleNamespace:
    """What Masks.among reads of the ranks that are left."""
    return SimpleNamespace(numbers=[0, *numbers], client_ranks=list(range(1, len(numbers) + 1)))


def summed(masks: list[Masks], values: list[np.ndarray], *when) -> np.ndarray:
    total = np.zeros_like(values[0])
    for some, value in zip(masks, values, strict=True):
        masked = value.copy()
        some.add(masked, *when)
        assert value.size < 3 or not np.any(masked == value)
        total += masked
    return total


@pytest.mark.parametrize("clients", [2, 3, 7, ALL_PAIRS + 6])
def test_masks_cancel_in_the_sum_and_nowhere_before(clients):
    masks = masks_of(agreed(clients))
    rng = np.random.default_rng(clients)
    for t, length in enumerate(LENGTHS if clients < 10 else LENGTHS[:4]):
        values = [rng.integers(0, 2**64, length, dtype=np.uint64) for _ in masks]
        exact = [sum(map(int, column)) % 2**64 for column in zip(*values, strict=True)]
        assert summed(masks, values, t, 0, Message.CHANGES).tolist() == exact


def test_two_dimensions_are_masked_as_one():
    first, second = masks_of(agreed(2))
    flat, table = np.zeros(12, np.uint64), np.zeros((3, 4), np.uint64)
    first.add(flat, 1, 0, Message.LOSSES)
    second.add(table, 1, 0, Message.LOSSES)
    assert np.array_equal(flat, -table.reshape(-1))


def test_masked_numbers_are_copied_out():
    party = agreed(3)[0]
    one, other = (Masks(party.transcript, party, [1, 2, 3]) for _ in range(2))
    in_place, numbers = np.arange(CHUNK + 3, dtype=np.uint64), np.arange(CHUNK + 3, dtype=np.uint64)
    out = np.zeros_like(numbers)
    one.add(in_place, 1, 0, Message.CHANGES)
    other.add(numbers, 1, 0, Message.CHANGES, out)
    assert np.array_equal(out, in_place) and np.array_equal(numbers, in_place)
    server, zeros = Masks(party.transcript, None, [1, 2, 3]), np.zeros(3, np.uint64)
    server.add(zeros, 1, 0, Message.CHANGES, out[:3])
    assert not out[:3].any()


def stream(key: bytes, t: int, attempt: int, message: int, length: int) -> list[int]:
    """The stream of a pair by hand: AES of counter blocks, one by one."""
    aes = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    made = b""
    for block in range((length + 1) // 2):
        chunk, within = divmod(block, CHUNK // 2)
        counter = (t << 96) + (attempt << 80) + (message << 64) + (chunk << 32) + within + 2
        made += aes.update(counter.to_bytes(16, "big"))
    return [int.from_bytes(made[8 * i : 8 * i + 8], "little") for i in range(length)]


@pytest.mark.parametrize("length", [1, 7, CHUNK + 3])
def test_a_mask_is_the_sum_of_the_streams_of_its_pairs(length):
    """The lower rank adds, the higher subtracts; also when a message of odd length came before."""
    parties = agreed(3)
    masks = masks_of(parties)
    when = (2**32 - 1, 65535, Message.SCORES_MEAN)
    keys = [parties[1].keys_with(other).stream for other in (1, 3)]
    below, above = (stream(key, *when, length) for key in keys)
    for t, attempt in ((1, 0), when[:2]):
        masked = np.full(length, 5, np.uint64)
        masks[1].add(masked, t, attempt, Message.SCORES_MEAN)
    assert masked.tolist() == [(5 + b - a) % 2**64 for a, b in zip(below, above, strict=True)]


def test_every_message_attempt_and_round_has_a_mask_of_its_own():
    masks = masks_of(agreed(3))[0]
    seen = []
    for t in (0, 1, 2, 255, 256, 65536, 2**32 - 1):
        for attempt in (0, 1, 256, 65535):
            for message in Message:
                numbers = np.zeros(50, np.uint64)
                masks.add(numbers, t, attempt, message)
                seen += numbers.tolist()
    assert len(set(seen)) == len(seen)


def test_a_launch_never_meets_the_masks_of_another():
    one, two = (masks_of(agreed(2, "the same run"))[0] for _ in range(2))
    seen = [np.zeros(50, np.uint64) for _ in range(2)]
    for masks, numbers in zip((one, two), seen, strict=True):
        masks.add(numbers, 1, 0, Message.CHANGES)
    assert not np.intersect1d(*seen).size


def test_masked_numbers_are_uniform_whatever_is_masked():
    """Chi-square over the bytes, at a level of 1e-9, each of the 8 bytes of a number by itself."""
    limit = chi2.isf(1e-9, df=255)
    for masks in masks_of(agreed(3)):
        numbers = np.full(200_000, 12345, np.uint64)
        masks.add(numbers, 1, 0, Message.CHANGES)
        for column in numbers.view(np.uint8).reshape(-1, 8).T:
            counts = np.bincount(column, minlength=256)
            expected = len(column) / 256
            assert np.sum((counts - expected) ** 2) / expected < limit


def test_a_mask_is_never_used_twice():
    party = agreed(3)[0]
    for masks in (Masks(party.transcript, party, [1, 2, 3]), Masks(party.transcript, None, [])):
        numbers = np.zeros(4, np.uint64)
        for when in ((5, 0), (6, 0), (5, 1), (6, 1), (7, 0)):
            masks.add(numbers, *when, Message.LOSSES)
            masks.add(numbers, *when, Message.CHANGES)
        before = numbers.copy()
        for when in ((5, 0), (6, 0), (7, 0), (5, 1), (6, 1)):
            for again in (masks, masks.among(shrunk([1, 2]))):
                with pytest.raises(MaskUsedTwice, match=f"LOSSES in round {when[0]}"):
                    again.add(numbers, *when, Message.LOSSES)
        assert np.array_equal(numbers, before)


def test_what_has_no_block_of_its_own_is_refused():
    masks, numbers = masks_of(agreed(2))[0], np.zeros(2, np.uint64)
    for t, attempt in ((2**32, 0), (-1, 0), (0, 2**16), (0, -1)):
        with pytest.raises(ValueError, match="no mask for round"):
            masks.add(numbers, t, attempt, Message.LOSSES)
    for wrong in (np.zeros(2, np.int64), np.zeros(2), np.zeros(4, np.uint64)[::2]):
        with pytest.raises(TypeError, match="contiguous uint64"):
            masks.add(wrong, 1, 0, Message.LOSSES)
    assert not numbers.any()


def test_the_server_adds_nothing_and_has_the_fingerprint():
    party = agreed(3)[0]
    server = Masks(party.transcript, None, [1, 2, 3])
    numbers = np.arange(5, dtype=np.uint64)
    server.add(numbers, 1, 0, Message.LOSSES)
    assert numbers.tolist() == [0, 1, 2, 3, 4] and not server.neighbours
    assert server.fingerprint == Masks(party.transcript, party, [1, 2, 3]).fingerprint


@pytest.mark.parametrize(("clients", "left"), [(5, 3), (5, 2), (80, 75), (80, 66), (80, 9)])
def test_masks_cancel_among_the_ranks_that_are_left(clients, left):
    """Under their original numbers; also where the circle closes up, and when it becomes small."""
    rng = np.random.default_rng(left)
    parties = agreed(clients)
    masks = masks_of(parties)
    alive = sorted(rng.choice(clients, left, replace=False).tolist())
    now = [masks[i].among(shrunk([parties[i].number for i in alive])) for i in alive]
    values = [rng.integers(0, 2**64, 33, dtype=np.uint64) for _ in now]
    cut_off = [value.copy() for value in values]
    for i, value in zip(alive, cut_off, strict=True):
        masks[i].add(value, 4, 0, Message.CHANGES)
    total = summed(now, values, 4, 1, Message.CHANGES)
    assert np.array_equal(total, np.sum(values, axis=0, dtype=np.uint64))
    gone = {party.number for party in parties} - {parties[i].number for i in alive}
    assert not any(gone & set(some.neighbours) for some in now)


def test_the_last_client_rank_is_not_left_without_a_mask():
    masks = masks_of(agreed(3))[0]
    with pytest.raises(AgreedError, match="with one client rank"):
        masks.among(shrunk([1]))


def test_few_client_ranks_are_refused_or_warned_of():
    for clients in (0, 1):
        with pytest.raises(UserError, match=r"one client rank.*mpirun -n 4"):
            too_few(clients)
    assert "not from each other" in too_few(2)
    assert too_few(3) == too_few(40) == ""


def test_the_rank_that_all_disagree_with_is_named():
    transcript = agreed(5)[0].transcript
    assert "rank 3 (rank-3) does not have the same keys as ranks 1, 2, 5:" in disagreement(
        transcript, [(1, 3), (2, 3), (3, 5)]
    )
    one = disagreement(transcript, [(2, 4)])
    assert "rank 2 (rank-2) and rank 4 (rank-4) do not have the same keys:" in one
    assert "1 more pairs" in disagreement(transcript, [(1, 2), (3, 4)])
