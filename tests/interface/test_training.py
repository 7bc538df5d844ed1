"""fedmpi.train(...) from Python: what the command does, without what a command may do."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from runs import launcher, limit, write_people

import fedmpi
from fedmpi.methods.fedminmax import FedMinMax

QUICK = {"rounds": 3, "model": "logistic", "solver": "paper"}
SMALL = QUICK | {"clients": 4}
FLAGS = ("--rounds", 3, "--model", "logistic", "--solver", "paper")


@pytest.fixture
def csv(tmp_path):
    return write_people(tmp_path / "people.csv", {"a": 40, "b": 60, "c": 24}, lifted="b")


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """An empty folder that the process starts in, and one that its temporary files go to."""
    for name in ("temporary", "cwd"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path


def figures(result: dict) -> dict:
    """What a run came to, without times and names."""
    return {name: {**group} for name, group in result["groups"].items()}


def test_a_frame_is_what_the_file_of_its_cells_is(train, csv, scratch):
    run = fedmpi.train(pd.read_csv(csv), target="y", group="g", **SMALL)
    command = train(
        "--dataset", f"csv:{csv}", "--target", "y", "--group", "g", *FLAGS, "--clients", 4
    )
    assert figures(run.result) == figures(command.result)
    assert run.config["dataset"].startswith("frame:")


def test_rows_to_test_with_and_owners_may_come_from_frames(train, csv, scratch):
    frame = pd.read_csv(csv)
    frame["bank"] = np.where(frame["u"] > 0, "north", "south")
    frame.iloc[::3].to_csv(csv, index=False)
    frame.iloc[1::3].to_csv(scratch / "test.csv", index=False)
    options = {"target": "y", "group": ["g"], "client": "bank"} | QUICK
    run = fedmpi.train(frame.iloc[::3], test=frame.iloc[1::3], **options)
    named = ("--test", scratch / "test.csv", "--client", "bank", *FLAGS)
    command = train("--dataset", f"csv:{csv}", "--target", "y", "--group", "g", *named)
    assert figures(run.result) == figures(command.result)
    assert list(run.partition.columns) == ["north", "south"]


def test_a_run_leaves_nothing_but_what_it_is_asked_for(csv, scratch):
    threads = torch.get_num_threads()
    answers = [signal.getsignal(s) for s in signal.valid_signals()]
    torch.set_num_threads(threads + 1)
    run = fedmpi.train(pd.read_csv(csv), target="y", group="g", **SMALL)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    assert answers == [signal.getsignal(s) for s in signal.valid_signals()]
    assert list(Path("..").glob("temporary/*")) == [Path("../temporary", run.folder.name)]
    kept = fedmpi.load(run.save("kept"))
    with pytest.raises(fedmpi.UserError, match="there already"):
        run.save("kept")
    del run
    assert os.listdir("../temporary") == []
    assert os.listdir(".") == ["kept"]
    assert kept.groups[["n_train", "n_test"]].to_numpy().sum() == 124


MISTAKES = (
    {"rounds": 0},
    {"rounds": "many"},
    {"method": "fedminmix"},
    {"model": "mlq"},
    {"setting": "XSG"},
    {"lr": float("nan")},
    {"fold": "4/3"},
    {"q": 1},
    {"group": "sex"},
    {"drop": ["u", "w"]},
    {"resume": True, "force": True},
    {"until": "gap=1"},
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_an_exception_with_the_line_of_the_command(mistake, train, csv, scratch):
    options = {"target": "y", "group": "g"} | SMALL | mistake
    words = []
    for name, value in options.items():
        text = ",".join(value) if isinstance(value, list) else value
        words += [f"--{name}", *([text] if value is not True else [])]
    with pytest.raises(fedmpi.UserError) as line:
        train("--dataset", f"csv:{csv}", *words)
    with pytest.raises(fedmpi.UserError) as same:
        fedmpi.train(f"csv:{csv}", **options)
    assert str(same.value) == str(line.value)
    assert os.listdir("../temporary") == []


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"rounts": 3}, "unknown option 'rounts'. Did you mean 'rounds'?"),
        ({"drop": ["u", "u"]}, "give names, each once"),
        ({"target": None}, "needs target="),
        ({"group": ()}, "needs group="),
        ({"group": "sex"}, "the DataFrame has no column 'sex'"),
        ({"target": "g", "group": "g", "clients": 200}, "clients"),
    ],
    ids=str,
)
def test_a_mistake_with_a_frame_names_the_frame(options, line, csv, scratch):
    with pytest.raises(fedmpi.UserError) as error:
        fedmpi.train(pd.read_csv(csv), **({"target": "y", "group": "g"} | SMALL | options))
    assert line in str(error.value)
    assert str(scratch) not in str(error.value)
    assert "first line" not in str(error.value)
    assert os.listdir("../temporary") == []


def test_a_frame_without_rows_and_a_test_frame_without_a_frame(csv, scratch):
    with pytest.raises(fedmpi.UserError, match="0 rows"):
        fedmpi.train(pd.read_csv(csv)[:0], target="y", group="g")
    with pytest.raises(fedmpi.UserError, match="give both as frames"):
        fedmpi.train(f"csv:{csv}", target="y", group="g", test=pd.read_csv(csv))


def test_a_finished_run_is_not_trained_again(csv, scratch):
    options = {"target": "y", "group": "g", "output": scratch / "run"} | SMALL
    first = fedmpi.train(pd.read_csv(csv), **options)
    again = fedmpi.train(pd.read_csv(csv), **options)
    assert again.result == first.result  # its seconds among them
    with pytest.raises(fedmpi.UserError, match="another configuration"):
        fedmpi.train(pd.read_csv(csv), **options | {"rounds": 4})
    assert fedmpi.train(pd.read_csv(csv), **options | {"rounds": 4, "force": True})
    assert fedmpi.load(scratch / "run").result["rounds"] == 4


class Patient(FedMinMax):
    """FedMinMax whose process gets a Ctrl-C in its second round."""

    def client_round(self, clients, now):
        if now.t == 2:
            os.kill(os.getpid(), signal.SIGINT)
        super().client_round(clients, now)


def test_ctrl_c_is_the_callers_and_a_class_serves_as_a_method(csv, scratch):
    data = (pd.read_csv(csv),)
    options = {"target": "y", "group": "g", "output": "run"} | SMALL
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        fedmpi.train(*data, Patient, **options)
    assert fedmpi.train(*data, **options).result["rounds"] == 3  # nothing holds the folder


LIGHT = """
import sys
import fedmpi
fedmpi.train
heavy = {"mpi4py", "numpy", "pandas", "torch"}
assert not heavy & set(sys.modules), sys.modules.keys() & heavy
run = fedmpi.load(sys.argv[1])
run.groups, run.history, run.partition, run.config, run.result, run.notes, repr(run)
assert not {"mpi4py", "torch"} & set(sys.modules)
sys.modules["mpi4py"] = None  # as if it were not installed
import pandas
rows = pandas.read_csv(sys.argv[2])
assert set(run.model.predict(rows)) <= {"no", "yes"}
assert run.evaluate(rows).groups["n_test"].sum() == len(rows) == 124
assert {"train", "load", "Run", "UserError", "FedMinMaxClassifier"} <= set(dir(fedmpi))
"""


def test_to_look_at_a_run_starts_neither_mpi_nor_torch_and_to_score_no_mpi(train, csv):
    data = ("--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--clients", 4)
    run = train(*data, *FLAGS)
    command = [sys.executable, "-c", LIGHT, run.folder, csv]
    subprocess.run(command, env=launcher(), check=True, timeout=limit())


ON_RANKS = """
import json, os, sys
from pathlib import Path
import pandas as pd
import fedmpi
from fedmpi.methods.fedminmax import FedMinMax

class Broken(FedMinMax):
    def client_round(self, clients, now):
        if now.t == 2:
            raise RuntimeError("broken on purpose")
        super().client_round(clients, now)

frame = pd.read_csv(sys.argv[1])
options = dict(target="y", group="g", rounds=3, model="logistic", dtype="float64")
options |= dict(solver="paper", clients=4)
run = fedmpi.train(frame, **options)
if run:
    Path("groups.json").write_text(json.dumps(run.result["groups"]))
try:
    fedmpi.train(frame, **options | {"group": "sex"})
except fedmpi.UserError as error:
    Path(f"refused-{os.getpid()}").write_text(str(error))
centralized = fedmpi.train(frame, "centralized", **options | {"clients": None})
assert (run is None) == (centralized is None)
if len(sys.argv) > 2:
    fedmpi.train(frame, Broken, **options)
    Path("after").touch()
"""


@pytest.mark.launch
@pytest.mark.once
def test_the_same_call_under_mpirun(mpirun, csv, scratch):
    (scratch / "script.py").write_text(ON_RANKS)
    done = mpirun(3, "script.py", csv)
    assert done.returncode == 0, done.stderr
    groups = json.loads((scratch / "groups.json").read_text())
    refused = [path.read_text() for path in scratch.glob("refused-*")]
    assert len(refused) == 3 and len(set(refused)) == 1
    assert "the DataFrame has no column 'sex'" in refused[0]
    options = {"target": "y", "group": "g", "dtype": "float64"} | SMALL
    alone = fedmpi.train(pd.read_csv(csv), **options).result["groups"]
    for name, group in alone.items():
        assert group["risk"] == pytest.approx(groups[name]["risk"], rel=1e-12)


@pytest.mark.launch
def test_an_error_of_one_rank_ends_all_ranks(mpirun, csv, scratch):
    (scratch / "script.py").write_text(ON_RANKS)
    done = mpirun(3, "script.py", csv, "break")
    assert done.returncode != 0
    assert "RuntimeError: broken on purpose" in done.stderr
    assert not (scratch / "after").exists()
