"""The settings by name, and those beside the paper's three (partition.py).

    dirichlet:ALPHA           each group is split by shares of its own over all clients
    dirichlet-classes:ALPHA   each class is
    quantity:ALPHA            clients have rows of all kinds alike, but more or fewer of them
    by:COLUMN                 a client is a value of a column of the data

In the first three the shares of the K clients are drawn from a symmetric Dirichlet(ALPHA): they
have mean 1/K and variance (1/K)(1 - 1/K) / (K ALPHA + 1). Whole rows follow by largest remainder.
"""

from __future__ import annotations

import math
import re

import numpy as np

from fedmpi.data.partition import OWNED, SETTINGS, largest_remainder
from fedmpi.errors import UserError, unknown_name

DRAWN = ("dirichlet", "dirichlet-classes", "quantity")
BY = "by"
NAMES = (*SETTINGS, *(f"{name}:ALPHA" for name in DRAWN), f"{BY}:COLUMN")
# Keeps these generators apart from those of partition.STREAM.
STREAM = int.from_bytes(b"draw", "big")

WORDS = {
    "ESG": "every client has the same share of every group",
    "PSG": "each half of the clients has one half of the groups",
    "SSG": "every client has one group",
    "dirichlet": "the clients' shares of each group are drawn from Dirichlet({})",
    "dirichlet-classes": "the clients' shares of each class are drawn from Dirichlet({})",
    "quantity": "the clients' shares of all rows are drawn from Dirichlet({})",
    BY: "a client is a value of the column {!r}, or several",
    OWNED: "the data say who holds which row",
}


def canonical(given: str) -> str:
    """The name by which a setting is known, however it is written; UserError if there is none."""
    kind, _, argument = given.partition(":")
    if given.upper() in SETTINGS:
        return given.upper()
    kind = kind.strip().lower()
    if kind == BY and argument.strip():
        return f"{BY}:{argument.strip()}"
    if kind not in DRAWN:
        if kind == BY:
            raise UserError(f"--setting {given}: name a column of the data, as by:occupation.")
        raise unknown_name("--setting", given, NAMES)
    try:
        alpha = float(argument)
    except ValueError:
        alpha = math.nan
    if not 0 < alpha < math.inf:
        raise UserError(f"--setting {given}: give {kind}:ALPHA, a number above 0, as {kind}:0.3.")
    return f"{kind}:{alpha:.12g}"


def column_of(setting: str | None) -> str | None:
    """The column that a setting splits by; None for other settings."""
    kind, _, column = (setting or "").partition(":")
    return column if kind == BY else None


def in_a_path(setting: str) -> str:
    """The setting in the name of a folder: dirichlet0.3, by-occupation."""
    if column := column_of(setting):
        return re.sub(r"[^\w.-]+", "-", f"{BY}-{column}")
    return setting.replace(":", "")


def in_words(setting: str) -> str:
    """What a setting means; nothing for one that is not known."""
    kind, _, argument = setting.partition(":")
    return WORDS.get(kind, "").format(argument)


def draw(
    setting: str, group_of_row: np.ndarray, class_of_row: np.ndarray, clients: int, seed: int
) -> tuple[np.ndarray, int]:
    """Return the client of each row, drawn as one of DRAWN says; and how many rows were moved.

    Every cell (group, class, or all rows) has random numbers of its own. A client that gets no row
    takes one, at random, from the client that is the largest by then.
    """
    kind, _, alpha = setting.partition(":")
    rows = len(group_of_row)
    if clients < 1:
        raise UserError(f"{clients} clients: use --clients 1 or more.")
    if rows < clients:
        raise UserError(
            f"--setting {setting}: {rows:,} rows to train on cannot go to {clients:,} clients, a "
            f"row each: use --clients {rows} or fewer."
        )
    cells = {"dirichlet": group_of_row, "dirichlet-classes": class_of_row}
    cell_of_row = cells.get(kind, np.zeros(rows, dtype=np.int8))
    client_of_row = np.empty(rows, dtype=np.int32)
    for cell in np.unique(cell_of_row).tolist():
        rng = np.random.default_rng([STREAM, seed, cell])
        mine = rng.permutation(np.flatnonzero(cell_of_row == cell))
        # Above 1e32 the shares are equal in float64; near 1e305 their sum overflows.
        shares = rng.dirichlet(np.full(clients, min(float(alpha), 1e100)))
        counts = largest_remainder(shares, len(mine), least=0)
        client_of_row[mine] = np.repeat(np.arange(clients, dtype=np.int32), counts)
    return client_of_row, fill_empty(client_of_row, clients, seed)


def fill_empty(client_of_row: np.ndarray, clients: int, seed: int) -> int:
    """Give each client without a row one of the largest client's, in place; return how many."""
    sizes = np.bincount(client_of_row, minlength=clients)
    empty = np.flatnonzero(sizes == 0)
    for k in empty.tolist():
        largest = int(sizes.argmax())
        rng = np.random.default_rng([STREAM, seed, k, largest])
        client_of_row[rng.choice(np.flatnonzero(client_of_row == largest))] = k
        sizes[largest] -= 1
        sizes[k] = 1
    return len(empty)
