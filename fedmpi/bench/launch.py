"""Launches of programs on ranks; each program prints one line of JSON at its end."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from fedmpi.errors import UserError

MARK = "fedmpi.bench: "
REPOSITORY = Path(__file__).parent.parent.parent


def environment(python: Path) -> dict[str, str]:
    """Environment in which a launcher starts this Python, also as root and oversubscribed."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI_COMM"))},
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
    }


def end(process: subprocess.Popen) -> None:
    """End the launcher, by TERM first: a launcher that is killed leaves its ranks behind."""
    process.terminate()
    try:
        process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def launch(python: Path, launcher: list[str], program: list[str], timeout: float) -> dict:
    """Launch; return the line that the server printed, and when the launch began."""
    began = time.time()
    out = output_of(python, launcher, program, timeout)
    lines = [line for line in out.splitlines() if line.startswith(MARK)]
    if not lines:
        raise UserError(f"{_name([*launcher, str(python), *program])}: it printed no result")
    return json.loads(lines[-1].removeprefix(MARK)) | {"began": began}


def output_of(python: Path, launcher: list[str], program: list[str], timeout: float) -> str:
    """Launch; return what the ranks printed, or raise a UserError with their first complaint."""
    command = [*launcher, str(python), *program]
    try:
        process = subprocess.Popen(
            command,
            env=environment(python),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise UserError(f"{command[0]}: {error.strerror}.") from None
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end(process)
        raise UserError(f"{_name(command)}: not done in {timeout:g} s.") from None
    if process.returncode:
        words = err.strip().splitlines()[-1:] or ["it printed no result"]
        ours = [line for line in err.splitlines() if line.startswith("fedmpi: ")]
        raise UserError(f"{_name(command)}: {(ours or words)[0]}")
    return out


def _name(command: list[str]) -> str:
    """The command for people, without a program's JSON."""
    return " ".join(word for word in command if not word.startswith("{"))
