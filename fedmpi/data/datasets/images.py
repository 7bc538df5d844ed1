"""What the image datasets share: images stay bytes, and a group is a class."""

import numpy as np

from fedmpi.data.dataset import Arrays

IMAGES_AT_ONCE = 1000


def arrays_of_images(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    classes: tuple[str, ...],
    sources: list[dict],
) -> Arrays:
    """Images (uint8: rows, channels, height, width) and labels, with the classes as the groups."""
    (train_x, train_y), (test_x, test_y) = train, test
    return Arrays(
        *(train_x, train_y, train_y),
        *(test_x, test_y, test_y),
        groups=classes,
        classes=classes,
        features=(),
        scale=channel_scale(train_x),
        sources=sources,
    )


def channel_scale(images: np.ndarray) -> dict[str, list[float]]:
    """Mean and standard deviation of the bytes 0 … 255 of every channel, over all images."""
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    for start in range(0, len(images), IMAGES_AT_ONCE):
        some = images[start : start + IMAGES_AT_ONCE]
        for channel, count in enumerate(counts):
            count += np.bincount(some[:, channel].reshape(-1), minlength=256)
    values, shares = np.arange(256), counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ values
    deviation = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1))
    # A channel without contrast stays as it is, at zero.
    return {"mean": mean.tolist(), "std": np.where(deviation > 0, deviation, 1).tolist()}
