"""Tables too large for memory: read in chunks of whole rows, each row's own text kept beside it."""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedmpi.errors import UserError, shortened
from fedmpi.scoring.inputs import Tally

CHUNK_BYTES = 1 << 23
LONGEST_RECORD = 1 << 26
"""Bytes without an end of a row after which a quote is taken to be left open."""
NEWLINE, QUOTE, COMMA = b'\n",'
BOM = b"\xef\xbb\xbf"
KNOWN = (
    (b"\xff\xfe", "is UTF-16: save it as UTF-8, for example with iconv -f utf-16 -t utf-8"),
    (b"\xfe\xff", "is UTF-16: save it as UTF-8, for example with iconv -f utf-16 -t utf-8"),
    (b"PK\x03\x04", "is a zip archive or an Excel file: save it as CSV"),
    (b"PAR1", "is Parquet: save it as CSV"),
    (b"\x93NUMPY", "is an array of numpy's: let its name end in .npy"),
)
"""First bytes of files that are no CSV, and what to do with each."""
TOO_LONG = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


@dataclass
class Chunk:
    """Some rows, as cells and as they were written."""

    frame: pd.DataFrame
    """Cells as categories of text, by the names of the header."""
    records: list[bytes]
    """Text of each row, without its line end."""


class CsvTable:
    """A CSV file whose first line names its columns, UTF-8, gzipped or not; or such a stream."""

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self.name = name
        head = stream.peek(8)
        for magic, told in KNOWN:
            if head.startswith(magic):
                raise UserError(f"{name} {told}.")
        gzipped = head.startswith(b"\x1f\x8b")
        self._stream = gzip.GzipFile(fileobj=stream) if gzipped else stream
        self._rest, self._lines, self._ended = b"", 0, False
        first = self._read_block()
        if not first.strip():
            raise UserError(f"{name} is empty.")
        self._rest = first.removeprefix(BOM).lstrip(b"\r\n \t") + self._rest
        ends = record_ends(self._rest)
        end = int(ends[0]) + 1 if len(ends) else len(self._rest)
        self._header, self._rest = self._rest[:end].rstrip(b"\r\n"), self._rest[end:]
        cells = self._parse(b"").iloc[0]
        self.columns = [str(cell).strip() for cell in cells]
        """Names of the columns, "" for one without."""

    @property
    def header(self) -> bytes:
        """First line, as it was written."""
        return self._header

    def chunks(self, tally: Tally) -> Iterator[Chunk]:
        """Yield the rows in order; count those that are not whole in `tally`."""
        self._lines = 1
        while block := self._read_block():
            chunk = self._chunk(block, tally)
            self._lines += block.count(b"\n")
            if len(chunk.frame):
                yield chunk

    def _read_block(self) -> bytes:
        """Return some whole records; b"" at the end."""
        while not self._ended:
            try:
                more = self._stream.read(CHUNK_BYTES)
            except (OSError, EOFError) as error:
                raise UserError(f"cannot read {self.name}: {error}.") from error
            self._ended = not more
            self._rest += more
            ends = record_ends(self._rest if more else b"")
            if len(ends):
                end = int(ends[-1]) + 1
                block, self._rest = self._rest[:end], self._rest[end:]
                return block
            if len(self._rest) > LONGEST_RECORD:
                raise UserError(
                    f"{self.name} has a row of more than {LONGEST_RECORD >> 20} MB after line "
                    f"{self._lines}: is a quote left open?"
                )
        block, self._rest = self._rest, b""
        return block

    def _chunk(self, block: bytes, tally: Tally) -> Chunk:
        frame = self._parse(block)[1:]
        records, whole = split_records(block, len(self.columns))
        if not whole or len(records) != len(frame):
            # Some row lacks cells, or quotes are not as they should be: what pandas made of it.
            short = count_short(block, len(self.columns))
            tally.short += short
            text = frame.to_csv(None, header=False, index=False, lineterminator="\0")
            records = text.encode().split(b"\0")[:-1]
        frame.columns = pd.Index(self.columns)
        return Chunk(frame, records)

    def _parse(self, block: bytes) -> pd.DataFrame:
        """The cells of a block, under the header as its first row."""
        try:
            return pd.read_csv(
                io.BytesIO(self._header + b"\n" + block),
                header=None,
                dtype="category",
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
                f"{wanted}. Put cells that have a comma between quotes."
            )
        return f"{self.name} is not a table after line {self._lines}: is a quote left open?"


def record_ends(data: bytes) -> np.ndarray:
    """Return the places of the line ends that end a row, with an even number of quotes before."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(buffer == NEWLINE)
    if QUOTE in data:
        quotes = np.flatnonzero(buffer == QUOTE)
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return ends


def split_records(block: bytes, cells: int) -> tuple[list[bytes], bool]:
    """Return the text of each row, without blank lines; and whether all have as many cells."""
    block = block.replace(b"\r\n", b"\n")
    if not block.endswith(b"\n"):
        block += b"\n"
    buffer, ends = np.frombuffer(block, dtype=np.uint8), record_ends(block)
    commas = np.flatnonzero(buffer == COMMA)
    if QUOTE in block:
        quotes = np.flatnonzero(buffer == QUOTE)
        commas = commas[np.searchsorted(quotes, commas) % 2 == 0]
        starts = [0, *(ends + 1).tolist()]
        records = [block[a:b] for a, b in zip(starts, ends.tolist(), strict=False)]
    else:
        records = block[:-1].split(b"\n")
    counts = np.diff(np.searchsorted(commas, ends), prepend=0) + 1
    if (counts == cells).all() and (cells > 1 or all(map(bytes.strip, records))):
        return records, True
    kept = [(record, n) for record, n in zip(records, counts, strict=True) if record.strip()]
    return [record for record, _ in kept], all(n == cells for _, n in kept)


def count_short(block: bytes, cells: int) -> int:
    """Return how many rows have fewer cells than `cells`."""
    limit = csv.field_size_limit(max(len(block), 1))
    try:
        text = io.StringIO(block.decode(errors="replace"), newline="")
        rows = csv.reader(text, skipinitialspace=True)
        return sum(len(row) < cells for row in rows if any(map(str.strip, row)))
    except csv.Error:  # it is stricter than pandas, who has read the table
        return 0
    finally:
        csv.field_size_limit(limit)


def open_table(given: str) -> CsvTable:
    """Return the table of a file, or of standard input for "-"; UserError if there is none."""
    if given == "-":
        return CsvTable(open(sys.stdin.fileno(), "rb", closefd=False), "standard input")
    path = Path(given).expanduser()
    try:
        return CsvTable(open(path, "rb"), str(path))
    except OSError as error:
        where = f", seen from {Path.cwd()}" if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"cannot read {path}: {error.strerror}{where}.") from error


def check_columns(table: CsvTable, wanted: list[str], tally: Tally) -> None:
    """Raise a UserError unless each wanted column is there once; note the others in `tally`."""
    from fedmpi.scoring.inputs import require

    given = [name for name in table.columns if name]
    if len(table.columns) == 1 and re.search(r"[;\t|]", table.columns[0]):
        raise UserError(
            f"{table.name} has one column: separate its cells by commas.",
            f"The column is {shortened(table.columns[0])}.",
        )
    require(wanted, given, table.name)
    if repeated := [name for name in wanted if given.count(name) > 1]:
        raise UserError(f"{table.name} has more than one column {repeated[0]!r}: rename them.")
    tally.extra += [name for name in given if name not in wanted and name not in tally.extra]
