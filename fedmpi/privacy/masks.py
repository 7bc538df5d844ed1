"""Pairwise masks on the numbers of client ranks, which cancel in the sum over the ranks.

Every two neighbours i < j among the client ranks (graph.py) have a key in common (agreement.py).
From it both draw the same stream of numbers, which i adds to its own numbers and j subtracts, mod
2^64. A rank's masked numbers are then uniform for all who do not have its keys; the sum over all
client ranks is that of their own numbers, exactly (Bonawitz et al. 2017, "Practical Secure
Aggregation for Privacy-Preserving Machine Learning", without their recovery from dropouts: a
round in which a rank dies is done again, with new masks). The server has no mask.

The stream is AES-128 in counter mode as AES-GCM has it: what it makes of zeros, without its tag.
(Counter mode by itself takes twice as long: libraries have GCM for the widest instructions of a
processor.) The numbers of a message go in chunks, and the nonce of a chunk is

    round (32 bits)  attempt (16)  message (16)  number of the chunk (32), from 0

big-endian. GCM encrypts the nonce followed by the number of the block (32 bits), from 2. This is
sound:

- Within a pair's key no block is ever used twice: two messages differ in round, attempt or kind of
  message, two chunks of a message in their numbers, which all have their places to themselves, and
  the number of the block never wraps, as a chunk has few. `add` refuses numbers that do not fit,
  and a message that was there before. Among launches and pairs, the keys differ.
- What GCM encrypts for its tag, block 1 of each nonce and a block of zeros, is in no stream, and no
  tag leaves `add`.
- Both ranks of a pair use the same stream: one adds it and the other subtracts it. Neither sends
  anything else under that key, and their sum has no mask in it, which is the purpose.
- AES in counter mode differs from random numbers only in that no block repeats: q blocks under a
  key tell it from random with an advantage of at most q^2 / 2^129. With 10,000 rounds of 11
  million numbers, q is 2^36 and the advantage 2^-57.

Nothing here is from the random numbers of numpy or torch, whose seeds everybody knows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedmpi.errors import UserError
from fedmpi.mpi.ranks import AgreedError, Ranks
from fedmpi.privacy.agreement import TAG, Introduction, Party, Transcript
from fedmpi.privacy.graph import too_few
from fedmpi.privacy.keyfiles import MAKE, KeyFolder
from fedmpi.privacy.versions import check_same_versions, listed

T = TypeVar("T")

CHUNK = 2**16
"""Numbers that are masked at a time: 512 kB of them, and of the stream, stay in a core's cache. It
is part of the protocol."""
GCM_TAG = 16
"""Bytes that AES-GCM writes after the stream."""


class Message(IntEnum):
    """Kinds of messages that are masked. The numbers are part of the protocol: only add to them."""

    LOSSES = 1
    CHANGES = 2
    SCORES_LAST = 3
    SCORES_MEAN = 4
    VALIDATION = 5


class MaskUsedTwice(RuntimeError):
    """A mask was asked for again. The difference of two such messages would have no mask."""


class Masks:
    """Masks of one rank among the client ranks that are there; on the server, none.

    `agree` makes one on every rank, and `among` another after ranks have died.
    """

    def __init__(
        self,
        transcript: Transcript,
        party: Party | None,
        numbers: Sequence[int],
        used: dict[tuple[int, int], int] | None = None,
    ) -> None:
        """Draw the streams of `party` with its neighbours among the client ranks `numbers`.

        `party` is None on the server. `used`: what is known of masks that were used before.
        """
        self._transcript, self._party = transcript, party
        self._last_round: dict[tuple[int, int], int] = {} if used is None else used
        self.neighbours: list[int] = []
        """Original numbers of the ranks that this rank has masks in common with."""
        if party:
            self.neighbours = transcript.neighbours(party.number, numbers)
        self._streams = [self._stream_with(other) for other in self.neighbours]
        self._zeros = memoryview(bytes(8 * CHUNK))
        self._bytes = memoryview(bytearray(8 * CHUNK + GCM_TAG))
        # Little-endian on every machine, so that both ranks of a pair read the same numbers.
        self._numbers = np.frombuffer(self._bytes, "<u8", CHUNK)

    def _stream_with(self, other: int) -> tuple:
        """Return the cipher shared with rank `other`, and what is done with its stream."""
        assert self._party
        key = self._party.keys_with(other).stream
        return AESGCM(key), np.add if self._party.number < other else np.subtract

    @property
    def fingerprint(self) -> str:
        """96 bits of a hash of all public keys, the same on every rank, for people to compare."""
        return self._transcript.fingerprint

    def add(
        self,
        numbers: np.ndarray,
        t: int,
        attempt: int,
        message: Message,
        out: np.ndarray | None = None,
    ) -> None:
        """Mask `numbers` (uint64, contiguous) in place, as the `message` of round `t`.

        `out`, if it is given, gets the masked numbers, and nothing that is not masked yet.
        `attempt` counts the times that a round is done again after a death. All ranks call this in
        the same way, the server too, whose numbers stay as they are. MaskUsedTwice for a message
        of the same round, attempt and kind as before, or of an earlier round at the same attempt.
        """
        if numbers.dtype != np.uint64 or not numbers.flags.c_contiguous:
            raise TypeError(f"masks are for contiguous uint64, not {numbers.dtype}")
        chunk_nonce(t, attempt, message, numbers.size // CHUNK)  # refused before a mask is used
        self._use_once(t, attempt, message)
        flat = numbers.reshape(-1)
        for chunk, start in enumerate(range(0, flat.size, CHUNK)):
            part = flat[start : start + CHUNK]
            nonce = chunk_nonce(t, attempt, message, chunk)
            zeros, drawn = self._zeros[: part.nbytes], self._numbers[: part.size]
            room = self._bytes[: part.nbytes + GCM_TAG]
            for cipher, add_or_subtract in self._streams:
                cipher.encrypt_into(nonce, zeros, None, room)
                add_or_subtract(part, drawn, out=part)
            if out is not None:
                out.reshape(-1)[start : start + CHUNK] = part

    def _use_once(self, t: int, attempt: int, message: Message) -> None:
        """Note that a mask is used. Rounds rise within an attempt: the last one tells enough."""
        last = self._last_round.get((attempt, message), -1)
        if t <= last:
            raise MaskUsedTwice(
                f"the mask of {message.name} in round {t}, attempt {attempt}: round {last} of "
                "that attempt was masked before"
            )
        self._last_round[attempt, message] = t

    def among(self, ranks: Ranks) -> Masks:
        """Return the masks among the ranks that are left; the masks that were used stay used.

        No message is needed: all know all public keys. AgreedError if one client rank is left.

        If some rank has got the sum of the attempt that was cut off, and gets that of the next one,
        then it knows the difference: what the dead ranks had to add, as one sum.
        """
        clients = client_numbers(ranks)
        return Masks(self._transcript, self._party, clients, self._last_round)

    @classmethod
    def agree(cls, ranks: Ranks, name: str, keys: KeyFolder | None = None, run: str = "") -> Masks:
        """Agree on keys with the other ranks. Collective; AgreedError on all ranks if they do not.

        `name`: the owner of this rank, or rank-3; `keys`: where the key files of all names are. The
        server needs neither. `run`: what tells this run from others, the same on all ranks.
        """
        check_same_versions(ranks, secure=True)
        clients, me = client_numbers(ranks), ranks.numbers[ranks.rank]
        who = f"rank {me} ({name})"

        def begin() -> Party | None:
            return None if ranks.is_server else Party(me, name, keys)

        party = on_every_rank(ranks, who, begin)
        ranks.meet()
        commitments = ranks.comm.allgather(party.introduction.commitment if party else b"")
        ranks.meet()
        told = ranks.comm.allgather(party.introduction if party else None)

        def hear() -> Transcript:
            introductions = [intro for intro in told[1:] if intro]
            transcript = Transcript.checked(clients, commitments[1:], introductions, run)
            if party:
                party.hear(transcript)
            return transcript

        transcript = on_every_rank(ranks, who, hear)
        compare_transcripts(ranks, transcript)
        confirm(ranks, transcript, party, clients)
        return cls(transcript, party, clients)


def chunk_nonce(t: int, attempt: int, message: int, chunk: int) -> bytes:
    """Return the nonce of a chunk of a message's stream."""
    try:
        return struct.pack(">IHHI", t, attempt, message, chunk)
    except struct.error:
        raise ValueError(f"no mask for round {t}, attempt {attempt}, message {message}") from None


def client_numbers(ranks: Ranks) -> list[int]:
    """Return the original numbers of the client ranks; AgreedError if they are too few."""
    try:
        too_few(len(ranks.client_ranks))
    except UserError as error:
        raise AgreedError(str(error)) from None  # all ranks count the same
    return ranks.numbers[1:]


def on_every_rank(ranks: Ranks, who: str, work: Callable[[], T]) -> T:
    """Do `work` on every rank; return its value, or raise the AgreedError for some rank's error.

    A rank with an error ends, even if a server that is not honest says that all is well.
    """
    error, value = "", None
    try:
        value = work()
    except UserError as mistake:
        error = f"{who}: {mistake}"
    tell(ranks, error)
    return value  # type: ignore[return-value]


def tell(ranks: Ranks, error: str) -> None:
    """Raise an AgreedError for the first rank that has an error. Collective."""
    errors = ranks.gather(error)

    def refuse() -> None:
        if found := [text for text in errors or [] if text]:
            raise UserError(found[0])

    ranks.on_server(refuse)
    if error:
        raise UserError(error)


def compare_transcripts(ranks: Ranks, transcript: Transcript) -> None:
    """Raise an AgreedError unless all ranks heard the same. Only then they have the same graph."""
    digests = ranks.gather(transcript.digest)

    def compare() -> None:
        by_rank = zip(ranks.numbers, digests or [], strict=True)
        if other := [number for number, digest in by_rank if digest != transcript.digest]:
            raise UserError(
                f"{listed(other)}: public keys or the name of the run are others than on rank "
                f"{ranks.numbers[0]}. Start all ranks of a run by one command; if they are, "
                "somebody changes messages between the ranks."
            )

    ranks.on_server(compare)


def confirm(
    ranks: Ranks, transcript: Transcript, party: Party | None, clients: Sequence[int]
) -> None:
    """Prove to all neighbours that the keys are the same. AgreedError, which names whose are not.

    One collective, in which a rank sends and gets 32 bytes for each of its neighbours.
    """
    others = transcript.neighbours(party.number, clients) if party else []

    def prove() -> dict[int, bytes]:
        return party.tags(others) if party else {}

    who = str(transcript.by_number[party.number]) if party else ""
    tags = on_every_rank(ranks, who, prove)
    counts = [TAG if number in tags else 0 for number in ranks.numbers]
    sent = np.frombuffer(b"".join(tags[other] for other in others), np.uint8)
    got = np.empty_like(sent)
    ranks.bytes_handed += sent.nbytes
    ranks.wait(ranks.comm.Ialltoallv([sent, counts], [got, counts]))
    received = {other: got[TAG * i : TAG * (i + 1)].tobytes() for i, other in enumerate(others)}
    wrong = party.wrong(received) if party else []
    pairs = ranks.gather([(party.number, other) for other in wrong] if party else [])

    def refuse() -> None:
        if found := {tuple(sorted(pair)) for some in pairs or [] for pair in some}:
            raise UserError(disagreement(transcript, sorted(found)))

    ranks.on_server(refuse)
    if party and wrong:  # a server that is not honest may have said that all is well
        raise UserError(disagreement(transcript, [(party.number, other) for other in wrong]))


def disagreement(transcript: Transcript, pairs: Sequence[tuple[int, ...]]) -> str:
    """Return the line for pairs of ranks that do not have the same key."""
    named: dict[int, Introduction] = transcript.by_number
    in_all = [number for number in pairs[0] if all(number in pair for pair in pairs)]
    if len(pairs) > 1 and len(in_all) == 1:
        culprit = named[in_all[0]]
        others = [n for pair in pairs for n in pair if n != culprit.number]
        line = f"{culprit} does not have the same keys as {listed(sorted(others))}: "
        files = (
            f"its {culprit.name}.key is not that of the {culprit.name}.pub that they have, or its "
            ".pub files are not theirs"
        )
    else:
        first, second = (named[number] for number in pairs[0])
        more = f" (nor do {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
        line = f"{first} and {second} do not have the same keys{more}: "
        files = f"{first.name}.pub or {second.name}.pub is not that of the other's .key"
    if named[pairs[0][0]].has_keys:
        advice = f"Compare what {MAKE} --show DIR says on each host."
        return f"{line}{files}, or somebody changes messages between the ranks. {advice}"
    return f"{line}somebody changes messages between the ranks, or a rank is broken."
