"""fedmpi.train as a user starts it: what it prints, what it leaves, how it refuses."""

import json
import os
import re
import time

import numpy as np
import pytest
import torch
from runs import Run, cut_off_after, limit, write_people

from fedmpi.errors import UserError
from fedmpi.run.arguments import resolve


@pytest.fixture
def people(tmp_path):
    """A small CSV of four groups."""
    return write_people(tmp_path / "people.csv", {"a": 60, "b": 50, "c": 40, "d": 30})


@pytest.fixture
def options(people, tmp_path):
    """A run of seconds."""
    data = ["--dataset", f"csv:{people}", "--target", "y", "--group", "g", "--clients", "8"]
    return [*data, "--data-dir", tmp_path / "data", "--rounds", "5", "--output", tmp_path / "run"]


@pytest.mark.launch
def test_what_the_user_sees_and_what_a_run_leaves(mpirun, options, tmp_path):
    done = mpirun(3, "-m", "fedmpi.train", *options, "--setting", "PSG")
    assert done.returncode == 0, done.stderr
    run = Run(tmp_path / "run")
    assert {p.name for p in run.folder.iterdir()} == {
        "bootstrap.npz",
        "config.json",
        "history.csv",
        "model.pt",
        "partition.npz",
        "result.json",
    }
    assert re.search(r"setting +PSG\n", done.stdout) and "8 clients" in done.stdout
    assert "round 5/5" in done.stdout
    lines = done.stdout.splitlines()
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("group ")) :]
    assert [line.split()[0] for line in table[1:5]] == ["a", "b", "c", "d"]
    told = "".join(table[6:])
    assert told.index("worst") < told.index("best") < told.index("average")
    assert "of few test rows" in told

    assert run.config["layout"]["ranks"] == 3
    assert sum(run.config["layout"]["clients_per_rank"]) == 8
    assert [int(row["round"]) for row in run.history] == [1, 2, 3, 4, 5]
    groups = run.result["groups"]
    assert sum(g["n_train"] for g in groups.values()) == 144
    assert sum(g["n_test"] for g in groups.values()) == 36
    assert sum(g["weight"] for g in groups.values()) == pytest.approx(1)
    worst = max(groups, key=lambda name: groups[name]["risk"])
    assert run.result["worst_group"] == worst
    assert run.result["worst_risk"] == groups[worst]["risk"]
    assert run.result["average_risk"] == pytest.approx(
        np.mean([g["risk"] for g in groups.values()])
    )
    for g in groups.values():
        confusion = np.array(g["confusion"])
        assert confusion.sum() == g["n_test"]
        assert g["accuracy"] == pytest.approx(np.trace(confusion) / confusion.sum())
        for what in ("risk", "accuracy"):
            low, high = g[f"{what}_interval"]
            assert low <= g[what] <= high and low < high
    with np.load(run.folder / "partition.npz") as partition:
        assert partition["P_A"].shape == (4, 8)
        assert partition["P_A"].sum(axis=0) == pytest.approx(np.ones(8))


@pytest.mark.launch
@pytest.mark.once
def test_the_server_holds_no_rows_and_spare_ranks_wait(mpirun, options, tmp_path):
    done = mpirun(4, "-m", "fedmpi.train", *options, "--method", "centralized")
    assert done.returncode == 0, done.stderr
    layout = Run(tmp_path / "run").config["layout"]
    assert layout["ranks"] == 2 and layout["clients_per_rank"] == [1]


def test_a_finished_run_is_known_again_and_not_overwritten(train, options, people):
    from fedmpi.run.folder import RunFolder

    options = [*options[:-2], "--solver", "fast"]
    run = train(*options)
    before = {p.name: p.read_bytes() for p in run.folder.iterdir()}
    given = [str(o) for o in (*options, "--output", run.folder, "--progress", "none")]
    same = resolve(given, 1, one_process=True)
    assert RunFolder(run.folder).finished(same.identity()) == run.result
    with pytest.raises(UserError, match=r"lr 0\.2, not 0\.5.*--force"):
        train(*options, "--lr", "0.5")
    with pytest.raises(UserError, match="'yy'"):
        train(*options, "--target", "yy", "--force")  # a slip costs nothing, even with --force
    assert before == {p.name: p.read_bytes() for p in run.folder.iterdir()}
    people.write_text(people.read_text().replace("yes", "no", 1))
    other = resolve(given, 1, one_process=True)  # the same name, other rows
    assert RunFolder(run.folder).finished(other.identity()) is None


@pytest.mark.parametrize("method", ["fedminmax", "afl", "localfedminmax", "fedavg", "term"])
def test_resume_is_bit_for_bit_what_an_uninterrupted_run_gives(train, options, method, tmp_path):
    """The first run is cut off after its checkpoint at round 4; six rounds in all."""
    options = [*options[:-4], "--method", method, "--clients", "5", "--checkpoint-every", "4"]
    if method in ("fedavg", "term"):
        options += ["--local-epochs", "2"]
    whole = train(*options, "--rounds", "6", output="whole")

    with cut_off_after(5):
        train(*options, "--rounds", "6", output="cut")
    with pytest.raises(UserError, match="--resume"):
        train(*options, "--rounds", "6", output="cut")
    resumed = train(*options, "--rounds", "6", "--resume", output="cut")
    for which in ("last", "averaged"):
        assert np.array_equal(resumed.theta(which), whole.theta(which))
    timeless = [{k: v for k, v in row.items() if k not in TIMES} for row in resumed.history]
    assert timeless == [{k: v for k, v in row.items() if k not in TIMES} for row in whole.history]


TIMES = ("seconds", "compute", "exchange", "wait")


def test_resume_refuses_another_configuration(train, options):
    options = [*options[:-4], "--clients", "5", "--checkpoint-every", "1"]
    import fedmpi.federation.server

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyError):
        patch.setattr(fedmpi.federation.server.Server, "save_checkpoint", saves_then_dies())
        train(*options, "--rounds", "3", output="cut")
    with pytest.raises(UserError, match=r"lr was 0\.01, now 0\.5"):
        train(*options, "--rounds", "3", "--lr", "0.5", "--resume", output="cut")


def saves_then_dies():
    import fedmpi.federation.server

    save = fedmpi.federation.server.Server.save_checkpoint

    def save_then_die(self, t, tables):
        save(self, t, tables)
        raise KeyError

    return save_then_die


REFUSED = {
    "a dataset that is not there": (["--dataset", "adlut"], "'adult'"),
    "a method that is not there": (["--method", "fedminimax"], "'fedminmax'"),
    "a setting that is not there": (["--setting", "PSSG"], "'SSG'"),
    "a model that is not there": (["--model", "mpl"], "'mlp'"),
    "a loss that is not there": (["--loss", "brierr"], "'brier'"),
    "a class that is not there": (["--method", "fedmpi.mpi.ranks:Nothing"], "package.module:Class"),
    "a class that is no method": (["--method", "fedmpi.mpi.ranks:Ranks"], "not a subclass"),
    "an option that is not there": (["--roundz", "3"], "--roundz"),
    "no number": (["--rounds", "many"], "'many'"),
    "no rounds": (["--rounds", "0"], "at least 1"),
    "a negative step": (["--lr", "-1"], "above 0"),
    "a step that is no number": (["--lr", "nan"], "above 0"),
    "an option of another method": (["--q", "2"], "--method fedminmax"),
    "an option of another dataset": (["--rows", "20"], "--dataset csv"),
    "fewer clients than client ranks": (["--clients", "1"], "mpirun -n 2"),
    "a missing column": (["--target", "yy"], "'y'"),
    "a missing file": (["--dataset", "csv:nowhere.csv"], "nowhere.csv"),
    "more clients than rows of a group": (["--clients", "100"], "--clients 24"),
    "fewer clients than groups": (["--setting", "SSG", "--clients", "3"], "--clients 4 or more"),
    "a floor that does not fit": (["--epsilon", "0.3"], "at most 0.25"),
    "nothing to resume": (["--resume"], "no checkpoint"),
    "both ways at once": (["--resume", "--force"], "one of them"),
    "a GPU that is not there": (["--device", "cuda"], "--device cpu"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_clear_line_and_nothing_written(train, options, case, tmp_path):
    if case == "a GPU that is not there" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    arguments, hint = REFUSED[case]
    with pytest.raises(UserError) as caught:
        if case == "fewer clients than client ranks":
            resolve([str(o) for o in [*options, *arguments]], 2, one_process=False)
        train(*options[:-2], *arguments)
    assert hint in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.launch
@pytest.mark.parametrize(
    "case",
    [
        "a method that is not there",
        pytest.param("more clients than rows of a group", marks=pytest.mark.once),
    ],
)
def test_a_refusal_is_one_line_and_ends_every_rank(mpirun, options, case):
    arguments, hint = REFUSED[case]
    done = mpirun(3, "-m", "fedmpi.train", *options, *arguments)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("fedmpi:")]
    assert len(said) == 1 and hint in said[0]
    assert "Traceback" not in done.stderr


@pytest.mark.launch
@pytest.mark.parametrize("fault", ["OneRaises", pytest.param("AllRaise", marks=pytest.mark.once)])
def test_an_exception_on_a_rank_ends_the_job_with_one_message(mpirun, options, fault):
    # Who only ended by the stall-timeout would be ended by the limit of a launch before.
    stall = ["--stall-timeout", 10 * limit()]
    done = mpirun(3, "-m", "fedmpi.train", *options, *stall, "--method", f"faulty:{fault}")
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("fedmpi:")]
    assert len(said) == 1 and said[0].endswith("ValueError: a bad day"), done.stderr
    assert fault == "AllRaise" or "rank 2 of 3" in said[0]
    assert done.stderr.count("Traceback") == 1


@pytest.mark.launch
def test_a_rank_that_stands_still_is_named(mpirun, options):
    stall = ["--method", "faulty:Stops", "--stall-timeout", limit(3)]
    done = mpirun(3, "-m", "fedmpi.train", *options, *stall)
    assert done.returncode != 0
    assert "Ranks missing from the exchange: 2." in done.stderr


@pytest.mark.launch
def test_help_is_printed_once(mpirun):
    done = mpirun(3, "-m", "fedmpi.train", "--help")
    assert done.returncode == 0 and done.stdout.count("floor of the group") == 1


def test_ranks_import_nothing_heavy(tmp_path):
    """Beside torch and numpy: pandas and the like stay with preparation and report."""
    import subprocess
    import sys

    code = "import sys, fedmpi.federation.job; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"torch", "numpy", "mpi4py"} <= loaded
    assert not loaded & {"pandas", "sklearn", "matplotlib", "torchvision", "folktables"}


def test_the_command_line_is_checked_before_torch_is_imported():
    import subprocess
    import sys

    code = "import sys, fedmpi.train, fedmpi.run.arguments; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_config_json_is_json(train, options):
    run = train(*options[:-2])
    text = (run.folder / "result.json").read_text()
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


def test_states_are_the_same_run_however_they_are_written():
    def identity(*states):
        options = ["--dataset", "acs-race", *states]
        return resolve(options, 2, one_process=False).identity()

    two = identity("--states", "ma,RI")
    assert two == identity("--states", "RI,MA") != identity("--states", "MA")
    assert identity("--states", "ALL") == identity("--states", "all")


@pytest.mark.launch
@pytest.mark.once
def test_a_job_that_is_suspended_as_a_whole_goes_on(options, tmp_path):
    """Ctrl-Z for longer than --stall-timeout, then fg: nobody was missing."""
    import signal
    import subprocess
    import sys

    from runs import launcher

    stall = limit(3)
    slow = [*options, "--stall-timeout", stall, "--rounds", "400", "--eval-every", "10"]
    command = ["mpirun", "-n", "3", sys.executable, "-m", "fedmpi.train", *map(str, slow)]
    job = subprocess.Popen(
        command, env=launcher(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        for line in job.stdout:
            if line.startswith("round 1/"):
                break
        ranks = [pid for pid in descendants(job.pid) if "fedmpi.train" in command_of(pid)]
        ranks = [pid for pid in ranks if "mpirun" not in command_of(pid)]
        assert len(ranks) == 3
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(stall + 2)
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)
        rest, _ = job.communicate(timeout=limit())
        assert job.returncode == 0, rest
    finally:
        job.kill()


def descendants(pid: int) -> list[int]:
    """All processes below `pid`."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as children:
            for child in map(int, children.read().split()):
                found += [child, *descendants(child)]
    return found


def command_of(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().replace("\0", " ")
