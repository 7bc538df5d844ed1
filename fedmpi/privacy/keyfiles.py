"""Key files: the lasting X25519 keys by which owners know each other.

DIR/birch.key is the private key of the owner birch, which stays with its owner, and DIR/birch.pub
the public key, which all other owners have. Both are PEM files, as OpenSSL reads and writes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from fedmpi.errors import UserError, shortened

NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of owners: a file's name everywhere, and no way out of its folder."""
MAKE = "python -m fedmpi.keys"
LARGEST = 10_000
"""Bytes of a key file, at most; real ones have about 120."""


class KeyFolder:
    """Folder of key files: this rank's own .key, and the .pub of every other rank."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise UserError(
                f"there is no folder {path} of keys. Make yours with {MAKE} NAME --dir {path}, "
                "and put the .pub files of the others there."
            )

    def own(self, name: str) -> X25519PrivateKey:
        """Return the private key of `name`, this rank's owner."""
        path = self.path / f"{checked(name)}.key"
        hint = f"Make it with {MAKE} {name} --dir {self.path}, or name the folder that has it."
        key = private_key(path, read(path, hint, private=True))
        beside = self.path / f"{name}.pub"
        if beside.exists() and raw(self.public(name)) != raw(key.public_key()):
            raise UserError(
                f"{beside} does not belong to {path} beside it: one of them is another owner's, or "
                "of another time. Use the two that were made together."
            )
        return key

    def public(self, name: str) -> X25519PublicKey:
        """Return the public key of `name`, an owner."""
        path = self.path / f"{checked(name)}.pub"
        return public_key(path, read(path, f"Ask {name} for that file."))

    def names(self) -> list[str]:
        """Return the names of the owners whose public keys are here."""
        return sorted(path.name.removesuffix(".pub") for path in self.path.glob("*.pub"))


def make(folder: Path, name: str) -> X25519PublicKey:
    """Make a key pair of `name`, of which nothing is there yet; return the public key."""
    refuse_existing(folder, name)
    key = X25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, mode, content in (("key", 0o600, private), ("pub", 0o644, public)):
            path = folder / f"{name}.{kind}"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(path)
            with open(file, "wb") as out:
                out.write(content)
    except OSError as error:
        for path in made:  # half a pair is none
            with contextlib.suppress(OSError):
                path.unlink()
        raise UserError(f"{error.filename or folder}: {error.strerror or error}.") from None
    return key.public_key()


def refuse_existing(folder: Path, name: str) -> None:
    """Raise a UserError if a key of `name` is there: a key that is replaced is lost."""
    for path in (folder / f"{checked(name)}.{kind}" for kind in ("key", "pub")):
        if os.path.lexists(path):
            raise UserError(
                f"{path} is there already, and is not replaced. Give another name or --dir; or "
                "move that file away, if nobody needs it."
            )


def checked(name: str) -> str:
    """Return `name`, if it can be the name of a key file."""
    if not NAMES.fullmatch(name):
        raise UserError(
            f"{shortened(name)} cannot be the name of a key: letters a-z, digits, - _ and . alone, "
            "at most 100, and a letter or digit first."
        )
    return name


def read(path: Path, hint: str, private: bool = False) -> bytes:
    """Return the content of a key file; a private one must be its owner's alone."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if private and os.name == "posix" and mode & 0o077:
                raise UserError(
                    f"{path} is a private key that others can read or write (mode "
                    f"{mode & 0o777:o}): chmod 600 {path}; if others may have read it, make a new "
                    "one."
                )
            return file.read(LARGEST)
    except FileNotFoundError:
        raise UserError(f"there is no {path}. {hint}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}.") from None


def private_key(path: Path, content: bytes) -> X25519PrivateKey:
    """Return the private key that the file at `path` holds."""
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        key = None
    if not isinstance(key, X25519PrivateKey):
        raise UserError(f"{path} is not a private key that {MAKE} has made (PEM, X25519).")
    return key


def public_key(path: Path, content: bytes) -> X25519PublicKey:
    """Return the public key that the file at `path` holds."""
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, X25519PublicKey):
        raise UserError(f"{path} is not a public key that {MAKE} has made (PEM, X25519).")
    return key


def raw(key: X25519PublicKey) -> bytes:
    """Return the 32 bytes of a public key."""
    return key.public_bytes_raw()


def fingerprint(key: X25519PublicKey) -> str:
    """Return 96 bits of a hash of a public key, for people to compare."""
    return groups_of_four(hashlib.sha256(raw(key)).digest())


def groups_of_four(digest: bytes) -> str:
    """The first 96 bits of `digest` as people read them: 6 groups of 4 hexadecimal digits."""
    digits = digest.hex()
    return " ".join(digits[i : i + 4] for i in range(0, 24, 4))
