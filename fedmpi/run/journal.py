"""A file that grows at its end, and that a resume cuts back to where the checkpoint saw it.

So the history of a long run costs what its rows cost, and not a whole file at every checkpoint.
"""

import os
import zlib
from pathlib import Path

from fedmpi.errors import UserError

CHUNK = 1 << 20


class Journal:
    """File of bytes in their order; bytes that were not `keep`t are lost with the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.crc = 0
        self._pending: list[bytes] = []

    def __bool__(self) -> bool:
        """Return whether there is anything in the journal, kept or not."""
        return bool(self.size or self._pending)

    def add(self, data: bytes) -> None:
        """Put `data` at the end, where the next `keep` writes it."""
        self._pending.append(data)

    def keep(self) -> None:
        """Write and flush what was added: all of it, or (the disk is full) nothing."""
        data = b"".join(self._pending)
        if not data:
            return
        try:
            # A file that is not ours, of a run that was cut off before its first checkpoint, goes.
            with open(self.path, "r+b" if self.size else "wb", buffering=0) as file:
                try:
                    file.seek(self.size)
                    view = memoryview(data)
                    while view:
                        view = view[file.write(view) :]
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(self.size)
                    raise
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror}. What was there before stands."
            ) from None
        self._pending.clear()
        self.size, self.crc = self.size + len(data), zlib.crc32(data, self.crc)

    def mark(self) -> dict[str, int]:
        """Return the size and checksum of the file, for a checkpoint."""
        return {"size": self.size, "crc": self.crc}

    def restore(self, mark: dict[str, int]) -> bool:
        """Go back to `mark`; if the file is not what it was, begin anew and return False."""
        left, crc = mark["size"], 0
        try:
            with open(self.path, "rb") as file:
                while left and (chunk := file.read(min(left, CHUNK))):
                    left, crc = left - len(chunk), zlib.crc32(chunk, crc)
            if left or crc != mark["crc"]:
                return False
            os.truncate(self.path, mark["size"])
        except OSError:
            return mark["size"] == 0
        self.size, self.crc = mark["size"], mark["crc"]
        return True
