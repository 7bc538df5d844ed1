"""--solver: a bundle of defaults, over which an option that is given wins."""

import pytest

from fedmpi.errors import UserError
from fedmpi.run.arguments import resolve
from fedmpi.run.solver import FAST, FAST_IMAGES


def config(*arguments: str):
    return resolve(list(arguments), 1, one_process=True)


def test_paper_is_what_a_run_without_it_is():
    plain, paper = config("--dataset", "adult"), config("--dataset", "adult", "--solver", "paper")
    assert plain.saved() == paper.saved() and plain.options["optimizer"] is None
    assert (paper.rounds, paper.lr, paper.lr_mu) == (3000, 0.01, 0.01)


@pytest.mark.parametrize("method", ["fedminmax", "centralized", "localfedminmax", "afl"])
@pytest.mark.parametrize(("dataset", "bundle"), [("adult", FAST), ("fashionmnist", FAST_IMAGES)])
def test_fast_is_the_same_for_all_methods_with_one_step(method, dataset, bundle):
    fast = config("--dataset", dataset, "--method", method, "--solver", "fast").saved()
    assert {name: fast[name] for name in bundle} == bundle


def test_what_is_given_wins():
    given = ("--lr", "0.3", "--rounds", "7", "--optimizer", "adam")
    fast = config("--dataset", "adult", "--solver", "fast", *given)
    assert (fast.lr, fast.rounds, fast.optimizer, fast.lr_mu) == (0.3, 7, "adam", 0.3)


def test_methods_with_local_epochs_keep_their_own():
    plain, fast = (
        config("--dataset", "adult", "--method", "fedavg", "--solver", solver).saved()
        for solver in ("paper", "fast")
    )
    assert {**plain, "solver": ""} == {**fast, "solver": ""}


def test_it_is_no_part_of_what_a_run_is_known_by():
    assert "solver" not in config("--dataset", "synthetic").identity()
    with pytest.raises(UserError, match="unknown --solver 'quick'"):
        config("--dataset", "adult", "--solver", "quick")
