"""The models: shapes and starts, what is refused, and that micro-batches and layouts agree."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch
from images import write_fashionmnist
from torch import nn

from fedmpi import models
from fedmpi.data import FILES, find
from fedmpi.data.datasets.fashionmnist import FashionMNIST
from fedmpi.errors import UserError
from fedmpi.models.flat import FlatModel

SHAPES = {"mlp": [(5,), (3, 8, 8)], "mlp4": [(1,)], "logistic": [(5,), (1, 4, 4)]}
IMAGES = {"cnn": [(1, 28, 28), (3, 9, 7)], "resnet18": [(3, 32, 32), (1, 28, 28)]}
IMAGES["resnet18-cifar"] = [(3, 16, 16)]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "name, shape", [(name, s) for name, some in (SHAPES | IMAGES).items() for s in some]
)
def test_every_model_fits_and_has_a_seeded_start(name, shape):
    if name.startswith("resnet") and not importlib.util.find_spec("torchvision"):
        pytest.skip("torchvision is not installed")
    before = torch.get_rng_state()
    one, same, other = (models.build(name, shape, 10, seed) for seed in (0, 0, 1))
    models.check(name, one, shape, 10)
    assert torch.equal(torch.get_rng_state(), before)
    pairs = list(zip(one.parameters(), same.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert any(
        not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)
    )
    assert {name for name, _ in one.named_buffers()} == set()


def test_every_preset_names_a_model():
    for dataset in map(find, FILES):
        assert dataset.preset.model in models.MODELS


def test_the_paper_s_cnn():
    kinds = [type(layer) for layer in models.build("cnn", (1, 28, 28), 10, 0)]
    block = [nn.Conv2d, nn.MaxPool2d, nn.ReLU]
    assert kinds == [*block, *block, nn.Flatten, nn.Linear]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 7)])
def test_a_relu_after_the_max_pool_is_one_before_it(shape):
    """Outputs and gradients, also where several of four inputs are equal, or all below 0."""
    ordered = models.build("cnn", shape, 10, 0).double()
    convolution, pool, relu, second, _, _, flatten, linear = ordered
    listed = nn.Sequential(convolution, relu, pool, second, relu, pool, flatten, linear)
    x = torch.randint(0, 3, (40, *shape), generator=torch.Generator().manual_seed(0)).double()
    found = []
    for model in (ordered, listed):
        model.zero_grad()
        outputs = model(x)
        (outputs**2).sum().backward()
        found.append([outputs.detach(), *(p.grad.clone() for p in ordered.parameters())])
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() < 1e-12 * other.abs().max()


def test_names_are_known_without_torch():
    code = "import fedmpi.run.arguments, sys; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


class Wrong:
    """Functions that somebody might give to --model, each with a fault."""

    @staticmethod
    def with_batch_norm(shape, classes):
        return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, classes))

    @staticmethod
    def with_batch_statistics(shape, classes):
        norm = nn.BatchNorm1d(4, track_running_stats=False)
        return nn.Sequential(nn.Linear(shape[0], 4), norm, nn.Linear(4, classes))

    @staticmethod
    def with_dropout(shape, classes):
        return nn.Sequential(nn.Linear(shape[0], 99), nn.Dropout(), nn.Linear(99, classes))

    @staticmethod
    def of_other_rows(shape, classes):
        return nn.Linear(shape[0] + 1, classes)

    @staticmethod
    def of_other_classes(shape, classes):
        return nn.Linear(shape[0], classes + 1)

    @staticmethod
    def without_parameters(shape, classes):
        return nn.Identity()

    @staticmethod
    def not_a_module(shape, classes):
        return 7


@pytest.mark.parametrize(
    "fault, message",
    [
        ("with_batch_norm", "buffers such as '1.running_mean'"),
        ("with_batch_statistics", "Expected more than 1 value|depends on"),
        ("with_dropout", "depends on chance"),
        ("of_other_rows", "fails on rows of 5"),
        ("of_other_classes", r"makes \(3, 4\) of 3 rows, not \(3, 3\)"),
        ("without_parameters", "no parameters"),
        ("not_a_module", "made a int"),
    ],
)
def test_models_that_cannot_be_trained_in_parts_are_refused(fault, message):
    module = getattr(Wrong, fault)((5,), 3)
    with pytest.raises(UserError, match=message) as error:
        models.check(fault, module, (5,), 3)
    assert fault in str(error.value)


@pytest.mark.parametrize(
    "name, message",
    [
        ("resnet81", "Did you mean 'resnet18'"),
        ("no_such_package.nets:net", "No module named 'no_such_package'"),
        ("fedmpi.models:nothing", "no attribute 'nothing'"),
        ("fedmpi.models:MODELS", "not a function"),
    ],
)
def test_names_that_are_not_there(name, message):
    with pytest.raises(UserError, match=message):
        models.find(name)


@pytest.mark.parametrize("name", ["cnn", "resnet18", "resnet18-cifar"])
def test_image_models_refuse_tables(name):
    with pytest.raises(UserError, match=r"is for images .* rows are 91: use --model mlp"):
        models.build(name, (91,), 2, 0)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 64, 40)])
def test_resnet18_is_torchvisions(shape):
    """Kernels that are cropped where the image is one pixel change no output and no gradient."""
    pytest.importorskip("torchvision", exc_type=RuntimeError)
    ours = models.build("resnet18", shape, 10, seed=0).double()
    theirs = models.build("resnet18", shape, 10, seed=0).double()
    for module in theirs.modules():
        if isinstance(module, nn.Conv2d):
            module.__class__ = nn.Conv2d
    cropped = [m for m in ours.modules() if type(m) is not nn.Conv2d and hasattr(m, "kernel_size")]
    assert len(cropped) >= 19
    x = torch.randn(4, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    outputs = [net(x) for net in (ours, theirs)]
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
    for output in outputs:
        output.square().sum().backward()
    for mine, plain in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, plain.grad, rtol=1e-10, atol=1e-12)


def test_bytes_are_standardised_by_channel():
    x = torch.randint(0, 256, (4, 3, 5, 5), dtype=torch.uint8)
    scale = {"mean": [10.0, 20.0, 30.0], "std": [2.0, 4.0, 8.0]}
    device = torch.device("cpu")
    for dtype in (torch.float32, torch.float64):
        model = FlatModel(nn.Linear(1, 1), dtype, device, 0, scale)
        model.module = nn.Identity()
        expected = torch.stack(
            [(x[:, c] - scale["mean"][c]) / scale["std"][c] for c in range(3)], 1
        )
        assert model(x).dtype == dtype
        torch.testing.assert_close(model(x), expected.to(dtype))


@pytest.fixture
def tiny_images(tmp_path, monkeypatch):
    """FashionMNIST in the small: 300 and 100 images of 8 × 8, the classes visible in them."""
    rng = np.random.default_rng(1)
    content = []
    for rows in (300, 100):
        y = np.arange(rows, dtype=np.uint8) % 10
        x = rng.integers(0, 120, (rows, 8, 8), dtype=np.uint8)
        x[np.arange(rows), y % 8] += 100
        content += [x, y]
    files = write_fashionmnist(tmp_path / "data", content)
    monkeypatch.setattr(FashionMNIST, "files", files)
    return "--dataset", "fashionmnist", "--clients", "20", "--dtype", "float64", "--rounds", "3"


def test_micro_batches_give_the_same_theta(train, tiny_images):
    """The exact full-batch gradient in micro-batches, of convolutions too."""
    whole = train(*tiny_images, "--setting", "SSG", "--micro-batch", 1000, output="whole")
    micro = train(*tiny_images, "--setting", "SSG", "--micro-batch", 37, output="micro")
    start = models.build("cnn", (1, 8, 8), 10, 0)
    moved = whole.theta() - torch.cat([p.detach().reshape(-1) for p in start.parameters()]).numpy()
    assert np.abs(moved).max() > 1e-4
    np.testing.assert_allclose(micro.theta(), whole.theta(), rtol=0, atol=1e-9)
    assert micro.result["worst_risk"] == pytest.approx(whole.result["worst_risk"], abs=1e-9)


def test_who_holds_the_images_does_not_matter(train, tiny_images):
    """Lemma 2 on images: every setting gives the centralized model."""
    one = train(*tiny_images[:2], *tiny_images[4:], "--method", "centralized", output="one")
    for setting in ("ESG", "PSG", "SSG"):
        found = train(*tiny_images, "--setting", setting, output=setting)
        np.testing.assert_allclose(found.theta(), one.theta(), rtol=0, atol=1e-9)
    assert one.config["scale"]["mean"][0] > 0


def test_images_are_trained_on_locally_and_scored(train, tiny_images):
    options = ("--method", "fedavg", "--local-epochs", 2, "--batch-size", 10, "--setting", "ESG")
    found = train(*tiny_images, *options)
    risks = [float(row["worst"]) for row in found.history]
    assert risks[-1] < risks[0]
    assert found.config["micro_batch"] == models.MODELS["cnn"].micro_batch


def test_a_model_of_one_s_own(train, tiny_images):
    found = train(*tiny_images, "--model", "test_models:own")
    assert found.theta().size == 64 * 10 + 10
    with pytest.raises(UserError, match="test_models:nobody"):
        train(*tiny_images, "--model", "test_models:nobody", output="other")


def own(row_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(row_shape)), classes))
