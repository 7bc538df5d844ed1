"""Make the keys by which the owners of a run with masked sums know each other.

    python -m fedmpi.keys birch --dir keys/     # keys/birch.key and keys/birch.pub
    python -m fedmpi.keys --show keys/          # names and fingerprints of the public keys there

Each owner makes its own pair, on its own host. NAME.key is private: it stays there, and only its
owner may read it. NAME.pub goes to all other owners. A run is then started with --keys DIR, where
DIR has the .key of the rank's own owner and the .pub of everybody else. When all .pub files are in
place, the owners compare what --show says, over the phone say: who could replace a .pub on its way
could pose as its owner.

A key serves any number of runs, and is never replaced by this command: a file that is there
already is an error. To try things out on one machine, several names can be given at once; then
that machine has everybody's private keys, and nobody is protected from it.

    python -m fedmpi.keys rank-1 rank-2 rank-3 --dir keys/

It needs no MPI.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fedmpi.errors import UserError


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fedmpi.keys",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="make the keys of this owner")
    parser.add_argument("--dir", metavar="DIR", help="where to make them (keys)")
    parser.add_argument("--show", metavar="DIR", help="list the public keys that are there")
    return parser


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        if args.show is None:
            make_all(args.names, Path(args.dir or "keys"))
        elif args.names or args.dir:
            raise UserError("--show DIR lists keys, and makes none: give names and --dir without.")
        else:
            show(args.show)
    except UserError as error:
        print(f"fedmpi: {error}", file=sys.stderr)
        return 2
    return 0


def make_all(names: list[str], folder: Path) -> None:
    """Make a key pair for each name; nothing, if one of them cannot be made."""
    if not names:
        raise UserError("give the NAME of an owner to make keys for, or --show DIR.")
    if len(set(names)) < len(names):
        raise UserError("a NAME is there twice: each owner has one key.")
    needs_cryptography()
    from fedmpi.privacy.keyfiles import fingerprint, make, refuse_existing

    for name in names:
        refuse_existing(folder, name)
    for name in names:
        print(f"{name}  {fingerprint(make(folder, name))}")
    few = len(names) == 1
    private, public = (f"{names[0]}.key", f"{names[0]}.pub") if few else ("the .key", "the .pub")
    print(f"In {folder}: {private} stays with its owner; {public} goes to all other owners.")
    if not few:
        print("In earnest each owner makes its own: whoever has all .key files can read all sums.")


def show(folder: str) -> None:
    """Print the names and fingerprints of the public keys in a folder."""
    needs_cryptography()
    from fedmpi.privacy.keyfiles import KeyFolder, fingerprint

    keys = KeyFolder(folder)
    names = keys.names()
    if not names:
        raise UserError(f"{folder} has no public key (NAME.pub).")
    width = max(map(len, names))
    for name in names:
        own = "  with its .key" if (keys.path / f"{name}.key").exists() else ""
        print(f"{name:{width}}  {fingerprint(keys.public(name))}{own}")


def needs_cryptography() -> None:
    """Raise a UserError if the package that makes keys is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise UserError(
            "keys need cryptography: ./launch/setup.sh secure, or pip install '.[secure]'."
        ) from None


if __name__ == "__main__":
    sys.exit(main())
