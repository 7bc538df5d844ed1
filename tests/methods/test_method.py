"""What holds for every method."""

import csv
import re

import numpy as np
import pytest

from fedmpi.errors import UserError
from fedmpi.ranks import AgreedError

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
