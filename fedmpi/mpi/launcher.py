"""Ranks that do not find each other: a launcher of one kind, an MPI library of another.

Each process is then a world of size 1, and would do the whole run, over the others' files.
"""

import os
import sys
from collections.abc import Mapping

SPECIAL_STEP = 4294967290
"""Slurm's numbers of steps from here on are the batch script's and the interactive shell's."""


def apart(size: int, vendor: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """What to do about a world of one where a launcher started more; None if all is well."""
    if size > 1:
        return None
    if _number(environment, "OMPI_COMM_WORLD_SIZE") > 1:
        return _line(environment["OMPI_COMM_WORLD_SIZE"], "Open MPI's mpirun", vendor)
    if (tasks := _slurm_tasks(environment)) > 1:
        flag = "--mpi=pmix" if vendor == "Open MPI" else "--mpi=pmi2"
        return (
            f"srun started {tasks} processes, but each is a world of its own, because srun and "
            f"{vendor} do not speak the same PMI. Use srun {flag} (srun --mpi=list shows what "
            f"there is), or {_own_mpirun()} within the allocation."
        )
    if _number(environment, "PMI_SIZE") > 1:
        return _line(environment["PMI_SIZE"], "MPICH's mpirun (or one like it)", vendor)
    return None


def doubt(vendor: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """What to say before MPI starts, of a PMI that this library may not speak; None if all is well.

    MPICH that was built without PMIx ends in its start, with a line that does not help.
    """
    if vendor != "MPICH" or "SLURM_STEP_ID" not in environment or place(environment) > 0:
        return None
    if "PMIX_RANK" not in environment or "PMI_RANK" in environment:
        return None
    return "srun --mpi=pmix, but most MPICH do not speak PMIx. If it ends here: srun --mpi=pmi2."


def survives_failures(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a job of Open MPI's that goes on when a rank dies: mpirun --with-ft ulfm."""
    return environment.get("OMPI_MCA_mpi_ft_enable", "") in ("1", "true", "yes")


def place(environment: Mapping[str, str] = os.environ) -> int:
    """This process's number among those that the launcher started: the first one speaks."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return 0


def _slurm_tasks(environment: Mapping[str, str]) -> int:
    """The tasks of the srun that started this process; 0 in a batch script or an salloc shell.

    These have SLURM_NTASKS too, but they are no step of srun's.
    """
    in_step = 0 <= _number(environment, "SLURM_STEP_ID") < SPECIAL_STEP
    if not in_step and _number(environment, "SLURM_PROCID") < 1:
        return 0
    of_step = "SLURM_STEP_NUM_TASKS" in environment
    return _number(environment, "SLURM_STEP_NUM_TASKS" if of_step else "SLURM_NTASKS")


def _line(number: str, launcher: str, vendor: str) -> str:
    return (
        f"{launcher} started {number} processes, but each is a world of its own, because Python's "
        f"MPI library is {vendor}. Use {_own_mpirun()}."
    )


def _own_mpirun() -> str:
    """The mpirun that belongs to this Python's MPI, if it is where wheels put it."""
    mpirun = os.path.join(os.path.dirname(sys.executable), "mpirun")
    return mpirun if os.path.exists(mpirun) else "the mpirun of that library"


def _number(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdigit() else -1
