"""Clients placed by the speed of the ranks: it moves clients, not results."""

import numpy as np
import pytest
import torch
from mpi4py import MPI
from runs import Run, cut_off_after

import fedmpi.federation.speed
from fedmpi.federation.job import Job, pick_device
from fedmpi.mpi.ranks import Ranks
from fedmpi.run.arguments import resolve

OPTIONS = ["--dataset", "synthetic", "--rows", "200", "--model", "mlp", "--clients", "12"]
OPTIONS += ["--solver", "paper", "--dtype", "float64", "--rounds", "3", "--progress", "none"]


def test_the_measured_speed_is_of_rows_that_went_through(train, monkeypatch):
    monkeypatch.setattr(fedmpi.federation.speed, "SECONDS", 0.01)
    run = train(*OPTIONS, "--balance", "speed")
    measured = run.config["measured"]["rows a second on rank 0"]
    assert 1 < measured < 1e9  # about 1e5; less when others use the core just then
    assert (run.theta() == train(*OPTIONS, output="by rows").theta()).all()


def test_a_resume_does_not_measure_again(train, monkeypatch):
    monkeypatch.setattr(fedmpi.federation.speed, "rows_per_second", lambda *_: 7.0)
    with cut_off_after(2):
        train(*OPTIONS, "--balance", "speed", "--checkpoint-every", "1")
    monkeypatch.setattr(fedmpi.federation.speed, "rows_per_second", None)
    run = train(*OPTIONS, "--balance", "speed", "--resume")
    assert run.config["measured"]["rows a second on rank 0"] == 7.0


@pytest.mark.mpi(min_size=3)
def test_fast_ranks_get_more_clients(mpi_tmp_path, monkeypatch):
    ranks = Ranks(MPI.COMM_WORLD)

    def run(name: str, *more: str) -> Run:
        options = [*OPTIONS, "--output", str(mpi_tmp_path / name), *more]
        options += ["--data-dir", str(mpi_tmp_path / "data")]
        Job(ranks, resolve(options, len(ranks.client_ranks), one_process=False)).run()
        return Run(mpi_tmp_path / name)

    by_rows = run("rows")
    monkeypatch.setattr(
        fedmpi.federation.speed, "rows_per_second", lambda *_: 5.0 if ranks.rank == 1 else 1.0
    )
    run("speed", "--balance", "speed")
    if ranks.is_server:
        by_speed = Run(mpi_tmp_path / "speed")
        first, *others = by_speed.config["layout"]["clients_per_rank"]
        assert first > 2 * max(others)
        assert np.abs(by_speed.theta() - by_rows.theta()).max() < 1e-12
        assert by_speed.config["measured"]["rows a second on rank 1"] == 5.0
    ranks.meet()


@pytest.mark.parametrize(("local_rank", "gpus", "device"), [(0, 4, 0), (3, 4, 3), (5, 4, 1)])
def test_the_gpu_of_a_rank_is_by_its_place_on_the_node(monkeypatch, local_rank, gpus, device):
    """With faked counts: there is no GPU here."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    ranks = Ranks(MPI.COMM_SELF)
    ranks.local_rank = local_rank
    assert pick_device("auto", ranks) == pick_device("cuda", ranks) == torch.device("cuda", device)
    assert pick_device("cpu", ranks) == torch.device("cpu")
