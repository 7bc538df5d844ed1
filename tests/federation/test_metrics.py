"""Metrics of the user's own, from the confusion counts of each group."""

import numpy as np
import pytest
from runs import write_people

from fedmpi.errors import UserError
from fedmpi.federation import metrics

MODULE = """
from fedmpi.federation.metrics import Metric

class MissedYes(Metric):
    title = "missed yes"
    def of_group(self, confusion):
        yes = confusion[1]
        return yes[0] / yes.sum() if yes.sum() else float("nan")

class Fails(Metric):
    def of_group(self, confusion):
        raise KeyError("yes")

class Other:
    pass
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "mymetrics.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_metric_is_in_the_result_and_in_the_table(train, tmp_path, module):
    people = write_people(tmp_path / "people.csv", {"a": 60, "b": 40})
    options = ["--dataset", f"csv:{people}", "--target", "y", "--group", "g", "--clients", "2"]
    options += ["--rounds", "5", "--model", "logistic"]
    run = train(*options, "--metrics", "mymetrics:MissedYes")
    for group in run.result["groups"].values():
        table = np.array(group["confusion"])
        assert group["metrics"] == {"missed yes": table[1, 0] / table[1].sum()}
    from fedmpi.run.display import result_table

    assert "missed yes" in result_table(run.result).splitlines()[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Metric", "No module named"),
        ("mymetrics:Missing", "has no attribute"),
        ("mymetrics:Other", "not a subclass"),
    ],
)
def test_what_is_no_metric_is_refused(module, name, message):
    with pytest.raises(UserError, match=f"--metrics {name}: .*{message}"):
        metrics.find([name])


def test_a_metric_that_fails_is_named(module):
    with pytest.raises(UserError, match="Fails failed: KeyError"):
        metrics.figures(metrics.find(["mymetrics:Fails"]), np.eye(2))
