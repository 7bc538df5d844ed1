"""Replicates of the test rows: their weights, and their sums."""

import numpy as np
import pytest
import torch

from fedmpi.scoring.bootstrap import Bootstrap, owners_keys, poisson_weights, row_keys

ROWS, B, GROUPS = 150, 37, 3


@pytest.fixture(scope="module")
def rows() -> dict:
    rng = np.random.default_rng(0)
    group = rng.integers(GROUPS, size=ROWS)
    group[-1] = 2
    return {
        "losses": torch.from_numpy(rng.exponential(size=ROWS)).float(),
        "right": torch.from_numpy(rng.random(ROWS) < 0.7),
        "group": group,
        "keys": row_keys(np.arange(ROWS)),
    }


def summed(rows: dict, mine: np.ndarray) -> Bootstrap:
    found = Bootstrap(B, GROUPS, rows["keys"][mine], ROWS)
    for start in range(0, len(mine), 40):
        batch = slice(start, start + 40)
        found.keep(batch, rows["losses"][mine[batch]], rows["right"][mine[batch]])
    found.add_up(rows["group"][mine])
    return found


def test_weights_are_poisson_numbers():
    weights = poisson_weights(row_keys(np.arange(4000)), 1000).astype(float)
    number = weights.size
    assert weights.mean() == pytest.approx(1, abs=4 / np.sqrt(number))
    assert weights.var() == pytest.approx(1, abs=4 * np.sqrt(3 / number))
    found = np.bincount(weights.astype(int).ravel(), minlength=9)
    expected = number * np.exp(-1) / np.cumprod([1, 1, *range(2, 9)])
    assert ((found - expected) ** 2 / expected)[:7].sum() < 30  # 6 degrees: 10^-4, and the rounding


def test_weights_of_other_rows_and_replicates_are_independent():
    """Correlations between rows, and between replicates: as large as chance has them."""
    weights = poisson_weights(row_keys(np.arange(1000)), 1000).astype(float)
    for table in (weights, weights.T):
        other = ~np.eye(len(table), dtype=bool)
        correlations = np.corrcoef(table)[other]
        assert np.abs(correlations).max() < 6 / np.sqrt(1000)
        assert correlations.std() == pytest.approx(1 / np.sqrt(1000), rel=0.02)


def test_a_row_has_its_weights_whatever_is_beside_it():
    keys = row_keys(np.array([5, 900, 17]))
    whole = poisson_weights(row_keys(np.arange(1000)), 50)
    np.testing.assert_array_equal(poisson_weights(keys, 50), whole[[5, 900, 17]])
    np.testing.assert_array_equal(poisson_weights(keys, 9), whole[[5, 900, 17], :9])


def test_the_weights_stay_what_they_are():
    """Runs of other versions and machines are compared: the numbers are part of the format."""
    weights = poisson_weights(row_keys(np.arange(3)), 12)
    np.testing.assert_array_equal(weights, WEIGHTS)


WEIGHTS = [
    [1, 1, 2, 1, 1, 3, 0, 1, 2, 1, 2, 1],
    [2, 1, 2, 1, 0, 0, 0, 1, 0, 2, 1, 0],
    [2, 0, 1, 4, 1, 0, 1, 0, 0, 1, 2, 2],
]


def test_owners_rows_are_known_by_owner_and_place():
    keys = owners_keys(["birch", "elm"], [3, 2])
    np.testing.assert_array_equal(keys[3:], row_keys(np.arange(2), "elm"))
    assert len(set(keys.tolist())) == 5 and len(owners_keys([], [])) == 0


def test_sums_are_those_of_plain_loops(rows):
    found = summed(rows, np.arange(ROWS))
    weights = poisson_weights(rows["keys"], B)
    for b in range(B):
        for a in range(GROUPS):
            mine = [i for i in range(ROWS) if rows["group"][i] == a]
            losses = sum(int(weights[i, b]) * float(rows["losses"][i]) for i in mine)
            right = sum(int(weights[i, b]) for i in mine if rows["right"][i])
            assert found.losses[b, a] == pytest.approx(losses, rel=1e-7)
            assert found.right[b, a] == right
            assert found.rows[b, a] == sum(int(weights[i, b]) for i in mine)


def test_sums_have_the_same_bits_in_any_order_and_on_any_ranks(rows):
    whole = summed(rows, np.arange(ROWS)).sums
    shuffled = np.random.default_rng(1).permutation(ROWS)
    np.testing.assert_array_equal(summed(rows, shuffled).sums, whole)
    parts = [summed(rows, part).sums for part in np.array_split(shuffled, 7)]
    np.testing.assert_array_equal(sum(parts[1:], parts[0]), whole)


def test_the_fingerprint_tells_rows_and_groups_apart(rows):
    whole = summed(rows, np.arange(ROWS)).fingerprint
    assert summed(rows, np.arange(ROWS)[::-1].copy()).fingerprint == whole
    assert summed(rows, np.arange(1, ROWS)).fingerprint != whole
    moved = rows | {"group": np.where(np.arange(ROWS) == ROWS - 1, 0, rows["group"])}
    assert summed(moved, np.arange(ROWS)).fingerprint != whole
