"""The paper's network for FashionMNIST."""

from torch import nn

from fedmpi.errors import UserError

CHANNELS = (16, 32)
"""Not in the paper. Twice as many cost 2.3 times the time, and at equal time are behind
(docs/datasets.md)."""


def cnn(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 3 × 3 convolutions, stride 1, padding 1, each with ReLU and 2 × 2 max-pool; linear."""
    if len(row_shape) != 3 or min(row_shape[1:]) < 4:
        raise UserError(needs_images("cnn", row_shape))
    inputs, height, width = row_shape
    first, second = CHANNELS
    return nn.Sequential(
        *(nn.Conv2d(inputs, first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(second * (height // 4) * (width // 4), classes)),
    )


def needs_images(model: str, row_shape: tuple[int, ...]) -> str:
    """What to say of rows that are not images, or too small ones."""
    shape = " × ".join(map(str, row_shape))
    return (
        f"--model {model} is for images (channels × height × width, 4 × 4 or more); these rows "
        f"are {shape}: use --model mlp."
    )
