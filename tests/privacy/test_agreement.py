"""The agreement on keys, without MPI: honest ranks, mistaken ones, and somebody between them."""

import hashlib
import hmac
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from fedmpi.errors import UserError
from fedmpi.privacy.agreement import Introduction, Party, Transcript
from fedmpi.privacy.keyfiles import KeyFolder, make

OWNERS = {1: "ash", 2: "birch", 3: "oak"}


@pytest.fixture
def keys(tmp_path) -> KeyFolder:
    for name in (*OWNERS.values(), "elm"):
        make(tmp_path / "keys", name)
    return KeyFolder(tmp_path / "keys")


def folder_with(path: Path, keys: KeyFolder, **changed: str) -> KeyFolder:
    """A copy of the folder; birch_key="oak" puts oak's key in place of birch's, without a .pub."""
    path.mkdir()
    for file in keys.path.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
        (path / file.name).chmod(0o600)
    for name, other in changed.items():
        owner, kind = name.split("_")
        (path / f"{owner}.{kind}").write_bytes((keys.path / f"{other}.{kind}").read_bytes())
        if kind == "key":
            (path / f"{owner}.pub").unlink()
    return KeyFolder(path)


def parties(keys_of: dict[int, KeyFolder | None], run: str = "run") -> dict[int, Party]:
    made = {n: Party(n, OWNERS[n], keys) for n, keys in keys_of.items()}
    hear(made, run)
    return made


def hear(made: dict[int, Party], run: str = "run") -> None:
    told = [party.introduction for party in made.values()]
    commitments = [intro.commitment for intro in told]
    for party in made.values():
        party.hear(Transcript.checked(list(made), commitments, told, run))


def wrong_pairs(made: dict[int, Party]) -> set[tuple[int, int]]:
    """(receiver, sender) of every proof that was found false."""
    tags = {n: party.tags(set(made) - {n}) for n, party in made.items()}
    return {
        (n, other)
        for n, party in made.items()
        for other in party.wrong({sender: tags[sender][n] for sender in made if sender != n})
    }


@pytest.mark.parametrize("with_files", [False, True])
def test_both_ranks_of_a_pair_have_its_keys_and_no_other_pair_has(keys, with_files):
    made = parties(dict.fromkeys(OWNERS, keys if with_files else None))
    assert not wrong_pairs(made)
    pairs = [(1, 2), (1, 3), (2, 3)]
    assert all(made[i].keys_with(j) == made[j].keys_with(i) for i, j in pairs)
    assert len({key for i, j in pairs for key in made[i].keys_with(j)}) == 6
    assert {len(made[1].keys_with(2).stream), len(made[1].keys_with(2).confirm)} == {16, 32}


def test_a_proof_cannot_be_sent_back_or_on():
    made = parties(dict.fromkeys(OWNERS))
    mine = made[1].tag(1, 2)
    assert made[1].wrong({2: mine}) == [2]
    assert made[2].wrong({1: mine, 3: mine}) == [3]
    assert made[2].wrong({1: mine[:-1]}) == [1]


def test_the_key_of_a_pair_is_hkdf_over_both_secrets(keys):
    """As NIST SP 800-56A and RFC 5869 have it: extract by HMAC with the salt, then expand."""
    made = parties(dict.fromkeys(OWNERS, keys))
    low, high = made[1], made[3]
    of_launch = low._private.exchange(X25519PublicKey.from_public_bytes(high.introduction.public))
    lasting = keys.own("oak").exchange(keys.public("ash"))
    parts = [b"fedmpi secure aggregation 2", b"pair"]
    for number, party in ((1, low), (3, high)):
        own = keys.public(OWNERS[number]).public_bytes_raw()
        parts += [number.to_bytes(8, "big"), party.introduction.public, own]
    info = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    pseudorandom = hmac.new(low.transcript.digest, of_launch + lasting, hashlib.sha256).digest()
    expected = HKDFExpand(hashes.SHA256(), 48, info).derive(pseudorandom)
    assert b"".join(high.keys_with(1)) == expected


def test_a_wrong_key_file_is_found_by_all_others(keys, tmp_path):
    """Rank 2 has elm's private key under birch's name, and says that it is birch."""
    mistaken = folder_with(tmp_path / "mistaken", keys, birch_key="elm")
    made = parties({1: keys, 2: mistaken, 3: keys})
    assert wrong_pairs(made) == {(1, 2), (2, 1), (3, 2), (2, 3)}


def test_a_wrong_public_key_is_found_by_its_pair(keys, tmp_path):
    """Rank 1 took elm.pub for birch.pub."""
    mistaken = folder_with(tmp_path / "mistaken", keys, birch_pub="elm")
    assert wrong_pairs(parties({1: mistaken, 2: keys, 3: keys})) == {(1, 2), (2, 1)}


def test_ranks_of_different_runs_or_tellings_do_not_agree():
    made = {n: Party(n, OWNERS[n]) for n in OWNERS}
    hear(made, "one")
    other = Transcript((party.introduction for party in made.values()), "another")
    made[3].hear(other)
    assert wrong_pairs(made) == {(1, 3), (3, 1), (2, 3), (3, 2)}
    assert other.fingerprint != made[1].transcript.fingerprint


def between(keys: KeyFolder | None, own: KeyFolder | None) -> list[int]:
    """Have somebody between pose as rank 2 to rank 1; return whose proofs rank 1 finds false.

    He has made a key for this launch, and uses the key files in `own`, where he has none of birch.
    """
    victim, middle = Party(1, "ash", keys), Party(2, "birch", own)
    seen = Transcript([victim.introduction, middle.introduction], "run")
    victim.hear(seen)
    middle.hear(seen)
    return victim.wrong({2: middle.tag(2, 1)})


def test_somebody_between_the_ranks_is_found_with_key_files_alone(keys, tmp_path):
    """Without key files nothing says who is who: then the fingerprint has to be compared."""
    assert between(keys, folder_with(tmp_path / "his", keys, birch_key="elm")) == [2]
    assert between(None, None) == []


def test_public_keys_that_were_changed_on_the_way_give_another_fingerprint():
    made = parties(dict.fromkeys(OWNERS))
    honest = made[1].transcript
    his = Party(2, "birch").introduction
    told = [made[1].introduction, his, made[3].introduction]
    assert Transcript(told, "run").fingerprint != honest.fingerprint
    assert len(honest.fingerprint.replace(" ", "")) * 4 >= 80
    assert honest.digest.hex().startswith(honest.fingerprint.replace(" ", ""))


def refused(told: list[Introduction], commitments: list[bytes] | None = None) -> str:
    commitments = commitments or [intro.commitment for intro in told]
    with pytest.raises(UserError) as caught:
        Transcript.checked([1, 2, 3], commitments, told, "run")
    return str(caught.value)


def test_what_a_rank_tells_is_what_it_committed_to():
    told = [Party(n, OWNERS[n]).introduction for n in OWNERS]
    commitments = [intro.commitment for intro in told]
    for changed in (
        told[1]._replace(public=Party(2, "birch").introduction.public),
        told[1]._replace(name="oak"),
        told[1]._replace(has_keys=True),
        told[1]._replace(number=3),
    ):
        said = refused([told[0], changed, told[2]], commitments)
        assert said.startswith("rank 2 told another public key than it had committed to")
    swapped = [told[0], told[2], told[1]]
    assert "rank 2 told another" in refused(swapped)


def test_all_ranks_have_key_files_or_none_has(keys):
    told = [Party(n, OWNERS[n], None if n == 2 else keys).introduction for n in OWNERS]
    assert refused(told).startswith("rank 2 (birch) has no --keys, but others have")


def test_a_name_is_one_ranks(keys):
    told = [Party(1, "ash", keys), Party(2, "birch", keys), Party(3, "ash", keys)]
    said = refused([party.introduction for party in told])
    assert said.startswith("ranks 1 and 3 both say that they are ash")
    without = [Party(n, "same").introduction for n in OWNERS]  # a name that nothing depends on
    Transcript.checked([1, 2, 3], [intro.commitment for intro in without], without, "")


def test_a_name_without_a_public_key_is_said(keys):
    (keys.path / "oak.pub").unlink()
    with pytest.raises(UserError, match=r"there is no .*oak\.pub\. Ask oak"):
        parties(dict.fromkeys(OWNERS, keys))


@pytest.mark.parametrize("public", [bytes(32), b"\1" + bytes(31), b"short"])
def test_a_public_key_that_is_none_is_refused(public):
    """Points of low order would make a secret that everybody knows."""
    party = Party(1, "ash")
    party.hear(Transcript([party.introduction, Introduction(2, "birch", False, public)], "run"))
    with pytest.raises(UserError, match=r"rank 2 \(birch\) told a public key that is none"):
        party.keys_with(2)


def test_no_two_lists_of_introductions_are_encoded_alike():
    """The name and what is beside it cannot be shifted into each other."""
    public = bytes(32)
    some = [
        Introduction(1, "a", False, b"b" + public),
        Introduction(1, "ab", False, public),
        Introduction(1, "ab", True, public),
        Introduction(2, "ab", False, public),
    ]
    assert len({intro.commitment for intro in some}) == len(some)
