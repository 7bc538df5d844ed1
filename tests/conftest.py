"""Runs of the real thing for the tests: in this process, and under a real mpirun."""

import os
import signal
import subprocess
import sys
from pathlib import Path

# The problems here are small: more threads would only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

import hypothesis
import pytest
from jobs import options
from runs import CutOff, Run, launch


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Run the unmarked tests of tests/mpi: pytest-mpi takes the folder's name for its mark."""
    for item in items:
        if not item.get_closest_marker("mpi"):
            marks = item.own_markers
            marks[:] = [m for m in marks if "--with-mpi" not in m.kwargs.get("reason", "")]


# How long an example takes is the machine's affair.
hypothesis.settings.register_profile(
    "no clock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("no clock")


def pytest_terminal_summary(terminalreporter):
    """Leave the counts for launch/test.sh, which adds up those of all its legs."""
    if path := os.environ.get("FEDMPI_COUNTS"):
        n = {name: len(reports) for name, reports in terminalreporter.stats.items()}
        passed = n.get("passed", 0) + n.get("xpassed", 0)
        failed = n.get("failed", 0) + n.get("error", 0)
        skipped = n.get("skipped", 0) + n.get("xfailed", 0)
        Path(path).write_text(f"{passed} {failed} {skipped}\n")


@pytest.fixture(autouse=True)
def own_signals():
    """A program that runs in this process listens to signals: no longer than its test."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, answer in before.items():
        signal.signal(signum, answer)


@pytest.fixture
def train(tmp_path):
    """Train in this process: train("--dataset", "csv:...", ...) -> Run."""
    from mpi4py import MPI

    from fedmpi.federation.job import Job
    from fedmpi.mpi.ranks import Ranks
    from fedmpi.run.arguments import resolve

    def run(*arguments: object, output: str = "run") -> Run:
        fixed = ["--output", tmp_path / output, "--progress", "none"]
        if "--solver" not in arguments:
            fixed += ["--solver", "paper"]  # the methods as they are stated, and few options
        if "--data-dir" not in arguments:
            fixed += ["--data-dir", tmp_path / "data"]
        config = resolve([str(a) for a in (*arguments, *fixed)], 1, one_process=True)
        Job(Ranks(MPI.COMM_SELF), config).run()
        return Run(tmp_path / output)

    return run


@pytest.fixture
def mpirun(tmp_path):
    """Start a real mpirun: mpirun(3, "-m", "fedmpi.train", ...) -> CompletedProcess."""

    def run(ranks: int, *arguments: object) -> subprocess.CompletedProcess:
        command = ["mpirun", "-n", str(ranks), sys.executable, *map(str, arguments)]
        return launch(command, cwd=tmp_path, stdin=subprocess.DEVNULL)

    return run


@pytest.fixture
def cut(train, tmp_path):
    """A run with checkpoints after every round, cut off after round 4 of 6; and its options."""
    from fedmpi.federation.server import Server

    arguments = options(tmp_path, "run", 6, "--checkpoint-every", "1", "--clients", "5")
    save = Server.save_checkpoint

    def save_and_end(self, t, tables):
        save(self, t, tables)
        if t == 4:
            raise CutOff

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CutOff):
        patch.setattr(Server, "save_checkpoint", save_and_end)
        train(*arguments)
    return arguments
