"""FashionMNIST from small made files, and (slow) from its mirror against the published hashes."""

import gzip
import hashlib

import numpy as np
import pytest
from images import idx, write_fashionmnist

from fedmpi.data import find
from fedmpi.data.datasets.fashionmnist import FashionMNIST, read_idx
from fedmpi.data.download import Debian, Site, Unavailable
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError

# Published for the decompressed files.
MD5 = {
    "train-images-idx3-ubyte.gz": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte.gz": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte.gz": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte.gz": "15d484375f8d13e6eb1aabb0c3f46965",
}


@pytest.fixture
def made(tmp_path):
    """Small files put there by hand: the dataset that expects them, and what is in them."""
    rng = np.random.default_rng(0)
    content = [
        rng.integers(0, 256, (50, 28, 28), dtype=np.uint8),
        np.arange(50, dtype=np.uint8) % 10,
        rng.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        np.arange(20, dtype=np.uint8)[::-1] % 10,
    ]
    dataset = FashionMNIST()
    dataset.sources = ()
    dataset.files = write_fashionmnist(tmp_path, content)
    return dataset, content


def test_images_stay_bytes_and_the_scale_is_that_of_the_training_images(made, tmp_path):
    dataset, (train_x, train_y, test_x, test_y) = made
    prepared = prepare(dataset, tmp_path, DataOptions())
    assert prepared.array("train_x").dtype == np.uint8
    np.testing.assert_array_equal(prepared.array("train_x"), train_x[:, None])
    np.testing.assert_array_equal(prepared.array("test_x"), test_x[:, None])
    for split, y in (("train", train_y), ("test", test_y)):
        np.testing.assert_array_equal(prepared.array(f"{split}_y"), y)
        np.testing.assert_array_equal(prepared.array(f"{split}_group"), y)
    assert prepared.scale["mean"] == pytest.approx([train_x.astype(float).mean()], rel=1e-12)
    assert prepared.scale["std"] == pytest.approx([train_x.astype(float).std()], rel=1e-12)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-100],
        lambda data: data[:100] + b"?" + data[101:],
        lambda data: b"<html>please log in</html>",
        lambda data: b"",
    ],
)
def test_a_cut_or_changed_file_does_not_become_data(made, tmp_path, damage):
    dataset, _ = made
    path = tmp_path / dataset.files[0].name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz is damaged"):
        prepare(dataset, tmp_path, DataOptions())
    assert not (tmp_path / "prepared").exists()


def test_gzip_headers_do_not_matter(made, tmp_path):
    dataset, content = made
    path = tmp_path / dataset.files[1].name
    path.write_bytes(gzip.compress(idx(content[1]), compresslevel=1, mtime=12345))
    assert prepare(dataset, tmp_path, DataOptions()).rows("train") == 50


def test_another_kind_of_idx_is_refused(tmp_path):
    (tmp_path / "floats.gz").write_bytes(gzip.compress(bytes([0, 0, 13, 1, 0, 0, 0, 0])))
    with pytest.raises(UserError, match="not an idx file"):
        read_idx(tmp_path / "floats.gz")


def test_who_holds_what():
    dataset = find("fashionmnist")
    first, second = dataset.psg_blocks(dataset.groups)
    assert [dataset.groups[a] for a in first] == ["T-shirt", "Trouser", "Pullover", "Dress", "Coat"]
    names = ["Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
    assert [dataset.groups[a] for a in second] == names
    assert dataset.ssg_clients(dataset.groups, 40) == [4] * 10


def test_a_package_that_apt_does_not_know(tmp_path):
    source = Debian("dataset-that-is-not-there", "usr/share")
    with pytest.raises(Unavailable, match="apt-get"):  # no such package, or no such program
        source.fetch(["a"], tmp_path, progress=False)


@pytest.mark.slow
def test_the_mirror_has_the_official_files(tmp_path):
    dataset = FashionMNIST()
    dataset.sources = tuple(s for s in dataset.sources if not isinstance(s, Site))
    prepared = prepare(dataset, tmp_path, DataOptions())
    for name, md5 in MD5.items():
        content = gzip.decompress((tmp_path / "raw/fashionmnist" / name).read_bytes())
        assert hashlib.md5(content).hexdigest() == md5
    assert set(prepared.counts["train"].values()) == {6000}
    assert set(prepared.counts["test"].values()) == {1000}
    # As everybody else has them, of values from 0 to 1.
    assert prepared.scale["mean"][0] / 255 == pytest.approx(0.2860, abs=5e-5)
    assert prepared.scale["std"][0] / 255 == pytest.approx(0.3530, abs=5e-5)
