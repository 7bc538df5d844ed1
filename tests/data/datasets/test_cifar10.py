"""CIFAR-10 from small made files, and (slow) from its mirror against the published hashes."""

import hashlib
import io
import json
import tarfile

import numpy as np
import pytest

from fedmpi.data import find
from fedmpi.data.datasets.cifar10 import CIFAR10, LABELS, Sprites
from fedmpi.data.download import Archive, Npm, RawFile, Unavailable, fetch_raw
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError

# Published for the binary edition.
MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
BATCH = 20


class Folder:
    """A source that delivers what it holds."""

    def __init__(self, content):
        self.content = content

    def __str__(self):
        return "a folder"

    def fetch(self, names, folder, progress):
        for name in names:
            if name not in self.content:
                raise Unavailable(f"no {name}")
            (folder / name).write_bytes(self.content[name])


def png(images: np.ndarray) -> bytes:
    """As the package has them: a row of pixels for each image."""
    from PIL import Image

    pixels = images.reshape(len(images), 3, 1024).transpose(0, 2, 1)
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels), "RGB").save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def made():
    """A dataset of six small batches, each (images, labels); and the package that has them."""
    rng = np.random.default_rng(0)
    batches = {
        name: (
            rng.integers(0, 256, (BATCH, 3, 32, 32), dtype=np.uint8),
            rng.permutation(np.arange(BATCH, dtype=np.uint8) % 10),
        )
        for name in MD5
    }
    binary = {
        name: b"".join(bytes([label]) + image.tobytes() for image, label in zip(x, y, strict=True))
        for name, (x, y) in batches.items()
    }
    dataset = CIFAR10()
    dataset.files = tuple(
        RawFile(name, hashlib.sha256(content).hexdigest()) for name, content in binary.items()
    )
    train = np.concatenate([y for name, (_, y) in batches.items() if name.startswith("data")])
    package = {name.replace(".bin", ".png"): png(x) for name, (x, _) in batches.items()}
    package[LABELS["train"]] = json.dumps(train.tolist()).encode()
    package[LABELS["test"]] = json.dumps(batches["test_batch.bin"][1].tolist()).encode()
    return dataset, batches, binary, package


def check(prepared, batches):
    x, y = zip(*batches.values(), strict=True)
    np.testing.assert_array_equal(prepared.array("train_x"), np.concatenate(x[:-1]))
    np.testing.assert_array_equal(prepared.array("train_group"), np.concatenate(y[:-1]))
    np.testing.assert_array_equal(prepared.array("test_x"), x[-1])
    np.testing.assert_array_equal(prepared.array("test_y"), y[-1])
    train = np.concatenate(x[:-1]).astype(float)
    assert prepared.scale["mean"] == pytest.approx(train.mean(axis=(0, 2, 3)), rel=1e-12)
    assert prepared.scale["std"] == pytest.approx(train.std(axis=(0, 2, 3)), rel=1e-12)


def test_pictures_and_labels_make_the_binary_batches(made, tmp_path):
    pytest.importorskip("PIL")
    dataset, batches, binary, package = made
    dataset.sources = (Sprites(Folder(package)),)
    prepared = prepare(dataset, tmp_path, DataOptions())
    check(prepared, batches)
    assert {source["origin"] for source in prepared.sources} == {"a folder"}
    for name, content in binary.items():
        assert (tmp_path / "raw/cifar10" / name).read_bytes() == content


def test_only_the_missing_batches_are_made(made, tmp_path):
    pytest.importorskip("PIL")
    dataset, batches, binary, package = made
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(binary[name])
        del package[name.replace(".bin", ".png")]
    dataset.sources = (Sprites(Folder(package)),)
    check(prepare(dataset, tmp_path, DataOptions()), batches)


def test_the_official_archive(made, tmp_path):
    dataset, batches, binary, _ = made
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in binary.items():
            member = tarfile.TarInfo(f"inside/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    whole = Folder({"all.tar.gz": out.getvalue()})
    cut = Folder({"all.tar.gz": out.getvalue()[:-5000]})
    dataset.sources = (Archive(cut, "all.tar.gz", "inside"), Archive(whole, "all.tar.gz", "inside"))
    check(prepare(dataset, tmp_path, DataOptions()), batches)
    with pytest.raises(Unavailable, match="does not hold elsewhere"):
        Archive(whole, "all.tar.gz", "elsewhere").fetch(list(binary), tmp_path, progress=False)


@pytest.mark.parametrize(
    "damage",
    [
        {"data_batch_2.png": b"not a picture"},
        {LABELS["test"]: b"[1, 2"},
        {LABELS["train"]: b"[1, 2]"},
        {LABELS["train"]: json.dumps([300] * 5 * BATCH).encode()},
    ],
)
def test_a_damaged_package_does_not_become_data(made, tmp_path, damage):
    pytest.importorskip("PIL")
    dataset, _, _, package = made
    dataset.sources = (Sprites(Folder(package | damage)),)
    with pytest.raises(UserError, match="could not get") as error:
        prepare(dataset, tmp_path, DataOptions())
    assert "\n" not in str(error.value)
    assert not (tmp_path / "prepared").exists()


def test_a_picture_that_is_cut_off(made, tmp_path):
    pytest.importorskip("PIL")
    dataset, _, _, package = made
    package["data_batch_1.png"] = package["data_batch_1.png"][:-2000]
    with pytest.raises(UserError, match="could not get"):
        fetch_raw("cifar10", dataset.files, [Sprites(Folder(package))], tmp_path)


def test_who_holds_what():
    dataset = find("cifar10")
    first, second = dataset.psg_blocks(dataset.groups)
    names = ["Airplane", "Automobile", "Bird", "Cat", "Deer"]
    assert [dataset.groups[a] for a in first] == names
    names = ["Dog", "Frog", "Horse", "Ship", "Truck"]
    assert [dataset.groups[a] for a in second] == names
    assert dataset.ssg_clients(dataset.groups, 40) == [4] * 10


def test_a_package_that_npm_cannot_get(tmp_path, monkeypatch):
    monkeypatch.setenv("npm_config_registry", "http://nobody.invalid")
    monkeypatch.setenv("npm_config_fetch_retry_mintimeout", "10")
    with pytest.raises(Unavailable, match=r"code|npm"):  # or there is no npm
        Npm("left@1.0").fetch(["a"], tmp_path, progress=False)


@pytest.mark.slow
def test_the_mirror_has_the_official_images(tmp_path):
    dataset = CIFAR10()
    dataset.sources = tuple(s for s in dataset.sources if isinstance(s, Sprites))
    prepared = prepare(dataset, tmp_path, DataOptions())
    for name, md5 in MD5.items():
        content = (tmp_path / "raw/cifar10" / name).read_bytes()
        assert hashlib.md5(content).hexdigest() == md5
    assert set(prepared.counts["train"].values()) == {5000}
    assert set(prepared.counts["test"].values()) == {1000}
    # As everybody else has them, of values from 0 to 1.
    mean, std = np.array(prepared.scale["mean"]) / 255, np.array(prepared.scale["std"]) / 255
    assert mean == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert std == pytest.approx([0.2470, 0.2435, 0.2616], abs=5e-5)
