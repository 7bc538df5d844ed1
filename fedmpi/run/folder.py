"""The files that a run leaves. Each appears whole: written aside, flushed, then renamed."""

import contextlib
import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedmpi.errors import UserError
from fedmpi.run.checkpoint import NEWEST, PREVIOUS
from fedmpi.run.config import IDENTITY, Config
from fedmpi.run.lock import Lock

OF_A_RUN = (
    "config.json",
    "history.csv",
    "model.pt",
    "partition.npz",
    "weights.npz",
    "bootstrap.npz",
)


class RunFolder:
    """Folder of one run: config.json, history.csv, result.json, model.pt, checkpoint.pt, ..."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lock = Lock(self.path)

    def finished(self, identity: dict) -> dict | None:
        """Return the result, if the run of this identity is finished here."""
        with contextlib.suppress(OSError, ValueError):
            if self._identity() == json.loads(json.dumps(identity)):
                return json.loads((self.path / "result.json").read_text())
        return None

    def claim(self, config: Config, identity: dict) -> None:
        """Make the folder ready for a run, when all that can be checked has been.

        A finished run, or an unfinished one that is not to be resumed, is never overwritten
        without --force. From here to `release` no other run can claim the folder.
        """
        try:
            if self.path.is_dir():
                self.lock.take()
            self._check(config, identity)
            self._make()
            self.lock.take()
            self._check(config, identity)  # another run may have ended here in between
            if config.force:
                files = ("result.json", NEWEST, PREVIOUS, "history.csv", "model.pt")
                self.remove(*files, "bootstrap.npz")
        except OSError as error:
            raise UserError(f"cannot use the folder {self.path}: {error.strerror}.") from None

    def release(self) -> None:
        """Let other runs claim the folder."""
        self.lock.release()

    def _check(self, config: Config, identity: dict) -> None:
        """Raise a UserError for what would be overwritten, or is not there to be resumed."""
        result = self.path / "result.json"
        unfinished = (self.path / NEWEST).exists() or (self.path / PREVIOUS).exists()
        if result.exists() and not config.force:
            raise UserError(
                f"{self.path} holds a finished run of another configuration "
                f"({self._differences(identity)}): give another --output, or --force to replace it."
            )
        if unfinished and not (config.resume or config.force):
            raise UserError(
                f"{self.path} holds an unfinished run: add --resume to go on with it, "
                "or --force to start over."
            )
        if config.resume and not unfinished:
            raise UserError(f"--resume: there is no checkpoint in {self.path}; leave --resume out.")
        foreign = [name for name in OF_A_RUN if (self.path / name).exists()]
        if foreign and self._identity() is None and not config.force:
            raise UserError(
                f"{self.path} has a {foreign[0]} that is of no run: give another --output, or "
                "--force to replace it."
            )

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for aside in self.path.glob(".*.[0-9]*"):  # of a job that was killed as it wrote
                aside.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder {self.path}: {error.strerror}.") from None

    def _identity(self) -> dict | None:
        """Return the identity of the run that is here, if there is one."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            identity = json.loads((self.path / "config.json").read_text())[IDENTITY]
            return {name: value for name, value in identity.items() if value is not None}
        return None

    def _differences(self, identity: dict) -> str:
        there, ours = self._identity() or {}, json.loads(json.dumps(identity))
        names = [name for name in {**ours, **there} if there.get(name) != ours.get(name)]
        return ", ".join(f"{name} {there.get(name)}, not {ours.get(name)}" for name in names[:4])

    def remove(self, *names: str) -> None:
        """Remove these files, if they are there."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def write(
        self,
        name: str,
        fill: Callable[[BinaryIO], Any],
        before_it_appears: Callable[[], None] = lambda: None,
    ) -> None:
        """Write a file aside with `fill`, flush it to the disk, and put it in place."""
        aside = self.path / f".{name}.{os.getpid()}"
        try:
            with open(aside, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            before_it_appears()
            os.replace(aside, self.path / name)
            self._flush_names()
        except BaseException as error:  # Ctrl-C as well: what is aside is of no use to anybody
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            # torch's writer, whose file failed, raises an error of its own on top.
            cause = error if isinstance(error, OSError) else error.__context__
            if isinstance(error, UserError) or not isinstance(cause, OSError):
                raise
            raise UserError(
                f"cannot write {self.path / name}: {cause.strerror}. What was there before stands."
            ) from None

    def _flush_names(self) -> None:
        """Flush the name of a new file to the disk, too."""
        with contextlib.suppress(OSError):  # not every file system can
            names = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(names)
            finally:
                os.close(names)

    def write_json(self, name: str, value: dict) -> None:
        """Write `value` as indented JSON; a NaN would not be JSON, and becomes null."""
        text = json.dumps(_without_nan(value), indent=2, ensure_ascii=False)
        self.write(name, lambda file: file.write(text.encode(errors="backslashreplace") + b"\n"))

    def update_json(self, name: str, values: dict) -> None:
        """Set some values of a JSON file."""
        self.write_json(name, self.read_json(name) | values)

    def read_json(self, name: str) -> dict:
        """Return a JSON file of the run; {} if there is none."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.path / name).read_text())
        return {}

    def write_csv(self, name: str, rows: list[dict]) -> None:
        """Write `rows` under the keys of the first row."""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
        self.write(name, lambda file: file.write(text.getvalue().encode(errors="backslashreplace")))

    def write_npz(self, name: str, **arrays: np.ndarray) -> None:
        """Write `arrays` as numpy's own archive."""
        self.write(name, lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type]


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value != value:
        return None
    return value
