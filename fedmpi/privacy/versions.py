"""Versions that all ranks of a run with exact or masked sums must share.

Ranks of different owners are installed apart. A rank that rounds or lays out its numbers otherwise
spoils a sum without a trace, and behind masks nobody could see whose numbers were odd.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

import fedmpi
from fedmpi.errors import UserError
from fedmpi.mpi.ranks import Ranks

PROTOCOL = 2
"""Number of the way in which keys are agreed on and masks are made; another way, another number."""
MISSING = "none"
SHOWN = 8
"""Ranks that a line names, at most."""


def versions_here(secure: bool = False) -> dict[str, str]:
    """Return the versions of this rank; with `secure`, also those that masks depend on."""
    found = {
        "fedmpi": fedmpi.__version__,
        "the protocol of sums": str(PROTOCOL),
        "byte order": sys.byteorder,
    }
    for package in ("numpy", "torch", *["cryptography"] * secure):
        try:
            # Without the build, as in 2.13.0+cpu: ranks with and without a GPU may work together.
            found[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            found[package] = MISSING
    return found


def check_same_versions(ranks: Ranks, secure: bool = False) -> None:
    """Raise an AgreedError on all ranks unless all have the same versions. Collective.

    `secure`: compare cryptography as well, which must be there. This module does without it, so it
    can be called before masks.py is imported.
    """
    found = ranks.gather(versions_here(secure))
    ranks.on_server(lambda: compare(ranks.numbers, found or []))


def compare(numbers: list[int], found: list[dict[str, str]]) -> None:
    """Raise a UserError unless all ranks, by their numbers, have what the first one has."""
    by_rank = list(zip(numbers, found, strict=True))
    if without := [n for n, has in by_rank if has.get("cryptography") == MISSING]:
        raise UserError(
            f"{listed(without)}: --secure needs cryptography: ./launch/setup.sh secure, or pip "
            "install '.[secure]'."
        )
    for name, mine in found[0].items():
        others = {has[name] for has in found} - {mine}
        for other in sorted(others)[:1]:
            having = [n for n, has in by_rank if has[name] == other]
            raise UserError(
                f"{listed(having)}: {name} is {other}, but {mine} on rank {numbers[0]}. Sums over "
                f"ranks need the same on all of them: install the same versions."
            )


def listed(numbers: list[int]) -> str:
    """`numbers` of ranks as a message has them."""
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    names = ", ".join(map(str, numbers[:SHOWN]))
    return f"rank{'s' if len(numbers) > 1 else ''} {names}{more}"
