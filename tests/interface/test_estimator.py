"""FedMinMaxClassifier among scikit-learn's own: its checks, a Pipeline, a cross-validation."""

import os
import tempfile

import numpy as np
import pandas as pd
import pytest
import sklearn
from fairlearn.metrics import MetricFrame
from sklearn.compose import make_column_transformer
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GroupKFold, cross_val_predict, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedmpi import FedMinMaxClassifier

QUICK = {"model": "logistic", "rounds": 20}


@parametrize_with_checks([FedMinMaxClassifier(model="logistic", rounds=40)])
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture
def people():
    """Inputs with a column of text, a target, the group and the owner of each row."""
    rng = np.random.default_rng(1)
    x = pd.DataFrame({"u": rng.normal(size=240), "v": rng.normal(size=240)})
    x["town"] = rng.choice(["north", "south"], 240)
    group = rng.choice(["a", "b", "c"], 240, p=[0.6, 0.3, 0.1])
    y = np.where(x["u"] + x["v"] * (group == "a") + 0.3 * (x["town"] == "north") > 0, "yes", "no")
    return x, y, group, rng.choice(["bank", "shop"], 240)


def test_the_minimax_answer_that_is_known():
    """Without inputs a model is one p. Risks -.9 ln p - .1 ln(1-p), -.2 ln p - .8 ln(1-p) are both
    ln 2 at p = .5, where the larger of them is least; the mean of all rows would be p = .83."""
    y = np.repeat([1, 0, 1, 0], [810, 90, 20, 80])
    group = np.repeat(["many", "few"], [900, 100])
    x = np.zeros((1000, 1))
    exact = {"model": "logistic", "rounds": 400}
    exact["options"] = {"optimizer": "nesterov", "weight_decay": 0}
    fair = FedMinMaxClassifier(**exact).fit(x, y, groups=group)
    assert fair.predict_proba(x[:1])[0] == pytest.approx([0.5, 0.5], abs=0.01)
    assert fair.groups_["risk"].to_numpy() == pytest.approx(np.log(2), abs=0.01)
    plain = FedMinMaxClassifier(**exact).fit(x, y)
    assert plain.predict_proba(x[:1])[0] == pytest.approx([0.17, 0.83], abs=0.01)


def test_who_holds_the_rows_changes_afl_but_not_fedminmax(people):
    """Lemma 2 of the paper, and why AFL is another method."""
    x, y, group, owner = people
    x = x[["u", "v"]]

    def probabilities(method, clients):
        made = FedMinMaxClassifier(method=method, **QUICK, options={"dtype": "float64"})
        return made.fit(x, y, groups=group, clients=clients).predict_proba(x)

    alone, apart = (probabilities("fedminmax", clients) for clients in (None, owner))
    np.testing.assert_allclose(apart, alone, rtol=1e-10)
    np.testing.assert_allclose(probabilities("centralized", owner), alone, rtol=1e-10)
    assert abs(probabilities("afl", owner) - probabilities("afl", None)).max() > 1e-4


def pipeline(routed: bool) -> Pipeline:
    classifier = FedMinMaxClassifier(**QUICK)
    if routed:
        classifier.set_fit_request(groups=True, clients=True)
    columns = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    return Pipeline([("columns", columns), ("classifier", classifier)])


def test_pipeline_and_cross_validation_with_and_without_routing(people):
    x, y, group, owner = people
    given = {"groups": group, "clients": owner}
    prefixed = {f"classifier__{name}": labels for name, labels in given.items()}
    plain = cross_validate(pipeline(False), x, y, cv=3, params=prefixed, error_score="raise")
    with sklearn.config_context(enable_metadata_routing=True):
        routed = cross_validate(pipeline(True), x, y, cv=3, params=given, error_score="raise")
        folds = {"cv": GroupKFold(3), "params": given, "error_score": "raise"}
        assert len(cross_validate(pipeline(True), x, y, **folds)["test_score"]) == 3
    np.testing.assert_array_equal(plain["test_score"], routed["test_score"])
    fitted = pipeline(False).fit(x, y, **prefixed)
    assert list(fitted["classifier"].groups_.index) == ["a", "b", "c"]
    assert fitted.score(x, y) > 0.8


def test_metric_frame_takes_the_predictions(people):
    x, y, group, _ = people
    params = {"classifier__groups": group}
    predicted = cross_val_predict(pipeline(False), x, y, cv=3, params=params)
    by_group = MetricFrame(
        metrics=accuracy_score, y_true=y, y_pred=predicted, sensitive_features=group
    ).by_group
    for name in "abc":
        assert by_group[name] == np.mean(predicted[group == name] == y[group == name])


def test_groups_of_several_columns_and_the_figures_of_each(people):
    x, y, group, _ = people
    labels = pd.DataFrame({"group": group, "town": x["town"]})
    made = FedMinMaxClassifier(**QUICK).fit(x[["u", "v"]], y, groups=labels)
    assert made.groups_["n_train"].to_dict() == {
        f"{g} / {t}": n for (g, t), n in labels.value_counts(sort=False).items()
    }
    right = made.predict(x[["u", "v"]]) == y
    some = ((group == "a") & (x["town"] == "south")).to_numpy()
    assert made.groups_.loc["a / south", "accuracy"] == pytest.approx(right[some].mean())
    assert len(made.history_) == made.n_iter_ == 20


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"groups": ["a"] * 239}, "inconsistent numbers of samples"),
        ({"groups": ["a"] * 239 + [None]}, "groups has 1 missing"),
        ({"clients": [float("nan")] + ["a"] * 239}, "clients has 1 missing"),
        ({"groups": np.zeros((240, 1, 1))}, "groups has shape"),
    ],
)
def test_groups_that_cannot_be(people, given, line):
    x, y, *_ = people
    with pytest.raises(ValueError, match=line):
        FedMinMaxClassifier(**QUICK).fit(x[["u", "v"]], y, **given)


def test_a_fit_leaves_no_files(people, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    x, y, *_ = people
    FedMinMaxClassifier(**QUICK).fit(x[["u", "v"]], y)
    assert os.listdir(tmp_path) == []
