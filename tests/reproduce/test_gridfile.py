"""grid.json: what it keeps of the runs, and what it refuses."""

import json
import math
import shutil

import numpy as np
import pytest

from fedmpi.errors import UserError
from fedmpi.report.collect import collect
from fedmpi.reproduce import gridfile
from fedmpi.reproduce.gridfile import find_runs, read_grid, runs_of, write_grid
from fedmpi.reproduce.statistics import Mean, Run, figures_of, means_of
from fedmpi.scoring.fairness import RATES

OPTIONS = (
    "--dataset synthetic --rows 90 --limit-test 100 --rounds 6 "
    "--model logistic --clients 3 --lr 0.5"
)


@pytest.fixture
def grid(train, tmp_path):
    """A folder of results: FedMinMax with two seeds and FedAvg with one, and its grid file."""
    for method, seed in (("fedminmax", 0), ("fedminmax", 1), ("fedavg", 0)):
        options = [*OPTIONS.split(), "--seed", seed, "--method", method]
        train(*options, output=f"results/small/runs/{method}-{seed}")
    folder = tmp_path / "results/small"
    write_grid(folder, runs_of(folder))
    return folder


def test_what_is_kept_is_what_the_runs_know(grid):
    kept, read = read_grid(grid / "grid.json"), runs_of(grid)
    assert [r.folder for r in kept] == [r.folder for r in read]
    assert figures_of(kept) == figures_of(read)  # to the last digit
    for ours, theirs in zip(kept, read, strict=True):
        assert ours.rows == len(theirs.history["round"]) == 6
        for name, column in ours.history.items():
            assert column == pytest.approx(theirs.history[name], rel=1e-4)
        ends, whole = (r.result["groups"]["A=0"]["risk_interval"] for r in (ours, theirs))
        assert ends == pytest.approx(whole, rel=1e-4) and len(str(ends)) < len(str(whole))
        assert np.array_equal(ours.partition["counts"], theirs.partition["counts"])
        assert ours.clients == 3 and len(ours.h) == 240
        science = {"method", "setting", "seed", "clients", "rounds", "lr", "lr_mu", "model", "loss"}
        assert all(ours.config.get(key) == theirs.config.get(key) for key in science)
    told = json.loads((grid / "grid.json").read_text())
    assert len(told["partitions"]) == 2 and len(told["means"]) == 2  # one for each seed
    assert told["means"][0]["method"] == "fedavg"
    assert {"risk", "accuracy", "seconds", *RATES} < set(told["means"][0]["means"])
    assert told["config"]["dataset"] == "synthetic" and "seed" not in told["config"]


def test_it_names_no_folder_and_no_host(grid, tmp_path):
    config = json.loads((grid / "runs/fedavg-0/config.json").read_text())
    for path in grid.glob("runs/*/*.json"):
        told = json.loads(path.read_text()) | {"dataset": f"csv:{tmp_path}/people.csv"}
        tuned = {"tuned": f"{tmp_path}/tuned.json"} if path.name == "config.json" else {}
        path.write_text(json.dumps(told | tuned))
    write_grid(grid, runs_of(grid))
    text = (grid / "grid.json").read_text()
    assert str(tmp_path) not in text and "command" not in text
    assert not any(f'"{host}"' in text for host in config["layout"]["hosts"])


def test_long_curves_are_thinned_to_a_file_of_moderate_size(grid, monkeypatch):
    for path in grid.glob("runs/*/history.csv"):
        head = path.read_text().splitlines()[0]
        width = len(head.split(",")) - 1
        rows = [",".join([str(t), *["0.123456789"] * width]) for t in range(1, 3001)]
        path.write_text("\n".join([head, *rows]) + "\n")
    monkeypatch.setattr(gridfile, "NUMBERS", 1200)
    write_grid(grid, runs_of(grid))
    for record in read_grid(grid / "grid.json"):
        rounds = record.history["round"]
        assert 20 <= len(rounds) < 60 and (rounds[0], rounds[-1]) == (1, 3000)
        assert record.rows == 3000
    assert (grid / "grid.json").stat().st_size < 40_000


def test_further_seeds_have_no_curves_and_no_rates(grid, monkeypatch):
    """Of three runs, two are of one method: its second seed is the further one."""
    monkeypatch.setattr(gridfile, "DETAILED", 1)
    whole = figures_of(runs_of(grid))
    write_grid(grid, runs_of(grid))
    kept = {record.folder.name: record for record in read_grid(grid / "grid.json")}
    for name, record in kept.items():
        further = name == "fedminmax-1"
        assert ("history" in record.kept, "fairness" in record.result) == (not further, not further)
        assert record.result["groups"]["A=0"]["risk"] > 0 and record.clients == 3
    assert figures_of(list(kept.values())) == whole
    shutil.rmtree(grid / "runs")
    (section,) = collect(find_runs([grid]), [grid])["sections"]
    assert "curves and rates of seeds after the first three" in section["notes"][0]


def test_many_clients_are_kept_as_far_as_they_can_be_seen(grid, monkeypatch):
    monkeypatch.setattr(gridfile, "CLIENTS", 2)
    write_grid(grid, runs_of(grid))
    for record in read_grid(grid / "grid.json"):
        assert record.partition["counts"].shape == (2, 2) and record.clients == 3


def test_run_folders_come_before_the_file_which_stands_in_for_them(grid, tmp_path):
    assert not any(isinstance(r, gridfile.KeptRecord) for r in find_runs([tmp_path / "results"]))
    shutil.rmtree(grid / "runs")
    for folder in (grid, tmp_path / "results"):
        found = find_runs([folder])
        assert len(found) == 3 and all(isinstance(r, gridfile.KeptRecord) for r in found)
    assert len(find_runs([grid, tmp_path / "results"])) == 3  # each once
    before = (grid / "grid.json").read_bytes()
    write_grid(grid, runs_of(grid))  # what is left must not replace itself
    assert (grid / "grid.json").read_bytes() == before


def test_what_cannot_be_kept_is_left_out(grid):
    for name in ("history.csv", "partition.npz", "model.pt"):
        (grid / "runs/fedavg-0" / name).write_bytes(b"\x00")
    result = grid / "runs/fedavg-0/result.json"
    told = json.loads(result.read_text())
    told["groups"]["A=1"]["risk"] = math.nan
    result.write_text(json.dumps(told))
    write_grid(grid, runs_of(grid))
    damaged = next(r for r in read_grid(grid / "grid.json") if r.folder.name == "fedavg-0")
    assert damaged.kept == {} and damaged.h is None
    assert damaged.result["groups"]["A=1"]["risk"] is None
    for name in ("history", "partition", "rows"):
        with pytest.raises(FileNotFoundError):
            getattr(damaged, name)


def test_means_stand_where_the_runs_do_not_know_their_numbers(grid):
    path = grid / "grid.json"
    told = json.loads(path.read_text())
    for run in told["runs"]:
        del run["result"]["groups"]["A=0"]["risk"]
    means = {"risk": {"A=0": [0.5, 0.1, 2], "worst": [9.0, 9.0, 1]}}
    run = {"clients": 3, "setting": "ESG", "method": "fedminmax", "parameter": ""}
    path.write_text(json.dumps(told | {"means": [run | {"means": means}]}))
    figures = figures_of(read_grid(path))
    ours = Run(**run)
    assert figures.get("risk", ours, "A=0") == Mean(0.5, 0.1, 2)
    assert figures.get("risk", ours, "worst").mean < 1  # the runs know better
    assert figures.get("risk", ours._replace(method="fedavg"), "A=0") is None
    fedavg = [r for r in read_grid(path) if r.result["method"] == "fedavg"]
    assert ("risk", "A=0") not in means_of(fedavg)


def test_the_worst_group_of_an_old_file_is_the_one_whose_mean_is(grid):
    """It kept the mean of each run's own worst, which is larger than any group's."""
    path = grid / "grid.json"
    told = json.loads(path.read_text())
    ours = next(entry for entry in told["means"] if entry["method"] == "fedminmax")["means"]["risk"]
    largest = max(ours["A=0"][0], ours["A=1"][0])
    ours["worst"][0] = largest + 1
    path.write_text(json.dumps(told))
    records = [r for r in read_grid(path) if r.config["method"] == "fedminmax"]
    assert means_of(records)["risk", "worst"].mean == largest


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "means": [], "runs": [{}]}']
)
def test_another_file_of_that_name_is_one_line(tmp_path, text):
    (tmp_path / "grid.json").write_text(text)
    with pytest.raises(UserError, match=r"grid\.json cannot be read as a grid of runs") as caught:
        find_runs([tmp_path])
    assert "\n" not in str(caught.value)
