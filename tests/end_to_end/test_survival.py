"""A job that is killed, asked to stop, or loses a rank: what it says, and how it goes on."""

import faulthandler
import json
import os
import random
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from jobs import Job, options, people
from mpi4py import MPI
from runs import Run, limit

pytestmark = pytest.mark.launch

OPEN_MPI = MPI.get_vendor()[0] == "Open MPI"
TIMES = ("seconds", "compute", "exchange", "wait")


def assert_same(resumed: Run, whole: Run) -> None:
    """Bit for bit: the model, and the history but for its times."""
    for which in ("last", "averaged"):
        assert np.array_equal(resumed.theta(which), whole.theta(which))
    timeless = [
        [{k: v for k, v in row.items() if k not in TIMES} for row in run.history]
        for run in (resumed, whole)
    ]
    assert timeless[0] == timeless[1]


def finish(arguments: list[str], log: Path) -> None:
    job = Job(arguments, log)
    assert job.ends() == 0, job.text


def written(folder: Path) -> int | None:
    """When the newest checkpoint was."""
    path = folder / "checkpoint.pt"
    return path.stat().st_mtime_ns if path.exists() else None


def wait_for_checkpoint(job: Job, folder: Path) -> None:
    """Until the job has written one."""
    before = written(folder)
    while written(folder) == before:
        assert job.process.poll() is None, job.text
        time.sleep(0.005)


ROUNDS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the runs of a module are; `whole` is the one that nobody interrupts."""
    path = tmp_path_factory.mktemp("survival")
    finish(options(path, "whole", ROUNDS, "--eval-every", "10"), path / "whole.log")
    return path


def kill_and_resume(folder: Path, kills: int, rounds: int) -> tuple[Run, dict[str, int]]:
    """Kill a job `kills` times, anywhere, and resume it each time.

    A checkpoint after every round: most of the time goes into writing them.
    """
    rng, seen = random.Random(7), {"kills": 0, "within a write": 0, "before a round": 0}
    every = ["--checkpoint-every", "1", "--eval-every", "10"]
    run = folder / "killed"
    resume: list[str] = []
    while seen["kills"] < kills:
        job = Job(options(folder, run.name, rounds, *every, *resume), folder / "killed.log")
        before = written(run)
        if rng.random() < 0.8 or not seen["kills"]:
            wait_for_checkpoint(job, run)
        time.sleep(rng.uniform(0, 0.5))
        ended = job.process.poll()
        job.kill()
        if ended is not None:  # on a fast machine
            assert ended == 0 and seen["kills"], job.text
            break
        seen["kills"] += 1
        seen["within a write"] += any(run.glob(".checkpoint*"))
        seen["before a round"] += written(run) == before
        resume = ["--resume"]
    finish(options(folder, run.name, rounds, *every, "--resume"), folder / "killed.log")
    return Run(run), seen


def test_a_job_that_is_killed_anywhere_ends_where_it_would_have(folder):
    killed, _ = kill_and_resume(folder, kills=3, rounds=ROUNDS)
    whole = Run(folder / "whole")
    assert_same(killed, whole)
    of_killed, of_whole = ({p.name for p in run.folder.iterdir()} for run in (killed, whole))
    # A kill between result.json and the end leaves what a run removes last.
    last = {"checkpoint.pt", "checkpoint-previous.pt", "weights.bin", "ranks.json", ".lock"}
    assert of_whole <= of_killed <= of_whole | last


@pytest.mark.slow
def test_thirty_kills(tmp_path):
    faulthandler.cancel_dump_traceback_later()  # it takes longer than what pytest takes for a hang
    kills = int(os.environ.get("FEDMPI_KILLS", "30"))
    rounds = 100 * kills
    killed, seen = kill_and_resume(tmp_path, kills, rounds)
    finish(options(tmp_path, "whole", rounds, "--eval-every", "10"), tmp_path / "whole.log")
    assert_same(killed, Run(tmp_path / "whole"))
    print(f"\n{seen}")
    assert seen["within a write"] > 0


SIGNALS = ["SIGUSR1"] if OPEN_MPI else ["SIGUSR1", "SIGTERM", "SIGINT"]


def test_a_signal_stops_at_a_checkpoint_and_the_run_goes_on(folder):
    """Sent to the launcher, each to another try of the same run; the line says what to type."""
    every, resume = ["--eval-every", "10"], []
    for name in SIGNALS:
        job = Job(options(folder, "stopped", ROUNDS, *every, *resume), folder / "stopped.log")
        job.wait_for("going on after" if resume else "round 1/")
        job.process.send_signal(getattr(signal, name))
        assert job.ends() == 75, job.text
        (line,) = [line for line in job.text.splitlines() if line.startswith("fedmpi: stopped")]
        assert re.match(rf"fedmpi: stopped by {name} after round \d+ of {ROUNDS}, saved", line)
        assert re.search(r"Go on with: \S*mpirun -n 3 .*fedmpi\.train .* --resume$", line)
        assert written(folder / "stopped") and "Traceback" not in job.text
        resume = ["--resume"]
    finish(options(folder, "stopped", ROUNDS, *every, *resume), folder / "stopped.log")
    assert_same(Run(folder / "stopped"), Run(folder / "whole"))


@pytest.mark.parametrize(
    "grid",
    [
        pytest.param("--methods fedminmax afl --seeds 0 --at-once 2", id="two teams"),
        pytest.param("--methods centralized --seeds 0 1", id="a spare rank"),
    ],
)
def test_a_signal_stops_a_grid_and_the_same_command_goes_on(grid, train, tmp_path):
    """All teams stop at a checkpoint; so does the rank that a run has no use for."""
    data = [f"csv:{people(tmp_path / 'people.csv')}", "--target", "y", "--group", "g"]
    data += ["--data-dir", str(tmp_path / "data")]
    common = ["--model", "logistic", "--clients", "4", "--rounds", "400", "--dtype", "float64"]
    arguments = [*data, *common, *grid.split(), "--settings", "ESG", "--output", str(tmp_path)]

    def reproduce(*more: str) -> Job:
        return Job([*arguments, *more], tmp_path / "grid.log", program="fedmpi.reproduce")

    def begun() -> set[Path]:
        """On a busy machine a team may have done its run before the other begins."""
        names = ("checkpoint.pt", "result.json")
        return {path.parent for name in names for path in runs.glob(f"*/{name}")}

    runs = tmp_path / "csv-people/runs"
    job = reproduce("--checkpoint-every", "1", "--force")
    while len(begun()) < grid.count("--at-once") + 1:
        assert job.process.poll() is None, job.text
        time.sleep(0.005)
    job.process.send_signal(signal.SIGUSR1)
    assert job.ends() == 75, job.text
    (line,) = [line for line in job.text.splitlines() if line.startswith("fedmpi: ")]
    told = r"fedmpi: stopped by SIGUSR1 with [01] of 2 runs finished; those under way are saved\. "
    assert re.match(told + r"Go on with: \S*mpirun -n 3 .*fedmpi\.reproduce .*every 1$", line)

    again = reproduce()
    assert again.ends() == 0 and "begins again, at its checkpoint" in again.text, again.text
    done = [Run(path) for path in runs.iterdir()]
    assert len(done) == 2
    for run in done:
        mine = [f"--{name}={run.config[name]}" for name in ("method", "seed")]
        whole = train("--dataset", *data, *common, *mine, output=f"whole-{run.folder.name}")
        assert np.abs(run.theta() - whole.theta()).max() < 1e-9
        assert [row["round"] for row in run.history] == [row["round"] for row in whole.history]


def test_a_signal_to_one_rank_stops_all_and_another_layout_goes_on(folder, train):
    """The rank is a client's: it tells the others in the sum that closes the round."""
    more = ["--dtype", "float64", "--data-dir", folder / "data"]
    job = Job(options(folder, "one", ROUNDS, *more), folder / "one.log")
    job.wait_for("round 1/")
    os.kill(job.client_ranks()[-1], signal.SIGUSR1)
    assert job.ends() == 75, job.text
    assert "stopped by a signal to another rank after round" in job.text
    resumed = train(*options(folder, "one", ROUNDS, *more, "--resume"), output=folder / "one")
    whole = train(*options(folder, "alone", ROUNDS, *more), output=folder / "alone")
    assert np.abs(resumed.theta() - whole.theta()).max() < 1e-9


def test_a_lost_client_is_named_and_a_retry_goes_on(folder):
    every = ["--checkpoint-every", "20", "--eval-every", "10"]
    arguments = options(folder, "retried", ROUNDS, *every)
    job = Job(arguments, folder / "retried.log", watch=["--retries", "1"])
    kill_a_client(job, folder / "retried", 2)
    assert job.ends() == 0, job.text
    said = [line for line in job.text.splitlines() if line.startswith("fedmpi: ")]
    assert re.match(r"fedmpi: lost rank 2 \(PID \d+ on \S+\) with clients \d, \d\.", said[0])
    assert re.match(r"fedmpi: The checkpoint of \d+ s ago stands\. Go on with: ", said[1])
    assert said[1].endswith("--resume")
    assert said[2].startswith("fedmpi: trying again, 0 more after this: ")
    assert_same(Run(folder / "retried"), Run(folder / "whole"))


def kill_a_client(job: Job, folder: Path, rank: int) -> float:
    """SIGKILL to a client rank, once there is a checkpoint and a witness; when that was."""
    wait_for_checkpoint(job, folder)
    job.wait_until_watched()
    os.kill(job.client_ranks()[rank - 1], signal.SIGKILL)
    return time.monotonic()


@pytest.mark.slow
def test_twenty_lost_clients(tmp_path):
    faulthandler.cancel_dump_traceback_later()
    rng, seconds = random.Random(3), []
    for i in range(20):
        folder, rank = tmp_path / f"run{i}", rng.choice([1, 2])
        arguments = options(tmp_path, folder.name, 100000, "--checkpoint-every", "20")
        job = Job(arguments, tmp_path / f"log{i}", watch=[])
        killed = kill_a_client(job, folder, rank)
        assert job.ends() not in (0, 2, 75)
        seconds.append(time.monotonic() - killed)
        clients = json.loads((folder / "ranks.json").read_text())["ranks"][rank]["clients"]
        named = ", ".join(map(str, clients)) if clients[1] - clients[0] > 1 else "-"
        assert re.search(rf"fedmpi: lost rank {rank} \(PID .*with clients .*{named}", job.text)
        assert "Go on with: " in job.text
    print(f"\nseconds from the kill to the end: {sorted(round(s, 2) for s in seconds)}")
    assert max(seconds) < limit(60)


@pytest.mark.skipif(not OPEN_MPI, reason="MPICH's mpirun lets the ranks save")
def test_what_open_mpi_kills_is_said(tmp_path):
    arguments = options(tmp_path, "run", 100000, "--checkpoint-every", "20")
    job = Job(arguments, tmp_path / "log", watch=["--retries", "5"])
    wait_for_checkpoint(job, tmp_path / "run")
    job.process.send_signal(signal.SIGTERM)
    assert job.ends() not in (0, 2, 75)
    assert "SIGTERM: this launcher ended its ranks before they could save" in job.text
    assert "The checkpoint of" in job.text and "trying again" not in job.text


def test_a_theta_that_differs_is_named_and_the_run_ends(mpirun, folder):
    """Seen in the evaluation of round 4; checkpoints since round 2, the last equal one, go."""
    every = ["--eval-every", "2", "--checkpoint-every", "1"]
    arguments = options(folder, "drifts", 6, *every, "--method", "faulty:Drifts")
    done = mpirun(3, "-m", "fedmpi.train", *arguments)
    assert done.returncode not in (0, 2, 75)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("fedmpi:")]
    assert "round 4: theta is not the same on all ranks, as it still was at round 2" in line
    assert "Ranks that differ: 2." in line and "The checkpoint from before stands" in line
    saved = torch.load(folder / "drifts/checkpoint-previous.pt", weights_only=True)
    assert saved["round"] == 2 and not (folder / "drifts/checkpoint.pt").exists()
