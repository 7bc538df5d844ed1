"""A job that is killed, asked to stop, or loses a rank: what it says, and how it goes on."""

import contextlib
import faulthandler
import json
import os
import random
import re
import signal
import time
from collections import Counter
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
STEPS = {
    "nesterov": "--optimizer nesterov --batch-rows 30 --schedule cosine --average tail "
    "--adversary multiplicative",
    "adam": "--optimizer adam --lr 0.003 --average tail --adversary multiplicative",
}
"""Options of the step of theta: on batches of the federation, and on all rows."""


def assert_same(resumed: Run, whole: Run) -> None:
    """Bit for bit: the model, the weights, the risks, and the history but for its times."""
    for which in ("last", "averaged"):
        assert np.array_equal(resumed.theta(which), whole.theta(which))
    assert resumed.result["groups"] == whole.result["groups"]
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


def like_whole(folder: Path, output: str, *more: str, steps: str = "nesterov") -> list[str]:
    """Options of the run that `whole` is, and that other runs are to end as."""
    same = ["--eval-every", "10", *STEPS[steps].split()]
    return options(folder, output, ROUNDS, *same, *more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the runs of a module are; `whole` is the one that nobody interrupts."""
    path = tmp_path_factory.mktemp("survival")
    finish(like_whole(path, "whole"), path / "whole.log")
    return path


def reaches(job: Job, run: Path, t: int) -> bool:
    """Wait until it has written a checkpoint of round `t` or later; False if it ended before."""
    seen = written(run)
    while job.process.poll() is None:
        if (now := written(run)) != seen:
            seen = now
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                if torch.load(run / "checkpoint.pt", weights_only=True)["round"] >= t:
                    return True
        time.sleep(0.002)
    return False


def kill_and_resume(folder: Path, name: str, rng: random.Random, kills: int, steps: str) -> Counter:
    """Kill a job at random rounds, `kills` times, and resume it each time; count what was hit.

    Half of the kills are of all processes at once, the others of one rank, after which the launcher
    ends the job. A checkpoint after every round: most of the time goes into writing them.
    """
    run, log = folder / name, folder / f"{name}.log"
    again = like_whole(folder, name, "--checkpoint-every", "1", "--resume", steps=steps)
    seen = Counter()
    for t in sorted(rng.sample(range(1, ROUNDS - 50), kills)):
        job = Job(again if seen else again[:-1], log)
        rank = rng.choice([None, None, 0, rng.choice([1, 2])])
        if rank is None and seen and rng.random() < 0.4:
            job.wait_for("going on after")  # and has no checkpoint of its own yet, most likely
        elif not reaches(job, run, t):
            assert job.ends() == 0, job.text
        if kill(job, rank) == 0:  # it had ended before: a busy machine did not let us look
            break
        seen["all" if rank is None else f"rank {rank}"] += 1
        seen["within a write"] += any(run.glob(".checkpoint*"))
    finish(again, log)
    return seen


def kill(job: Job, rank: int | None) -> int:
    """Send SIGKILL to the rank, or to all processes of the job; return the job's exit code."""
    if rank is None:
        job.kill()
    else:
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.kill(job.pids()[rank], signal.SIGKILL)
        job.ends()
    assert job.process.returncode not in (2, 75), job.text
    return job.process.returncode


def test_a_job_that_is_killed_ends_where_it_would_have(folder):
    """All its processes at once. Of one rank: test_a_lost_client_is_named_and_a_retry_goes_on."""
    seen = kill_and_resume(folder, "killed", random.Random(4), kills=1, steps="nesterov")
    assert not seen or seen["all"] == 1
    killed, whole = Run(folder / "killed"), Run(folder / "whole")
    assert_same(killed, whole)
    of_killed, of_whole = ({p.name for p in run.folder.iterdir()} for run in (killed, whole))
    # A kill between result.json and the end leaves what a run removes last.
    last = {"checkpoint.pt", "checkpoint-previous.pt", "weights.bin", "ranks.json", ".lock"}
    assert of_whole <= of_killed <= of_whole | last


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "kills"), [("nesterov", 8), ("adam", 7)])
def test_fifteen_kills(tmp_path, steps, kills):
    """With each MPI, four at most in a run; every run ends as the one that nobody interrupts."""
    faulthandler.cancel_dump_traceback_later()  # it takes longer than what pytest takes for a hang
    finish(like_whole(tmp_path, "whole", steps=steps), tmp_path / "whole.log")
    rng, done = random.Random(steps), Counter()
    while (left := kills - done.total() + done["within a write"]) > 0:
        name = f"killed{len(list(tmp_path.glob('killed*.log')))}"
        done.update(kill_and_resume(tmp_path, name, rng, min(4, left), steps))
        assert_same(Run(tmp_path / name), Run(tmp_path / "whole"))
        print(f"\n{steps}: {dict(done)}", flush=True)


SIGNALS = {"SIGUSR1": ["SIGUSR1"]}
"""Signals after which the launcher lets the ranks save; the others are of the slow tests."""
if not OPEN_MPI:
    SIGNALS = {"SIGTERM": ["SIGTERM"], "others": ["SIGUSR1", "SIGINT"]}


@pytest.mark.parametrize(
    "which", [pytest.param(n, marks=[pytest.mark.slow] * (n == "others")) for n in SIGNALS]
)
def test_a_signal_stops_at_a_checkpoint_and_the_run_goes_on(folder, which):
    """Sent to the launcher, each to another try of the same run; the line says what to type."""
    run, log, resume = f"stopped-{which}", folder / f"stopped-{which}.log", []
    for name in SIGNALS[which]:
        job = Job(like_whole(folder, run, *resume), log)
        job.wait_for("going on after" if resume else "round 1/")
        job.process.send_signal(getattr(signal, name))
        assert job.ends() == 75, job.text
        (line,) = [line for line in job.text.splitlines() if line.startswith("fedmpi: stopped")]
        assert re.match(rf"fedmpi: stopped by {name} after round \d+ of {ROUNDS}, saved", line)
        assert re.search(r"Go on with: \S*mpirun -n 3 .*fedmpi\.train .* --resume$", line)
        assert written(folder / run) and "Traceback" not in job.text
        resume = ["--resume"]
    finish(like_whole(folder, run, *resume), log)
    assert_same(Run(folder / run), Run(folder / "whole"))


@pytest.mark.parametrize(
    "grid",
    [
        pytest.param("--methods fedminmax afl --seeds 0 --at-once 2", id="two teams"),
        pytest.param(
            "--methods centralized --seeds 0 1", id="a spare rank", marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.once
def test_a_signal_stops_a_grid_and_the_same_command_goes_on(grid, train, tmp_path):
    """All teams stop at a checkpoint; so does the rank that a run has no use for."""
    data = [f"csv:{people(tmp_path / 'people.csv')}", "--target", "y", "--group", "g"]
    data += ["--data-dir", str(tmp_path / "data")]
    common = ["--model", "logistic", "--clients", "4", "--rounds", "400", "--dtype", "float64"]
    arguments = [*data, *common, *grid.split(), "--settings", "ESG", "--solver", "paper"]
    arguments += ["--output", str(tmp_path)]

    def reproduce(*more: str) -> Job:
        return Job([*arguments, *more], tmp_path / "grid.log", program="fedmpi.reproduce")

    def begun() -> set[Path]:
        """On a busy machine a team may have done its run before the other begins."""
        names = ("checkpoint.pt", "result.json")
        return {path.parent for name in names for path in runs.glob(f"*/{name}")}

    runs = tmp_path / "paper-steps/csv-people/runs"
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
    every = like_whole(folder, "retried", "--checkpoint-every", "20")
    job = Job(every, folder / "retried.log", watch=["--retries", "1"])
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
        given = options(tmp_path, folder.name, 100000, "--checkpoint-every", "20")
        job = Job(given, tmp_path / f"log{i}", watch=[])
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
    given = options(tmp_path, "run", 100000, "--checkpoint-every", "20")
    job = Job(given, tmp_path / "log", watch=["--retries", "5"])
    wait_for_checkpoint(job, tmp_path / "run")
    job.process.send_signal(signal.SIGTERM)
    assert job.ends() not in (0, 2, 75)
    assert "SIGTERM: this launcher ended its ranks before they could save" in job.text
    assert "The checkpoint of" in job.text and "trying again" not in job.text


@pytest.mark.once
def test_a_theta_that_differs_is_named_and_the_run_ends(mpirun, folder):
    """Seen in the evaluation of round 4; checkpoints since round 2, the last equal one, go."""
    every = ["--eval-every", "2", "--checkpoint-every", "1"]
    given = options(folder, "drifts", 6, *every, "--method", "faulty:Drifts")
    done = mpirun(3, "-m", "fedmpi.train", *given)
    assert done.returncode not in (0, 2, 75)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("fedmpi:")]
    assert "round 4: theta is not the same on all ranks, as it still was at round 2" in line
    assert "Ranks that differ: 2." in line and "The checkpoint from before stands" in line
    saved = torch.load(folder / "drifts/checkpoint-previous.pt", weights_only=True)
    assert saved["round"] == 2 and not (folder / "drifts/checkpoint.pt").exists()
