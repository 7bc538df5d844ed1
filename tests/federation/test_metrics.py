"""Metrics of groups: the user's own, and the built-in ones against scikit-learn and fairlearn."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from fairlearn.metrics import (
    MetricFrame,
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
    false_positive_rate,
    selection_rate,
    true_positive_rate,
)
from runs import write_people
from scipy import special
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_auc_score

from fedmpi import data as datasets
from fedmpi import models
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.data.splits import VALIDATE, hold_out
from fedmpi.errors import UserError
from fedmpi.federation import metrics
from fedmpi.scoring.scores import Scores

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
        metrics.check(metrics.find(["mymetrics:Fails"]), ["mymetrics:Fails"], 2, 2)


# The built-in ones, against scikit-learn and fairlearn on the same predictions.

ALL = ("auc", "calibration", "odds", "opportunity", "parity")
GROUPS = ("F / no", "F / yes", "M / no", "M / yes", "nobody")
SEX = ("sex", ("F", "F", "M", "M", "X"))


@dataclass
class Predictions:
    """Rows with logits and labels; the first four groups are sex and class together."""

    logits: np.ndarray
    y: np.ndarray
    sex: np.ndarray

    @classmethod
    def draw(cls, rows: int, dtype: type = np.float64) -> "Predictions":
        rng = np.random.default_rng(3)
        y, sex = rng.integers(2, size=(2, rows))
        odds = rng.normal(size=rows) * 3 + 1.5 * y * (1 + sex) - 1
        odds[:4] = (-40, 40, -17, 17)  # beyond the outermost bins
        logits = rng.normal(size=(rows, 2))
        logits[:, 1] = logits[:, 0] + odds
        return cls(logits.astype(dtype), y, sex)

    @property
    def probability(self) -> np.ndarray:
        return special.softmax(self.logits.astype(float), axis=1)[:, 1]

    @property
    def predicted(self) -> np.ndarray:
        return self.logits.argmax(1)

    def section(self) -> dict:
        scores = Scores(len(GROUPS), 2, histograms=True)
        for rows in (slice(0, 33), slice(33, None)):
            logits, y, sex = (torch.from_numpy(a[rows]) for a in (self.logits, self.y, self.sex))
            scores.add(torch.zeros(len(y)), logits, y, sex * 2 + y)
        return metrics.section(metrics.find(ALL), scores, GROUPS, SEX)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_auc_is_scikit_learn_s_within_its_bound(dtype):
    rows = Predictions.draw(3000, dtype)
    told = rows.section()
    bound = told["over_values"]["AUC error at most"]
    assert 0 < bound < 0.002
    odds = rows.logits[:, 1].astype(float) - rows.logits[:, 0]
    binned = np.floor(odds.clip(-16, 16 - 1e-9) * 128)
    exact, tied = {}, {}
    for value, mine in (("F", rows.sex == 0), ("M", rows.sex == 1)):
        exact[value] = roc_auc_score(rows.y[mine], odds[mine])
        tied[value] = roc_auc_score(rows.y[mine], binned[mine])
        assert told["values"][value]["AUC"] == pytest.approx(tied[value], abs=1e-12)
        assert abs(told["values"][value]["AUC"] - exact[value]) <= bound
    assert told["all"]["AUC"] == pytest.approx(roc_auc_score(rows.y, binned), abs=1e-12)
    over = told["over_values"]
    assert over["worst AUC"] == pytest.approx(min(tied.values()), abs=1e-12)
    assert over["average AUC"] == pytest.approx(np.mean([*tied.values()]), abs=1e-12)
    assert over["AUC difference"] == pytest.approx(abs(tied["F"] - tied["M"]), abs=1e-12)


def test_the_bound_of_auc_is_reached():
    """All scores in one bin: each pair counts half, and the truth is 0 or 1."""
    odds = np.array([0.001, 0.002, 0.003, 0.004])
    for y, truth in (([0, 0, 1, 1], 1.0), ([1, 1, 0, 0], 0.0)):
        rows = Predictions(np.stack([0 * odds, odds], axis=1), np.array(y), np.zeros(4, int))
        assert roc_auc_score(y, odds) == truth
        told = rows.section()
        assert told["values"]["F"]["AUC"] == 0.5
        assert told["over_values"]["AUC error at most"] == 0.5


def test_calibration_is_by_scikit_learn_s_curve():
    rows = Predictions.draw(500)
    rows.logits[4:7, 1] = rows.logits[4:7, 0]  # a probability of one half, in the middle of a bin
    told = rows.section()
    errors = []
    for value, mine in (("F", rows.sex == 0), ("M", rows.sex == 1)):
        p, y = rows.probability[mine], rows.y[mine]
        true, mean = calibration_curve(y, p, n_bins=15)
        edges = np.linspace(0, 1, 16)
        in_bins = np.bincount(np.searchsorted(edges[1:-1], p), minlength=15)
        errors.append(np.abs(true - mean) @ in_bins[in_bins > 0] / len(y))
        assert told["values"][value]["calibration error"] == pytest.approx(errors[-1], abs=1e-12)
    over = told["over_values"]
    assert over["worst calibration error"] == pytest.approx(max(errors), abs=1e-12)
    assert over["average calibration error"] == pytest.approx(np.mean(errors), abs=1e-12)


def test_calibration_of_several_classes_is_of_the_predicted_one():
    rng = np.random.default_rng(4)
    logits, y = rng.normal(size=(200, 4)) * 2, rng.integers(4, size=200)
    scores = Scores(1, 4, histograms=True)
    rows = (torch.from_numpy(logits), torch.from_numpy(y), torch.zeros(200).long())
    scores.add(torch.zeros(200), *rows)
    told = metrics.section(metrics.find(["calibration"]), scores, ["g"], None)
    error = 0.0
    p = special.softmax(logits, axis=1)
    for b in range(15):
        mine = [i for i in range(200) if b / 15 < p[i].max() <= (b + 1) / 15]
        if mine:
            sure = np.mean([p[i].max() for i in mine])
            right = np.mean([p[i].argmax() == y[i] for i in mine])
            error += len(mine) / 200 * abs(sure - right)
    assert told["values"]["g"]["calibration error"] == pytest.approx(error, abs=1e-12)
    assert told["by"] == "group"


def test_differences_are_fairlearn_s():
    rows = Predictions.draw(400)
    args = (rows.y, rows.predicted)
    sex = {"sensitive_features": np.array(["F", "M"])[rows.sex]}
    told = rows.section()
    expected = {
        "equalized odds difference": equalized_odds_difference(*args, **sex),
        "average equalized odds difference": equalized_odds_difference(*args, **sex, agg="mean"),
        "equal opportunity difference": equal_opportunity_difference(*args, **sex),
        "demographic parity difference": demographic_parity_difference(*args, **sex),
    }
    rates = {
        "true positive rate": true_positive_rate,
        "false positive rate": false_positive_rate,
        "selection rate": selection_rate,
    }
    frame = MetricFrame(metrics=rates, y_true=rows.y, y_pred=rows.predicted, **sex)
    for name in rates:
        for value in ("F", "M"):
            assert told["values"][value][name] == pytest.approx(frame.by_group.loc[value, name])
        assert told["all"][name] == pytest.approx(frame.overall[name])
        expected[f"average {name}"] = frame.by_group[name].mean()
    expected["worst true positive rate"] = frame.group_min()["true positive rate"]
    for name, value in expected.items():
        assert told["over_values"][name] == pytest.approx(value, abs=1e-12), name


def test_groups_without_a_class_or_without_rows_have_no_part():
    told = Predictions.draw(100).section()
    assert all(np.isnan(x) for x in told["values"]["X"].values())
    assert not any(np.isnan(x) for x in told["over_values"].values())
    scores = Scores(2, 2, histograms=True)
    zeros = torch.zeros(5).long()
    scores.add(torch.zeros(5), torch.zeros(5, 2), zeros, zeros)  # one class, one group
    told = metrics.section(metrics.find(ALL), scores, ["a", "b"], None)
    assert np.isnan(told["values"]["a"]["AUC"]) and np.isnan(told["over_values"]["worst AUC"])
    assert np.isnan(told["over_values"]["equalized odds difference"])
    assert told["values"]["a"]["calibration error"] == 0.5


def test_a_model_that_diverged_is_counted_somewhere():
    """Its losses refuse it; the histograms must not fail before."""
    scores = Scores(1, 2, histograms=True)
    logits = torch.tensor([[np.nan, 0.0], [np.inf, -np.inf], [0.0, np.inf]])
    scores.add(torch.zeros(3), logits, torch.tensor([0, 1, 1]), torch.zeros(3).long())
    assert scores.ranking.sum() == scores.calibration[..., 0].sum() == 3


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["auk"], "unknown name in --metrics 'auk'. Did you mean 'auc'"),
        (["auc"], "--metrics auc is for two classes, and there are 3"),
        (["parity"], "--metrics parity is for two classes"),
    ],
)
def test_what_cannot_be_is_one_line(train, tmp_path, names, message):
    rows = [f"{i},{'ab'[i % 2]},{i * i % 3 if i > 2 else i}" for i in range(60)]
    (tmp_path / "p.csv").write_text("\n".join(["u,g,y", *rows]) + "\n")
    data = ["--dataset", f"csv:{tmp_path / 'p.csv'}", "--target", "y", "--group", "g"]
    with pytest.raises(UserError, match=message):
        train(*data, "--clients", 2, "--rounds", 2, "--metrics", ",".join(names))


def labelled(prepared, split: str, rows: np.ndarray, theta: np.ndarray) -> Predictions:
    """What a logistic model of this theta makes of some prepared rows, by torch's own passes."""
    x, y, group = (np.array(prepared.array(f"{split}_{p}"))[rows] for p in ("x", "y", "group"))
    module = models.build("logistic", x.shape[1:], 2, 0).double()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(theta), module.parameters())
    logits = module(torch.from_numpy(x).double()).detach().numpy()
    return Predictions(logits, y.astype(int), group.astype(int))


def test_metrics_of_a_run_are_those_of_its_predictions(train, tmp_path, capsys):
    people = write_people(tmp_path / "people.csv", {"a": 150, "b": 90}, lifted="b")
    data = ["--dataset", f"csv:{people}", "--target", "y", "--group", "g"]
    options = ["--clients", 2, "--rounds", 9, "--eval-every", 2, "--model", "logistic", "--lr", 0.5]
    more = ["--dtype", "float64", "--validate", 0.3, "--metrics", ",".join(ALL)]
    run = train(*data, *options, *more)
    prepared = prepare(
        datasets.find(f"csv:{people}"), tmp_path / "data", DataOptions(target="y", group=("g",))
    )
    y, group = (np.array(prepared.array(f"train_{part}")) for part in ("y", "group"))
    held_out = hold_out(group, y, 0.3, 0, stream=VALIDATE)
    theta = run.theta("averaged")
    best = next(r for r in run.history if int(r["round"]) == run.result["validation"]["round"])
    validation = labelled(prepared, "train", held_out, theta)
    at_best = {k.removeprefix("validation/"): float(v) for k, v in best.items() if "/" in k}
    everyone = np.ones(len(prepared.array("test_y")), dtype=bool)
    for rows, told in (
        (labelled(prepared, "test", everyone, theta), run.result["metrics"]["over_values"]),
        (validation, at_best),
    ):
        aucs = [
            roc_auc_score(rows.y[rows.sex == a], rows.probability[rows.sex == a]) for a in (0, 1)
        ]
        assert told["worst AUC"] == pytest.approx(min(aucs), abs=told["AUC error at most"] + 1e-12)
        odds = equalized_odds_difference(rows.y, rows.predicted, sensitive_features=rows.sex)
        assert told["equalized odds difference"] == pytest.approx(odds)
    from fedmpi import evaluate
    from fedmpi.report.collect import collect
    from fedmpi.run.display import result_table
    from fedmpi.run.record import find_records

    table = result_table(run.result)
    assert "calibration error" in table.splitlines()[0] and "\nworst AUC " in table
    shown = collect(find_records([run.folder]), [run.folder])["sections"][0]["runs"][0]["fairness"]
    tables = {table["title"]: {row[0]: row for row in table["rows"]} for table in shown}
    assert set(tables["metrics by g"]) == {"a", "b", "all"}
    worst = run.result["metrics"]["over_values"]["worst AUC"]
    assert tables[""]["worst_AUC"][-1] == pytest.approx(worst)
    given = [str(run.folder), "test", "--data-dir", str(tmp_path / "data"), "--metrics", "auc,odds"]
    capsys.readouterr()
    assert evaluate.main([*given, "--output", str(tmp_path / "figures.json")]) == 0
    again = json.loads((tmp_path / "figures.json").read_text())["metrics"]
    assert again["over_values"].items() <= run.result["metrics"]["over_values"].items()
    assert "equalized odds difference" in capsys.readouterr().out
    assert evaluate.main([*given[:-1], "auk"]) == 2
