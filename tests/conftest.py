"""Runs of the real thing for the tests: in this process, and under a real mpirun."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).parent.parent


@dataclass
class Run:
    """What a run left."""

    folder: Path

    @property
    def result(self) -> dict:
        return json.loads((self.folder / "result.json").read_text())

    @property
    def config(self) -> dict:
        return json.loads((self.folder / "config.json").read_text())

    @property
    def history(self) -> list[dict[str, str]]:
        import csv

        with open(self.folder / "history.csv", newline="") as file:
            return list(csv.DictReader(file))

    def theta(self, which: str = "last") -> np.ndarray:
        """The model as one vector: the `last` theta, or the `averaged` one."""
        import torch

        state = torch.load(self.folder / "model.pt", weights_only=True)[which]
        return torch.cat([p.reshape(-1) for p in state.values()]).numpy()


@pytest.fixture
def train(tmp_path):
    """Train in this process: train("--dataset", "csv:...", ...) -> Run."""
    from mpi4py import MPI

    from fedmpi.config import resolve
    from fedmpi.job import Job
    from fedmpi.ranks import Ranks
    from fedmpi.runfolder import RunFolder

    def run(*arguments: object, output: str = "run") -> Run:
        fixed = ["--output", tmp_path / output, "--progress", "none"]
        if "--data-dir" not in arguments:
            fixed += ["--data-dir", tmp_path / "data"]
        config = resolve([str(a) for a in (*arguments, *fixed)], 1, one_process=True)
        RunFolder(config.output).claim(config)
        Job(Ranks(MPI.COMM_SELF), config).run()
        return Run(tmp_path / output)

    return run


def launcher() -> dict[str, str]:
    """The environment in which this Python's own mpirun starts, also as root and oversubscribed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "PRTE"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")])
    return environment


@pytest.fixture
def mpirun(tmp_path):
    """Start a real mpirun: mpirun(3, "-m", "fedmpi.train", ...) -> CompletedProcess."""

    def run(ranks: int, *arguments: object, timeout: float = 120) -> subprocess.CompletedProcess:
        command = ["mpirun", "-n", str(ranks), sys.executable, *map(str, arguments)]
        return subprocess.run(
            command,
            env=launcher(),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run
