"""What leaves a client rank under --secure, seen at MPI and in shared memory: numbers like noise.

The recorder of test_privacy.py, on a server and three client ranks. Thresholds are such that the
tests fail by chance once in a billion times.
"""

import itertools

import numpy as np
import pytest
from given import CLASSES, FEATURES, GROUPS, TABLES, Given, record
from recorder import EVAL_EVERY, ROUNDS, SECRET
from runs import Run
from scipy import stats

pytestmark = [pytest.mark.launch, pytest.mark.once]
THETA = 512 * (FEATURES + 1) + CLASSES * (512 + 1)
SCORES = GROUPS * (2 + CLASSES**2)
CLIENTS = (1, 2, 3)
CHANCE = 1e-9
SECURE = [name for name in SECRET if name.startswith("secure")]
CLEAR = [name for name in SECRET if not name.startswith("secure")]
PLAIN = {name: name.replace("secure", "exact") for name in SECURE if "private" not in name}
"""Runs that differ from those with masks in nothing else."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return record(tmp_path_factory.mktemp("secrecy"), ranks=4)


def messages(folder, run: str, rank: int, table: str) -> list[np.ndarray]:
    """All integers that a rank gives away in the rounds and after them, in order."""
    given = Given.read(folder, run, rank, table)
    calls = given.sent("rounds") + given.sent("end")
    return [call["buffer"] for call in calls if call.get("dtype") == "uint64"]


def numbers(folder, run: str, table: str) -> np.ndarray:
    """All integers that leave the client ranks."""
    return np.concatenate([part for k in CLIENTS for part in messages(folder, run, k, table)])


def chance_of_bytes(words: np.ndarray) -> float:
    """How likely it is that uniform bytes differ so much in how often they come."""
    return stats.chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue


def chance_of_bits(words: np.ndarray) -> float:
    """How likely it is that 64 fair coins differ so much from a half."""
    ones = np.array([np.sum(words >> np.uint64(bit) & np.uint64(1)) for bit in range(64)])
    return stats.chi2.sf(np.sum((2 * ones - len(words)) ** 2 / len(words)), 64)


def chance_of_the_same(one: np.ndarray, two: np.ndarray) -> float:
    """How likely it is that two samples of the same distribution differ so much.

    By how often each byte comes at each of the eight places of a number, and by how large the
    numbers are: Bonferroni's bound of the least of nine chances.
    """
    places = [
        [np.bincount(some.view(np.uint8)[i::8], minlength=256) for some in (one, two)]
        for i in range(8)
    ]
    tables = [np.array(place)[:, np.any(place, axis=0)] for place in places]
    chances = [stats.chi2_contingency(table).pvalue for table in tables]
    sizes = [np.abs(some.view(np.int64).astype(float)) for some in (one, two)]
    return 9 * min(*chances, stats.ks_2samp(*sizes).pvalue)


def assert_uniform(words: np.ndarray) -> None:
    assert chance_of_bytes(words) > CHANCE and chance_of_bits(words) > CHANCE
    assert len(np.unique(words)) == len(words)  # of 2^64 so few do not meet


@pytest.mark.parametrize("run", SECRET)
def test_a_round_sends_as_many_numbers_as_without_masks(folder, run):
    """The table of docs/privacy.md, in integers; seconds and checksum are of the rank itself."""
    shared = run.endswith("-hierarchical")
    losses, changes = ("tells", "shares") if shared else ("Ireduce", "Iallreduce")
    for table, rank in itertools.product(TABLES, CLIENTS):
        given = Given.read(folder, run, rank, table)
        for t in range(1, ROUNDS + 1):
            evaluated = t % EVAL_EVERY == 0 or t in (1, ROUNDS)
            expected = [(losses, GROUPS, "uint64")] * (evaluated or "fedavg" not in run)
            expected.append((changes, THETA + 1, "uint64"))
            expected += [("Igatherv", 2, "float64")] * evaluated
            expected += [("Ireduce", SCORES, "uint64")] * (evaluated and "validate" in run)
            sent = given.sent("rounds", t)
            assert [(c["call"], c["size"], c["dtype"]) for c in sent] == expected
        end = [(call["call"], call.get("size")) for call in given.sent("end")]
        assert end == [("Ireduce", SCORES)] * 2 + [("gather", None)]


@pytest.mark.parametrize("run", SECURE)
def test_what_leaves_a_rank_is_uniform(folder, run):
    for table in TABLES:
        words = numbers(folder, run, table)
        assert len(words) > 3 * ROUNDS * THETA
        assert_uniform(words)


@pytest.mark.parametrize("run", CLEAR)
def test_what_leaves_without_masks_is_not(folder, run):
    """So the test above can fail. Noise alone does not make numbers uniform."""
    words = numbers(folder, run, "one")
    assert chance_of_bytes(words) < CHANCE


@pytest.mark.parametrize("run", SECURE)
def test_what_a_rank_says_twice_has_no_mask_in_common(folder, run):
    """The difference of the changes of any two rounds is uniform: no mask is used again."""
    for rank in CLIENTS:
        changes = [m for m in messages(folder, run, rank, "one") if len(m) == THETA + 1]
        assert len(changes) == ROUNDS
        pairs = itertools.combinations(changes, 2)
        assert_uniform(np.concatenate([one - two for one, two in pairs]))


@pytest.mark.parametrize("run", SECURE)
def test_sums_of_some_ranks_are_uniform_and_the_sum_of_all_is_not(folder, run):
    """What passes through a rank on the way, or what two ranks know that collude."""
    of_ranks = [numbers_of(folder, run, rank) for rank in CLIENTS]
    for some in itertools.combinations(of_ranks, 2):
        assert_uniform(np.sum(some, axis=0))
    total = np.sum(of_ranks, axis=0)
    assert chance_of_bytes(total) < CHANCE
    assert np.abs(total.view(np.int64)).max() < 2**62  # as sums are, and as one in two numbers is


def numbers_of(folder, run: str, rank: int) -> np.ndarray:
    return np.concatenate(messages(folder, run, rank, "one"))


@pytest.mark.parametrize("run", PLAIN)
def test_masks_cancel(folder, run):
    """In the sum of every single message over the ranks; the plain ones are of the same run."""
    for table in TABLES:
        masked = [messages(folder, run, rank, table) for rank in CLIENTS]
        plain = [messages(folder, PLAIN[run], rank, table) for rank in CLIENTS]
        for parts, own in zip(zip(*masked, strict=True), zip(*plain, strict=True), strict=True):
            assert np.array_equal(np.sum(parts, axis=0), np.sum(own, axis=0))
            assert not any(np.any(part == mine) for part, mine in zip(parts, own, strict=True))
        runs = [Run(folder / f"{name}-{table}") for name in (run, PLAIN[run])]
        assert runs[0].result["receipt"]["sha256"] == runs[1].result["receipt"]["sha256"]


@pytest.mark.parametrize("run", SECURE)
def test_two_runs_on_other_data_cannot_be_told_apart(folder, run):
    assert chance_of_the_same(*(numbers(folder, run, table) for table in TABLES)) > CHANCE
    for rank in CLIENTS:
        changes = [np.concatenate(messages(folder, run, rank, table)) for table in TABLES]
        assert chance_of_the_same(*changes) > CHANCE


@pytest.mark.parametrize("run", CLEAR)
def test_without_masks_they_can(folder, run):
    assert chance_of_the_same(*(numbers(folder, run, table) for table in TABLES)) < 1e-6


def windows(folder, run: str, rank: int) -> list[np.ndarray]:
    """What lies in a rank's part of the window, within the passes of each round and after them."""
    calls = Given.read(folder, run, rank).calls
    return [call["buffer"] for call in calls if call["gives"] == "window"]


@pytest.mark.parametrize("run", [run for run in SECURE if run.endswith("-hierarchical")])
def test_the_window_holds_masked_numbers_and_what_all_have(folder, run):
    """While a rank computes, its part of the window is that of the round before: the sum of all."""
    shared = {
        rank: [call["buffer"] for call in given.sent("rounds") if call["call"] == "shares"]
        for rank in CLIENTS
        for given in [Given.read(folder, run, rank)]
    }
    totals = [np.sum(parts, axis=0) for parts in zip(*shared.values(), strict=True)]
    for rank in CLIENTS:
        seen = windows(folder, run, rank)
        assert len(seen) == 2 * ROUNDS and not any(np.any(first) for first in seen[:2])
        for t, total in enumerate(totals[:-1], start=1):
            assert all(np.array_equal(lies, total) for lies in seen[2 * t : 2 * t + 2])


def test_without_masks_the_window_holds_a_ranks_own_numbers(folder):
    for rank in CLIENTS:
        given = Given.read(folder, "exact-hierarchical", rank).sent("rounds")
        shares = [call["buffer"] for call in given if call["call"] == "shares"]
        seen = windows(folder, "exact-hierarchical", rank)[1::2]
        assert all(np.array_equal(a[:-1], b[:-1]) for a, b in zip(seen, shares, strict=True))


def test_what_ranks_tell_each_other_to_agree_on_masks(folder):
    """Versions; a hash of the key, then the key; a hash of all; proofs; and what went wrong."""
    node = [("allgather", "set"), ("allreduce", "int"), ("gather", "dict"), ("gather", "NoneType")]
    keys = [("gather", "str"), ("gather", "dict"), ("gather", "str")]
    keys += [("allgather", "bytes"), ("allgather", "Introduction"), ("gather", "str")]
    keys += [("gather", "bytes"), ("gather", "str"), ("Ialltoallv", None), ("gather", "list")]
    place = [("gather", "Room"), ("gather", "Place")]
    for run, agreed in (("exact", []), ("secure", keys)):
        for rank in CLIENTS:
            sent = Given.read(folder, run, rank).sent("set-up")
            assert [(c["call"], c.get("type")) for c in sent] == [*node, *agreed, *place]
    wrong = [c["value"] for c in sent if c.get("type") in ("str", "list")]
    assert wrong == ["''"] * 4 + ["[]"]
    (proofs,) = [c["size"] for c in sent if c["call"] == "Ialltoallv"]
    assert proofs == 32 * (len(CLIENTS) - 1)
