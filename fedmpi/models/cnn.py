"""The paper's network for FashionMNIST."""

from contextlib import suppress

import torch
from torch import nn

from fedmpi.errors import UserError

CHANNELS = (16, 32)
"""Channels of the two convolutions, which the paper does not tell. Twice as many cost 2.3 times the
time, and at equal time are behind (benchmarks/README.md)."""


def cnn(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 3 × 3 convolutions, stride 1, padding 1, each with ReLU and 2 × 2 max-pool; linear.

    The ReLU comes after the max-pool, where it has a quarter of the work: the largest of four
    numbers, or 0, is the same in either order, and so is the number that the gradient goes to.
    """
    if len(row_shape) != 3 or min(row_shape[1:]) < 4:
        raise UserError(needs_images("cnn", row_shape))
    inputs, height, width = row_shape
    first, second = CHANNELS
    return ChannelsLast(
        *(nn.Conv2d(inputs, first, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(first, second, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(second * (height // 4) * (width // 4), classes)),
    )


class ChannelsLast(nn.Sequential):
    """Layers that are handed images with the channels of a pixel side by side.

    That is where a max-pool finds them: torch's is then four times as fast.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Not contiguous(): with one channel that changes nothing, and the layers go by the strides.
        with suppress(RuntimeError):  # within vmap (clipping.py), which knows no such format
            x = x.to(memory_format=torch.channels_last)
        return super().forward(x)


def needs_images(model: str, row_shape: tuple[int, ...]) -> str:
    """Return the error for rows that are no images, or too small ones."""
    shape = " × ".join(map(str, row_shape))
    return (
        f"--model {model} is for images (channels × height × width, 4 × 4 or more); these rows "
        f"are {shape}: use --model mlp."
    )
