"""Keys that two client ranks have in common, and nobody else: what each rank does, without MPI.

At the start of every launch each client rank makes an X25519 key pair (RFC 7748), which nothing
outlives. So a run that is repeated or resumed never meets an old mask. The ranks

    1. tell a commitment: a hash of what they will tell next;
    2. tell their number, their name and their public key, once all commitments are there;
    3. derive a key with each neighbour, and prove to each other that it is the same key.

Without step 1, whoever tells last could try many keys until the hash of all keys, which orders the
graph and is the run's fingerprint, suits him.

The key of a pair is HKDF-SHA256 (RFC 5869) over the Diffie-Hellman value of the two new keys and,
with key files, that of the two owners' lasting keys (the "full unified model" of NIST SP 800-56A).
The first is gone when the run has ended: who steals a key file later reads no old run. The second
is there only for the holders of the key files: a rank that claims another's name, or somebody who
sits between the ranks and changes public keys, has another key, and step 3 fails. Salt and info
bind the key to this protocol, to the run, to all that was told by all ranks, and to the pair.

Without key files, step 3 finds mistakes, and nobody between the ranks who is careful: for that,
owners would have to compare the fingerprint.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedmpi.errors import UserError
from fedmpi.privacy.graph import degree, neighbours
from fedmpi.privacy.keyfiles import KeyFolder, groups_of_four
from fedmpi.privacy.versions import PROTOCOL

NAME = b"fedmpi secure aggregation %d" % PROTOCOL
STREAM_KEY, CONFIRM_KEY = 16, 32
"""Bytes of a pair's two keys: that of AES-128, and that of the proofs (HMAC-SHA256)."""
TAG = 32
"""Bytes of a proof that a rank has the key of a pair."""


class Introduction(NamedTuple):
    """What a client rank tells all others."""

    number: int
    """Number of the rank when the job began."""
    name: str
    """The owner's name, to which the key file belongs."""
    has_keys: bool
    """Whether the rank was given key files."""
    public: bytes
    """Public key of this launch."""

    @property
    def commitment(self) -> bytes:
        """Hash that is told first. The public key is random, so its hash tells nothing of it."""
        return hashlib.sha256(joined(NAME, b"commitment", self.encoded)).digest()

    @property
    def encoded(self) -> bytes:
        name = self.name.encode("utf-8", "surrogateescape")
        return joined(
            number_bytes(self.number), name, b"\1" if self.has_keys else b"\0", self.public
        )

    def __str__(self) -> str:
        return f"rank {self.number} ({self.name})"


class PairKeys(NamedTuple):
    """The keys of a pair of ranks."""

    stream: bytes
    confirm: bytes


class Transcript:
    """All that the client ranks of a run told each other, as one rank heard it."""

    def __init__(self, introductions: Iterable[Introduction], run: str) -> None:
        self.by_number = {told.number: told for told in introductions}
        self.degree = degree(len(self.by_number))
        everything = (self.by_number[number].encoded for number in sorted(self.by_number))
        self.digest = hashlib.sha256(joined(NAME, text_bytes(run), *everything)).digest()

    @classmethod
    def checked(
        cls,
        numbers: Sequence[int],
        commitments: Sequence[bytes],
        told: Sequence[Introduction],
        run: str,
    ) -> Transcript:
        """Return the transcript of the client ranks `numbers`; UserError for a false one."""
        for number, commitment, intro in zip(numbers, commitments, told, strict=True):
            if intro.number != number or intro.commitment != commitment:
                raise UserError(
                    f"rank {number} told another public key than it had committed to: it is "
                    "broken, or somebody changes messages between the ranks."
                )
        without = [intro for intro in told if not intro.has_keys]
        if 0 < len(without) < len(told):
            raise UserError(f"{without[0]} has no --keys, but others have: give it to all or none.")
        first: dict[str, Introduction] = {}
        for intro in told:
            if intro.has_keys and first.setdefault(intro.name, intro) is not intro:
                raise UserError(
                    f"ranks {first[intro.name].number} and {intro.number} both say that they are "
                    f"{intro.name}: with --keys each client rank has a name and a key of its own."
                )
        return cls(told, run)

    @property
    def fingerprint(self) -> str:
        """96 bits of a hash of all public keys, names and numbers, for people to compare.

        Nobody can aim at a fingerprint: all keys are committed to before one is known.
        """
        return groups_of_four(self.digest)

    def neighbours(self, number: int, numbers: Sequence[int]) -> list[int]:
        """Return the neighbours of rank `number` among the client ranks that are there."""
        return neighbours(number, numbers, self.digest, self.degree)


class Party:
    """One client rank's part in the agreement, with its private keys."""

    transcript: Transcript

    def __init__(self, number: int, name: str, keys: KeyFolder | None = None) -> None:
        self.number, self._keys = number, keys
        self._private = X25519PrivateKey.generate()
        self._lasting = keys.own(name) if keys else None
        public = self._private.public_key().public_bytes_raw()
        self.introduction = Introduction(number, name, keys is not None, public)
        self._pairs: dict[int, PairKeys] = {}

    def hear(self, transcript: Transcript) -> None:
        """Take what all ranks told, and find the key file of each of their names."""
        self.transcript = transcript
        others = [told for n, told in transcript.by_number.items() if n != self.number]
        self._lasting_of: dict[int, X25519PublicKey] = {}
        if self._keys:
            self._lasting_of = {told.number: self._keys.public(told.name) for told in others}

    def keys_with(self, other: int) -> PairKeys:
        """Return the keys in common with rank `other`."""
        if other not in self._pairs:
            self._pairs[other] = self._derive(other)
        return self._pairs[other]

    def _derive(self, other: int) -> PairKeys:
        assert other != self.number
        told = self.transcript.by_number[other]
        public = {self.number: [self.introduction.public], other: [told.public]}
        try:
            secret = self._private.exchange(X25519PublicKey.from_public_bytes(told.public))
            if self._lasting:
                lasting = self._lasting_of[other]
                secret += self._lasting.exchange(lasting)
                public[self.number].append(self._lasting.public_key().public_bytes_raw())
                public[other].append(lasting.public_bytes_raw())
        except ValueError:  # of another length, or a point of low order
            raise UserError(f"{told} told a public key that is none.") from None
        low, high = sorted(public)
        info = (number_bytes(low), *public[low], number_bytes(high), *public[high])
        derived = HKDF(
            algorithm=hashes.SHA256(),
            length=STREAM_KEY + CONFIRM_KEY,
            salt=self.transcript.digest,
            info=joined(NAME, b"pair", *info),
        ).derive(secret)
        return PairKeys(derived[:STREAM_KEY], derived[STREAM_KEY:])

    def tag(self, sender: int, receiver: int) -> bytes:
        """Return the proof that `sender` gives `receiver`; this rank is one of the two."""
        keys = self.keys_with(receiver if sender == self.number else sender)
        direction = joined(NAME, b"tag", number_bytes(sender), number_bytes(receiver))
        return hmac.digest(keys.confirm, direction, "sha256")

    def tags(self, others: Iterable[int]) -> dict[int, bytes]:
        """Return the proof for each of `others`."""
        return {other: self.tag(self.number, other) for other in others}

    def wrong(self, tags: Mapping[int, bytes]) -> list[int]:
        """Return the ranks whose proofs, by sender, are false."""
        return [
            other
            for other, tag in tags.items()
            if not hmac.compare_digest(tag, self.tag(other, self.number))
        ]


def number_bytes(number: int) -> bytes:
    return number.to_bytes(8, "big")


def text_bytes(text: str) -> bytes:
    """`text` as bytes, whatever a file system has in its names."""
    return text.encode("utf-8", "surrogateescape")


def joined(*parts: bytes) -> bytes:
    """`parts` in one, each after its length, so that no other parts give the same bytes."""
    return b"".join(number_bytes(len(part)) + part for part in parts)
