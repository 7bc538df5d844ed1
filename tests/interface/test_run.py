"""A finished run as Python has it, beside what its files and its model say."""

import csv
import json
import math

import matplotlib
import numpy as np
import pandas as pd
import pytest
from runs import write_people
from torch import nn

import fedmpi

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def narrow(row_shape, classes):
    """A model of the user's own."""
    return nn.Sequential(nn.Linear(math.prod(row_shape), 3), nn.Tanh(), nn.Linear(3, classes))


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    path = tmp_path_factory.mktemp("people") / "people.csv"
    frame = pd.read_csv(write_people(path, {"a": 90, "b$": 60, "c": 30}, lifted="b$"))
    frame["bank"] = np.where(frame["u"] > 0, "north", "south")
    return frame


@pytest.fixture(scope="module")
def run(people):
    options = {"target": "y", "group": "g", "client": "bank", "model": "logistic", "rounds": 30}
    return fedmpi.train(people[::2], test=people[1::2], solver="fast", **options)


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


def test_tables_are_the_files(run):
    result = json.loads((run.folder / "result.json").read_text())
    assert run.result == result
    for name, group in result["groups"].items():
        for key in ("n_train", "n_test", "risk", "accuracy", "weight", "risk_last"):
            assert run.groups.loc[name, key] == group[key]
    with open(run.folder / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert run.history.index.tolist() == [int(row["round"]) for row in rows]
    assert run.history["risk/b$"].tolist() == [float(row["risk/b$"]) for row in rows]
    assert run.partition.sum(axis=1).to_dict() == run.groups["n_train"].to_dict()
    assert run.partition.columns.tolist() == ["north", "south"]
    assert "fedmpi-data-" not in json.dumps(run.model.description)  # a folder that is gone
    assert "worst group" in repr(run) and "<table" in run._repr_html_()


def test_intervals_are_two_columns(run, tmp_path):
    folder = run.save(tmp_path / "run")
    result = run.result | {"groups": {"a": run.result["groups"]["a"] | {"risk_interval": [0, 1]}}}
    (folder / "result.json").write_text(json.dumps(result))
    changed = fedmpi.load(folder)
    assert changed.groups[["risk_low", "risk_high"]].to_numpy().tolist() == [[0, 1]]
    (line,) = changed.plot.risks().collections[-1].get_segments()
    assert line[:, 0].tolist() == [0, 1]


def test_the_model_gives_the_figures_of_the_run(run, people):
    """From raw cells, columns in another order: the risk and accuracy of each group's test rows."""
    rows = people[1::2]
    given = rows[rows.columns[::-1]]
    predicted, p = run.model.predict(given), run.model.predict_proba(given)
    of_truth = p[np.arange(len(rows)), [run.model.classes.index(y) for y in rows["y"]]]
    for name, group in run.groups.iterrows():
        some = (rows["g"] == name).to_numpy()
        assert np.mean(predicted[some] == rows["y"][some]) == pytest.approx(group["accuracy"])
        assert -np.log(of_truth[some]).mean() == pytest.approx(group["risk"], rel=1e-5)


def test_evaluation_on_the_test_rows_gives_the_figures_of_the_run(run, people, tmp_path):
    rows = people[1::2].assign(other=1)
    found = run.evaluate(rows)
    for key in ("n_test", "accuracy"):
        assert found.groups[key].tolist() == run.groups[key].tolist()
    np.testing.assert_allclose(found.groups["risk"], run.groups["risk"], rtol=1e-12)
    assert (found.groups["risk_low"] < found.groups["risk"]).all()
    assert found.notes == []
    odd = run.evaluate(rows.assign(g=rows["g"].replace("c", "z")))
    assert odd.notes == ["15 rows without a group, or of one that was not trained on, left out"]
    assert found.rates.index.tolist() == ["a", "b$", "c"]
    yes = run.model.predict(rows) == "yes"
    of_a = (rows["g"] == "a").to_numpy()
    assert found.rates.loc["a", "selection_rate"] == pytest.approx(yes[of_a].mean())
    assert found.figures["worst_group"] == run.result["worst_group"] and "worst" in repr(found)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    assert run.evaluate(tmp_path / "rows.csv").groups.equals(found.groups)


def test_rows_that_cannot_be_evaluated(run, people):
    with pytest.raises(fedmpi.UserError, match="the DataFrame: no column 'y'"):
        run.evaluate(people.drop(columns="y"))
    with pytest.raises(fedmpi.UserError, match="the DataFrame has no row of a class"):
        run.evaluate(people.assign(g="d"))
    with pytest.raises(fedmpi.UserError, match="frame:"):
        run.evaluate("test")  # which were in memory only


def test_cells_of_any_type_are_scored_as_their_text_is(people, tmp_path):
    rng = np.random.default_rng(0)
    frame = people.assign(
        flag=rng.random(len(people)) > 0.5,
        kind=pd.Categorical(rng.choice(["p", "q"], len(people))),
        whole=pd.array(rng.integers(0, 5, len(people)), dtype="Int64"),
        maybe=pd.array(rng.choice([True, False, None], len(people)), dtype="boolean"),
        level=rng.integers(1, 3, len(people)),
    )
    frame.loc[frame.index[:20], "whole"] = pd.NA
    options = {"target": "flag", "group": ["level", "g"], "model": "logistic", "rounds": 3}
    run = fedmpi.train(frame, clients=2, **options)
    frame.to_csv(tmp_path / "text.csv", index=False)
    text = pd.read_csv(tmp_path / "text.csv", dtype=str)
    expected = run.model.predict_proba(text)
    np.testing.assert_allclose(run.model.predict_proba(frame), expected, atol=1e-6)
    assert run.evaluate(frame).groups["n_test"].equals(run.evaluate(text).groups["n_test"])


def test_a_model_of_ones_own_is_named_again_after_loading(people, tmp_path):
    options = {"target": "y", "group": "g", "rounds": 2, "clients": 2, "output": tmp_path / "run"}
    run = fedmpi.train(people, model=narrow, **options)
    expected = run.model.predict_proba(people)
    with pytest.raises(fedmpi.UserError, match="narrow"):
        fedmpi.load(run.folder).model  # noqa: B018
    again = fedmpi.load(run.folder, model=narrow).model.predict_proba(people)
    np.testing.assert_array_equal(again, expected)


def test_figures_show_the_tables(run):
    assert [text.get_text() for text in run.plot.risks().get_yticklabels()] == ["a", r"b\$", "c"]
    _, ax = plt.subplots()
    assert run.plot.risks("accuracy", ax=ax) is ax
    points = ax.collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 0], run.groups["accuracy"])
    curves = run.plot.history("weight").get_lines()
    for line, name in zip(curves, run.groups.index, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), run.history[f"weight/{name}"])
    bars = run.plot.weights().patches
    np.testing.assert_allclose([bar.get_width() for bar in bars], run.groups["weight"])
    (image,) = run.plot.partition().get_images()
    np.testing.assert_allclose(np.asarray(image.get_array()).sum(axis=0), 1)


def test_the_legend_of_risks_is_not_among_the_groups(run):
    ax = run.plot.risks()
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().y0 >= ax.bbox.y1 - 1


def test_figures_that_a_run_does_not_have(run, people):
    with pytest.raises(fedmpi.UserError, match="'risk' or 'accuracy'"):
        run.plot.risks("rsik")
    options = {"target": "y", "group": "g", "clients": 2, "rounds": 2, "model": "logistic"}
    plain = fedmpi.train(people, "fedavg", **options, local_epochs=1)
    with pytest.raises(fedmpi.UserError, match="does not weigh groups"):
        plain.plot.weights()
    with pytest.raises(fedmpi.UserError, match="no weight of groups"):
        plain.plot.history("weight")


def test_what_is_no_run(tmp_path):
    with pytest.raises(fedmpi.UserError, match="holds no finished run"):
        fedmpi.load(tmp_path)
