"""Files of tables read as text: CSV in its dialects, packed with gzip or not, and Parquet."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fedmpi.data.files import content_of, hash_of, is_parts
from fedmpi.data.options import as_list
from fedmpi.errors import Line, UserError, shortened

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_CELL = 1000
"""Characters of a text that can be a category or a name; a longer one is rather a lost quote."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
SAMPLE = 1 << 16
"""Characters that are looked at to find out how cells are separated."""
COUNTS_ONLY = re.compile(r"Expected \d+ fields in line \d+, saw \d+|EOF inside string.*row \d+")
"""Pattern of what pandas may say of a file without quoting it."""
EXCEL = "an Excel workbook: save its sheet as CSV (Save As, CSV UTF-8)"
MAGIC = {
    b"\xd0\xcf\x11\xe0": EXCEL,
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"BZh": "packed with bzip2: unpack it first, or pack it with gzip",
    b"\xfd7zXZ\x00": "packed with xz: unpack it first, or pack it with gzip",
    b"\x28\xb5\x2f\xfd": "packed with zstd: unpack it first, or pack it with gzip",
    b"ARROW1": "an Arrow file: save it as Parquet",
    b"SQLite format 3": "a database: save its table as CSV",
    b"%PDF": "a PDF: save its table as CSV",
}
"""What files are, and what to do, by their first bytes."""


def read_file(path: Path, notes: list[Line]) -> tuple[pd.DataFrame, str]:
    """The rows of a table, cells as text or missing; and the SHA-256 of its file or files."""
    if is_parts(path):
        return read_parquet(path, path), hash_of(path)
    content = content_of(path)
    return read_text(content, path, notes), hashlib.sha256(content).hexdigest()


def read_text(content: bytes, path: Path, notes: list[Line]) -> pd.DataFrame:
    """The rows of a file with this content, cells as text or missing.

    The columns of a CSV file are named by its first line.
    """
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is packed with gzip, but damaged or cut short.") from error
    if content[:4] == b"PAR1":
        return read_parquet(io.BytesIO(content), path)
    text = decode(content, path, notes)
    separator, text = separator_of(text)
    if separator != ",":
        notes.append(Line(f"{path.name}: its cells are separated by {SEPARATORS[separator]}"))
    try:
        # The header is read as a row: pandas would rename duplicate columns without a word, and
        # take the first column for an index where the rows are longer than the header.
        cells = pd.read_csv(
            io.StringIO(text),
            header=None,
            dtype=str,
            sep=separator,
            keep_default_na=False,  # a group may be called NA
            skipinitialspace=True,
            low_memory=False,
        )
    except pd.errors.EmptyDataError as error:
        raise UserError(f"{path} is empty.") from error
    except pd.errors.ParserError as error:
        why = str(error).strip().rpartition("C error: ")[2]
        known = COUNTS_ONLY.fullmatch(why)
        hint = f" (separated by {SEPARATORS[separator]})" if why.startswith("Expected") else ""
        line = f"{path} is not a table{f': {why}' if known else ''}{hint}."
        raise UserError(line, "" if known else f"pandas says: {why}.") from error
    cells = cells.apply(lambda column: column.str.strip()).replace("", None)
    note_short_rows(text, cells, separator, path, notes)
    return named_columns(cells.iloc[0], cells.iloc[1:].reset_index(drop=True), path, notes)


def decode(content: bytes, path: Path, notes: list[Line]) -> str:
    """The text of a file: UTF-8, UTF-16, or else Windows-1252, which has Latin-1's letters."""
    for magic, what in MAGIC.items():
        if content.startswith(magic):
            what = EXCEL if b"xl/workbook" in content else what
            raise UserError(f"{path} is {what}. Tables are CSV (.gz, too) or Parquet.")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif content[:SAMPLE].count(0) > len(content[:SAMPLE]) / 4:  # of two bytes, one is mostly 0
        encoding = "utf-16-le" if content[1:2] == b"\0" else "utf-16-be"
    else:
        encoding = "utf-8-sig"
    try:
        text = content.decode(encoding)
        if "\0" not in text:
            return text
        raise UserError(f"{path} is not text: it has a character of number 0.")
    except UnicodeDecodeError as error:
        where = error.start
    letters = content.decode(encoding, errors="replace")
    known = len(re.findall(r"[^\x00-\x7f\ufffd]", letters))
    if encoding == "utf-8-sig" and known <= letters.count("\ufffd"):
        try:
            text = content.decode("cp1252")
        except UnicodeDecodeError:
            pass
        else:
            notes.append(Line(f"{path.name} is not UTF-8: read as Windows-1252 (Latin-1)"))
            return text
    raise UserError(
        f"{path} is not text, or damaged: byte {where} is neither {encoding.partition('-sig')[0]} "
        "nor Windows-1252. Save it as UTF-8."
    )


def separator_of(text: str) -> tuple[str, str]:
    """Return how the cells of a CSV file are separated, and its text without a line that says so.

    That is what makes most cells of the first line, if the next lines have as many; else a comma.
    """
    if found := re.match(r"sep=([,;\t|])\r?\n", text):  # for Excel
        return found.group(1), text[found.end() :]
    sample = text[:SAMPLE]
    best, most = ",", 1
    for separator in SEPARATORS:
        try:
            reader = csv.reader(io.StringIO(sample), delimiter=separator, skipinitialspace=True)
            widths = [len(row) for row in reader if any(map(str.strip, row))]
        except csv.Error:
            continue
        alike = sum(width == widths[0] for width in widths) if widths else 0
        if widths and widths[0] > most and alike > 0.5 * len(widths):
            best, most = separator, widths[0]
    return best, text


def note_short_rows(
    text: str, cells: pd.DataFrame, separator: str, path: Path, notes: list[Line]
) -> None:
    """Note rows with fewer cells than the others: pandas makes them up without a word."""
    if not cells.iloc[:, -1].isna().any():
        return  # every row has its last cell, so it is whole
    limit = csv.field_size_limit(max(len(text), 1))
    try:
        lines = io.StringIO(text, newline="")
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        lengths = [(reader.line_num, len(row)) for row in reader if any(map(str.strip, row))]
    except csv.Error:  # it is stricter than pandas, who has read the table
        return
    finally:
        csv.field_size_limit(limit)
    short = [line for line, length in lengths if length < cells.shape[1]]
    if short and short[0] != lengths[0][0]:  # under a short header all rows are longer
        notes.append(
            Line(
                f"{path.name}: {len(short)} rows have fewer cells than the header's "
                f"{cells.shape[1]} (the first ends in line {short[0]}); the cells that lack are "
                "taken as empty"
            )
        )


def named_columns(
    header: pd.Series, rows: pd.DataFrame, path: Path, notes: list[Line]
) -> pd.DataFrame:
    """The rows under their columns' names; UserError unless each name stands above one column."""
    named = header.notna().to_numpy()
    if not named.all():
        notes.append(Line(f"{path.name}: {(~named).sum()} columns without a name left out"))
    rows = rows.loc[:, named].set_axis(header[named].tolist(), axis=1)
    if len(longest := max(rows.columns, key=len, default="")) > LONGEST_CELL:
        raise UserError(
            f"{path}: the name of a column has {len(longest):,} characters: is a quote left open?",
            f"It begins {shortened(longest)}.",
        )
    repeated = rows.columns[rows.columns.duplicated()]
    if len(repeated):
        number = len(repeated.unique())
        raise UserError(
            f"{path}: {number} names stand above more than one column: rename them.",
            f"There is more than one column {repeated[0]!r}.",
        )
    if rows.empty:
        raise UserError(f"{path} has a header but no rows.")
    return rows


def read_parquet(source: Path | io.BytesIO, path: Path) -> pd.DataFrame:
    """The rows of a Parquet file, or of a folder of its parts, cells as text or missing."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UserError(
            f"{path} is Parquet, which needs pyarrow: ./launch/setup.sh parquet, or pip install "
            "pyarrow."
        ) from error
    try:
        table = pq.read_table(source)
        names = [name for name in table.column_names if not name.startswith("__index_level_")]
        cells = {name: as_cells(table.column(name), path, name) for name in names}
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as Parquet.", f"pyarrow says: {str(error).splitlines()[0]}"
        ) from error
    header = pd.Series(names, dtype=object)
    rows = pd.DataFrame(dict(enumerate(cells.values())))
    return named_columns(header, rows, path, [])


def as_cells(column: pa.ChunkedArray, path: Path, name: str) -> pd.Series:
    """A column of Parquet as the text that a CSV file would have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        raise UserError(
            f"{path}: 1 column is neither numbers nor text nor dates: leave it out when the file "
            "is written.",
            f"It is {name!r}.",
        )
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    text = column.cast(pa.string()).to_pandas().astype(object)
    text = text.where(text.notna(), None)
    return text.str.strip().replace("", None) if text.notna().any() else text


def check_cells(frame: pd.DataFrame, path: Path) -> None:
    """Raise a UserError for texts that are too long to be a category or a label."""
    lengths = {name: frame[name].str.len() for name in frame.columns}
    long = [name for name, length in lengths.items() if length.max() > LONGEST_CELL]
    if not long:
        return
    name, length = long[0], lengths[long[0]]
    row = int(length.argmax())
    more = f", and {len(long) - 1} more columns have such cells" if len(long) > 1 else ""
    raise UserError(
        f"{path}: column {name!r} has a cell of {length.max():,.0f} characters (row {row + 1})"
        f"{more}; at most {LONGEST_CELL:,} are possible: is a quote left open? Otherwise leave "
        f"out with --drop {as_list(long)}.",
        f"It begins {shortened(frame[name].iloc[row])}.",
    )
