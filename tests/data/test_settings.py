"""The settings beside the paper's: their names, and rows that are drawn by Dirichlet shares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedmpi.data.settings import DRAWN, canonical, column_of, draw, in_a_path, in_words
from fedmpi.errors import UserError


def rows_of(sizes: list[int], seed: int = 0) -> np.ndarray:
    cells = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(cells)


@pytest.mark.parametrize(
    ("given", "name", "path"),
    [
        ("psg", "PSG", "PSG"),
        ("dirichlet:.3", "dirichlet:0.3", "dirichlet0.3"),
        ("Dirichlet:0.30", "dirichlet:0.3", "dirichlet0.3"),
        ("dirichlet-classes:1", "dirichlet-classes:1", "dirichlet-classes1"),
        ("quantity:1e-5", "quantity:1e-05", "quantity1e-05"),
        ("by:Occupation", "by:Occupation", "by-Occupation"),
        ("by:a/b: c", "by:a/b: c", "by-a-b-c"),
    ],
)
def test_a_setting_has_one_name_and_a_place_in_paths(given, name, path):
    assert canonical(given) == name == canonical(name)
    assert in_a_path(name) == path
    argument = name.partition(":")[2]
    assert in_words(name) and argument in in_words(name)
    assert column_of(name) == (argument if name.startswith("by:") else None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("PGS", "unknown --setting 'PGS'.*Allowed: ESG, PSG, SSG, by:COLUMN, dirichlet-classes"),
        ("dirichlets:.3", "Did you mean 'dirichlet:ALPHA'"),
        ("dirichlet", "give dirichlet:ALPHA, a number above 0"),
        ("dirichlet:few", "a number above 0"),
        ("dirichlet:.3:classes", "a number above 0"),
        ("quantity:0", "give quantity:ALPHA, a number above 0"),
        ("dirichlet-classes:-1", "a number above 0, as dirichlet-classes:0.3"),
        ("quantity:nan", "a number above 0"),
        ("quantity:inf", "a number above 0"),
        ("by: ", "name a column of the data"),
    ],
)
def test_what_is_no_setting_is_refused(given, message):
    with pytest.raises(UserError, match=message):
        canonical(given)


@given(
    st.sampled_from(DRAWN),
    st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 50.0, 1e308]),
    st.lists(st.integers(0, 40), min_size=1, max_size=6),
    st.integers(1, 30),
    st.integers(0, 2**32),
)
def test_every_client_has_a_row_or_there_are_too_few(kind, alpha, sizes, clients, seed):
    group, y = rows_of(sizes), rows_of([sum(sizes)])
    try:
        client_of_row, moved = draw(f"{kind}:{alpha}", group, y, clients, seed)
    except UserError as error:
        assert sum(sizes) < clients and f"--clients {sum(sizes)} or fewer" in str(error)
        return
    assert len(client_of_row) == len(group)  # so each row has one client
    held = np.bincount(client_of_row, minlength=clients)
    assert len(held) == clients <= sum(sizes) and held.min() >= 1
    assert moved < clients


@pytest.mark.parametrize("kind", DRAWN)
def test_the_seed_decides(kind):
    group, y = rows_of([60, 40, 20]), rows_of([70, 50], seed=1)
    one, same, other = (draw(f"{kind}:.5", group, y, 6, seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_classes_are_split_as_groups_are():
    group, y = rows_of([600, 400, 200]), rows_of([700, 500], seed=1)
    by_class, _ = draw("dirichlet-classes:.3", group, y, 8, 5)
    as_groups, _ = draw("dirichlet:.3", y, group, 8, 5)
    np.testing.assert_array_equal(by_class, as_groups)
    assert (by_class != draw("dirichlet:.3", group, y, 8, 5)[0]).any()


def test_a_group_is_split_the_same_whatever_the_others_are():
    group = rows_of([300, 200, 100])
    fewer = group[(group != 0) | (np.cumsum(group == 0) <= 150)]
    (whole, moved), (some, others) = (draw("dirichlet:1", g, g, 5, 0) for g in (group, fewer))
    assert not moved and not others
    for a in (1, 2):
        np.testing.assert_array_equal(whole[group == a], some[fewer == a])


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("alpha", [0.3, 2.0])
def test_shares_are_those_of_a_dirichlet(kind, alpha):
    """One client's share is Beta(alpha, (K - 1) alpha): mean, variance, and the whole of it."""
    clients, seeds = 4, 300
    group, y = rows_of([1200, 600]), rows_of([900, 900], seed=1)
    cell = {"dirichlet": group, "dirichlet-classes": y}.get(kind, np.zeros(len(y), dtype=int))
    shares = []
    for seed in range(seeds):
        held, _ = draw(f"{kind}:{alpha}", group, y, clients, seed)
        shares += [np.mean(held[cell == c] == 0) for c in np.unique(cell)]
    theory = stats.beta(alpha, (clients - 1) * alpha)
    n, mean, variance = len(shares), theory.mean(), theory.var()
    assert mean == pytest.approx(1 / clients)
    assert variance == pytest.approx(1 / clients * (1 - 1 / clients) / (clients * alpha + 1))
    assert abs(np.mean(shares) - mean) < 4 * np.sqrt(variance / n)
    excess = float(theory.stats(moments="k"))
    assert abs(np.var(shares) / variance - 1) < 4 * np.sqrt((excess + 2) / n)
    if alpha >= 1:  # below, many shares are of less than a row
        assert stats.kstest(shares, theory.cdf).pvalue > 1e-3


def test_in_quantity_the_contents_are_alike():
    """A client's rows of a group are a random draw: hypergeometric, given the client's size."""
    group = rows_of([700, 300])
    scores = []
    for seed in range(200):
        held, _ = draw("quantity:1", group, group, 4, seed)
        size, of_group = np.sum(held == 0), np.sum(group[held == 0] == 0)
        if 20 < size < 980:
            law = stats.hypergeom(1000, 700, size)
            scores.append((of_group - law.mean()) / law.std())
    assert abs(np.mean(scores)) < 4 / np.sqrt(len(scores))
    assert 0.7 < np.var(scores) < 1.4


def test_clients_that_draw_nothing_get_a_row_of_the_largest():
    group = rows_of([50])
    held, moved = draw("dirichlet:1e-300", group, group, 5, 0)  # all rows to one client
    assert moved == 4 and sorted(np.bincount(held)) == [1, 1, 1, 1, 46]
