"""Ranks over blocks: against scipy, Demšar's table of q, and all orders one by one."""

import itertools
import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import scipy.stats

from fedmpi.compare.diagram import draw_ranks
from fedmpi.compare.ranks import friedman, permutation_p, range_quantile, rank_methods, ranks_of
from fedmpi.run.folder import RunFolder

NAMES = ("a", "b", "c", "d")
SCORES = np.array(
    [
        [0.31, 0.35, 0.35, 0.50],
        [0.40, 0.39, 0.41, 0.44],
        [0.22, 0.25, 0.24, 0.23],
        [0.51, 0.52, 0.60, math.inf],
        [0.10, 0.12, 0.11, 0.13],
        [0.45, 0.45, 0.45, 0.45],
    ]
)


def test_ranks_and_friedmans_statistic_are_scipys():
    ranked = rank_methods(NAMES, SCORES)
    assert np.array_equal(ranked.ranks, scipy.stats.rankdata(SCORES, axis=1))
    theirs = scipy.stats.friedmanchisquare(*scipy.stats.rankdata(SCORES, axis=1).T)
    assert ranked.statistic == pytest.approx(theirs.statistic)
    many = np.random.default_rng(0).normal(size=(60, 5)) + np.arange(5) / 12
    theirs = scipy.stats.friedmanchisquare(*many.T)
    assert 0.02 < theirs.pvalue < 0.5  # the limit for many blocks
    assert permutation_p(ranks_of(many)) == pytest.approx(theirs.pvalue, abs=0.02)


def test_the_p_value_is_a_share_of_all_orders():
    """Three blocks of three methods: 216 orders, which can be counted."""
    ranks = ranks_of(np.array([[1, 2, 3], [1, 3, 2], [1, 2, 3.0]]))
    orders = itertools.product(itertools.permutations((1, 2, 3)), repeat=3)
    found = [friedman(np.array(order, dtype=float)) for order in orders]
    share = np.mean([value >= friedman(ranks) - 1e-9 for value in found])
    assert permutation_p(ranks) == pytest.approx(share, abs=0.01)
    assert friedman(np.full((3, 3), 2.0)) == 0


def test_critical_differences_are_those_of_demsars_table():
    """Table 5a of the paper has q of the range over √2, for 2 to 10 methods."""
    table = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)
    ours = [range_quantile(k) / math.sqrt(2) for k in range(2, 11)]
    assert ours == pytest.approx(table, abs=1e-3)
    theirs = scipy.stats.studentized_range.ppf(0.95, 17, np.inf)
    assert range_quantile(17) == pytest.approx(theirs, rel=1e-6)
    ranked = rank_methods(NAMES, SCORES)
    assert ranked.critical == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 6)), abs=1e-3)


def test_sets_that_are_not_told_apart():
    """Twenty blocks in which d is always last: the critical difference is 1.05."""
    rng = np.random.default_rng(1)
    scores = np.column_stack([rng.normal(size=(20, 3)) * 0.01, np.ones(20)])
    ranked = rank_methods(NAMES, scores)
    assert ranked.alike() == [tuple(np.argsort(ranked.means)[:3].tolist())]
    assert ranked.means[3] == 4 and ranked.p < 0.001
    chain = rank_methods(NAMES, np.tile([1.0, 2, 3, 4], (10, 1)))  # 1.48: neighbours alone
    assert chain.alike() == [(0, 1), (1, 2), (2, 3)]


def test_one_block_has_ranks_and_no_test():
    ranked = rank_methods(NAMES, SCORES[:1])
    assert ranked.means.tolist() == [1, 2.5, 2.5, 4]
    assert math.isnan(ranked.p) and math.isnan(ranked.critical)


@pytest.mark.parametrize("blocks", [1, 6])
def test_the_diagram_names_every_method_at_its_rank(tmp_path, blocks):
    ranked = rank_methods(NAMES, SCORES[:blocks])
    titles = ["FedMinMax", "q-FedAvg (q = 5)", "cost in $", "AFL"]
    assert draw_ranks(RunFolder(tmp_path), titles, ranked, "test risk")
    svg = (tmp_path / "ranks.svg").read_bytes()
    words = " ".join("".join(e.itertext()) for e in ElementTree.fromstring(svg).iter() if e.text)
    for title, mean in zip(titles, ranked.means, strict=True):
        assert title in words and f"{mean:.2f}" in words
    assert ("critical difference" in words) == (blocks > 1)
    draw_ranks(RunFolder(tmp_path), titles, ranked, "test risk")
    assert (tmp_path / "ranks.svg").read_bytes() == svg
