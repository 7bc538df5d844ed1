"""The step of theta: against torch's optimizers, resumed, and what is refused."""

import numpy as np
import pytest
import torch
from runs import cut_off_after, groups_for, write_people

from fedmpi import data as datasets
from fedmpi import methods, models
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError
from fedmpi.methods.optimizer import NORM_ROW, shorten

ROUNDS, LR = 12, 0.2
STEPS = {
    "sgd": "--weight-decay 0.05",
    "cosine": "--schedule cosine",
    "nesterov": "--optimizer nesterov --momentum 0.8 --weight-decay 0.05",
    "nesterov-cosine": "--optimizer nesterov --schedule cosine",
    "shortened": "--optimizer nesterov --momentum 0.8 --weight-decay 0.05 --max-norm 0.02",
    "adam": "--optimizer adam --weight-decay 0.05",
    "adam-cosine": "--optimizer adam --schedule cosine",
}


def options(folder, steps: str, *more: object) -> list[str]:
    csv = folder / "people.csv"
    csv = csv if csv.exists() else write_people(csv, {"a": 60, "b": 30, "c": 20})
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--skew", "2"]
    run = f"--model mlp --dtype float64 --rounds {ROUNDS} --lr {LR} --clients 5 --eval-every 4"
    where = [
        "--data-dir",
        str(folder / "data"),
        "--solver",
        "paper",
        "--progress",
        "none",
        "--setting",
        "PSG",
    ]
    return [*data, *run.split(), *where, *steps.split(), *map(str, more)]


def by_torch(folder, name: str) -> np.ndarray:
    """The last theta of one machine with all rows: torch's modules, gradients and optimizers."""
    held = prepare(
        datasets.find(f"csv:{folder / 'people.csv'}"),
        folder / "data",
        DataOptions(target="y", group=("g",)),
    )
    x = torch.from_numpy(np.array(held.array("train_x"))).double()
    y = torch.from_numpy(np.array(held.array("train_y")).astype(np.int64))
    module = models.build("mlp", x.shape[1:], 2, 0).double()
    decay = 0.05 if "--weight-decay" in STEPS[name] else 0.0
    if name.startswith("adam"):
        optimizer = torch.optim.AdamW(module.parameters(), LR, weight_decay=decay)
    else:
        momentum = {"nesterov": 0.8, "shortened": 0.8, "nesterov-cosine": 0.9}.get(name, 0.0)
        optimizer = torch.optim.SGD(
            module.parameters(), LR, momentum, weight_decay=decay, nesterov=momentum > 0
        )
    for t in range(ROUNDS):
        factor = (1 + np.cos(np.pi * t / ROUNDS)) / 2 if "cosine" in name else 1.0
        optimizer.zero_grad()
        (torch.nn.functional.cross_entropy(module(x), y)).backward()
        if name == "shortened":
            norm = torch.nn.utils.get_total_norm([p.grad for p in module.parameters()])
            assert norm > 0.03  # or the case shows nothing
            for p in module.parameters():  # torch's own clipping adds 1e-6 to the norm
                p.grad.mul_(0.02 / norm)
        if name.startswith("nesterov-") or name == "cosine":
            for p in module.parameters():  # D itself is scheduled, so momentum remembers it so
                p.grad.mul_(factor)
        else:
            optimizer.param_groups[0]["lr"] = LR * factor
        optimizer.step()
    return np.concatenate([p.detach().numpy().reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize("name", STEPS)
def test_against_torch_on_one_machine(train, tmp_path, name):
    """With weights that do not move, FedMinMax is plain training on all rows."""
    run = train(*options(tmp_path, STEPS[name], "--lr-mu", 0))
    np.testing.assert_allclose(run.theta(), by_torch(tmp_path, name), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", STEPS)
def test_lemma_2(train, tmp_path, name):
    """The federation gives the model that one machine with all rows gives."""
    ours = train(*options(tmp_path, STEPS[name], "--lr-mu", 0.3), output="ours")
    one = options(tmp_path, STEPS[name], "--lr-mu", 0.3, "--method", "centralized")
    del one[one.index("--clients") : one.index("--clients") + 2]
    theirs = train(*one, output="theirs")
    np.testing.assert_allclose(ours.theta(), theirs.theta(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [3, NORM_ROW, 50 * NORM_ROW + 7])
def test_all_ranks_shorten_by_the_same_bits(size):
    """Whatever threads they have: a rank that differed by a bit would end the run."""
    vector = torch.randn(size, generator=torch.Generator().manual_seed(size))
    norm = vector.double().norm().item()
    threads, found = torch.get_num_threads(), []
    try:
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            found.append(vector.clone())
            shorten(found[-1], norm / 3)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    torch.testing.assert_close(found[0], vector / 3)
    kept = vector.clone()
    shorten(kept, norm * 1.001)
    assert torch.equal(kept, vector)


ALL = [name for name in methods.FILES if name != "centralized"]


@pytest.mark.parametrize(
    ("method", "name"),
    [
        pytest.param(method, name, marks=[] if (i + j) % 2 else [pytest.mark.slow])
        for i, method in enumerate(ALL)
        for j, name in enumerate(["nesterov-cosine", "adam"])
    ],
)
def test_resumed_bit_for_bit(train, tmp_path, method, name):
    steps = f"{STEPS[name]} --method {method} --checkpoint-every 1 --average tail"
    steps = " ".join([steps, *groups_for(method)])
    whole = train(*options(tmp_path, steps), output="whole")
    with cut_off_after(10):
        train(*options(tmp_path, steps), output="cut")
    resumed = train(*options(tmp_path, steps, "--resume"), output="cut")
    for which in ("last", "averaged"):
        np.testing.assert_array_equal(resumed.theta(which), whole.theta(which))


def test_what_is_averaged(train, tmp_path):
    """From the thetas of shorter runs: a run of t rounds ends where the long one is at t."""
    thetas = [
        train(*options(tmp_path, f"--rounds {t}"), output=f"t{t}").theta()
        for t in range(1, ROUNDS + 1)
    ]
    for average, mean in {"all": thetas, "tail": thetas[9:], "last": thetas[-1:]}.items():
        run = train(*options(tmp_path, f"--average {average}"), output=average)
        which = "last" if average == "last" else "averaged"
        np.testing.assert_allclose(run.theta(which), np.mean(mean, axis=0), rtol=0, atol=1e-12)
        assert run.result["model"] == which


def test_fedavg_with_momentum_is_fedavgm(train, tmp_path):
    """One round at a time, from plain FedAvg's own first change."""
    steps = "--method fedavg --local-epochs 1 --batch-size 10"
    start = models.build("mlp", (5,), 2, 0).double()
    theta0 = np.concatenate([p.detach().numpy().reshape(-1) for p in start.parameters()])
    first = train(*options(tmp_path, steps, "--rounds", 1), output="first").theta()
    fast = options(tmp_path, f"{steps} --optimizer nesterov --momentum 0.5", "--rounds", 1)
    moved = train(*fast, output="moved").theta()
    np.testing.assert_allclose(moved - theta0, 1.5 * (first - theta0), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("--optimizer adm", "unknown --optimizer 'adm'. Did you mean 'adam'"),
        ("--momentum .5", "--momentum does nothing with --optimizer sgd: use nesterov"),
        ("--optimizer nesterov --momentum 1", "--momentum 1.0: must be at least 0 and below 1"),
        ("--max-norm 0", "--max-norm 0.0: must be above 0"),
        ("--schedule linear", "unknown --schedule 'linear'"),
        ("--weight-decay -1", "--weight-decay -1.0: must be at least 0"),
        ("--weight-decay nan", "--weight-decay nan: must be a finite number, at least 0"),
        ("--server-lr .1", "--server-lr is the step of --optimizer adam"),
        ("--optimizer adam --server-lr .1", "for methods with local epochs: leave it out"),
        ("--average mean", "unknown --average 'mean'"),
        ("--optimizer nowhere:Class", "--optimizer nowhere:Class: No module named"),
        ("--optimizer fedmpi.errors:UserError", "not a subclass of fedmpi.methods.optimizer"),
    ],
)
def test_what_is_refused(train, tmp_path, steps, message):
    with pytest.raises(UserError, match=message):
        train(*options(tmp_path, steps))


def test_steps_that_depend_on_the_end_are_not_resumed_to_another(train, tmp_path):
    steps = "--schedule cosine --checkpoint-every 1"
    with cut_off_after(4):
        train(*options(tmp_path, steps))
    with pytest.raises(UserError, match="rounds was 12, now 20"):
        train(*options(tmp_path, steps, "--rounds", 20, "--resume"))
