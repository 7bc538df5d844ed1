"""A model as ONNX, run by onnxruntime on raw rows."""

import numpy as np
import pandas as pd
import pytest

from fedmpi import models
from fedmpi.predict import main
from fedmpi.scoring.model import FORMAT, Model

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def session(model: Model):
    from fedmpi.scoring.onnx import to_onnx

    return runtime.InferenceSession(to_onnx(model).SerializeToString())


def feeds(model: Model, rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Columns as the graph takes them: double for numbers, else text, "" where missing."""
    kinds = {c["name"]: c["kind"] for c in model.description["encoding"]["columns"]}
    return {
        name: (
            rows[name].to_numpy(dtype=object)[:, None]
            if kind == "text"
            else pd.to_numeric(rows[name], errors="coerce").to_numpy(dtype=np.float64)[:, None]
        )
        for name, kind in kinds.items()
    }


def test_a_table_s_encoding_is_inside(trained, tmp_path):
    model = Model.load(trained.folder)
    rows = trained.test.copy()
    rows.loc[5, "job"] = "never seen"
    assert main([str(trained.folder), "--export", "onnx", "--output", str(tmp_path / "m")]) == 0
    found = runtime.InferenceSession(tmp_path / "m").run(
        ["probabilities", "predicted"], feeds(model, rows)
    )
    np.testing.assert_allclose(found[0], model.predict_proba(rows), rtol=1e-5, atol=1e-7)
    assert found[1].tolist() == model.predict(rows).tolist()


def described(name: str, shape: tuple[int, ...], classes: int, **more) -> Model:
    """A model with seeded weights, as a run would have left it."""
    state = models.build(name, shape, classes, 3).state_dict()
    description = {
        **{"format": FORMAT, "model": name, "row_shape": list(shape), "dtype": "float32"},
        **{"loss": "brier", "reports": "last", "classes": list("abcdefghij"[:classes])},
        **{"groups": [], "features": [], "encoding": None, "scale": None, "attribute": None},
    }
    return Model({"averaged": state, "last": state}, description | more, "last", name)


@pytest.mark.parametrize("name", ["cnn", "logistic"])
def test_images_are_scaled_inside(name):
    model = described(name, (3, 8, 8), 4, scale={"mean": [100, 120, 90], "std": [50, 60, 40]})
    images = np.random.default_rng(0).integers(256, size=(7, 3, 8, 8), dtype=np.uint8)
    found = session(model).run(["probabilities"], {"images": images})[0]
    np.testing.assert_allclose(found, model.predict_proba(images), rtol=1e-4, atol=1e-6)


def test_codes_and_other_texts_are_inside():
    """Rules that the table above has not: codes of a survey, and 'other' for rare texts."""
    from fedmpi.data.encoding import Categorical, Coded, Encoding, Numeric

    encoding = Encoding(
        {
            "code": Coded([0, 2, 5], blank=0),
            "word": Categorical(pd.Index(["x", "y"], dtype=object), other=True, missing=True),
            "number": Numeric(3.0, 2.0, 3.0, 2.0, missing=True),
        }
    )
    model = described(
        "mlp", (len(encoding.features),), 2, encoding=encoding.to_json(), dtype="float64"
    )
    rows = pd.DataFrame(
        {
            "code": ["0", "2", "5", "3", "", "2"],
            "word": ["x", "y", "rare", "", "x", "y"],
            "number": ["1", "2.5", "", "-4", "1e3", "0"],
        }
    )
    found = session(model).run(["probabilities"], feeds(model, rows))[0]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, model.predict_proba(rows), rtol=1e-12)


def test_a_network_that_is_no_perceptron_on_a_table(monkeypatch, tmp_path):
    (tmp_path / "net_of_a_table.py").write_text(
        "from torch import nn\n"
        "def net(shape, classes):\n"
        "    return nn.Sequential(nn.Linear(shape[0], 5), nn.Tanh(), nn.Linear(5, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = described("net_of_a_table:net", (2,), 3, features=["u", "v"])
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(6, 2)), columns=["u", "v"])
    found = session(model).run(
        ["probabilities"], {name: rows[[name]].to_numpy() for name in ("u", "v")}
    )[0]
    np.testing.assert_allclose(found, model.predict_proba(rows), rtol=1e-5)
