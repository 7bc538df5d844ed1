"""Signals that end a process at once; those that stop a job in order are in test_survival."""

import os
import signal
import subprocess
import sys

import pytest
from jobs import Job, options
from runs import launcher, limit

from fedmpi.mpi import signals


def started(tmp_path, method: str, line: str) -> Job:
    arguments = options(tmp_path, "run", 6, "--method", f"faulty:{method}", "--progress", "none")
    job = Job(arguments, tmp_path / "log", ranks=1)
    job.wait_for(line)
    return job


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    job = started(tmp_path, "SlowRound", "round 3 begins")
    job.process.send_signal(signal.SIGINT)
    job.wait_for("fedmpi: Ctrl-C: stopping when this round is saved. Again ends it at once.")
    assert job.process.poll() is None
    job.process.send_signal(signal.SIGINT)
    assert job.ends() == 130
    assert "fedmpi: SIGINT again: ended at once." in job.text and "Traceback" not in job.text


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGTERM", "SIGINT"])
def test_before_the_rounds_a_signal_ends_at_once(tmp_path, name):
    job = started(tmp_path, "SlowStart", "preparing")
    signum = getattr(signal, name)
    job.process.send_signal(signum)
    assert job.ends() == 128 + signum
    assert f"fedmpi: {name} before the first round" in job.text and "Traceback" not in job.text


@pytest.mark.parametrize(
    ("ending", "code"), [("return 0", 0), ("raise Stopped('saved')", 75), ("sys.exit(3)", -10)]
)
def test_a_job_that_ends_in_order_is_not_ended_otherwise(ending, code):
    """By a signal that comes while Python takes itself down; the last case shows that it does."""
    script = f"""
import os, signal, sys
from fedmpi.mpi import signals
from fedmpi.mpi.ranks import Stopped
from fedmpi.mpi.start import run
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), usr1=signal.SIGUSR1):
        kill(pid, usr1)
def main():
    signals.listen(speaks=True)
    signals.wait_for_the_round()
    {ending}
sys.late = Late()
run(main)
"""
    done = subprocess.run([sys.executable, "-c", script], env=launcher(), timeout=limit())
    assert done.returncode == code


def test_after_listening_for_a_while_everything_is_as_before():
    before = [signal.getsignal(signum) for signum in signals.SIGNALS]
    with pytest.raises(KeyError), signals.listening(speaks=False):
        signals.wait_for_the_round()
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.asked() == signal.SIGTERM
        raise KeyError
    assert signals.asked() is None
    assert [signal.getsignal(signum) for signum in signals.SIGNALS] == before
