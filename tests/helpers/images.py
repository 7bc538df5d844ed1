"""Small images for the tests, in the files that FashionMNIST comes in."""

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedmpi.data.download import RawFile

NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def idx(array: np.ndarray) -> bytes:
    """Encode in LeCun's format: two zeros, 8 for bytes, the dimensions, the shape, the content."""
    shape = b"".join(side.to_bytes(4, "big") for side in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()


def write_fashionmnist(folder: Path, arrays: Sequence[np.ndarray]) -> tuple[RawFile, ...]:
    """Write train images and labels, test images and labels; return the files to expect."""
    folder.mkdir(exist_ok=True)
    files = []
    for name, array in zip(NAMES, arrays, strict=True):
        (folder / name).write_bytes(gzip.compress(idx(array)))
        files.append(RawFile(name, hashlib.sha256(idx(array)).hexdigest(), gzipped=True))
    return tuple(files)
