"""Helpers of the tests in which ranks die and others go on: Open MPI's --with-ft ulfm."""

import contextlib
import time
from pathlib import Path

import pytest
from mpi4py import MPI

OPEN_MPI = MPI.get_vendor()[0] == "Open MPI"
ulfm = pytest.mark.skipif(not OPEN_MPI, reason="MPICH cannot go on after a rank has died")
ULFM = ["--with-ft", "ulfm"]


@contextlib.contextmanager
def no_segments_left():
    """Remove from /dev/shm what killed ranks of Open MPI's leave there."""
    shm = Path("/dev/shm")
    before = set(shm.glob("sm_segment.*"))
    yield
    time.sleep(0.5)
    for path in set(shm.glob("sm_segment.*")) - before:
        with contextlib.suppress(OSError):
            if not in_use(path):
                path.unlink()


def in_use(path: Path) -> bool:
    """Whether a process has it in its memory: another job may have begun meanwhile."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(path) in maps.read_text():
                return True
    return False


def split_by_owner(table: Path, folder: Path) -> None:
    """The same rows as files of four owners, of unequal sizes, and in one with a column of them."""
    folder.mkdir()
    head, *rows = table.read_text().splitlines()
    ends, whole = [0, 90, 160, 210, len(rows)], [f"{head},who"]
    for name, start, end in zip("klmn", ends, ends[1:], strict=False):
        (folder / f"{name}.csv").write_text("\n".join([head, *rows[start:end]]) + "\n")
        whole += [f"{row},{name}" for row in rows[start:end]]
    folder.with_suffix(".whole.csv").write_text("\n".join(whole) + "\n")
