"""A job that is longer than its time limit. Nothing here sends it a signal: Slurm does."""

import re
import subprocess

import pytest
from bed import environment
from runs import Run
from starts import LONG, difference, pmi, train
from test_slurm import edited, options, submit

pytestmark = [pytest.mark.cluster, pytest.mark.slurm, pytest.mark.launch, pytest.mark.slow]

MINUTES = 3
TWICE = 120
"""Seconds of rounds: Slurm asks for the end after one minute, two before the limit."""


@pytest.fixture
def rounds(slurm, tmp_path) -> int:
    """As many as take two minutes here, on the ranks of the job."""
    short = train(tmp_path, "short", rounds=200)
    done = slurm.run("srun", pmi(), "-N3", "-n4", *short, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(TWICE / Run(tmp_path / "short").result["seconds_per_round"])


def test_a_job_beyond_its_time_limit_ends_with_the_theta_of_one_process(slurm, tmp_path, rounds):
    """Asked, saved, requeued, resumed, however often it takes."""
    line = f"{options(tmp_path, rounds=rounds)} output={tmp_path / 'run'}"
    ranks = f"--nodes=3 --ntasks=4 --time={MINUTES}"
    job, log = submit(slurm, edited("requeue.sbatch", tmp_path, ranks, line))
    assert slurm.wait(job, 3 * LONG) == "COMPLETED", log.read_text()
    text = log.read_text()
    saved = [int(n) for n in re.findall(r"going on after round (\d+)", text)]
    assert saved and saved == sorted(set(saved)) and saved[-1] < rounds, text
    assert len(re.findall("back into the queue", text)) == len(saved), text
    alone = list(map(str, train(tmp_path, "alone", rounds=rounds)))
    subprocess.run(alone, env=environment(), check=True, capture_output=True, timeout=LONG)
    run, whole = Run(tmp_path / "run"), Run(tmp_path / "alone")
    assert difference(run.theta(), whole.theta()) < 1e-9
    assert [row["round"] for row in run.history] == [row["round"] for row in whole.history]
    print(f"{rounds} rounds, stopped after {saved}")
