"""A host that goes away in the middle of a run, and a link that is cut."""

import subprocess
import sys
import time

import pytest
from bed import FOR_HOSTS, Bed, environment, missing
from runs import Run, limit
from starts import LONG, difference, mpirun, train

pytestmark = [pytest.mark.cluster, pytest.mark.launch]

ROUNDS = 400


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    command = list(map(str, train(folder, "run", rounds=ROUNDS)))
    subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=LONG)
    return Run(folder / "run")


@pytest.mark.parametrize("what", ["the host goes away", "the link is cut"])
def test_the_job_ends_with_a_clear_line_and_goes_on_elsewhere(tmp_path, whole, what):
    if why := missing(FOR_HOSTS):
        pytest.skip(why)
    program = train(
        tmp_path, "run", "--checkpoint-every", "20", "--stall-timeout", limit(15), rounds=ROUNDS
    )
    with Bed(tmp_path / "net") as bed:
        watch = [sys.executable, "-m", "fedmpi.run.supervise", "--"]
        command = bed.command([*watch, *mpirun(bed, 4), *program], timeout=LONG)
        with open(tmp_path / "log", "wb") as log:
            job = subprocess.Popen(command, env=environment(), stdout=log, stderr=log)
        checkpoint = tmp_path / "run/checkpoint.pt"
        while not checkpoint.exists():
            assert job.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        began = time.monotonic()
        if what == "the host goes away":
            bed.hosts[1].kill()
        else:
            bed.cut("n2")
        code = job.wait(LONG)
        seconds = time.monotonic() - began
        said = (tmp_path / "log").read_text()
        print(f"{what}: over after {seconds:.1f} s, code {code}\n{said[-3000:]}")
        assert code != 0 and seconds < LONG, said
        if what == "the host goes away":
            assert "lost " in said and "n2" in said.split("lost ")[-1], said
        else:
            assert "Ranks missing from the exchange: 2, 3" in said, said
        assert "--resume" in said
    with Bed(tmp_path / "others", hosts=1) as bed:
        done = bed.run(*mpirun(bed, 2, slots=2), *program, "--resume", timeout=LONG)
        assert done.returncode == 0 and "going on after round" in done.stdout, done.stderr
    assert difference(Run(tmp_path / "run").theta(), whole.theta()) < 1e-9
