"""Run a job on ranks that note every buffer given to MPI."""

from pathlib import Path

import numpy as np
from mpi4py import MPI

from fedmpi.federation.job import Job
from fedmpi.mpi.ranks import Ranks
from fedmpi.run.arguments import resolve

ROUNDS = 4
CLIENTS = 5


class Recorder(Ranks):
    """Ranks that note every buffer given to MPI."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__(comm)
        self.calls: list[tuple[str, int]] = []

    def Iallreduce(self, buffer):
        self.calls.append(("Iallreduce", buffer.size))
        return super().Iallreduce(buffer)

    def Ireduce(self, buffer):
        self.calls.append(("Ireduce", buffer.size))
        return super().Ireduce(buffer)

    def Ibcast(self, buffer):
        self.calls.append(("Ibcast", buffer.size))
        return super().Ibcast(buffer)

    def Igatherv(self, part, whole, counts):
        self.calls.append(("Igatherv", part.size))
        return super().Igatherv(part, whole, counts)

    def Iscatterv(self, whole, counts, part):
        self.calls.append(("Iscatterv", part.size))
        return super().Iscatterv(whole, counts, part)


def people(path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = [
        f"{u},{v},{'xyz'[i % 3]},{int(u > v)}" for i, (u, v) in enumerate(rng.normal(size=(90, 2)))
    ]
    path.write_text("\n".join(["u,v,g,y", *rows]) + "\n")


def job(comm: MPI.Intracomm, folder: Path, name: str, *extra: str) -> tuple[Job, Recorder]:
    ranks = Recorder(comm)
    csv = folder / "people.csv"
    ranks.on_server(lambda: csv.exists() or people(csv))
    options = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--setting", "ESG"]
    options += [
        "--solver",
        "paper",
        "--clients",
        str(CLIENTS),
        "--rounds",
        str(ROUNDS),
        "--eval-every",
        "100",
    ]
    options += ["--output", str(folder / name), "--data-dir", str(folder / "data")]
    options += ["--dtype", "float64", "--progress", "none", "--reduce", "flat", *extra]
    config = resolve(options, len(ranks.client_ranks), one_process=ranks.size == 1)
    the_job = Job(ranks, config)
    the_job.run()
    return the_job, ranks
