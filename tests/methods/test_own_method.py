"""The example of docs/methods.md is code that runs, and is as short as it says."""

import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def example(tmp_path, monkeypatch) -> str:
    """The example, as a module of the user's."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "methods.md").read_text(), re.DOTALL)
    assert len(code.splitlines()) < 40
    (tmp_path / "mymethods.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return "mymethods:RankedAvg"


def test_the_example_trains_and_the_worst_client_weighs_most(train, tmp_path, example):
    rng = np.random.default_rng(5)
    rows = [
        f"{u},{v},{'abc'[i % 3]},{int(u > v)}" for i, (u, v) in enumerate(rng.normal(size=(120, 2)))
    ]
    csv = tmp_path / "people.csv"
    csv.write_text("\n".join(["u,v,g,y", *rows]) + "\n")
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--clients", "4"]
    run = train(*data, "--method", example, "--rounds", "3", "--local-epochs", "2", "--lr", "0.1")
    assert run.result["method"] == example
    assert float(run.history[-1]["average"]) < float(run.history[0]["average"])
