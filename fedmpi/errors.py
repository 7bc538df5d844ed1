"""What can go wrong in a way that the user can mend."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

MOST_NAMES = 60
"""How many names a message lists; Allowed: of a table with thousands of columns is no help."""


@dataclass(frozen=True)
class Line:
    """A line for the user, in two parts.

    `quoted` may hold cells of a table and names of its columns. Where the rows belong to somebody
    else than the reader, only `text` is told: see data/agreement.py.
    """

    text: str
    quoted: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.quoted}" if self.quoted else self.text


class UserError(Exception):
    """One clear line: what was given, what is allowed, what to type instead."""

    def __init__(self, text: str, quoted: str = "") -> None:
        super().__init__(text, quoted)
        self.line = Line(text, quoted)

    def __str__(self) -> str:
        return printable(str(self.line))


def printable(text: str) -> str:
    """`text` on one line: it may quote line ends, or letters that turn a terminal around."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def said_by(error: BaseException) -> str:
    """What an exception of somebody else's code says, in one line."""
    lines = str(error).strip().splitlines()
    said = lines[0].rstrip(".") if lines else ""
    known = isinstance(error, ImportError | AttributeError) and said
    return said if known else f"{type(error).__name__}{': ' * bool(said)}{said}"


def shortened(value: str, longest: int = 40) -> str:
    """`value` as it is quoted in a message, which stays one line whatever was in the file."""
    return repr(value) if len(value) <= longest else f"{value[:longest]!r}…"


def unknown_name(what: str, given: str, allowed: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(allowed)
    nearest = difflib.get_close_matches(given[:100], names, n=1, cutoff=0.5)
    hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
    more = f", … ({len(names)} in all)" if len(names) > MOST_NAMES else ""
    listed = f"{', '.join(names[:MOST_NAMES])}{more}"
    return UserError(f"unknown {what} {shortened(given)}.", f"{hint}Allowed: {listed}.")
