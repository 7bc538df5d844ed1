"""One run at a time in a folder, and a lock that never outlives its run."""

import os
import signal
import subprocess
import sys

import pytest
from input_cases import TABLE
from runs import REPOSITORY, Run, launcher, limit

from fedmpi.errors import UserError
from fedmpi.run.lock import Lock

OPTIONS = ["--dataset", "csv:p.csv", "--target", "y", "--group", "g", "--clients", "4"]


def command(*options: object) -> list[str]:
    return [sys.executable, "-m", "fedmpi.train", *OPTIONS, *map(str, options)]


def test_the_second_is_refused_until_the_first_is_done(tmp_path):
    first, second = Lock(tmp_path), Lock(tmp_path)
    first.take()
    first.take()  # twice is once
    with pytest.raises(UserError, match=rf"another run \(process {os.getpid()} on .*--output"):
        second.take()
    second.release()  # what it does not hold
    with pytest.raises(UserError):
        second.take()
    first.release()
    assert not list(tmp_path.iterdir())
    second.take()
    second.release()


def test_a_file_that_is_left_locks_nobody_out(tmp_path):
    (tmp_path / ".lock").write_text("process 1 on nowhere")
    lock = Lock(tmp_path)
    lock.take()
    lock.release()
    assert not list(tmp_path.iterdir())


def test_the_file_that_counts_is_the_one_in_place(tmp_path, monkeypatch):
    """The holder ends, and removes its file, between our opening and our locking of it."""
    import fedmpi.run.lock

    flock, calls = fedmpi.run.lock.fcntl.flock, []

    def late(file, how):
        if not calls:
            (tmp_path / ".lock").unlink()
        calls.append(file)
        flock(file, how)

    monkeypatch.setattr(fedmpi.run.lock.fcntl, "flock", late)
    lock = Lock(tmp_path)
    lock.take()
    assert len(calls) == 2
    with pytest.raises(UserError):
        Lock(tmp_path).take()
    lock.release()


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    import fedmpi.run.lock

    def unsupported(file, how):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fedmpi.run.lock.fcntl, "flock", unsupported)
    lock = Lock(tmp_path)
    lock.take()
    lock.release()
    assert not list(tmp_path.iterdir())


@pytest.mark.launch
@pytest.mark.once
def test_two_runs_into_one_folder_at_once(tmp_path, mpirun, train, monkeypatch):
    """The second gets a line, whatever it asks for; a run that is killed leaves the way free."""
    (tmp_path / "p.csv").write_text(TABLE)
    long = ("--rounds", "1000000", "--eval-every", "1000", "--checkpoint-every", "1000000")
    first = subprocess.Popen(
        command("--output", "out", *long),
        cwd=tmp_path,
        env=launcher(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert any(line.startswith("round 1/") for line in first.stdout)
        first.send_signal(signal.SIGSTOP)  # it keeps its lock, and leaves the cores to the second
        before = (tmp_path / "out/config.json").read_bytes()
        second = [*OPTIONS, "--output", "out", "--rounds", "2", "--force"]
        done = mpirun(3, "-m", "fedmpi.train", *second)
        assert done.returncode == 2
        said = [line for line in done.stderr.splitlines() if line.startswith("fedmpi:")]
        assert len(said) == 1 and f"another run (process {first.pid} on " in said[0]
        assert "Traceback" not in done.stderr
        assert (tmp_path / "out/config.json").read_bytes() == before
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    assert first.returncode == -signal.SIGKILL
    assert (tmp_path / "out/.lock").exists()
    monkeypatch.chdir(tmp_path)
    assert train(*OPTIONS, "--rounds", "2", "--force", output="out").result["rounds"] == 2
    assert not (tmp_path / "out/.lock").exists()


@pytest.mark.launch
@pytest.mark.once
@pytest.mark.parametrize("count", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_several_runs_at_once_in_one_folder(tmp_path, train, monkeypatch, count):
    """They prepare the same data at once, and do not disturb each other."""
    (tmp_path / "p.csv").write_text(TABLE)
    # With a test file the seed does not choose rows: all of them want the same prepared folder.
    options = ("--test", "p.csv", "--rounds", "3", "--model", "logistic", "--dtype", "float64")
    options += ("--solver", "paper")
    runs = [
        subprocess.Popen(
            command(*options, "--seed", seed),
            cwd=tmp_path,
            env=launcher(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(count)
    ]
    for run in runs:
        _, said = run.communicate(timeout=limit())
        assert run.returncode == 0, said
    assert len(list((tmp_path / "data/prepared").iterdir())) == 1
    results = [Run(tmp_path / f"runs/csv-p-ESG-fedminmax-s{seed}").result for seed in range(count)]
    assert len({result["worst_risk"] for result in results}) == count
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "p.csv").write_text(TABLE)
    monkeypatch.chdir(alone)
    result = train(*OPTIONS, *options, "--seed", 2, "--data-dir", "data", output="alone/run").result
    assert result["groups"] == results[2]["groups"]


PREPARE = """
import os, sys, time
from pathlib import Path
import pandas
from fedmpi.data import find
from fedmpi.data import store, prepare
from fedmpi.data.options import DataOptions

version = store.FORMAT = prepare.FORMAT = int(sys.argv[1])
Path(f"{version}-{os.getpid()}").touch()
while len(list(Path(".").glob(f"{version}-*"))) < 3:
    time.sleep(0.001)
for rows in range(100, 110):
    found = prepare.prepare(find("synthetic"), Path("data"), DataOptions(rows=rows))
    assert found.rows("train") == rows
"""


def test_two_processes_that_prepare_the_same_data_both_succeed(tmp_path):
    """Ten datasets in a row, begun at the same moment; then again with folders to be replaced."""
    for version in ("1001", "1002"):
        arguments = [sys.executable, "-c", PREPARE, version]
        environment = launcher() | {"PYTHONPATH": str(REPOSITORY)}
        processes = [
            subprocess.Popen(arguments, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
            for _ in range(3)
        ]
        for process in processes:
            _, said = process.communicate(timeout=limit())
            assert process.returncode == 0, said.decode()
    assert len(list((tmp_path / "data/prepared").iterdir())) == 10
