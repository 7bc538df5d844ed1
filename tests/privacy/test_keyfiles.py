"""Key files, and every line that says what is wrong with one."""

import hashlib
import os
import stat
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from fedmpi.errors import UserError
from fedmpi.privacy.keyfiles import KeyFolder, fingerprint, make


@pytest.fixture
def folder(tmp_path):
    for name in ("birch", "oak", "elm.north-2"):
        make(tmp_path / "keys", name)
    return tmp_path / "keys"


def error_of(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    return str(caught.value)


def test_two_owners_have_a_secret_in_common(folder):
    keys = KeyFolder(folder)
    one = keys.own("birch").exchange(keys.public("elm.north-2"))
    assert one == keys.own("elm.north-2").exchange(keys.public("birch"))
    assert one != keys.own("oak").exchange(keys.public("birch"))
    assert keys.names() == ["birch", "elm.north-2", "oak"]


def test_openssl_reads_the_files(folder):
    """A second implementation, by its command: it derives the public key from the private one."""
    command = ["openssl", "pkey", "-in", folder / "birch.key", "-pubout"]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    assert done.stdout == (folder / "birch.pub").read_bytes()


def test_only_the_owner_may_read_the_private_key(folder):
    assert stat.S_IMODE((folder / "birch.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_private_key_that_others_can_read_is_refused(folder, mode):
    (folder / "birch.key").chmod(mode)
    said = error_of(KeyFolder(folder).own, "birch")
    assert f"mode {mode:o}" in said and f"chmod 600 {folder / 'birch.key'}" in said
    (folder / "birch.key").chmod(0o400)
    KeyFolder(folder).own("birch")


def test_what_is_missing_is_said(folder):
    assert "there is no folder" in error_of(KeyFolder, folder / "none")
    assert "there is no folder" in error_of(KeyFolder, folder / "birch.key")
    keys = KeyFolder(folder)
    assert f"there is no {folder / 'ash.key'}. Make it with" in error_of(keys.own, "ash")
    assert f"there is no {folder / 'ash.pub'}. Ask ash" in error_of(keys.public, "ash")
    (folder / "ash.pub").mkdir()
    assert "Is a directory" in error_of(keys.public, "ash")


def other_kinds() -> dict[str, bytes]:
    """Contents that are no private key of ours."""
    key = ed25519.Ed25519PrivateKey.generate()
    return {
        "nothing": b"",
        "text": b"secret",
        "bytes": bytes(range(256)),
        "cut": b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VuBCIEIA",
        "signing": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "public": key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "with a password": key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")
        ),
    }


@pytest.mark.parametrize("kind", other_kinds())
def test_a_file_that_is_no_key_is_refused_without_quoting_it(folder, kind):
    content = other_kinds()[kind]
    for name, read in (("birch.key", KeyFolder.own), ("oak.pub", KeyFolder.public)):
        (folder / name).write_bytes(content)
        said = error_of(read, KeyFolder(folder), name[:-4])
        which = "private" if read is KeyFolder.own else "public"
        assert said.startswith(f"{folder / name} is not a {which} key that") and "MC4" not in said


def test_a_public_key_of_another_beside_the_private_one_is_refused(folder):
    (folder / "birch.pub").write_bytes((folder / "oak.pub").read_bytes())
    said = error_of(KeyFolder(folder).own, "birch")
    assert f"{folder / 'birch.pub'} does not belong to {folder / 'birch.key'}" in said
    (folder / "birch.pub").unlink()  # nobody needs one's own
    KeyFolder(folder).own("birch")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../birch", "a/b", "/birch", ".birch", "-birch", "bir ch", "bi\nrch", "ß"],
)
def test_a_name_cannot_lead_elsewhere(folder, name):
    keys = KeyFolder(folder)
    for read in (keys.own, keys.public, lambda name: make(folder, name)):
        said = error_of(read, name)
        assert "cannot be the name of a key" in said and "\n" not in said
    assert "cannot be" in error_of(keys.public, "a" * 101)


def test_no_key_is_ever_replaced(folder):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert f"{folder / 'birch.key'} is there already" in error_of(make, folder, "birch")
    (folder / "oak.key").unlink()
    assert f"{folder / 'oak.pub'} is there already" in error_of(make, folder, "oak")
    assert all(before[path] == path.read_bytes() for path in folder.iterdir())


def test_half_a_pair_is_taken_back(tmp_path, monkeypatch):
    """A folder that takes no second file, as on a full disk."""
    made = os.open

    def once(path, *some):
        if str(path).endswith(".pub"):
            raise OSError(28, "No space left on device", str(path))
        return made(path, *some)

    monkeypatch.setattr("fedmpi.privacy.keyfiles.os.open", once)
    assert "No space left on device" in error_of(make, tmp_path, "birch")
    assert not list(tmp_path.iterdir())


def test_fingerprints_are_96_bits_of_sha256(folder):
    """Of the key itself, which is the last 32 bytes of its DER form."""
    key = KeyFolder(folder).public("birch")
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    digits = hashlib.sha256(der[-32:]).hexdigest()
    assert fingerprint(key).replace(" ", "") == digits[:24]
    assert [len(group) for group in fingerprint(key).split()] == [4] * 6
