"""--log: trackers have in their own files and stores what history.csv and result.json say."""

import math
import sys

import pytest
from runs import write_people

from fedmpi.errors import UserError
from fedmpi.run import logs

MODULE = """
from fedmpi.run.logs import Log

CALLS = []

class Kept(Log):
    def start(self, config):
        CALLS.append(("start", config["rounds"], config["resume"]))
    def log(self, t, numbers):
        CALLS.append(("log", t, numbers))
    def finish(self, result):
        CALLS.append(("finish", result and result["worst_group"]))

class Breaks(Kept):
    def log(self, t, numbers):
        raise OSError("no space")

class Refuses(Log):
    def start(self, config):
        raise RuntimeError("who are you?")
"""


@pytest.fixture
def people(tmp_path, monkeypatch) -> list[object]:
    """Options of a small run, whose groups have names that not every tracker takes."""
    monkeypatch.chdir(tmp_path)
    csv = write_people(tmp_path / "people.csv", {"a <= 1": 60, "a >= 1": 40})
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--clients", 3]
    return [*data, "--model", "logistic", "--rounds", 4, "--eval-every", 1]


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "mylogs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mylogs", raising=False)
    import mylogs

    return mylogs


def expected(run) -> dict[str, list[tuple[int, float]]]:
    """Series of (round, number) by name, from the files of the run."""
    series = {
        name: [(int(row["round"]), float(row[name])) for row in run.history if row[name]]
        for name in run.history[0]
        if name != "round"
    }
    for name, group in run.result["groups"].items():
        for what in ("risk", "accuracy"):
            series[f"test/{what}/{name}"] = [(4, group[what])]
    return series


def same(found: list[tuple[int, float]], wanted: list[tuple[int, float]]) -> bool:
    steps, values = zip(*found, strict=True)
    return list(zip(steps, values, strict=True)) == [
        (t, pytest.approx(x, rel=1e-6)) for t, x in wanted
    ]


def test_tensorboard(train, people):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(*people, "--log", "tensorboard")
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    wanted = expected(run)
    assert wanted.keys() <= set(events.Tags()["scalars"])
    for name, series in wanted.items():
        assert same([(e.step, e.value) for e in events.Scalars(name)], series), name


def test_mlflow(train, people, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/store.db")
    from mlflow import MlflowClient

    run = train(*people, "--log", "mlflow")
    client = MlflowClient()
    experiment = client.get_experiment_by_name("fedmpi")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED" and found.data.params["rounds"] == "4"
    for name, series in expected(run).items():
        told = name.replace("a <= 1", "a __ 1").replace("a >= 1", "a __ 1 2")
        history = client.get_metric_history(found.info.run_id, told)
        assert same(sorted((m.step, m.value) for m in history), series), name
    assert [file.path for file in client.list_artifacts(found.info.run_id)] == ["result.json"]

    # A run that is resumed goes on in the same run of MLflow's, another does not.
    config = {"output": str(run.folder), "resume": True}
    for resume in (True, False):
        log = logs.MLflow()
        log.start(config | {"resume": resume})
        log.log(5, {"worst": 0.25})
        log.finish(None)
        history = client.get_metric_history(found.info.run_id, "worst")
        assert [m.step for m in history].count(5) == 1
    assert len(client.search_runs([experiment.experiment_id])) == 2


def test_wandb(train, people, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = train(*people, "--log", "wandb")
    wandb.teardown()  # waits for the process of wandb's own that writes the file
    (file,) = (run.folder / "wandb").glob("offline-run-*/run-*.wandb")
    known = (run.folder / "wandb.id").read_text().strip()
    assert known in file.name
    content = file.read_bytes()
    for name in ("worst", "risk/a <= 1", "test/risk/a >= 1"):
        assert name.encode() in content


def test_ones_own_sees_the_rows_and_the_result(train, people, module):
    run = train(*people, "--log", "mylogs:Kept")
    first, *rows, last = module.CALLS
    assert first == ("start", 4, False) and last == ("finish", run.result["worst_group"])
    assert [t for _, t, _ in rows] == [1, 2, 3, 4, 4]
    assert rows[1][2]["worst"] == float(run.history[1]["worst"])
    assert all(math.isfinite(x) for _, _, numbers in rows for x in numbers.values())


def test_one_that_fails_is_left_out_and_the_run_goes_on(train, people, module, capsys):
    run = train(*people, "--log", "mylogs:Breaks,mylogs:Kept")
    assert run.result["rounds"] == 4
    told = capsys.readouterr().err
    assert told.count("--log mylogs:Breaks failed, and is left out from here: OSError") == 1
    assert [call[0] for call in module.CALLS] == ["start", "start", *["log"] * 5, "finish"]


def test_a_run_that_does_not_end_is_said_to(train, people, module):
    with pytest.raises(UserError, match="too long"):
        train(*people, "--log", "mylogs:Kept", "--lr", 1e308)
    assert module.CALLS[-1] == ("finish", None)


def test_one_that_cannot_start_ends_the_run_before_its_rounds(train, people, module, tmp_path):
    with pytest.raises(UserError, match=r"--log mylogs:Refuses: RuntimeError: who are you\?"):
        train(*people, "--log", "mylogs:Refuses")
    assert not (tmp_path / "run/history.csv").exists()


def test_a_missing_package_is_one_line_with_what_to_install(monkeypatch, tmp_path):
    """A folder of the package's name, as W&B leaves one, is no package."""
    monkeypatch.setitem(logs.LOGS, "tensorboard", (logs.TensorBoard, "absent_log", "tensorboard"))
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        with pytest.raises(UserError, match=r'needs the package absent_log: pip .*"\.\[tensorb'):
            logs.find(["tensorboard"])
        (tmp_path / "absent_log").mkdir(exist_ok=True)


def test_names_stay_apart():
    names = logs._Names(r"[^\w ]")
    assert [names.of(x) for x in ("a<b", "a>b", "a b", "a<b")] == ["a_b", "a_b 2", "a b", "a_b"]
