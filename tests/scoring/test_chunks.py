"""Tables in chunks: the cells are those of pandas, and each row's text is kept."""

import gzip
import io

import pandas as pd
import pytest

from fedmpi.errors import UserError
from fedmpi.scoring import chunks
from fedmpi.scoring.chunks import CsvTable
from fedmpi.scoring.inputs import Tally

PLAIN = b"a,b,c\n" + b"".join(b"%d,x%d,%d.5\n" % (i, i % 3, i) for i in range(40))
QUOTED = b'a,b,c\n1,"two\nlines, and a comma",3\n4,"a ""quote""",6\n' * 1 + b'7,"",9\n' * 20


@pytest.fixture(params=[16, 100, 1 << 20], ids=["16 bytes", "100 bytes", "whole"])
def small_chunks(request, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", request.param)


def read(content: bytes, tally: Tally | None = None) -> tuple[pd.DataFrame, list[bytes]]:
    table = CsvTable(io.BufferedReader(io.BytesIO(content)), "t.csv")
    found = list(table.chunks(table.columns, tally or Tally()))
    frames = [chunk.frame.astype(object) for chunk in found]
    return pd.concat(frames, ignore_index=True), [r for chunk in found for r in chunk.records]


@pytest.mark.parametrize(
    "content",
    [PLAIN, QUOTED, PLAIN.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + PLAIN, gzip.compress(PLAIN)],
    ids=["plain", "quoted", "crlf", "bom", "gzip"],
)
def test_cells_and_texts_are_those_of_the_file(small_chunks, content):
    frame, records = read(content)
    plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    expected = pd.read_csv(io.BytesIO(plain), dtype=str, keep_default_na=False)
    assert frame.columns.tolist() == expected.columns.tolist()
    assert frame.to_numpy().tolist() == expected.to_numpy().tolist()
    again = pd.read_csv(
        io.BytesIO(b"\n".join(records)), header=None, dtype=str, keep_default_na=False
    )
    assert again.to_numpy().tolist() == expected.to_numpy().tolist()
    if b'"' not in plain and b"\r" not in plain:
        assert b"\n".join(records) == plain.removeprefix(b"\xef\xbb\xbf")[6:].rstrip(b"\n")


def test_blank_lines_are_left_out_and_short_rows_filled(small_chunks):
    tally = Tally()
    frame, records = read(b"a,b\n1,2\n\n3\n  \n5,6", tally)
    assert frame.to_numpy().tolist() == [["1", "2"], ["3", ""], ["5", "6"]]
    assert [record.count(b",") for record in records] == [1, 1, 1]
    assert tally.short == 1


def test_a_quote_within_a_cell_is_a_letter(small_chunks):
    frame, records = read(b'a,b\n5" pipe,1\nx,2\n')
    assert frame["b"].tolist() == ["1", "2"] and len(records) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"a,b\n1,2\n1,2,3\n", "line 3: 3 cells, and the header has 2"),
        (b"a,b\n" + b"1,2\n" * 30 + b"1,2,3\n", "line 32: 3 cells"),
        (b"a,b\n1,\xff\n", "not UTF-8"),
        (b'a,b\n"1,2\n', "quote left open"),
        (gzip.compress(PLAIN)[:-20], "cannot read"),
    ],
)
def test_what_is_no_table_is_refused_in_a_line(small_chunks, content, says):
    with pytest.raises(UserError, match=says):
        read(content)
