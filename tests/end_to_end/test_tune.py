"""fedmpi.tune: the grid, the choice, and that it goes on where it was."""

import json
import sys

import numpy as np
import pytest
from runs import Run

from fedmpi import tune
from fedmpi.errors import UserError

SMALL = "--rows 150 --model logistic --clients 4 --rounds 4 --dtype float64 --progress none"


@pytest.fixture
def options(tmp_path):
    return [*SMALL.split(), "--data-dir", tmp_path / "data", "--output", tmp_path / "tuning"]


def run(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["tune", *map(str, arguments)])
    return tune.main()


def test_the_lowest_mean_validation_risk_is_chosen_and_train_uses_it(
    monkeypatch, options, tmp_path, train, capsys
):
    grid = ["--grid", "lr=0.001,0.5", "lr-mu=0.1", "--criterion", "average"]
    assert run(monkeypatch, "synthetic", *options, *grid) == 0
    tuned = json.loads((tmp_path / "tuning/tuned.json").read_text())
    assert (tuned["dataset"], tuned["method"], tuned["folds"]) == ("synthetic", "fedminmax", 3)
    means = {}
    for lr in (0.001, 0.5):
        folders = [tmp_path / f"tuning/runs/lr={lr}-lr_mu=0.1-fold{i}of3" for i in (1, 2, 3)]
        results = [Run(folder).result for folder in folders]
        means[lr] = np.mean([result["average_risk"] for result in results])
        sizes = [sum(g["n_test"] for g in result["groups"].values()) for result in results]
        assert sum(sizes) == 150  # the training rows, each once; there are 60,000 test rows
    best = min(means, key=means.get)
    assert tuned["options"] == {"lr": best, "lr_mu": 0.1}
    assert tuned["risk"] == pytest.approx(means[best])
    assert [row["lr"] for row in tuned["tried"]] == sorted(means, key=means.get)
    assert "edge of the grid" in capsys.readouterr().out

    file = tmp_path / "tuning/tuned.json"
    fixed = ["--dataset", "synthetic", *SMALL.split()[:-2], "--tuned", file]
    config = train(*fixed, output="tuned").config
    assert (config["lr"], config["lr_mu"]) == (best, 0.1)
    assert train(*fixed, "--lr", "0.3", output="by-hand").config["lr"] == 0.3

    made = {p: p.stat().st_mtime_ns for p in tmp_path.glob("tuning/runs/*/result.json")}
    assert len(made) == 6
    assert run(monkeypatch, "synthetic", *options, *grid) == 0
    assert made == {p: p.stat().st_mtime_ns for p in made}


@pytest.mark.launch
@pytest.mark.once
def test_several_at_a_time_choose_the_same(mpirun, monkeypatch, options, tmp_path):
    """Two teams of two ranks, and a point that diverges: it is out of the running."""
    grid = ["--method", "fedavg", "--local-epochs", "1", "--grid", "lr=0.01,0.1,1e200"]
    grid += ["--folds", "2", "--model", "mlp", "--loss", "cross-entropy"]
    teams = ["--at-once", "2"]
    done = mpirun(4, "-m", "fedmpi.tune", "synthetic", *options, *grid, *teams)
    assert done.returncode == 0, done.stderr
    together = json.loads((tmp_path / "tuning/tuned.json").read_text())
    assert together["failed"] == 2 and together["tried"][-1]["lr"] == 1e200
    layouts = [Run(p.parent).config["layout"] for p in tmp_path.glob("tuning/runs/*/result.json")]
    assert len(layouts) == 4 and {layout["ranks"] for layout in layouts} == {2}

    assert run(monkeypatch, "synthetic", *options[:-1], tmp_path / "alone", *grid) == 0
    alone = json.loads((tmp_path / "alone/tuned.json").read_text())
    assert alone["options"] == together["options"]
    assert alone["risk"] == pytest.approx(together["risk"], abs=1e-9)


def request_of(monkeypatch, *arguments: object):
    from mpi4py import MPI

    from fedmpi.mpi.ranks import Ranks

    monkeypatch.setattr(sys, "argv", ["tune", *map(str, arguments)])
    return tune.read_command_line(Ranks(MPI.COMM_SELF))


GRIDS = {
    "lr": (0.001, 0.005, 0.01, 0.05, 0.1),
    "lr_mu": (0.001, 0.005, 0.01, 0.05, 0.1),
    "local_epochs": (3, 10, 15),
    "q": (0.2, 0.5, 1, 2, 5),
    "tilt": (0.01, 0.1, 0.5, 0.8, 1),
    "mu_prox": (0.001, 0.01, 0.1, 1),
    "baseline": (2, 3, 4, 5),
    "radius": (0.01, 0.1, 1),
    "global_lr": (0.5, 1, 2),
    "personal_pull": (0.1, 1, 2),
}
"""As the paper has them; those of other methods, about as their papers have them."""


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("fedminmax", ("lr", "lr_mu")),
        ("afl", ("lr", "lr_mu")),
        ("fedavg", ("lr", "local_epochs")),
        ("qfedavg", ("lr", "local_epochs", "q")),
        ("term", ("lr", "local_epochs", "tilt")),
        ("fedprox", ("lr", "local_epochs", "mu_prox")),
        ("scaffold", ("lr", "local_epochs")),
        ("propfair", ("lr", "local_epochs", "baseline")),
        ("fedmgda", ("lr", "local_epochs", "radius", "global_lr")),
        ("ditto", ("lr", "local_epochs", "personal_pull")),
    ],
)
def test_the_papers_grid_of_each_method(monkeypatch, options, method, names):
    given = ["--method", method, "--solver", "paper"]
    request, choices = request_of(monkeypatch, "synthetic", *options, *given)
    assert request.grid == {name: GRIDS[name] for name in names}
    assert len(choices) == np.prod([len(GRIDS[name]) for name in names])
    points = [tuple(choice.options.values()) for choice in choices]
    assert len(set(points)) == len(points)
    assert all(len(choice.plans) == 3 for choice in choices)
    config = choices[-1].plans[2].config
    assert config.fold == "3/3" and config.lr == choices[-1].options["lr"]


def test_an_option_that_is_given_is_not_tuned(monkeypatch, options):
    request, choices = request_of(monkeypatch, "synthetic", *options, "--lr", "0.3")
    assert list(request.grid) == ["lr_mu"]
    assert {choice.plans[0].config.lr for choice in choices} == {0.3}


def test_the_long_steps_of_fast_are_varied_around_themselves(monkeypatch, options):
    """Two of the paper's five steps would be a hundredth of them."""
    request, _ = request_of(monkeypatch, "synthetic", *options, "--solver", "fast")
    assert request.grid["lr"] == pytest.approx((0.05, 0.1, 0.2, 0.4, 0.8))
    assert request.grid["lr_mu"] == pytest.approx((0.075, 0.15, 0.3, 0.6, 1.2))
    local = ["--method", "fedavg", "--solver", "fast"]
    request, _ = request_of(monkeypatch, "synthetic", *options, *local)
    assert request.grid == {name: GRIDS[name] for name in ("lr", "local_epochs")}
    with pytest.raises(UserError, match="nothing is left"):  # Newton's step has no length
        newton = ["--solver", "fast", "--loss", "cross-entropy"]
        request_of(monkeypatch, "synthetic", *options, *newton)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--criterion", "best"], "worst or average"),
        (["--folds", "1"], "at least 2"),
        (["--at-once", "0"], "at least 1"),
        (["--grid", "q=1,2"], "lr, lr_mu"),
        (["--grid", "lr=a"], "lr=1,2"),
        (["--grid", "lr=.1", "--lr", ".1"], "--lr is given"),
        (["--lr", ".1", "--lr-mu", ".1"], "nothing is left to tune"),
        (["--grid", "lr=-1"], "above 0"),
        (["--fold", "1/3"], "use --folds"),
        (["--method", "fedminimax"], "'fedminmax'"),
    ],
)
def test_a_slip_is_one_line_and_nothing_is_written(monkeypatch, options, arguments, hint, tmp_path):
    with pytest.raises(UserError) as caught:
        run(monkeypatch, "synthetic", *options, *arguments)
    assert hint in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "tuning").exists()
