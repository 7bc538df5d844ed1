"""torchvision's ResNet-18 without batch normalisation (CIFAR-10)."""

from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmpi.errors import UserError
from fedmpi.models.cnn import needs_images

BRANCH = 0.6
"""Factor on the start of each residual branch's last convolution. At 1 the risk goes up and down
from round 18 on at the paper's step of .1; at .6 it fell in each of the first 40 rounds, more
slowly (benchmarks/README.md: 1,000 images, one seed)."""


def resnet18(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-18 with torchvision's own stem: a 7 × 7 convolution, a max-pool, both of stride 2."""
    return without_normalisation("resnet18", row_shape, classes)


def resnet18_cifar(row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-18 with the stem for small images: a 3 × 3 convolution, no max-pool. Costs 15×."""
    net = without_normalisation("resnet18-cifar", row_shape, classes)
    net.conv1 = stem(row_shape[0], kernel=3, stride=1)
    net.maxpool = nn.Identity()
    return net


def without_normalisation(name: str, row_shape: tuple[int, ...], classes: int) -> nn.Module:
    """torchvision's ResNet-18, with nothing where its batch normalisations were.

    The last convolution of every residual branch begins BRANCH times as large as torchvision's.
    """
    if len(row_shape) != 3:
        raise UserError(needs_images(name, row_shape))
    net = import_torchvision(name).models.resnet18(num_classes=classes, norm_layer=nn.Identity)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.__class__ = CroppedConv2d
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if name.startswith("layer") and name.endswith("conv2.weight"):
                weight.mul_(BRANCH)
    if row_shape[0] != net.conv1.in_channels:
        net.conv1 = stem(row_shape[0], kernel=7, stride=2)
    return net


class CroppedConv2d(nn.Conv2d):
    """A convolution whose kernel, where it has one place alone, loses what would meet padding.

    In the last stage of ResNet-18 32 × 32 pixels have become one, and eight of nine entries of each
    kernel meet nothing: they took a fifth of a pass (benchmarks/README.md).
    """

    def forward(self, images: Tensor) -> Tensor:
        assert not isinstance(self.padding, str)
        axes = zip(images.shape[2:], self.kernel_size, self.padding, self.stride, strict=True)
        kept = []
        for pixels, kernel, beside, stride in axes:
            if beside + pixels > kernel or pixels + 2 * beside - kernel >= stride:
                return super().forward(images)
            kept.append(slice(beside, beside + pixels))
        met = self.weight[:, :, kept[0], kept[1]]
        return F.linear(images.flatten(1), met.flatten(1), self.bias)[:, :, None, None]


def stem(channels: int, kernel: int, stride: int) -> nn.Conv2d:
    """A first convolution, with the start that torchvision gives its own."""
    conv = nn.Conv2d(channels, 64, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def import_torchvision(wanted_by: str) -> ModuleType:
    """torchvision, also where its operators were built for another torch than the one here.

    Its wheel from PyPI is built for CUDA: beside a CPU torch the import dies because two operators
    are not there. Nothing here uses them; that they have a schema is enough.
    """
    try:
        import torchvision
    except ModuleNotFoundError:
        raise UserError(
            f"--model {wanted_by} needs torchvision: ./launch/setup.sh images, or pip install "
            "'.[images]'."
        ) from None
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for operator in ("torchvision::nms", "torchvision::qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(operator, schema)
        import torchvision
    return torchvision
