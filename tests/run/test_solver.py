"""--solver: a bundle of defaults, over which an option that is given wins."""

import importlib

import numpy as np
import pytest
from runs import cut_off_after, write_people

from fedmpi.errors import UserError
from fedmpi.run.arguments import parser_of, resolve
from fedmpi.run.solver import FAST, FAST_IMAGES, FAST_LOGISTIC, decay_for


def config(*arguments: str):
    return resolve(list(arguments), 1, one_process=True)


def test_fast_is_what_a_run_without_it_is():
    plain, fast = config("--dataset", "adult"), config("--dataset", "adult", "--solver", "fast")
    assert plain.saved() == fast.saved() and plain.optimizer == "nesterov"
    paper = config("--dataset", "adult", "--solver", "paper")
    assert (paper.rounds, paper.lr, paper.lr_mu, paper.optimizer) == (3000, 0.01, 0.01, None)


@pytest.mark.parametrize("command", ["fedmpi.tune", "fedmpi.reproduce.__main__"])
def test_it_is_what_a_grid_of_runs_has_without_it(command):
    instead = importlib.import_module(command).INSTEAD
    parser = parser_of(f"python -m {command}", "", instead)
    assert parser.parse_args(["adult"]).solver == "fast"


def test_it_takes_at_most_a_tenth_of_the_paper_s_rounds():
    rounds = {name: config("--dataset", name).rounds for name in ("synthetic", "adult")}
    assert rounds == {"synthetic": 50, "adult": 100}


def test_logistic_regression_is_solved_by_newton_unless_a_gradient_s_step_is_given():
    logistic = ("--dataset", "adult", "--model", "logistic")
    newton = config(*logistic).saved()
    assert {name: newton[name] for name in FAST_LOGISTIC} == FAST_LOGISTIC
    assert config(*logistic, "--lr", ".5").optimizer == "nesterov"
    assert config(*logistic, "--method", "afl").optimizer == "nesterov"
    assert config(*logistic, "--loss", "brier").optimizer == "nesterov"


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


def test_the_brake_follows_from_the_rows_and_a_resume_knows_it(train, tmp_path):
    """Of 96 rows to train on and the same from a file that says the decay: one model."""
    people = write_people(tmp_path / "people.csv", {"a": 70, "b": 50})
    options = ["--dataset", f"csv:{people}", "--target", "y", "--group", "g", "--clients", "4"]
    options += ["--solver", "fast", "--dtype", "float64", "--rounds", "6"]
    run = train(*options, output="auto")
    assert run.config["weight_decay"] == "auto" and run.config["auto_decay"] == 0.03
    said = train(*options, "--weight-decay", "0.03", output="said")
    np.testing.assert_array_equal(run.theta(), said.theta())
    with cut_off_after(3):
        train(*options, "--checkpoint-every", "1", output="cut")
    resumed = train(*options, "--resume", output="cut")
    np.testing.assert_array_equal(resumed.theta("averaged"), run.theta("averaged"))
    assert decay_for(32_561) == pytest.approx(0.00092, abs=1e-5)
