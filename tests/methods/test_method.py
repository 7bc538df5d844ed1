"""What holds for every method."""

import csv
import re

import numpy as np
import pytest

from fedmpi import methods
from fedmpi.errors import UserError
from fedmpi.mpi.ranks import AgreedError
from fedmpi.run.arguments import resolve

LOCAL = {"local_epochs": 2, "batch_size": 16}
ONE_STEP = [("fedminmax", {"lr_mu": 0.5}), ("localfedminmax", {"lr_mu": 0.5}), ("afl", {})]
EVERY = [
    *ONE_STEP,
    ("centralized", {"lr_mu": 0.5}),
    ("fedminmax", {"lr_mu": 0.5, **LOCAL}),
    ("fedavg", LOCAL),
    ("qfedavg", LOCAL),
    ("term", LOCAL),
    ("term", {"tilt_level": "sample", **LOCAL}),
    ("ditto", LOCAL),
    ("fedmgda", LOCAL),
    ("propfair", LOCAL),
    ("scaffold", LOCAL),
    ("scaffold", {"variate": "I", **LOCAL}),
    ("fedprox", LOCAL),
]


@pytest.mark.parametrize(("method", "options"), EVERY)
def test_the_averaged_theta_is_the_mean_over_the_rounds(run, method, options):
    runs = [run(method, "PSG", 7, rounds=rounds, **options) for rounds in (1, 2, 3)]
    mean = np.mean([each.theta("last") for each in runs], axis=0)
    np.testing.assert_allclose(runs[-1].theta("averaged"), mean, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("method", "options"), EVERY)
def test_small_passes_give_the_same(run, same, method, options):
    small = run(method, "PSG", 7, micro_batch=13, **options)
    large = run(method, "PSG", 7, micro_batch=100_000, **options)
    same(small.theta(), large.theta())


@pytest.mark.parametrize(("method", "options"), EVERY)
def test_how_often_it_is_evaluated_changes_nothing(run, method, options):
    often, seldom = (run(method, "PSG", 7, eval_every=n, **options) for n in (1, 100))
    np.testing.assert_array_equal(often.theta(), seldom.theta())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("method", "options", "culprit"),
    [
        ("fedminmax", {"lr": 1e6}, "group 'east'"),
        ("localfedminmax", {"lr": 1e6}, "group 'east'"),
        ("afl", {"lr": 1e6}, "group 'east'"),
        ("afl", {"lr": 1e6, "eval_every": 1000}, r"client \d"),
        ("fedminmax", {"lr": 1e3, **LOCAL}, r"client \d"),
        ("fedavg", {"lr": 1e3, **LOCAL}, r"client \d"),
        ("term", {"lr": 1e3, **LOCAL}, r"client \d"),
    ],
)
def test_a_run_that_diverges_says_so(run, tmp_path, dtype, method, options, culprit):
    with pytest.raises(AgreedError) as raised:
        run(method, "PSG", 4, model="mlp", rounds=100, dtype=dtype, **options)
    assert isinstance(raised.value, UserError)
    message = str(raised.value)
    assert re.search(culprit, message)
    assert f"--lr {options['lr'] / 10:g}" in message
    with open(tmp_path / "run0" / "history.csv", newline="") as file:
        rounds = [int(row["round"]) for row in csv.DictReader(file)]
    last = int(re.match(r"round (\d+):", message)[1])
    assert rounds == ([1] if "eval_every" in options else list(range(1, last)))
    assert not (tmp_path / "run0" / "result.json").exists()


COUNTS = np.array([[30, 10, 0, 0], [0, 10, 20, 0], [0, 0, 0, 30]])


@pytest.fixture
def started():
    """A method's part of the server, with three groups on four clients."""

    def start(name: str):
        options = [
            "--solver",
            "paper",
            "--dataset",
            "synthetic",
            "--method",
            name,
            "--clients",
            "4",
        ]
        method = methods.find(name)(resolve(options, 1, one_process=True))
        method.start(COUNTS)
        return method

    return start


def without(*clients: int) -> np.ndarray:
    counts = COUNTS.copy()
    counts[:, clients] = 0
    return counts


def test_weights_of_lost_clients_go_and_the_others_keep_their_proportions(started):
    method = started("afl")
    method.restore({"lambda_": np.array([0.5, 0.1, 0.1, 0.3])})
    method.lose(without(0))
    np.testing.assert_allclose(method.lambda_, [0, 0.2, 0.2, 0.6])
    method.update_weights(np.array([9.0, 0.1, 0.2, 0.3]))  # the risk of one who is lost is nothing
    assert method.lambda_[0] == 0 and method.lambda_.sum() == pytest.approx(1)


def test_a_group_that_nobody_has_any_more_leaves_the_game(started):
    method = started("fedminmax")
    method.restore({"mu": np.array([0.2, 0.3, 0.5])})
    method.lose(without(3))
    np.testing.assert_allclose(method.mu, [0.4, 0.6, 0])
    np.testing.assert_allclose(method.weights(), [0.4 / (40 / 70), 0.6 / (30 / 70), 0])
    method.update_weights(np.array([1.0, 1.1, np.nan]))
    assert method.mu[2] == 0 and method.mu.sum() == pytest.approx(1)


def test_the_floor_of_cells_is_of_the_clients_that_are_left(started):
    method = started("localfedminmax")
    method.lose(without(0, 1))
    assert method.mu[:2].sum() == 0 and method.mu.sum() == pytest.approx(1)
    method.update_weights(np.where(COUNTS.T == 20, 1e6, 0.0))
    assert method.mu[3, 2] == pytest.approx(method.config.epsilon / 2)


def test_where_only_the_lost_had_weight_it_begins_anew(started):
    method = started("afl")
    method.restore({"lambda_": np.array([1.0, 0, 0, 0])})
    method.lose(without(0))
    np.testing.assert_allclose(method.lambda_, [0, 2 / 7, 2 / 7, 3 / 7])


def test_shares_of_term_are_of_the_clients_that_are_left(started):
    method = started("term")
    method.lose(without(3))
    method.update_weights(np.array([0.5, 0.5, 0.5, 0.0]))
    np.testing.assert_allclose(method.weights(), [3 / 7, 2 / 7, 2 / 7, 0])
