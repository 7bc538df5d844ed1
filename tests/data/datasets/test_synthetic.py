import numpy as np
import pytest

from fedmpi.data import find
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError

SYNTHETIC = find("synthetic")


def read(**options):
    return SYNTHETIC.read(None, DataOptions(**options))


def test_the_rows_follow_the_distribution_of_the_paper():
    data = read(rows=200_000)
    x, y, group = data.train_x[:, 0], data.train_y, data.train_group
    for a, positive, u in [(0, False, 0.3), (0, True, 0.6), (1, False, 0.1), (1, True, 0.9)]:
        cell = y[(group == a) & ((x > 0) == positive)]
        assert len(cell) == pytest.approx(50_000, abs=5 * np.sqrt(200_000 * 0.25 * 0.75))
        assert cell.mean() == pytest.approx(u, abs=5 * np.sqrt(u * (1 - u) / len(cell)))
    assert x.mean() == pytest.approx(0, abs=5 / np.sqrt(len(x)))
    assert x.std() == pytest.approx(1, abs=5 / np.sqrt(2 * len(x)))


def test_the_known_optimum():
    """The best predictor for A=0, which knows only the sign of x, has Brier risk .45 and .31."""
    data = read()
    x, y, group = data.test_x[:, 0], data.test_y, data.test_group
    brier = 2 * (np.where(x > 0, 0.6, 0.3) - y) ** 2
    risks = [brier[group == a].mean() for a in (0, 1)]
    assert risks == pytest.approx([0.45, 0.31], abs=0.005)


def test_seeds_and_rows():
    data = read(seed=3, rows=500)
    assert (len(data.train_x), len(data.test_x)) == (500, 60_000)
    np.testing.assert_array_equal(data.train_x, read(seed=3, rows=500).train_x)
    np.testing.assert_array_equal(data.test_x, read(seed=3, rows=600).test_x)
    assert not np.isin(data.train_x[:100], data.test_x).all()
    assert not np.array_equal(data.test_x, read(seed=4, rows=500).test_x)
    keys = {SYNTHETIC.key(DataOptions(rows=r, seed=s)) for r in (5, 6) for s in (0, 1)}
    assert len(keys) == 4


def test_what_cannot_be_is_said(tmp_path):
    with pytest.raises(UserError, match="--setting SSG"):
        SYNTHETIC.psg_blocks(SYNTHETIC.groups)
    with pytest.raises(UserError, match="has no rows to train on"):
        prepare(SYNTHETIC, tmp_path, DataOptions(rows=1))
    with pytest.raises(UserError, match="--rows 0"):
        DataOptions(rows=0)
    with pytest.raises(UserError, match="--seed -1"):
        DataOptions(seed=-1)
