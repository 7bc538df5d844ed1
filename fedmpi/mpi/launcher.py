"""The launcher of a job, mpirun or srun: whether it fits the MPI library, and what it was told.

A launcher of one kind and a library of another start ranks that do not find each other. Each
process is then a world of size 1, and would do the whole run, over the files of the others.
"""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

MPIRUNS = ("mpirun", "mpiexec", "prterun", "orterun")
SPECIAL_STEP = 4294967290
"""Slurm's numbers of steps from here on are the batch script's and the interactive shell's."""


def mismatch(size: int, vendor: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return what to do about a world of one where a launcher started more; None if all is well."""
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


def pmi_warning(vendor: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return what to say, before MPI starts, of a PMI that the library may not speak; or None.

    MPICH that was built without PMIx ends in its start, with a line that does not help.
    """
    if vendor != "MPICH" or "SLURM_STEP_ID" not in environment or process_number(environment) > 0:
        return None
    if "PMIX_RANK" not in environment or "PMI_RANK" in environment:
        return None
    return "srun --mpi=pmix, but most MPICH do not speak PMIx. If it ends here: srun --mpi=pmi2."


def survives_failures(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether Open MPI lets the job go on when a rank dies: mpirun --with-ft ulfm."""
    return environment.get("OMPI_MCA_mpi_ft_enable", "") in ("1", "true", "yes")


def process_number(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of this process among those of its launcher, the first of which speaks.

    It is known before MPI has started, and where MPI takes the process for a world of its own.
    """
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return 0


def mpirun_process() -> Path | None:
    """Return the /proc folder of the mpirun that started this rank, if it is on this host."""
    pid = os.getppid()
    for _ in range(4):
        process = Path(f"/proc/{pid}")
        try:
            if (process / "comm").read_text().strip().startswith(MPIRUNS):
                return process
            pid = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            return None
    return None


def at_terminal() -> bool:
    """Return whether a person looks on: at this rank's terminal, or at that of its mpirun.

    Under mpirun a rank's output is a pipe, so the mpirun is asked (where /proc tells), and
    under fedmpi.run.supervise the mpirun's output is a pipe as well.
    """
    if sys.stderr.isatty() or os.environ.get("FEDMPI_TERMINAL"):
        return True
    mpirun = mpirun_process()
    with contextlib.suppress(OSError):
        return bool(mpirun) and os.readlink(f"{mpirun}/fd/2").startswith(("/dev/pts/", "/dev/tty"))
    return False


def command_line(ranks: int) -> str:
    """Return what the user typed, as far as this process can know.

    A script that starts jobs says itself how it was called, in FEDMPI_COMMAND.
    """
    given = os.environ.get("FEDMPI_COMMAND")
    if given:
        return given
    if (mpirun := mpirun_process()) is not None:
        words = (mpirun / "cmdline").read_bytes().decode(errors="replace").split("\0")
        words[0] = re.sub(r"prterun$", "mpirun", words[0])  # what Open MPI's mpirun becomes
        return shlex.join(words[:-1])
    mine = shlex.join(sys.orig_argv)
    by = "srun" if "SLURM_STEP_ID" in os.environ else "mpirun"
    return f"{by} -n {ranks} {mine}" if ranks > 1 else mine


def without_force(command: str) -> str:
    """Return `command` without the --force that would start over."""
    return re.sub(r"\s+--force(?=\s|$)", "", command)


def resumed(command: str) -> str:
    """Return `command` with --resume, and without --force."""
    command = without_force(command)
    return command if re.search(r"\s--resume(?=\s|$)", command) else f"{command} --resume"


def _slurm_tasks(environment: Mapping[str, str]) -> int:
    """Return the tasks of the srun that started this process; 0 in a batch script or salloc shell.

    Batch scripts and salloc shells have SLURM_NTASKS too, but they are no step of srun's.
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
    """Return the mpirun that belongs to this Python's MPI, if it is where wheels put it."""
    mpirun = os.path.join(os.path.dirname(sys.executable), "mpirun")
    return mpirun if os.path.exists(mpirun) else "the mpirun of that library"


def _number(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdigit() else -1
