import faulthandler
import subprocess

import pytest
from bed import FOR_HOSTS, FOR_SLURM, Bed, Slurm, environment, missing
from runs import Run
from starts import LONG, train


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Not pytest's limit for one test: whatever is started here has its own, and ends with it."""
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def bed(tmp_path_factory):
    """Three hosts."""
    if why := missing(FOR_HOSTS):
        pytest.skip(why)
    with Bed(tmp_path_factory.mktemp("bed") / "net") as bed:
        yield bed


@pytest.fixture(scope="session")
def slurm(bed):
    """Slurm over them."""
    if why := missing(FOR_SLURM):
        pytest.skip(why)
    return Slurm(bed)


@pytest.fixture(scope="session")
def one_process(tmp_path_factory):
    """The run that all others are compared with."""
    folder = tmp_path_factory.mktemp("one")
    command = list(map(str, train(folder, "run")))
    subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=LONG)
    return Run(folder / "run")


@pytest.fixture(scope="session")
def longer(tmp_path_factory):
    """A run of many rounds, to be interrupted; here it is not."""
    folder, rounds = tmp_path_factory.mktemp("longer"), 2000
    command = list(map(str, train(folder, "run", rounds=rounds)))
    subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=LONG)
    return Run(folder / "run")
