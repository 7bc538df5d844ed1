"""FashionMNIST (Zalando, 2017): 28 × 28 grey images of clothes; each of the ten is a group."""

import gzip
from pathlib import Path

import numpy as np

from fedmpi.data.dataset import Arrays, Dataset, Preset
from fedmpi.data.datasets.images import arrays_of_images
from fedmpi.data.download import Debian, RawFile, Site, Source, fetch_raw
from fedmpi.data.options import DataOptions
from fedmpi.errors import UserError

CLASSES = (
    *("T-shirt", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
UNSIGNED_BYTES = 8


class FashionMNIST(Dataset):
    """Images are kept as bytes; PSG's blocks are the first five classes and the last five."""

    name = "fashionmnist"
    title = "FashionMNIST"
    summary = "28 × 28 images of clothes, ten classes"
    preset = Preset("cnn", "brier", 0.1, 0.1, local_epochs=15, rounds=1000, local_rounds=50)
    groups = CLASSES
    ssg_shares = (4,) * 10
    # Of the decompressed bytes: those whose MD5 are the ones published for this dataset
    # (tests/data/datasets/test_fashionmnist.py has them).
    files = tuple(
        RawFile(name, sha256, gzipped=True)
        for name, sha256 in (
            (
                "train-images-idx3-ubyte.gz",
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        )
    )
    sources: tuple[Source, ...] = (
        Site("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
        Debian("dataset-fashion-mnist", inside="usr/share/datasets/fashion-mnist"),
    )

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        paths, sources = fetch_raw(self.name, self.files, self.sources, data_dir, progress)
        train_x, train_y, test_x, test_y = map(read_idx, paths)
        train, test = (train_x[:, None], train_y), (test_x[:, None], test_y)
        return arrays_of_images(train, test, CLASSES, sources)


def read_idx(path: Path) -> np.ndarray:
    """The array of bytes in an .idx file of LeCun's: its shape, big-endian, then its content."""
    # torchvision's reader does the same from a decompressed file, and costs seconds to import.
    with gzip.open(path) as file:
        *zeros, kind, dimensions = file.read(4)
        if zeros != [0, 0] or kind != UNSIGNED_BYTES:
            raise UserError(f"{path} is not an idx file of bytes.")
        shape = np.frombuffer(file.read(4 * dimensions), dtype=">u4")
        return np.frombuffer(file.read(), dtype=np.uint8).reshape(shape)
