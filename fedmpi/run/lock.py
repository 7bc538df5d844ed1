"""One run at a time in an output folder."""

import contextlib
import os
import socket
from pathlib import Path

from fedmpi.errors import UserError

try:
    import fcntl
except ImportError:  # where there is no flock, two runs are not kept apart
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


class Lock:
    """Lock of the kernel's on a file in the folder, held by the server's process.

    The lock ends with the process, however that ends: a run that crashed leaves at most the file,
    which locks nobody out. On a file system without locks every run goes on as if it were alone.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file: int | None = None

    def take(self) -> None:
        """Lock the folder, which exists; UserError if another run has it."""
        while self._file is None and fcntl:
            try:
                file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                why = error.strerror
                raise UserError(f"cannot write to {self.path.parent}: {why}.") from None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(file, 200).decode(errors="replace").strip()
                os.close(file)
                who = f" ({holder})" if holder else ""
                raise UserError(
                    f"another run{who} is writing to {self.path.parent}: wait for its end, or give "
                    "another --output."
                ) from None
            except OSError:
                pass  # a file system without locks
            if not self._is_in_place(file):
                os.close(file)  # its holder has just ended and removed it: the next one counts
                continue
            with contextlib.suppress(OSError):  # a full disk: the lock holds without a name
                os.ftruncate(file, 0)
                os.write(file, f"process {os.getpid()} on {socket.gethostname()}".encode())
            self._file = file

    def release(self) -> None:
        """Let others in, and leave no file; do nothing if the lock is not held."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()
            os.close(self._file)
            self._file = None

    def _is_in_place(self, file: int) -> bool:
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(file), os.stat(self.path))
        return False
