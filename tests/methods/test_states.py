"""State of clients and of optimizers goes with its client: from one process to three ranks."""

import sys

import numpy as np
import pytest
from runs import REPOSITORY, Run, cut_off_after, launch, write_people
from states import STATES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module")
def wholes(folder):
    """The runs in one process, whole; what was cut off after round 3 is resumed on three ranks."""
    from mpi4py import MPI

    from fedmpi.federation.job import Job
    from fedmpi.mpi.ranks import Ranks
    from fedmpi.run.arguments import resolve

    csv = write_people(folder / "people.csv", {"a": 40, "b": 25, "c": 15})
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--skew", "2"]
    run = "--rounds 5 --lr 0.2 --clients 5 --model logistic --dtype float64 --setting PSG"
    run += " --eval-every 2 --checkpoint-every 1 --progress none"
    options = [*data, *run.split(), "--data-dir", str(folder / "data")]

    def train(output: str, method: str) -> Run:
        given = [*options, *method.split(), "--output", str(folder / output)]
        Job(Ranks(MPI.COMM_SELF), resolve(given, 1, one_process=True)).run()
        return Run(folder / output)

    wholes = {}
    for name, method in STATES.items():
        wholes[name] = train(f"{name}-1", method)
        with cut_off_after(3):
            train(name, method)
    command = ["mpirun", "-n", "3", sys.executable, str(REPOSITORY / "tests/helpers/states.py")]
    done = launch([*command, str(folder), *options])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return wholes


@pytest.mark.launch
@pytest.mark.once
@pytest.mark.parametrize("name", STATES)
def test_a_checkpoint_of_one_rank_is_resumed_on_three(folder, wholes, name):
    """As if it had never been on one, and as if it had never been on several."""
    one = wholes[name]
    for other in (Run(folder / name), Run(folder / f"{name}-3")):
        np.testing.assert_allclose(other.theta(), one.theta(), rtol=0, atol=1e-12)
        for group, figures in one.result.get("personal", {"groups": {}})["groups"].items():
            assert other.result["personal"]["groups"][group] == pytest.approx(figures, rel=1e-9)
