"""--batch-rows: the batches of one machine, whoever holds the rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import cut_off_after, write_people

from fedmpi import data as datasets
from fedmpi import models
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError
from fedmpi.federation.batches import Batches, batch_shares, places_among, places_in_groups

SIZES = {"a": 90, "b": 40, "c": 9}
ROUNDS, LR, B = 25, 0.2, 30
sizes = st.lists(st.integers(0, 60), min_size=1, max_size=6).map(np.array).filter(np.any)


@given(sizes, st.integers(1, 300))
@settings(deadline=None)
def test_shares_of_a_batch(group_sizes, batch_rows):
    groups = np.count_nonzero(group_sizes)
    if batch_rows < groups:
        with pytest.raises(UserError, match=f"--batch-rows {batch_rows}: .* {groups} groups"):
            batch_shares(batch_rows, group_sizes)
        return
    shares = batch_shares(batch_rows, group_sizes)
    assert shares.sum() == min(batch_rows, group_sizes.sum())
    assert (shares <= group_sizes).all() and (shares[group_sizes > 0] > 0).all()


def batches_of(group: np.ndarray, holders: np.ndarray, rank: int, batch_rows: int = B) -> Batches:
    """The batches of the rank that holds some of the rows."""
    place = places_in_groups(group, np.zeros(3, dtype=np.int64))
    mine = holders == rank
    return Batches(5, batch_rows, np.bincount(group), group[mine], place[mine])


@given(st.integers(0, 2**32 - 1), st.integers(3, 200))
@settings(deadline=None, max_examples=30)
def test_the_parts_of_the_ranks_are_the_batch_of_one(seed, batch_rows):
    rng = np.random.default_rng(seed)
    group = np.repeat([0, 1, 2], list(SIZES.values()))
    rng.shuffle(group)
    holders = rng.integers(4, size=len(group))
    whole = batches_of(group, np.zeros(len(group)), 0, batch_rows)
    ranks = [batches_of(group, holders, rank, batch_rows) for rank in range(4)]
    for t in range(1, 9):
        parts = [np.flatnonzero(holders == r)[ranks[r].rows(t)] for r in range(4)]
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), whole.rows(t))
        np.testing.assert_array_equal(np.bincount(group[whole.rows(t)], minlength=3), whole.shares)


@given(st.integers(0, 2**32 - 1), st.integers(3, 200), st.booleans())
@settings(deadline=None, max_examples=30)
def test_without_a_rank_the_batches_are_of_the_rows_that_are_left(seed, batch_rows, whole_group):
    """As if there had never been other rows; every group that has rows is in every batch."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat([0, 1, 2], list(SIZES.values())))
    holders = rng.integers(4, size=len(group))
    if whole_group:
        holders[group == 1] = 3  # the rank that dies has all rows of a group
    rows = [np.flatnonzero(holders == rank) for rank in range(3)]
    left = np.flatnonzero(holders < 3)
    sizes = np.bincount(group[left], minlength=3)
    place = places_in_groups(group[left], np.zeros(3, dtype=np.int64))
    one = Batches(5, batch_rows, sizes, group[left], place)
    rows = [rng.permutation(mine) for mine in rows]
    places = places_among(rows, group)
    ranks = [
        Batches(5, batch_rows, sizes, group[mine], its)
        for mine, its in zip(rows, places, strict=True)
    ]
    for t in range(1, 5):
        parts = [mine[rank.rows(t)] for mine, rank in zip(rows, ranks, strict=True)]
        batch = np.sort(np.concatenate(parts))
        np.testing.assert_array_equal(batch, left[one.rows(t)])
        drawn = np.bincount(group[batch], minlength=3)
        assert len(batch) == min(batch_rows, len(left)) and ((drawn > 0) == (sizes > 0)).all()
        np.testing.assert_allclose(drawn * one.counts_for, sizes, rtol=1e-12)


def test_all_rows_of_a_group_come_before_the_first_comes_again():
    group = np.repeat([0, 1, 2], list(SIZES.values()))
    one = batches_of(group, np.zeros(len(group)), 0)
    rows = np.concatenate([one.rows(t) for t in range(1, 1 + 3 * 90)])
    times = np.bincount(rows, minlength=len(group))
    for a in range(3):
        assert np.ptp(times[group == a]) <= 1
    assert not np.array_equal(one.rows(1), one.rows(2))


def test_sums_are_unbiased():
    """Over many batches the mean of the sums is the sum over all rows, of groups and of parts."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], list(SIZES.values()))
    losses, part = rng.exponential(size=len(group)), rng.integers(2, size=len(group)) == 0
    one = batches_of(group, np.zeros(len(group)), 0)
    estimates = []
    for t in range(1, 1 + 90 * 9):  # whole passes over every group, so this is exact
        rows = one.rows(t)
        counted = losses[rows] * one.counts_for[group[rows]]
        of_group = np.bincount(group[rows], counted, 3)
        estimates.append([*of_group, counted[part[rows]].sum()])
    whole = [*np.bincount(group, losses, 3), losses[part].sum()]
    errors = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert (np.abs(np.mean(estimates, axis=0) - whole) < 3 * errors + 1e-9).all()


def options(folder, *more: object) -> list[str]:
    csv = folder / "people.csv"
    csv = csv if csv.exists() else write_people(csv, SIZES)
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--skew", "2"]
    run = f"--model mlp --dtype float64 --rounds {ROUNDS} --lr {LR} --lr-mu .1 --clients 5"
    where = [
        "--data-dir",
        str(folder / "data"),
        "--solver",
        "paper",
        "--progress",
        "none",
        "--batch-rows",
        str(B),
    ]
    return [*data, *run.split(), *where, *map(str, more)]


def by_hand(folder) -> np.ndarray:
    """One machine: torch's gradients of sum_a mu_a × the mean loss of the batch's rows of a."""
    from quadprog import solve_qp

    held = prepare(
        datasets.find(f"csv:{folder / 'people.csv'}"),
        folder / "data",
        DataOptions(target="y", group=("g",)),
    )
    x = torch.from_numpy(np.array(held.array("train_x"))).double()
    y = torch.from_numpy(np.array(held.array("train_y")).astype(np.int64))
    group = np.array(held.array("train_group"))
    place = places_in_groups(group, np.zeros(3, dtype=np.int64))
    batches = Batches(0, B, np.bincount(group), group, place)
    module = models.build("mlp", x.shape[1:], 2, 0).double()
    mu = np.bincount(group) / len(group)
    for t in range(1, ROUNDS + 1):
        rows = batches.rows(t)
        losses = torch.nn.functional.cross_entropy(module(x[rows]), y[rows], reduction="none")
        risks = [losses[torch.from_numpy(group[rows] == a)].mean() for a in range(3)]
        module.zero_grad()
        sum(m * r for m, r in zip(mu.tolist(), risks, strict=True)).backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= LR * p.grad
        moved = mu + 0.1 * np.array([float(r.detach()) for r in risks])
        limits = np.concatenate([np.ones((1, 3)), np.eye(3)]).T
        mu = solve_qp(np.eye(3), moved, limits, np.array([1.0, *[0.001] * 3]), meq=1)[0]
    return np.concatenate([p.detach().numpy().reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize("setting", ["ESG", "PSG", "SSG"])
def test_every_setting_is_the_minibatch_run_of_one_machine(train, tmp_path, setting):
    run = train(*options(tmp_path, "--setting", setting))
    np.testing.assert_allclose(run.theta(), by_hand(tmp_path), rtol=0, atol=1e-9)


def test_more_rows_than_there_are_is_the_full_batch(train, tmp_path):
    plain = options(tmp_path)
    del plain[plain.index("--batch-rows") : plain.index("--batch-rows") + 2]
    whole = train(*plain, output="whole")
    large = train(*plain, "--batch-rows", 10_000, output="large")
    np.testing.assert_allclose(large.theta(), whole.theta(), rtol=0, atol=1e-9)


def test_owners_apart_take_the_batches_of_one_file(train, tmp_path):
    """The same rows in a file for each owner, and in one file with a column that names them."""
    rng = np.random.default_rng(3)
    lines = {"oak": [], "ash": [], "elm": []}
    for i, (u, v) in enumerate(rng.normal(size=(120, 2))):
        lines[list(lines)[i % 7 % 3]].append(f"{u},{v},{'abc'[i % 3]},{int(u > v)}")
    (tmp_path / "owners").mkdir()
    for name, rows in lines.items():
        (tmp_path / f"owners/{name}.csv").write_text("\n".join(["u,v,g,y", *rows]) + "\n")
    whole = [f"{row},{name}" for name, rows in lines.items() for row in rows]
    (tmp_path / "all.csv").write_text("\n".join(["u,v,g,y,who", *whole]) + "\n")
    run = "--target y --group g --model logistic --dtype float64 --rounds 9 --lr .3 --batch-rows 20"
    apart = train("--dataset", f"csv:{tmp_path / 'owners'}/", *run.split(), output="apart")
    one = train("--dataset", f"csv:{tmp_path / 'all.csv'}", "--client", "who", *run.split())
    np.testing.assert_allclose(apart.theta(), one.theta(), rtol=0, atol=1e-9)


def test_resumed_bit_for_bit(train, tmp_path):
    more = ["--checkpoint-every", 1, "--optimizer", "nesterov", "--schedule", "cosine"]
    whole = train(*options(tmp_path, *more), output="whole")
    with cut_off_after(10):
        train(*options(tmp_path, *more), output="cut")
    resumed = train(*options(tmp_path, *more, "--resume"), output="cut")
    np.testing.assert_array_equal(resumed.theta(), whole.theta())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--batch-rows", 2], "--batch-rows 2: a batch needs a row of each of the 3 groups"),
        (["--batch-rows", 0], "--batch-rows 0: must be at least 1"),
        (["--local-epochs", 2], "--batch-rows is for one step a round"),
    ],
)
def test_what_is_refused(train, tmp_path, more, message):
    with pytest.raises(UserError, match=message):
        train(*options(tmp_path, *more))


def test_it_is_for_one_step_a_round(train, tmp_path):
    given = [o for o in options(tmp_path, "--method", "fedavg") if o not in ("--lr-mu", ".1")]
    with pytest.raises(UserError, match="--batch-rows does nothing with --method fedavg"):
        train(*given)
