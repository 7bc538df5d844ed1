"""--validate and --patience: the model whose worst group does best on rows held out of training."""

import sys

import numpy as np
import pytest
import torch
from runs import Run, cut_off_after, launch, write_people

from fedmpi import data as datasets
from fedmpi import models
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.data.splits import VALIDATE, hold_out
from fedmpi.errors import UserError
from fedmpi.run.arguments import resolve

ROUNDS = 30


def options(folder, *more: object) -> list[str]:
    csv = folder / "people.csv"
    csv = csv if csv.exists() else write_people(csv, {"a": 70, "b": 40, "c": 11}, lifted="b")
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--setting", "PSG"]
    # Steps that are too long for so few rows: the last model is not the best.
    run = f"--model mlp --lr 1 --lr-mu .3 --optimizer nesterov --dtype float64 --rounds {ROUNDS}"
    rest = "--clients 4 --validate .3 --eval-every 3 --solver paper --progress none --data-dir"
    return [*data, *run.split(), *rest.split(), str(folder / "data"), *map(str, more)]


def worst_by_hand(folder, theta: np.ndarray) -> float:
    """The worst group's risk on the rows that the seed holds out, by torch's own passes."""
    held = prepare(
        datasets.find(f"csv:{folder / 'people.csv'}"),
        folder / "data",
        DataOptions(target="y", group=("g",)),
    )
    x, y, group = (np.array(held.array(f"train_{part}")) for part in ("x", "y", "group"))
    rows = hold_out(group, y, 0.3, 0, stream=VALIDATE)
    module = models.build("mlp", x.shape[1:], 2, 0).double()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(theta), module.parameters())
    logits = module(torch.from_numpy(x[rows]).double())
    target = torch.from_numpy(y[rows].astype(np.int64))
    losses = torch.nn.functional.cross_entropy(logits, target, reduction="none").detach().numpy()
    return max(losses[group[rows] == a].mean() for a in range(3))


@pytest.mark.parametrize("average", ["last", "all", "tail"])
def test_the_best_round_is_reported(train, tmp_path, average):
    run = train(*options(tmp_path, "--average", average))
    by_round = {int(row["round"]): float(row["validation"]) for row in run.history}
    assert list(by_round) == [1, *range(3, ROUNDS + 1, 3)]
    chosen = run.result["validation"]
    assert chosen["round"] == min(by_round, key=by_round.get) < ROUNDS
    assert chosen["worst_risk"] == min(by_round.values()) < by_round[ROUNDS]
    # A run that ends at that round reports the same model, by another way.
    assert worst_by_hand(tmp_path, run.theta("averaged")) == pytest.approx(chosen["worst_risk"])
    if average == "last":
        short = train(
            *options(tmp_path, "--average", "last", "--rounds", chosen["round"]), output="short"
        )
        np.testing.assert_array_equal(short.theta("last"), run.theta("averaged"))


def test_held_out_rows_are_of_every_group_and_not_trained_on(train, tmp_path):
    groups = train(*options(tmp_path)).result["groups"]
    plain = options(tmp_path)
    at = plain.index("--validate")
    del plain[at : at + 2]
    every = train(*plain, output="every").result["groups"]
    for name, g in groups.items():
        assert g["n_train"] == every[name]["n_train"] - round(0.3 * every[name]["n_train"])
        assert g["n_test"] == every[name]["n_test"]


def test_patience_ends_the_run(train, tmp_path):
    long = train(*options(tmp_path, "--rounds", 90), output="long")
    run = train(*options(tmp_path, "--rounds", 90, "--patience", 9))
    best = run.result["validation"]["round"]
    # The round after the one at which patience is at its end tells all ranks, and does not step.
    ended = next(t for t in range(3, 90, 3) if t - best >= 9)
    assert run.result["rounds"] == ended + 1 < 90
    first = {int(r["round"]): r["validation"] for r in long.history}
    assert all(first.get(int(r["round"]), r["validation"]) == r["validation"] for r in run.history)


@pytest.mark.parametrize("method", ["fedavg", "afl"])
def test_other_methods_have_it_too(train, tmp_path, method):
    drop = {"--optimizer": 2, "--lr-mu": 2} if method == "fedavg" else {}
    given = options(tmp_path, "--method", method, "--patience", 6, "--rounds", 60)
    for flag, length in drop.items():
        at = given.index(flag)
        del given[at : at + length]
    result = train(*given).result
    assert result["rounds"] < 60 and result["validation"]["round"] < result["rounds"]


@pytest.mark.launch
@pytest.mark.once
def test_ranks_and_a_resume_change_nothing(train, tmp_path):
    more = ["--patience", 12, "--average", "tail"]
    one = train(*options(tmp_path, *more), output="one")
    command = ["mpirun", "-n", "3", sys.executable, "-m", "fedmpi.train"]
    done = launch([*command, *options(tmp_path, *more), "--output", str(tmp_path / "three")])
    assert done.returncode == 0, done.stderr
    three = Run(tmp_path / "three")
    assert three.result["validation"]["round"] == one.result["validation"]["round"]
    np.testing.assert_allclose(three.theta("averaged"), one.theta("averaged"), rtol=0, atol=1e-9)
    with cut_off_after(one.result["validation"]["round"] + 2):
        train(*options(tmp_path, *more, "--checkpoint-every", 1), output="cut")
    resumed = train(*options(tmp_path, *more, "--resume"), output="cut")
    np.testing.assert_array_equal(resumed.theta("averaged"), one.theta("averaged"))
    assert resumed.result["rounds"] == one.result["rounds"]
    assert resumed.result["validation"] == one.result["validation"]


@pytest.mark.launch
@pytest.mark.once
def test_owners_hold_out_their_own_rows(tmp_path):
    for i, name in enumerate(("ash", "birch")):
        (tmp_path / "owners").mkdir(exist_ok=True)
        sizes = {"a": 30 + i, "b": 20, "c": 8}
        write_people(tmp_path / "owners" / f"{name}.csv", sizes, lifted="b")
    given = options(tmp_path)
    at = given.index("--setting")
    del given[at : at + 2]
    given[given.index("--clients") :][:2] = []
    at = given.index("--clients")
    del given[at : at + 2]
    given[1] = f"csv:{tmp_path / 'owners'}/"
    command = ["mpirun", "-n", "3", sys.executable, "-m", "fedmpi.train"]
    done = launch([*command, *given, "--output", str(tmp_path / "run")])
    assert done.returncode == 0, done.stderr
    result = Run(tmp_path / "run").result
    for name, rows in {"a": 61, "b": 40, "c": 16}.items():
        g = result["groups"][name]
        left = rows - g["n_test"]
        assert abs(g["n_train"] - 0.7 * left) <= 2
        assert result["validation"]["groups"][name] > 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--validate", "1"], "--validate 1.0: must be a share of the rows above 0 and below 1"),
        (["--validate", "0"], "--validate 0.0: must be a share of the rows"),
        (["--patience", "0"], "--patience 0: must be at least 1"),
    ],
)
def test_what_is_refused(tmp_path, more, message):
    with pytest.raises(UserError, match=message):
        resolve(options(tmp_path, *more), 1, one_process=True)
    with pytest.raises(UserError, match="--patience needs --validate"):
        resolve(["--dataset", "adult", "--patience", "3"], 1, one_process=True)
