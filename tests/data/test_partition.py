import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmpi.data.dataset import Dataset
from fedmpi.data.partition import SETTINGS, Partition, partition, single_client, spread_clients
from fedmpi.errors import UserError


def rows_of_groups(sizes: list[int], seed: int = 0) -> np.ndarray:
    rows = np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)
    return np.random.default_rng(seed).permutation(rows)


def names(number: int) -> tuple[str, ...]:
    return tuple(f"group {a}" for a in range(number))


def split(group_of_row, number, clients, setting, dataset=None, skew=50.0, seed=0) -> Partition:
    return partition(
        group_of_row, names(number), clients, setting, dataset or Dataset(), skew=skew, seed=seed
    )


def assert_consistent(made: Partition, group_of_row: np.ndarray) -> None:
    """Every row exactly once, and the numbers are those of the rows."""
    rows = [made.rows_of(k) for k in range(made.clients)]
    assert sorted(np.concatenate(rows)) == list(range(len(group_of_row)))
    for k, mine in enumerate(rows):
        assert (np.diff(mine) > 0).all()
        assert (made.client_of_row[mine] == k).all()
        counted = np.bincount(group_of_row[mine], minlength=len(made.groups))
        np.testing.assert_array_equal(made.counts[:, k], counted)
    assert made.client_of_row.dtype == np.int32
    assert made.counts.dtype == np.int64
    assert made.client_sizes.min() >= 1
    assert made.total == made.client_sizes.sum() == made.group_sizes.sum() == len(group_of_row)
    np.testing.assert_allclose(made.shares.sum(axis=0), 1)


@st.composite
def problems(draw, setting: str):
    number = draw(st.integers(3 if setting == "PSG" else 1, 8))
    fewest = {"ESG": 1, "PSG": 2, "SSG": number}[setting]
    clients = draw(st.integers(fewest, 60))
    sizes = draw(st.lists(st.integers(clients, clients + 200), min_size=number, max_size=number))
    skew = draw(st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 50.0, 1e6, 1e308]))
    return number, clients, rows_of_groups(sizes), skew, draw(st.integers(0, 2**32))


@settings(deadline=None)
@given(problems("ESG"))
def test_esg_deals_every_group_evenly(problem):
    number, clients, group_of_row, skew, seed = problem
    made = split(group_of_row, number, clients, "ESG", skew=skew, seed=seed)
    assert_consistent(made, group_of_row)
    assert np.ptp(made.counts, axis=1).max() <= 1
    assert np.ptp(made.client_sizes) <= 1


@settings(deadline=None)
@given(problems("PSG"))
def test_psg_gives_each_half_its_block(problem):
    number, clients, group_of_row, skew, seed = problem
    made = split(group_of_row, number, clients, "PSG", skew=skew, seed=seed)
    assert_consistent(made, group_of_row)
    half, (first, second) = (clients + 1) // 2, Dataset().psg_blocks(names(number))
    expected = np.zeros((number, clients), dtype=bool)
    expected[np.ix_(first, range(half))] = True
    expected[np.ix_(second, range(half, clients))] = True
    np.testing.assert_array_equal(made.counts > 0, expected)


@settings(deadline=None)
@given(problems("SSG"))
def test_ssg_gives_each_client_one_group(problem):
    number, clients, group_of_row, skew, seed = problem
    made = split(group_of_row, number, clients, "SSG", skew=skew, seed=seed)
    assert_consistent(made, group_of_row)
    held = np.repeat(np.arange(number), Dataset().ssg_clients(names(number), clients))
    np.testing.assert_array_equal(made.counts > 0, held == np.arange(number)[:, None])


@pytest.mark.parametrize("setting", SETTINGS)
def test_as_few_rows_as_possible(setting):
    clients = 8
    needed = {"ESG": 8, "PSG": 4, "SSG": 2}[setting]
    group_of_row = rows_of_groups([needed] * 4)
    made = split(group_of_row, 4, clients, setting, skew=0.01)
    assert_consistent(made, group_of_row)
    assert made.counts.max() == 1


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_seed_decides(setting):
    group_of_row = rows_of_groups([300, 200, 100])
    one = split(group_of_row, 3, 10, setting, seed=1)
    same = split(group_of_row, 3, 10, setting, seed=1)
    other = split(group_of_row, 3, 10, setting, seed=2)
    np.testing.assert_array_equal(one.client_of_row, same.client_of_row)
    assert one.digest() == same.digest() != other.digest()


@pytest.mark.parametrize("setting", ["PSG", "SSG"])
def test_a_group_is_split_the_same_whatever_the_others_are(setting):
    group_of_row = rows_of_groups([300, 200, 100])
    fewer = group_of_row[(group_of_row != 0) | (np.cumsum(group_of_row == 0) <= 150)]
    all_rows, some = (split(rows, 3, 10, setting) for rows in (group_of_row, fewer))
    for a in (1, 2):
        np.testing.assert_array_equal(
            all_rows.client_of_row[group_of_row == a], some.client_of_row[fewer == a]
        )


@pytest.mark.parametrize(("skew", "least", "most"), [(1e6, 0, 0.01), (50, 0.1, 0.2), (0.1, 2, 5)])
def test_skew_is_that_of_a_dirichlet(skew, least, most):
    """The coefficient of variation of a share is sqrt((m - 1) / (m C + 1)): .14 at C = 50."""
    group_of_row = rows_of_groups([20_000] * 3)
    sizes = np.stack(
        [split(group_of_row, 3, 60, "SSG", skew=skew, seed=s).client_sizes for s in range(5)]
    )
    assert least <= sizes.std() / sizes.mean() <= most
    assert sizes.mean() == 1000


@pytest.mark.parametrize(
    ("shares", "clients", "expected"),
    [
        ((10, 6, 6, 6, 6, 6), 40, [10, 6, 6, 6, 6, 6]),
        ((10, 6, 6, 6, 6, 6), 400, [100, 60, 60, 60, 60, 60]),
        ((10, 6, 6, 6, 6, 6), 6, [1, 1, 1, 1, 1, 1]),
        ((10, 6, 6, 6, 6, 6), 7, [2, 1, 1, 1, 1, 1]),
        ((8, 4, 4, 4, 4, 4, 4, 4, 4), 40, [8, 4, 4, 4, 4, 4, 4, 4, 4]),
        ((20, 20), 5, [3, 2]),
        ((1, 1, 1), 8, [3, 3, 2]),
        ((37, 1, 2), 10, [8, 1, 1]),
    ],
)
def test_ssg_clients_scale_by_largest_remainder(shares, clients, expected):
    assert spread_clients(shares, clients) == expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(0, 500))
def test_ssg_clients_add_up(shares, more):
    clients = len(shares) + more
    counts = np.array(spread_clients(shares, clients))
    assert counts.sum() == clients
    assert counts.min() >= 1
    order = np.argsort(shares, kind="stable")
    assert (np.diff(counts[order]) >= -1).all()
    quotas = np.array(shares) * clients / sum(shares)
    if quotas.min() >= 1:
        assert (np.abs(counts - quotas) < 1).all()


class FortyClients(Dataset):
    ssg_shares = (10, 6, 6, 6, 6, 6)

    def psg_blocks(self, groups):
        return (5, 0, 2), (1, 3, 4)


def test_the_dataset_says_who_holds_what():
    group_of_row = rows_of_groups([500] * 6)
    ssg = split(group_of_row, 6, 40, "SSG", FortyClients())
    assert np.count_nonzero(ssg.counts, axis=1).tolist() == [10, 6, 6, 6, 6, 6]
    psg = split(group_of_row, 6, 5, "PSG", FortyClients())
    assert [np.flatnonzero(row).tolist() for row in psg.counts[:2]] == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("sizes", "clients", "setting", "message"),
    [
        ([90, 7, 50], 10, "ESG", "'group 1' has 7 rows .* in ESG 10 clients of 10 must .*"
         "use --setting ESG --clients 7 or --setting PSG --clients 10 or --setting SSG "
         "--clients 10"),
        ([90, 1, 50], 10, "PSG", "'group 1' has 1 row to .* 5 clients of 10 .*"
         "use --setting PSG --clients 2 or --setting SSG --clients 4"),
        ([90, 0, 50], 10, "SSG", "'group 1' has 0 rows .*: merge it"),
        ([90, 90], 10, "PSG", "PSG on two groups is the same as SSG: use --setting SSG"),
        ([90], 10, "PSG", "PSG on one group is the same as SSG: use --setting SSG"),
        ([90, 90, 90], 1, "PSG", "there is 1 client: use --clients 2 or more"),
        ([90, 90, 90], 2, "SSG", "2 clients for 3 groups: use --clients 3 or more"),
        ([90, 90, 90], 0, "ESG", "--clients 1 or more"),
        ([90, 90, 90], 3, "PGS", "unknown setting 'PGS'.*Allowed: ESG, PSG, SSG"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(sizes, clients, setting, message):
    with pytest.raises(UserError, match=message) as error:
        split(rows_of_groups(sizes), len(sizes), clients, setting)
    assert "\n" not in str(error.value)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=6),
    st.integers(1, 20),
    st.sampled_from(SETTINGS),
)
@settings(deadline=None)
def test_a_partition_or_an_error_whose_advice_works(sizes, clients, setting):
    group_of_row = rows_of_groups(sizes)
    try:
        assert_consistent(split(group_of_row, len(sizes), clients, setting), group_of_row)
    except UserError as error:
        words = str(error).rstrip(".").split()
        for i, word in enumerate(words):
            if word == "--setting" and words[i + 2 : i + 3] == ["--clients"]:
                split(group_of_row, len(sizes), int(words[i + 3]), words[i + 1])


@pytest.mark.parametrize("skew", [0, -1, np.nan, np.inf])
def test_skew_must_be_positive(skew):
    with pytest.raises(UserError, match=r"--skew .* above 0"):
        split(rows_of_groups([9, 9, 9]), 3, 3, "SSG", skew=skew)


def test_single_client_holds_everything():
    group_of_row = rows_of_groups([5, 0, 7])
    made = single_client(group_of_row, names(3))
    assert_consistent(made, group_of_row)
    assert made.counts.tolist() == [[5], [0], [7]]


@pytest.mark.parametrize("clients", [40, 4000])
def test_summary_is_short_and_has_the_numbers(clients):
    made = split(rows_of_groups([20_000, 10_000, 8000]), 3, clients, "PSG")
    lines = made.summary().splitlines()
    assert lines[0] == f"PSG: 38,000 rows, {clients:,} clients"
    assert f"group 2: 8,000 ({clients // 2:,})" in " ".join(made.summary().split())
    assert "groups per client: 1 to 2 of 3" in lines[1]
    assert len(lines) <= 4


def test_millions_of_rows_on_thousands_of_clients_take_a_moment():
    group_of_row = rows_of_groups([1_600_000, 800_000, 400_000, 400_000])
    start = time.process_time()
    made = split(group_of_row, 4, 4000, "PSG")
    rows = sum(len(made.rows_of(k)) for k in range(4000))
    assert time.process_time() - start < 5  # measured: .2 s
    assert rows == 3_200_000
