"""The files of tables: their bytes, their hashes, and which of a folder's files are whose."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from fedmpi.errors import UserError

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
"""Endings of the files that are tables, in a folder of owners."""
PARQUET = (".parquet", ".pq")
LOOK_ALIKES = (".xlsx", ".xls", ".xlsm", ".ods", ".zip", ".bz2", ".xz", ".zst", ".json", ".feather")
"""Endings of files that somebody may take for tables, and that are not read."""


def content_of(path: Path) -> bytes:
    """Return the bytes of a file; UserError if it cannot be read."""
    try:
        if stat.S_ISREG(path.stat().st_mode) or path.is_dir():  # of which reading tells
            return path.read_bytes()
    except FileNotFoundError as error:
        # A newcomer's first slip: the name is right, and the folder another.
        raise UserError(f"cannot read {path}: {error.strerror}, seen from {Path.cwd()}.") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {why}.") from error
    raise UserError(f"cannot read {path}: it is a pipe or a device; save it as a file first.")


def is_parts(path: Path) -> bool:
    """Return whether `path` is a folder NAME.parquet, whose files are the parts of one table."""
    try:
        return path.name.lower().endswith(PARQUET) and path.is_dir()
    except (OSError, ValueError):
        return False


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a table's file, or of all files of a folder of parts."""
    if not is_parts(path):
        return hashlib.sha256(content_of(path)).hexdigest()
    digest = hashlib.sha256()
    for part in sorted(part for part in path.rglob("[!._]*") if part.is_file()):
        digest.update(f"{part.relative_to(path)} {hash_of(part)}\n".encode())
    return digest.hexdigest()


def owner_of(name: str) -> str | None:
    """Return the owner whose table a file of this name is; None if it is no table's name."""
    lower = name.lower()
    for suffix in SUFFIXES:
        if lower.endswith(suffix) and len(lower) > len(suffix):
            return name[: -len(suffix)]
    return None


def owners_files(folder: Path) -> dict[str, Path]:
    """The table of each owner in `folder`; UserError for two of one owner, or for a workbook."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("[!.]*")):
        owner = owner_of(path.name)
        if owner is None:
            if path.name.lower().endswith(LOOK_ALIKES):
                raise UserError(
                    f"{path} is no table that fedmpi reads: save it as CSV or Parquet, or move it "
                    "elsewhere."
                )
        elif owner in found:
            raise UserError(
                f"{folder} has {found[owner].name} and {path.name}: leave one file for each owner."
            )
        else:
            found[owner] = path
    return found
