"""Launchers that do not fit the library, and what else is known of a launcher."""

import os
import subprocess
import sys

import pytest
from runs import REPOSITORY, limit

from fedmpi.mpi.launcher import (
    at_terminal,
    mismatch,
    pmi_warning,
    process_number,
    survives_failures,
)

STEP = {"SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
BATCH = {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
APART = {
    "srun without the right --mpi": (STEP, "MPICH", "srun --mpi=pmi2"),
    "srun with Open MPI": (STEP, "Open MPI", "srun --mpi=pmix"),
    "an older srun": (BATCH | {"SLURM_STEP_ID": "3"}, "MPICH", "srun started 4"),
    "Open MPI's mpirun": ({"OMPI_COMM_WORLD_SIZE": "3"}, "MPICH", "Open MPI's mpirun started 3"),
    "MPICH's mpirun": ({"PMI_SIZE": "3"}, "Open MPI", "MPICH's mpirun (or one like it) started 3"),
}
ALONE = {
    "a shell": {},
    "a batch script": BATCH,
    "an salloc shell": {"SLURM_NTASKS": "4"},
    "salloc's interactive step": BATCH | {"SLURM_STEP_ID": "4294967290"},
    "a shell under srun --pty": BATCH | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    "one rank": {"PMI_SIZE": "1", "OMPI_COMM_WORLD_SIZE": "1"},
}


@pytest.mark.parametrize("case", APART)
def test_worlds_apart(case):
    environment, vendor, said = APART[case]
    assert said in mismatch(1, vendor, environment)
    assert mismatch(4, vendor, environment) is None


@pytest.mark.parametrize("case", ALONE)
def test_one_process_that_is_meant_to_be_alone(case):
    assert mismatch(1, "MPICH", ALONE[case]) is None


def test_the_first_of_them_speaks():
    assert process_number({}) == process_number({"PMI_RANK": "0"}) == 0
    assert process_number(STEP) == 2


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("train --dataset synthetic", "0"),
        ("train --dataset synthetic", "2"),
        ("tune synthetic", "0"),
        ("reproduce synthetic --quick", "0"),
    ],
)
def test_a_job_of_worlds_apart_is_refused_once(command, number, tmp_path):
    foreign = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "PRTE"))}
    foreign |= {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "3", "SLURM_PROCID": number}
    foreign["PYTHONPATH"] = str(REPOSITORY)
    done = subprocess.run(
        [sys.executable, "-m", *f"fedmpi.{command}".split()],
        env=foreign,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=limit(),
    )
    assert not any(tmp_path.iterdir())
    assert done.returncode == 2
    assert ("use srun --mpi=" in done.stderr.lower()) == (number == "0")
    assert done.stderr.count("\n") == (number == "0")


def test_mpich_under_srun_with_pmix_is_doubted_before_it_starts():
    pmix = STEP | {"PMIX_RANK": "0"}
    assert "srun --mpi=pmi2" in (pmi_warning("MPICH", pmix) or "")
    assert pmi_warning("MPICH", pmix | {"PMIX_RANK": "1"}) is None  # one of them speaks
    assert pmi_warning("Open MPI", pmix) is None
    assert pmi_warning("MPICH", STEP) is pmi_warning("MPICH", {}) is None
    assert pmi_warning("MPICH", pmix | {"PMI_RANK": "0"}) is None


def test_a_job_that_survives_failures_is_known():
    assert survives_failures({"OMPI_MCA_mpi_ft_enable": "1"})
    assert not survives_failures({}) and not survives_failures({"OMPI_MCA_mpi_ft_enable": "0"})


def test_a_captured_run_is_not_at_a_terminal():
    assert not at_terminal()
