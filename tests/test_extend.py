"""The examples of docs/extend.md are code that runs, and does what the page says of it."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from runs import write_people

from fedmpi import models
from fedmpi.errors import UserError

PAGE = Path(__file__).parents[1] / "docs/extend.md"
LOCAL = ("--local-epochs", 2, "--batch-size", 10, "--lr", 0.1)


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Write an example of the page as the module that it names: example("mymodels") -> Path."""
    monkeypatch.syspath_prepend(tmp_path)
    text = PAGE.read_text()

    def write(module: str) -> Path:
        (code,) = re.findall(rf'```python\n("""{module}\.py: .*?)```', text, re.DOTALL)
        assert len(code.splitlines()) < 50  # what is longer is no example
        path = tmp_path / f"{module}.py"
        path.write_text(code)
        monkeypatch.delitem(sys.modules, module, raising=False)
        return path

    return write


@pytest.fixture
def people(tmp_path) -> list[object]:
    """Options of a small run on a CSV file."""
    csv = write_people(tmp_path / "people.csv", {"a": 60, "b": 40, "c": 20})
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--clients", 4]
    return [*data, "--model", "logistic", "--dtype", "float64", "--rounds", 4, "--eval-every", 1]


def test_method(train, example, people):
    example("mymethods")
    own = (*people, "--setting", "SSG", "--method", "mymethods:RankedAvg", *LOCAL)
    run = train(*own, "--power", 2)
    assert run.config["power"] == 2
    assert float(run.history[-1]["average"]) < float(run.history[0]["average"])
    weights = sorted(float(run.history[-1][f"weight/client {k}"]) for k in range(4))
    np.testing.assert_allclose(weights, np.array([1, 4, 9, 16]) / 30)
    alike = train(*own, "--power", 0, output="alike")  # weighs all clients alike
    assert float(alike.history[-1]["weight/client 0"]) == 0.25
    with pytest.raises(UserError, match=r"--power -1\.0: must be at least 0"):
        train(*own, "--power", -1, output="wrong")


def test_server_optimizer(train, example, people):
    """After two rounds theta is what FedAvg has, and half of the change of the first round."""
    example("myoptimizers")
    own = (*people, "--setting", "PSG", *LOCAL, "--method", "fedavg")
    start = models.build("logistic", (5,), 2, 0).double()
    theta = np.concatenate([p.detach().numpy().reshape(-1) for p in start.parameters()])
    one, two = (train(*own, "--rounds", t, output=f"plain{t}").theta() for t in (1, 2))
    own = (*own, "--optimizer", "myoptimizers:HeavyBall", "--rounds", 2)
    found = train(*own, output="heavy").theta()
    # Its first change is FedAvg's; the second is of clients that begin there.
    np.testing.assert_allclose(found, two + (one - theta) / 2, rtol=0, atol=1e-12)


def write_loans(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = ["income;debt;region;paid"]
    for income, debt in rng.normal(3, 1, size=(120, 2)):
        paid = "yes" if income > debt else "no"
        lines.append(f"{income:.3f};{debt:.3f};{rng.choice(['north', 'south'])};{paid}")
    path.write_text("\n".join(lines) + "\n")


def test_dataset(train, example, tmp_path):
    loans = example("mydata").with_name("loans.txt")
    own = ("--dataset", "mydata:Loans", "--setting", "SSG", "--clients", 4, "--rounds", 5)
    write_loans(loans, seed=1)
    run = train(*own)
    assert list(run.result["groups"]) == ["north", "south"]
    assert sum(group["n_train"] + group["n_test"] for group in run.result["groups"].values()) == 120
    write_loans(loans, seed=2)  # other rows are another dataset
    train(*own, output="other")
    train(*own, "--seed", 1, output="seed")
    assert len(list((tmp_path / "data/prepared").iterdir())) == 3
    with pytest.raises(UserError, match="data"):
        train(*own)


def test_model(train, example, people):
    example("mymodels")
    run = train(*people, "--setting", "PSG", "--model", "mymodels:narrow", "--lr", 0.1)
    assert float(run.history[-1]["average"]) < float(run.history[0]["average"])
    inputs = 2 + 3  # u, v and the values of g
    assert len(run.theta()) == (inputs + 1) * 16 + 2 * 16 + (16 + 1) * 2


def test_metric(train, example, people):
    example("mymetrics")
    run = train(*people, "--setting", "PSG", "--metrics", "mymetrics:MissedYes")
    for group in run.result["groups"].values():
        (_, _), (missed, found) = group["confusion"]
        assert group["metrics"]["missed yes"] == missed / (missed + found)


def test_log(train, example, people):
    example("mylogs")
    run = train(*people, "--log", "mylogs:Lines")
    lines = [json.loads(line) for line in (run.folder / "lines.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 4]
    assert lines[3]["worst"] == float(run.history[3]["worst"])
