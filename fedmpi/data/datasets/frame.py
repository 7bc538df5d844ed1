"""A pandas DataFrame of a caller's: read as a CSV file with the same cells would be."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from fedmpi.data.dataset import Arrays
from fedmpi.data.datasets.csvfile import CsvFile
from fedmpi.data.options import DataOptions
from fedmpi.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

FILE, TEST_FILE = "frame.csv", "test.csv"


class Frame(CsvFile):
    """Cells of a DataFrame, as text in a file of a temporary `folder`.

    The name comes from the cells, so that a run on the same cells is known again, wherever the
    file lies. The rows to test with may be a frame of their own.
    """

    summary = "a DataFrame, from Python"

    def __init__(self, folder: Path, content: bytes, test: bytes | None = None) -> None:
        digest = hashlib.sha256(content)
        self.path, self.test_path = folder / FILE, None
        write_once(self.path, content)
        if test is not None:
            digest.update(hashlib.sha256(test).digest())
            self.test_path = folder / TEST_FILE
            write_once(self.test_path, test)
        self.name = f"frame:{digest.hexdigest()[:12]}"

    def used(self, options: DataOptions) -> dict:
        """The part of `options` that decides the rows, without the path of a temporary file."""
        test = options.test or (TEST_FILE if self.test_path else None)
        return super().used(dataclasses.replace(options, test=test))

    def key(self, options: DataOptions) -> str:
        return super().key(self._with_test(options))

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        return super().read(data_dir, self._with_test(options), progress)

    def _with_test(self, options: DataOptions) -> DataOptions:
        test = str(self.test_path) if self.test_path else options.test
        return dataclasses.replace(options, test=test)


def write_once(path: Path, content: bytes) -> None:
    """Write a file, unless it is there: hosts may share the folder."""
    if not path.exists():
        path.write_bytes(content)


def as_csv(frame: pd.DataFrame) -> bytes:
    """The cells of `frame` as a CSV file, without its index; a missing value is an empty cell."""
    if frame.empty:
        raise UserError(
            f"the DataFrame has {len(frame)} rows and {len(frame.columns)} columns: give one with "
            "rows to train on."
        )
    named = frame.set_axis([str(name) for name in frame.columns], axis=1)
    return named.to_csv(index=False, lineterminator="\n").encode(errors="backslashreplace")
