"""A model that is whole: what a run leaves scores raw rows."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from runs import write_people

from fedmpi import models
from fedmpi.errors import UserError
from fedmpi.scoring.model import Model

OPTIONS = (
    *("--target", "y", "--group", "g", "--clients", "3"),
    *("--rounds", "20", "--lr", "0.5", "--model", "logistic"),
)


@pytest.fixture
def people(tmp_path):
    return write_people(tmp_path / "people.csv", {"a": 60, "b": 40})


@pytest.fixture
def run(train, people):
    return train("--dataset", f"csv:{people}", *OPTIONS)


def test_probabilities_are_those_of_the_formula(run, people):
    """Logistic regression on standardised numbers and 0/1 inputs, by hand in float64."""
    model = Model.load(run.folder)
    frame = pd.read_csv(people)
    rules = {c["name"]: c for c in model.description["encoding"]["columns"]}
    numbers = [(frame[n] - rules[n]["mean"]) / rules[n]["deviation"] for n in "uv"]
    x = np.column_stack([*numbers, frame["g"] == "a", frame["g"] == "b"])
    state = torch.load(run.folder / "model.pt", weights_only=True)[run.result["model"]]
    z = x @ state["0.weight"].double().numpy().T + state["0.bias"].double().numpy()
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(frame), p, rtol=1e-5)
    assert (model.predict(frame) == np.where(p[:, 1] > 0.5, "yes", "no")).all()
    assert model.classes == ("no", "yes") and model.groups == ("a", "b")


def test_the_description_is_plain_and_tells_of_the_run(run, people):
    contents = torch.load(run.folder / "model.pt", weights_only=True)
    told = contents["description"]
    assert json.loads(json.dumps(told)) == told
    assert set(contents) == {"averaged", "last", "description"}
    assert told["trained_on"]["files"][0].keys() == {"file", "sha256"}
    for group, figures in told["figures"].items():
        assert figures["risk"] == run.result["groups"][group]["risk"]


def test_a_model_is_loaded_again_as_it_was_saved(run, people, tmp_path):
    model, frame = Model.load(run.folder, weights="last"), pd.read_csv(people)
    model.save(tmp_path / "copy.pt")
    again = Model.load(tmp_path / "copy.pt", weights="last")
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert not np.array_equal(
        Model.load(run.folder).predict_proba(frame), model.predict_proba(frame)
    )


def test_weights_of_before_and_foreign_files_are_refused(run, tmp_path):
    contents = torch.load(run.folder / "model.pt", weights_only=True)
    torch.save({name: contents[name] for name in ("averaged", "last")}, tmp_path / "old.pt")
    (tmp_path / "text.pt").write_text("precious")
    newer = contents | {"description": contents["description"] | {"format": 99}}
    torch.save(newer, tmp_path / "newer.pt")
    for name, says in [
        ("old.pt", "weights only"),
        ("text.pt", "cannot be read as a model"),
        ("newer.pt", "format 99"),
        ("none.pt", "there is no"),
    ]:
        with pytest.raises(UserError, match=says):
            Model.load(tmp_path / name)
    with pytest.raises(UserError, match="choose averaged or last"):
        Model.load(run.folder, weights="best")


def test_a_file_does_not_choose_what_is_imported(run, tmp_path):
    contents = torch.load(run.folder / "model.pt", weights_only=True)
    contents["description"]["model"] = "fedmpi.models.perceptron:logistic"
    torch.save(contents, tmp_path / "own.pt")
    with pytest.raises(UserError, match="add --model fedmpi"):
        Model.load(tmp_path / "own.pt")
    own = Model.load(tmp_path / "own.pt", architecture="fedmpi.models.perceptron:logistic")
    assert type(own.network.module) is type(models.build("logistic", (4,), 2, 0))
    with pytest.raises(UserError, match="do not fit the model mlp"):
        Model.load(tmp_path / "own.pt", architecture="mlp")
