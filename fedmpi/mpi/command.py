"""The command that started a job, and the one that goes on with it."""

import os
import re
import shlex
import sys
from pathlib import Path

LAUNCHERS = ("mpirun", "mpiexec", "prterun", "orterun")


def launcher_process() -> Path | None:
    """The /proc folder of the mpirun that started this rank, if it is on this host."""
    pid = os.getppid()
    for _ in range(4):
        process = Path(f"/proc/{pid}")
        try:
            if (process / "comm").read_text().strip().startswith(LAUNCHERS):
                return process
            pid = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            return None
    return None


def command_line(ranks: int) -> str:
    """What the user typed, as far as this process can know.

    A script that starts jobs says itself how it was called, in FEDMPI_COMMAND.
    """
    given = os.environ.get("FEDMPI_COMMAND")
    if given:
        return given
    if (launcher := launcher_process()) is not None:
        words = (launcher / "cmdline").read_bytes().decode(errors="replace").split("\0")
        words[0] = re.sub(r"prterun$", "mpirun", words[0])  # what Open MPI's mpirun becomes
        return shlex.join(words[:-1])
    mine = shlex.join(sys.orig_argv)
    by = "srun" if "SLURM_STEP_ID" in os.environ else "mpirun"
    return f"{by} -n {ranks} {mine}" if ranks > 1 else mine


def without_force(command: str) -> str:
    """`command` without the --force that would start over."""
    return re.sub(r"\s+--force(?=\s|$)", "", command)


def resumed(command: str) -> str:
    """`command` with --resume, and without --force."""
    command = without_force(command)
    return command if re.search(r"\s--resume(?=\s|$)", command) else f"{command} --resume"
