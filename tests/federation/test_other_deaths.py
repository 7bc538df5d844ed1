"""Every method that the paper does not have goes on after a death, with what is left.

What the survivors' rounds must be is tested of the paper's methods (test_failures.py), and of small
methods with each kind of state (methods/test_needs.py); here is that no method stumbles.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from dying_others import CLIENTS, DEATH, OPTIONS
from jobs import people
from runs import REPOSITORY, Run, launch
from ulfm import ULFM, no_segments_left, ulfm

from fedmpi import methods

ROUNDS = 6
pytestmark = [pytest.mark.slow, pytest.mark.launch]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A run of each method, in one launch that loses a rank in every run."""
    out = tmp_path_factory.mktemp("dying")
    table = people(out / "people.csv")
    command = ["mpirun", *ULFM, "-n", str(CLIENTS), sys.executable]
    command += [str(REPOSITORY / "tests/helpers/dying_others.py")]
    with no_segments_left():
        done = launch([*command, str(out), str(table), str(ROUNDS)])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return out


@ulfm
@pytest.mark.parametrize("name", OPTIONS)
def test_the_survivors_finish_the_run(runs, name):
    run = Run(runs / name)
    (lost,) = run.result["lost"]
    assert lost["rank"] == 2 and lost["clients"] and lost["last_round"] == DEATH - 1
    assert run.history[-1]["round"] == str(ROUNDS)
    assert np.isfinite(run.theta("last")).all()
    left = [row["n_train"] for row in run.result["groups"].values()]
    assert 0 < sum(left) < 192
    weights = [row["weight"] for row in run.result["groups"].values()]
    if name in ("bgl", "scaffpd", "eominmax"):  # whose weights are a distribution
        assert sum(weights) == pytest.approx(1) and min(weights) >= 0
    path = runs / name / "weights.npz"
    if path.exists():
        with np.load(path) as kept:
            last = kept["weights"][-1]
        assert np.isfinite(last).all()
        if last.ndim == 1 and len(last) == CLIENTS:  # of clients
            assert not last[lost["clients"]].any()


def test_every_other_method_is_here():
    of_the_paper = {"fedminmax", "localfedminmax", "afl", "fedavg", "qfedavg", "term"}
    alone = {name for name in methods.FILES if methods.find(name).single_client}
    assert set(OPTIONS) == set(methods.FILES) - of_the_paper - alone
