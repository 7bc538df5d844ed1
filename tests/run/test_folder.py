"""What a run leaves appears whole, or not at all."""

import json

import numpy as np
import pytest

from fedmpi.errors import UserError
from fedmpi.run.folder import RunFolder


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_json("result.json", {"good": 1})

    def fill(file):
        file.write(b"half of")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"result\.json: No space left"):
        folder.write("result.json", fill)
    assert json.loads((tmp_path / "result.json").read_text()) == {"good": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_numbers_become_json_and_nan_becomes_null(tmp_path):
    value = {"a": np.float64(0.5), "b": float("nan"), "c": (np.int64(2), [np.nan]), "d": {"é": 1}}
    RunFolder(tmp_path).write_json("x.json", value)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == {"a": 0.5, "b": None, "c": [2, [None]], "d": {"é": 1}}
    assert "é" in text


def test_csv_and_npz_read_back(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_csv("h.csv", [{"round": 1, "risk/a, b": 0.25}, {"round": 2, "risk/a, b": 0.125}])
    assert (tmp_path / "h.csv").read_text().splitlines()[0] == 'round,"risk/a, b"'
    folder.write_npz("w.npz", weights=np.eye(2))
    with np.load(tmp_path / "w.npz") as saved:
        assert np.array_equal(saved["weights"], np.eye(2))


def test_a_place_that_cannot_be_made_is_one_line(tmp_path, train):
    (tmp_path / "file").write_text("")
    csv = tmp_path / "p.csv"
    csv.write_text("u,g,y\n" + "".join(f"{i},{i % 2},{i % 3 % 2}\n" for i in range(40)))
    options = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--clients", "2"]
    with pytest.raises(UserError, match="cannot make the folder"):
        train(*options, output="file/run")


def test_a_run_from_before_its_identity_had_that_name_is_recognised(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_json("config.json", {"science": {"lr": 0.5, "data": "people-1", "fold": None}})
    folder.write_json("result.json", {"worst_risk": 0.25})
    assert folder.finished({"lr": 0.5, "data": "people-1"}) == {"worst_risk": 0.25}
    assert folder.finished({"lr": 0.1, "data": "people-1"}) is None
