"""predict and evaluate on a run's own test rows: the figures of result.json, for every dataset."""

import json
import pickle
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from census_files import write_state
from images import write_fashionmnist
from owner_cases import HEADER, MARK, OWNERS
from runs import REPOSITORY, Run, launch, launcher, limit, write_people

from fedmpi import evaluate, predict
from fedmpi.data.datasets.adult import COLUMNS
from fedmpi.data.datasets.fashionmnist import FashionMNIST
from fedmpi.data.store import Prepared

DATA = REPOSITORY / "data"
FEW = ("--rounds", "2", "--clients", "3")


def figures(run: Run, rows: object, data: Path) -> dict:
    output = run.folder / "figures.json"
    command = [run.folder, rows, "--data-dir", data, "--output", output, "--force"]
    assert evaluate.main([str(word) for word in command]) == 0
    return json.loads(output.read_text())


def assert_same(found: dict, result: dict) -> None:
    """To the last digit that is printed, and beyond: the sums are of the same rows."""
    assert set(found["groups"]) == set(result["groups"])
    for name, told in result["groups"].items():
        mine = found["groups"][name]
        assert (mine["confusion"], mine["accuracy"]) == (told["confusion"], told["accuracy"])
        assert mine["risk"] == pytest.approx(told["risk"], rel=1e-6)
        assert f"{mine['risk']:.4f}" == f"{told['risk']:.4f}"
    for key in ("worst_group", "worst_accuracy", "average_accuracy"):
        assert found[key] == result[key]
    if result["fairness"]:
        for value, rates in result["fairness"]["values"].items():
            assert rates.items() <= found["fairness"]["values"][value].items()


def prepared_in(data: Path) -> Prepared:
    (folder,) = (data / "prepared").iterdir()
    return Prepared.open(folder)


def test_synthetic(train, tmp_path):
    run, data = (
        train("--dataset", "synthetic", "--rows", "200", *FEW, "--model", "logistic"),
        tmp_path / "data",
    )
    assert_same(figures(run, "test", data), run.result)
    test = prepared_in(data)
    x, y, group = (np.array(test.array(f"test_{part}")) for part in ("x", "y", "group"))
    rows = pd.DataFrame({"A": group, "y": y.astype(int), "x": x[:, 0]})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    assert_same(figures(run, tmp_path / "rows.csv", data), run.result)


def test_adult_from_the_raw_file(train, tmp_path):
    options = ("--rounds", "3", "--limit-train", "2000", "--clients", "4", "--data-dir", DATA)
    run = train("--dataset", "adult", "--setting", "PSG", *options)
    raw = (DATA / "raw/adult/adult.test").read_text().partition("\n")[2]
    (tmp_path / "rows.csv").write_text(f"{','.join(COLUMNS)}\n{raw}")
    assert_same(figures(run, tmp_path / "rows.csv", DATA), run.result)
    assert_same(figures(run, "test", DATA), run.result)


@pytest.mark.parametrize("dataset", ["acs-employment", "acs-race"])
def test_acs_from_the_census_file(train, tmp_path, dataset):
    """All people of the file, since which of them are test rows is nowhere in it."""
    pytest.importorskip("folktables")
    data = tmp_path / "data"
    path = write_state(data / "raw/acs", "VT", 600)
    options = ("--states", "VT", "--min-group-rows", "3", "--setting", "SSG")
    run = train("--dataset", dataset, *options, "--rounds", "3", "--clients", "9")
    assert_same(figures(run, "test", data), run.result)
    both = prepared_in(data)
    arrays = {
        part: np.concatenate([both.array(f"{split}_{part}") for split in ("train", "test")])
        for part in ("x", "y", "group")
    }
    np.savez(tmp_path / "all.npz", **arrays)
    expected = figures(run, tmp_path / "all.npz", data)
    assert sum(group["n_test"] for group in expected["groups"].values()) > 500
    assert_same(figures(run, path, data), expected)


@pytest.mark.parametrize("client", [(), ("--client", "g")], ids=["a file", "owners in a file"])
def test_a_table_and_what_predict_writes(train, tmp_path, client, monkeypatch):
    """Risk and accuracy are counted again from the lines that predict writes."""
    people = write_people(tmp_path / "people.csv", {"a": 50, "b": 40})
    test = write_people(tmp_path / "test.csv", {"b": 30, "a": 35}, lifted="a")
    options = ("--target", "y", "--group", "g", "--rounds", "5", "--lr", "0.5", "--test", test)
    run = train("--dataset", f"csv:{people}", *options, *client)
    assert_same(figures(run, test, tmp_path / "data"), run.result)
    monkeypatch.setattr("fedmpi.scoring.chunks.CHUNK_BYTES", 300)
    scored = tmp_path / "scored.csv"
    assert predict.main([str(run.folder), str(test), "--output", str(scored)]) == 0
    rows, raw = pd.read_csv(scored), pd.read_csv(test)
    assert rows[raw.columns].equals(raw)
    p = np.where(rows["y"] == "yes", rows["probability/yes"], rows["probability/no"])
    for name, told in run.result["groups"].items():
        mine = rows["g"] == name
        assert (rows["y"] == rows["predicted"])[mine].mean() == pytest.approx(told["accuracy"])
        assert -np.log(p[mine]).mean() == pytest.approx(told["risk"], rel=1e-5)


def test_images(train, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    train_x, test_x = (rng.integers(0, 256, (n, 28, 28), dtype=np.uint8) for n in (50, 30))
    train_y, test_y = (np.arange(n, dtype=np.uint8) % 10 for n in (50, 30))
    data = tmp_path / "data"
    files = write_fashionmnist(data, [train_x, train_y, test_x, test_y])
    monkeypatch.setattr(FashionMNIST, "files", files)
    run = train("--dataset", "fashionmnist", "--clients", "2", "--rounds", "2")
    assert_same(figures(run, "test", data), run.result)
    np.savez(tmp_path / "images.npz", x=test_x, y=test_y)  # the groups are the classes
    assert_same(figures(run, tmp_path / "images.npz", data), run.result)
    np.save(tmp_path / "images.npy", test_x[:, None])
    scored = tmp_path / "scored.csv"
    assert predict.main([str(run.folder), f"{tmp_path}/images.npy", "--output", str(scored)]) == 0
    rows = pd.read_csv(scored)
    classes = np.array(list(run.result["groups"]))
    right = (rows["predicted"] == classes[test_y]).mean()
    accuracies = [told["accuracy"] for told in run.result["groups"].values()]
    assert right == pytest.approx(np.mean(accuracies)) and rows["row"].tolist() == [*range(30)]


@pytest.fixture(scope="module")
def apart(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("apart")
    script = str(REPOSITORY / "tests/helpers/evaluate_owners.py")
    done = launch(["mpirun", "-n", "4", sys.executable, script, str(out)])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


@pytest.mark.launch
@pytest.mark.once
def test_files_of_owners_apart(apart):
    assert_same(json.loads((apart / "figures.json").read_text()), Run(apart / "run").result)


@pytest.mark.launch
@pytest.mark.once
def test_metrics_of_owners_apart(apart):
    """Histograms are summed over ranks that evaluate as over those that trained."""
    told, trained = json.loads((apart / "metrics.json").read_text()), Run(apart / "run").result
    assert told["metrics"]["by"] == "sex" and len(told["metrics"]["values"]) == 2
    for part in ("all", "over_values"):
        assert told["metrics"][part] == pytest.approx(trained["metrics"][part], abs=1e-6)


@pytest.mark.launch
@pytest.mark.once
def test_only_sums_leave_an_owner_s_rank(apart):
    """One vector: 2 sums and 2 × 2 counts for each of 4 groups, and counts of what was odd."""
    length = 4 * (2 + 2 * 2) + 4 + 3 * len(HEADER[:-1])
    ages = [row.split(",")[0] for o in OWNERS for row in lines_of(apart / f"tests/{o}.csv")[1:]]
    for rank in range(1, 1 + len(OWNERS)):
        given = pickle.loads((apart / f"tests-{rank}.pickle").read_bytes())
        vectors = [value for value in given if not value.startswith(pickle.PROTO)]
        assert [len(vector) for vector in vectors] == [8 * length]
        for age in ages:
            cells = age.encode(), struct.pack("d", float(age)), struct.pack("f", float(age))
            assert not [value for value in given if any(cell in value for cell in cells)]


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.launch
@pytest.mark.once
@pytest.mark.parametrize(
    ("case", "says"), [("marked", "'age' was numbers in training"), ("renamed", "no column 'age'")]
)
def test_no_cell_of_an_owner_is_told(apart, case, says):
    line = (apart / f"{case}.txt").read_text()
    assert re.search(says, line) and MARK not in line and "\n" not in line
    assert MARK in (apart / case / "birch.fedmpi.txt").read_text()
    for rank in range(4):
        given = (apart / f"{case}-{rank}.pickle").read_bytes()
        assert MARK.encode() not in given


@pytest.mark.launch
@pytest.mark.once
def test_the_model_of_owners_has_what_they_agreed_on_and_no_more(apart):
    told = torch.load(apart / "run/model.pt", weights_only=True)["description"]
    assert set(told["encoding"]["columns"][0]) == {
        *("name", "kind", "form", "mean", "deviation", "center", "scale", "missing")
    }
    text = json.dumps(told)
    assert not [owner for owner in ("ash", "birch", "elm") if f"{owner}.csv" in text]
    assert told["trained_on"]["files"] == []


WITHOUT_MPI = """
import sys
sys.modules["mpi4py"] = None  # an import of it fails
import fedmpi
from fedmpi import evaluate, predict
code = predict.main(sys.argv[1:3]) or evaluate.main(sys.argv[1:3])
sys.exit(code)
"""


def test_mpi_is_not_needed(train, tmp_path):
    people = write_people(tmp_path / "people.csv", {"a": 30, "b": 30})
    run = train("--dataset", f"csv:{people}", "--target", "y", "--group", "g", *FEW)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MPI, str(run.folder), str(people)],
        env=launcher(),
        capture_output=True,
        text=True,
        timeout=limit(),
    )
    assert done.returncode == 0, done.stderr
    header, *lines = done.stdout.splitlines()
    assert header == "u,v,g,y,predicted,probability/no,probability/yes"
    assert lines[60].startswith("group") and "60 rows scored" in done.stderr
