"""Rows with their predicted class and probabilities, as lines of CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, TypeVar

import numpy as np
import torch

from fedmpi.errors import UserError
from fedmpi.scoring.inputs import Tally
from fedmpi.scoring.model import Model
from fedmpi.scoring.sources import Source

T = TypeVar("T")

DECIMALS = 9
SMALL = 1e-4
"""Probability below which so many decimals would be too few: these are written as 1.23e-05."""


def write_predictions(model: Model, source: Source, out: BinaryIO, tally: Tally) -> None:
    """Write each row of `source` with its prediction, in order; memory is that of a few chunks."""
    names = ["predicted", *(f"probability/{name}" for name in model.classes)]
    if taken := [name for name in names if name in source.columns]:
        raise UserError(
            f"{source.name} has a column {taken[0]!r} already: leave it out, or rename it."
        )
    separator = source.separator
    out.write(
        separator.encode().join([source.header, *(cell(n, separator) for n in names)]) + b"\n"
    )

    def encoded() -> Iterator[tuple[list[bytes], np.ndarray]]:
        for part in source.parts(tally):
            yield part.records, model.encode_counted(part.rows, tally)

    for records, x in read_ahead(encoded()):
        p = torch.softmax(model.logits(x), dim=1).numpy()
        rows = zip(records, lines(p, model.classes, separator), strict=True)
        out.write(b"".join([a + b for a, b in rows]))


def lines(p: np.ndarray, classes: tuple[str, ...], separator: str = ",") -> list[bytes]:
    """Return what is written after each row: the likeliest class and the probabilities."""
    between = separator.encode()
    likeliest = [between + cell(name, separator) for name in classes]
    numbers = fixed(p, separator)
    for i in np.flatnonzero((p < SMALL).any(axis=1)).tolist():
        values = (b"%.*g" % (DECIMALS, value) for value in p[i].tolist())
        numbers[i] = between + between.join(values) + b"\n"
    return [likeliest[k] + text for k, text in zip(p.argmax(1).tolist(), numbers, strict=True)]


def fixed(p: np.ndarray, separator: str = ",") -> list[bytes]:
    """Return the numbers of each row, between 0 and 1, a separator before each, and a line end.

    All digits at once: Python takes longer to write a million numbers than torch to compute them.
    """
    rows, count = p.shape
    width = DECIMALS + 3  # a separator, a digit and a point
    text = np.empty((rows, count * width + 1), dtype=np.uint8)
    text[:, -1] = ord("\n")
    units = np.rint(p.astype(np.float64) * 10**DECIMALS).astype(np.int64)
    cells = text[:, :-1].reshape(rows, count, width)
    cells[..., 0], cells[..., 2] = ord(separator), ord(".")
    for place in [*range(width - 1, 2, -1), 1]:
        units, digit = np.divmod(units, 10)
        cells[..., place] = digit + ord("0")
    return text.view(f"S{text.shape[1]}")[:, 0].tolist()


def cell(text: str, separator: str = ",") -> bytes:
    """Return `text` as a cell of CSV."""
    written = io.StringIO()
    csv.writer(written, delimiter=separator, lineterminator="").writerow([text])
    return written.getvalue().encode()


def read_ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield `items`, of which a thread makes the next while the caller uses the last."""
    with ThreadPoolExecutor(1) as thread:
        iterator, end = iter(items), object()
        coming = thread.submit(next, iterator, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, iterator, end)
            yield item  # type: ignore[misc]
