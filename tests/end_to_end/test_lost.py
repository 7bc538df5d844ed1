"""From what a launcher says to the clients that were lost; and fedmpi.run.supervise around it."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import is_of_a_process
from runs import limit

from fedmpi.mpi.launcher import resumed
from fedmpi.run import lost_ranks, supervise

MPICH = """
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 70 RUNNING AT node1
=   EXIT CODE: 9
"""
OPEN_MPI = """
prterun noticed that process rank 2 with PID 72 on node node1 exited on
signal 9 (Killed).
"""


@pytest.fixture
def folder(tmp_path):
    processes = [("node1", 70), ("node1.cluster", 71), ("node1", 72), ("node2", 72)]
    hosted = [[], [0, 3], [1, 4, 5, 6], [2]]
    text = lost_ranks.where(
        processes, hosted, "mpirun -n 4 python -m fedmpi.train --force --seed 1"
    )
    (tmp_path / "ranks.json").write_text(json.dumps(text))
    return tmp_path


def test_open_mpi_names_the_rank(folder):
    assert lost_ranks.who(folder, OPEN_MPI) == "rank 2 (PID 72 on node1) with clients 1, 4-6"
    assert lost_ranks.who(folder, OPEN_MPI.replace("node1", "node2")).endswith("with client 2")


def test_mpich_names_the_host(folder):
    assert (
        lost_ranks.who(folder, MPICH) == "one of the ranks 0-2 on node1, which had clients 0-1, 3-6"
    )


@pytest.mark.parametrize(
    "said",
    [
        "Connection to node1 closed by remote host.\n[mpiexec@node0] control_cb: assert failed",
        "HNP daemon: [prterun-a@0,0] on node n0\n  Remote daemon: [prterun-a@0,1] on node node1",
    ],
)
def test_a_host_that_went_away_is_named_whatever_ended_here_after_it(folder, said):
    wanted = "the host node1: ranks 0-2 with clients 0-1, 3-6"
    assert lost_ranks.who(folder, said) == lost_ranks.who(folder, said, pid=72) == wanted
    assert lost_ranks.who(folder, said.replace("node1", "node3")) is None


def test_nobody_is_named_where_nobody_is_known(folder, tmp_path):
    assert lost_ranks.who(folder, "PID 99 on node node1 exited") is None
    assert lost_ranks.who(folder, "all is well") is None
    assert lost_ranks.who(tmp_path / "elsewhere", OPEN_MPI) is None


def test_the_command_says_how_to_go_on(folder, capsys):
    log = folder / "log"
    log.write_text(OPEN_MPI)
    assert lost_ranks.main([str(folder), str(log)]) == 0
    said = capsys.readouterr().out
    assert "lost rank 2" in said and "no checkpoint yet. Start again with: mpirun -n 4" in said
    (folder / "checkpoint.pt").write_bytes(b"")
    assert lost_ranks.main([str(folder), str(log)]) == 0
    assert capsys.readouterr().out.rstrip().endswith("fedmpi.train --seed 1 --resume")
    assert lost_ranks.main([str(folder / "nowhere"), str(log)]) == 2


def test_the_command_that_resumes():
    assert resumed("mpirun x --force") == "mpirun x --resume"
    assert resumed("mpirun x --resume --seed 1") == "mpirun x --resume --seed 1"
    assert resumed("x --output a--force") == "x --output a--force --resume"


def fails_until(tries: int, code: int) -> list[str]:
    """A command that fails with `code`, and succeeds at the given try."""
    script = (
        "import pathlib, sys; p = pathlib.Path(sys.argv[1]); n = len(p.read_text()) + 1;"
        "p.write_text('x' * n); print('try', n, flush=True);"
        f"sys.exit({code} if n < {tries} else 0)"
    )
    return [sys.executable, "-c", script]


@pytest.mark.parametrize(
    ("code", "retries", "ends", "tries"), [(9, 3, 0, 3), (9, 1, 9, 2), (2, 3, 2, 1), (75, 3, 75, 1)]
)
def test_what_is_tried_again(tmp_path, capfd, code, retries, ends, tries):
    count = tmp_path / "count"
    count.write_text("")
    command = ["--retries", str(retries), "--", *fails_until(3, code), str(count)]
    done = subprocess.run([sys.executable, "-m", "fedmpi.run.supervise", *command], timeout=limit())
    assert done.returncode == ends and len(count.read_text()) == tries
    assert f"try {tries}" in capfd.readouterr().out


def test_a_launcher_that_does_not_come_up_is_started_again(tmp_path, capfd):
    """Thrice at most, and without --retries; a rank that was there says that it was up."""
    for goes_up, code, tries in ((2, 0, 2), (9, 1, 3)):
        count = tmp_path / f"count-{goes_up}"
        count.write_text("")
        script = (
            "import pathlib, sys; p = pathlib.Path(sys.argv[1]); n = len(p.read_text()) + 1;"
            f"p.write_text('x' * n); up = n >= {goes_up}; print(end='' if up else sys.argv[2]);"
            "sys.exit(not up)"
        )
        command = [sys.executable, "-c", script, str(count), f"The {supervise.NOT_UP}. We cannot"]
        assert supervise.Supervisor(command, retries=0)._try(command) == code
        assert len(count.read_text()) == tries
        assert capfd.readouterr().err.count("starting it again") == tries - 1


def test_a_retry_resumes_its_own_checkpoint_alone(tmp_path):
    train = ["mpirun", "python", "-m", "fedmpi.train", "--dataset", "synthetic", "--force"]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "checkpoint.pt").write_bytes(b"of an earlier run")
    job = supervise.Supervisor([*train, "--output", str(folder)], retries=1)
    assert job.folder == folder
    job.began += 1
    assert "--force" in job._again() and "--resume" not in job._again()
    job.began -= 100
    assert "--force" not in job._again() and "--resume" in job._again()


@pytest.fixture
def sleepers():
    some = [subprocess.Popen(["sleep", "3600"]) for _ in range(3)]
    yield some
    for sleeper in some:
        sleeper.kill()
        sleeper.wait()


def witness_of(folder, sleepers) -> supervise.Witness:
    """One that has begun to look: the ranks write down who they are after it is there."""
    witness = supervise.Witness(folder)
    processes = [(socket.gethostname(), p.pid) for p in sleepers]
    text = lost_ranks.where(processes, [[], [0], [1]], "mpirun")
    (folder / "ranks.json").write_text(json.dumps(text))
    end = time.monotonic() + limit()
    while not witness.began:
        assert time.monotonic() < end
        time.sleep(0.01)
    return witness


OF_A_RUN = """
import json, os, pathlib, signal, socket, subprocess, sys, time
from fedmpi.run import lost_ranks
if {stays}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
rank = subprocess.Popen(["sleep", "1.5"])
folder = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
text = lost_ranks.where([(socket.gethostname(), rank.pid)], [[0]], "mpirun")
time.sleep(0.1)
(folder / "ranks.json").write_text(json.dumps(text))
rank.wait()
time.sleep(3600 if {stays} else 0)
"""


@pytest.mark.parametrize("stays", [False, True])
def test_a_launcher_that_ends_well_or_not_at_all_has_lost_its_run_nevertheless(
    tmp_path, capfd, monkeypatch, stays
):
    """As Open MPI's does when a host is gone, or cannot be reached: 0, or it waits for ever."""
    # Long enough for one that ends: on a busy machine that may take seconds.
    monkeypatch.setattr(supervise, "GRACE", 0.4 if stays else limit())
    launcher = [sys.executable, "-c", OF_A_RUN.format(stays=stays), "fedmpi.train"]
    run = supervise.Supervisor(
        [*launcher, "--dataset", "synthetic", "--output", str(tmp_path)], retries=0
    )
    code = run._try(run.command)
    said = capfd.readouterr().err
    assert code == (128 + signal.SIGKILL if stays else 1)
    assert "lost rank 0" in said and "Start again with: mpirun" in said, said
    assert ("it is killed" in said) == stays


def test_the_first_process_to_end_is_seen(tmp_path, sleepers):
    """Three, of which one is killed, and at once the others."""
    witness = witness_of(tmp_path, sleepers)
    while sum(map(is_of_a_process, Path("/proc/self/fd").iterdir())) < len(sleepers):
        time.sleep(0.01)  # until it holds on to each
    for i in (2, 0, 1):
        sleepers[i].kill()
        sleepers[i].wait()
    witness.join(timeout=limit())
    assert witness.first == sleepers[2].pid
    assert lost_ranks.who(tmp_path, "", witness.first).startswith("rank 2 ")


@pytest.mark.parametrize("gone", [[2], [0, 2]])
def test_one_that_ended_before_the_look_is_the_first_and_of_two_nobody_knows(
    tmp_path, sleepers, gone
):
    for i in gone:
        sleepers[i].kill()
        sleepers[i].wait()
    witness = witness_of(tmp_path, sleepers)
    witness.join(timeout=limit())
    assert witness.first == (sleepers[2].pid if len(gone) == 1 else None)
