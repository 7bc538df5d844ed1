"""What travels in a round, seen on real ranks (mpirun -n 3 pytest --with-mpi)."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from counted import ROUNDS, job, people
from mpi4py import MPI
from runs import Run


@pytest.mark.mpi(min_size=3)
def test_fedminmax_sends_theta_once_and_sums_by_group(mpi_tmp_path):
    """A round: risks out, weights back, one Allreduce. Nothing per client, nothing per row."""
    the_job, ranks = job(MPI.COMM_WORLD, mpi_tmp_path, "run")
    theta, groups = the_job.model.size, 3
    calls = Counter(ranks.calls)
    assert calls[("Iallreduce", theta + 1)] == ROUNDS
    assert calls[("Ireduce", groups)] == ROUNDS
    assert calls[("Ibcast", groups)] == ROUNDS + 1  # and the weights that round 1 begins with
    rest = {call for call in calls if call[0] in ("Iallreduce", "Igatherv", "Iscatterv")}
    seconds_and_checksum = ("Igatherv", 2)  # of every rank, the server too
    assert rest == {("Iallreduce", theta + 1), seconds_and_checksum}


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize(("method", "width"), [("afl", 1), ("localfedminmax", 3), ("term", 1)])
def test_per_client_numbers_go_to_the_server_alone(mpi_tmp_path, method, width):
    """A rank sends its own clients' losses and receives its own clients' weights."""
    extra = ["--local-epochs", "1"] if method == "term" else []
    the_job, ranks = job(MPI.COMM_WORLD, mpi_tmp_path, f"run-{method}", "--method", method, *extra)
    mine = len(the_job.my_clients) * width
    calls = Counter(ranks.calls)
    assert calls[("Iallreduce", the_job.model.size + 1)] == ROUNDS
    assert calls[("Igatherv", mine)] >= ROUNDS
    assert calls[("Iscatterv", mine)] == ROUNDS + (method != "term")
    assert calls[("Ireduce", 3)] == 2  # the group risks of the two rounds in the history


@pytest.mark.mpi(min_size=3)
def test_many_ranks_give_what_one_gives(mpi_tmp_path):
    job(MPI.COMM_WORLD, mpi_tmp_path, "many", "--setting", "PSG")
    if MPI.COMM_WORLD.Get_rank() == 0:
        job(MPI.COMM_SELF, mpi_tmp_path, "one", "--setting", "PSG")
        many, one = Run(mpi_tmp_path / "many").theta(), Run(mpi_tmp_path / "one").theta()
        assert np.abs(many - one).max() < 1e-12
    MPI.COMM_WORLD.Barrier()


def test_the_risks_and_weights_of_a_round_are_of_the_theta_it_began_with(train, tmp_path):
    """mu after round 1 is the projection of rho + lr_mu r(theta_0), r by a plain forward pass."""
    import torch

    from fedmpi import models
    from fedmpi.data.store import Prepared
    from fedmpi.methods.simplex import project_to_simplex

    csv = tmp_path / "people.csv"
    people(csv)
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--clients", "5"]
    run = train(*data, "--rounds", "1", "--dtype", "float64", "--lr-mu", "0.7")
    prepared = Prepared.open(Path(run.config["prepared"]))
    x, y, group = (np.array(prepared.array(f"train_{part}")) for part in ("x", "y", "group"))
    module = models.build("mlp", x.shape[1:], 2, seed=0).double()
    with torch.no_grad():
        p = torch.log_softmax(module(torch.from_numpy(x).double()), dim=1).numpy()
    losses = -p[np.arange(len(y)), y]
    risks = np.array([losses[group == a].mean() for a in range(3)])
    rho = np.bincount(group) / len(group)
    (row,) = run.history
    assert [float(row[f"risk/{g}"]) for g in "xyz"] == pytest.approx(risks, rel=1e-12)
    mu = project_to_simplex(rho + 0.7 * risks, 0.001)
    assert [float(row[f"weight/{g}"]) for g in "xyz"] == pytest.approx(mu, rel=1e-12)
