"""What can go wrong in a way that the user can mend."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """One clear line: what was given, what is allowed, what to type instead."""


def unknown_name(what: str, given: str, allowed: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(allowed)
    nearest = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return UserError(f"unknown {what} {given!r}.{hint} Allowed: {', '.join(names)}.")
