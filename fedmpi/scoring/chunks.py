"""Tables too large for memory: read in chunks of whole rows, each row's own text kept beside it.

That is for CSV in UTF-8, packed with gzip or not. Whatever else training reads (Parquet, UTF-16,
Windows-1252) is read as training reads it, at once.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fedmpi.data.files import is_parts
from fedmpi.data.tables import MAGIC, read_file, read_text, separator_of
from fedmpi.errors import Line, UserError
from fedmpi.scoring.inputs import Tally, require

CHUNK_BYTES = 1 << 23
CHUNK_ROWS = 1 << 16
LONGEST_RECORD = 1 << 26
"""Bytes without an end of a row after which a quote is taken to be left open."""
HEAD = 1 << 16
"""Bytes that are looked at to find out what a file is."""
NEWLINE, QUOTE = b'\n"'
BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
TOO_LONG = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


@dataclass
class Chunk:
    """Some rows, as cells and as they were written."""

    frame: pd.DataFrame
    """Cells of the columns that are wanted, as categories of text."""
    records: list[bytes]
    """Text of each row with all its columns, without its line end."""


class Table(Protocol):
    """A table that is read once, from the first row to the last."""

    name: str
    separator: str

    @property
    def columns(self) -> list[str]:
        """Names of the columns, "" for one without."""

    @property
    def header(self) -> bytes:
        """First line, as it was written."""

    def chunks(self, wanted: Sequence[str], tally: Tally) -> Iterator[Chunk]:
        """Yield the rows with these of their columns; count what is not whole in `tally`."""


def open_table(given: str) -> Table:
    """Return the table of a file, or of standard input for "-"; UserError if there is none."""
    path = Path("standard input" if given == "-" else given).expanduser()
    if is_parts(path):
        return whole_table(path)
    try:
        file = io.FileIO(sys.stdin.fileno(), closefd=False) if given == "-" else io.FileIO(path)
        stream = io.BufferedReader(file, HEAD)
        head = stream.peek(HEAD)
    except OSError as error:
        seen = f", seen from {Path.cwd()}" if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"cannot read {path}: {error.strerror}{seen}.") from error
    if is_utf8(head) or head.startswith(GZIP):
        return CsvTable(stream, str(path))
    return whole_table(path, stream.read() if given == "-" else None)


def is_utf8(head: bytes) -> bool:
    """Return whether a file that begins so may be text in UTF-8."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if len(head) - error.start > 3:  # else a letter is cut in two
            return False
    return b"\0" not in head and not head.startswith((b"PAR1", *MAGIC))


def whole_table(path: Path, content: bytes | None = None) -> WholeTable:
    """Return a table that has to be read at once."""
    notes: list[Line] = []
    frame = read_file(path, notes)[0] if content is None else read_text(content, path, notes)
    return WholeTable(str(path), frame, notes)


@dataclass
class WholeTable:
    """A table in memory, whose cells are text or missing. It is written as CSV."""

    name: str
    frame: pd.DataFrame
    notes: list[Line]
    separator = ","

    @property
    def columns(self) -> list[str]:
        return list(self.frame.columns)

    @property
    def header(self) -> bytes:
        return as_csv(self.frame[:0], header=True)[0]

    def chunks(self, wanted: Sequence[str], tally: Tally) -> Iterator[Chunk]:
        tally.notes += [str(note) for note in self.notes]
        for start in range(0, len(self.frame), CHUNK_ROWS):
            rows = self.frame[start : start + CHUNK_ROWS]
            yield Chunk(rows[list(wanted)], as_csv(rows))


class CsvTable:
    """A CSV file whose first line names its columns, UTF-8, gzipped or not; or such a stream."""

    def __init__(self, stream: io.BufferedReader[Any], name: str) -> None:
        self.name = name
        gzipped = stream.peek(2).startswith(GZIP)
        self._stream = gzip.GzipFile(fileobj=stream) if gzipped else stream
        self._rest, self._lines, self._ended, self.separator = b"", 0, False, ","
        first = self._read_block().removeprefix(BOM).lstrip(b"\r\n ") + self._rest
        if not first.strip():
            raise UserError(f"{name} is empty.")
        head = first[:HEAD].decode(errors="replace")
        self.separator, after = separator_of(head)
        if len(after) < len(head):  # a line that tells the separator
            first = first[first.index(b"\n") + 1 :]
        ends = record_ends(first)
        end = int(ends[0]) + 1 if len(ends) else len(first)
        self._header, self._rest = first[:end].rstrip(b"\r\n"), first[end:]
        self.columns = [str(cell).strip() for cell in self._parse(b"").iloc[0]]

    @property
    def header(self) -> bytes:
        return self._header

    def chunks(self, wanted: Sequence[str], tally: Tally) -> Iterator[Chunk]:
        places = sorted(self.columns.index(name) for name in wanted)
        self._lines = 1
        while block := self._read_block():
            chunk = self._chunk(block, places, tally)
            self._lines += block.count(b"\n")
            if len(chunk.frame):
                yield chunk

    def _read_block(self) -> bytes:
        """Return some whole records; b"" at the end."""
        while not self._ended:
            try:
                more = self._stream.read(CHUNK_BYTES)
            except (OSError, EOFError, zlib.error) as error:
                raise UserError(f"cannot read {self.name}: {error}.") from error
            self._ended = not more
            self._rest += more
            end = last_end(self._rest) if more else 0
            if end:
                block, self._rest = self._rest[:end], self._rest[end:]
                return block
            if len(self._rest) > LONGEST_RECORD:
                raise UserError(
                    f"{self.name} has a row of more than {LONGEST_RECORD >> 20} MB after line "
                    f"{self._lines}: is a quote left open?"
                )
        block, self._rest = self._rest, b""
        return block

    def _chunk(self, block: bytes, places: list[int], tally: Tally) -> Chunk:
        """Return the rows of a block: of their cells those at `places`."""
        records, whole = split_records(block, len(self.columns), ord(self.separator))
        frame = self._parse(block, places) if whole else None
        if frame is None or len(frame) != 1 + len(records):
            # Some row has other cells than the header, or quotes are not as they should be: the
            # parser refuses it, or its reading is what is written.
            every = self._parse(block)
            tally.short += count_short(block, len(self.columns), self.separator)
            records = as_csv(every[1:], sep=self.separator)
            frame = every[places]
        frame = frame[1:]
        frame.columns = pd.Index([self.columns[i] for i in places])
        return Chunk(frame, records)

    def _parse(self, block: bytes, places: list[int] | None = None) -> pd.DataFrame:
        """The cells of a block, under the header as its first row."""
        try:
            return pd.read_csv(
                io.BytesIO(self._header + b"\n" + block),
                header=None,
                dtype="category",
                sep=self.separator,
                usecols=places,
                skipinitialspace=True,
                keep_default_na=False,
                low_memory=False,
            )
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self.name} is not UTF-8 text (after line {self._lines}): save it as UTF-8, for "
                "example with iconv -f latin1 -t utf-8."
            ) from error
        except pd.errors.ParserError as error:
            raise UserError(self._explain(str(error))) from error

    def _explain(self, said: str) -> str:
        if found := TOO_LONG.search(said):
            wanted, line, saw = map(int, found.groups())
            return (
                f"{self.name}, line {self._lines + line - 1}: {saw} cells, and the header has "
                f"{wanted}. Put a cell that has the separator {self.separator!r} between quotes."
            )
        return f"{self.name} is not a table after line {self._lines}: is a quote left open?"


def last_end(data: bytes) -> int:
    """Return the place after the last line end that ends a row; 0 if there is none."""
    if QUOTE not in data:
        return data.rfind(b"\n") + 1
    ends = record_ends(data)
    return int(ends[-1]) + 1 if len(ends) else 0


def record_ends(data: bytes) -> np.ndarray:
    """Return the places of the line ends that end a row, with an even number of quotes before."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    return outside_quotes(buffer, np.flatnonzero(buffer == NEWLINE), data)


def outside_quotes(buffer: np.ndarray, places: np.ndarray, data: bytes) -> np.ndarray:
    """Return those of the places that have an even number of quotes before."""
    if QUOTE not in data:
        return places
    return places[np.searchsorted(np.flatnonzero(buffer == QUOTE), places) % 2 == 0]


def split_records(block: bytes, cells: int, separator: int) -> tuple[list[bytes], bool]:
    """Return the text of each row, without blank lines; and whether all have as many cells."""
    block = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    if not block.endswith(b"\n"):
        block += b"\n"
    buffer, ends = np.frombuffer(block, dtype=np.uint8), record_ends(block)
    between = outside_quotes(buffer, np.flatnonzero(buffer == separator), block)
    if QUOTE in block:
        starts = [0, *(ends + 1).tolist()]
        records = [block[a:b] for a, b in zip(starts, ends.tolist(), strict=False)]
    else:
        records = block[:-1].split(b"\n")
    if cells > 1 and len(between) == len(ends) * (cells - 1):
        of_row = between.reshape(len(ends), cells - 1)
        if (of_row[:, -1] < ends).all() and (of_row[1:, 0] > ends[:-1]).all():
            return records, True
    counts = np.diff(np.searchsorted(between, ends), prepend=0) + 1
    kept = [(record, n) for record, n in zip(records, counts, strict=False) if record.strip()]
    return [record for record, _ in kept], all(n == cells for _, n in kept)


def as_csv(frame: pd.DataFrame, header: bool = False, sep: str = ",") -> list[bytes]:
    """Return each row as a line of CSV, without its end."""
    text = frame.to_csv(None, header=header, index=False, sep=sep, lineterminator="\0")
    return text.encode(errors="surrogatepass").split(b"\0")[:-1]


def count_short(block: bytes, cells: int, separator: str) -> int:
    """Return how many rows have fewer cells than `cells`."""
    limit = csv.field_size_limit(max(len(block), 1))
    try:
        text = io.StringIO(block.decode(errors="replace"), newline="")
        rows = csv.reader(text, delimiter=separator, skipinitialspace=True)
        return sum(len(row) < cells for row in rows if any(map(str.strip, row)))
    except csv.Error:  # it is stricter than pandas, who has read the table
        return 0
    finally:
        csv.field_size_limit(limit)


def check_columns(table: Table, wanted: Sequence[str], tally: Tally) -> None:
    """Raise a UserError unless each wanted column is there once; note the others in `tally`."""
    given = [name for name in table.columns if name]
    require(wanted, given, table.name)
    if repeated := [name for name in wanted if given.count(name) > 1]:
        raise UserError(f"{table.name} has more than one column {repeated[0]!r}: rename them.")
    tally.extra += [name for name in given if name not in wanted and name not in tally.extra]
