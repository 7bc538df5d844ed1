"""theta is one vector: what the module computes with is what MPI sums."""

import copy

import pytest
import torch
from torch import nn

from fedmpi.models.cnn import cnn
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import brier, cross_entropy


@pytest.fixture
def model() -> FlatModel:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    return FlatModel(module, torch.float64, torch.device("cpu"), scalars=2)


def test_parameters_are_views_of_theta(model):
    before = [p.detach().clone() for p in model.module.parameters()]
    model.theta.add_(1)
    for p, old in zip(model.module.parameters(), before, strict=True):
        assert torch.equal(p, old + 1)
    assert model.theta.numel() == model.size == 3 * 4 + 4 + 4 * 2 + 2


def test_a_backward_pass_writes_where_mpi_reads(model):
    x = torch.randn(5, 3, dtype=torch.float64)
    model.module(x).sum().backward()
    again = torch.autograd.grad(model.module(x).sum(), list(model.module.parameters()))
    for times in (1, 2):
        change = model.state_dict(model.change).values()
        assert all(torch.allclose(c, times * g) for c, g in zip(change, again, strict=True))
        assert model.change.sum().item() == pytest.approx(times * sum(g.sum() for g in again))
        model.module(x).sum().backward()
    assert model.buffer[: model.size] == pytest.approx(model.change.numpy())
    assert model.buffer.size == model.size + 2 and model.buffer[model.size :].tolist() == [0, 0]


def test_a_state_dict_is_a_copy_that_loads(model):
    before = [p.detach().clone() for p in model.module.parameters()]
    state = model.state_dict(model.theta)
    model.theta.zero_()
    fresh = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    fresh.load_state_dict(state)
    assert all(torch.equal(p, old) for p, old in zip(fresh.parameters(), before, strict=True))
    assert all(tensor.is_contiguous() for tensor in state.values())


def test_wide_layers_lie_across_and_every_number_has_one_place(model):
    weight, *_, narrow, _ = model.module.parameters()
    assert (weight.stride(), narrow.stride()) == ((1, 4), (4, 1))
    model.theta.copy_(torch.arange(model.size))
    seen = torch.cat([p.detach().reshape(-1) for p in model.module.parameters()])
    assert sorted(seen.tolist()) == list(range(model.size))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("inputs", [2, 3])
def test_any_flipped_bit_changes_the_checksum(dtype, inputs):
    """Also in the last of an odd number of parameters."""
    model = FlatModel(nn.Linear(inputs, 1), dtype, torch.device("cpu"), 0)
    before = model.checksum()
    integers = {torch.float32: torch.int32, torch.float64: torch.int64}[dtype]
    for place in range(model.size):
        for bit in (0, 17, 30):
            model.theta.view(integers)[place] ^= 1 << bit
            assert model.checksum() != before
            model.theta.view(integers)[place] ^= 1 << bit
    assert model.checksum() == before and abs(before) < 2**63


@pytest.mark.parametrize("sums", ["staged", "device"])
def test_sums_on_a_device_give_what_sums_on_the_host_give(train, monkeypatch, sums):
    """The way of a GPU's sums, staged or handed to MPI as they are, on tensors of a CPU."""
    options = ["--dataset", "synthetic", "--rows", "60", "--model", "mlp", "--rounds", "4"]
    options += ["--clients", "4", "--dtype", "float64"]
    on_host = train(*options, output="host").theta()
    make = FlatModel.__init__
    monkeypatch.setattr(
        FlatModel, "__init__", lambda self, *given, **_: make(self, *given[:5], None, sums)
    )
    made = []
    to_mpi = FlatModel.to_mpi
    monkeypatch.setattr(FlatModel, "to_mpi", lambda self: (made.append(self), to_mpi(self)))
    on_device = train(*options, output="device").theta()
    assert (on_host == on_device).all() and len(made) == 4


def test_what_mpi_sums_is_apart_from_staged_sums_and_the_same_as_those_on_the_device():
    module, cpu = nn.Linear(2, 2), torch.device("cpu")
    staged = FlatModel(module, torch.float64, cpu, 1, sums="staged")
    staged.sums.fill_(3)
    assert staged.buffer.tolist() == [0] * 7
    staged.to_mpi()
    assert staged.buffer.tolist() == [3] * 7
    staged.buffer[:] = 5
    staged.from_mpi()
    assert staged.sums.tolist() == [5] * 7
    device = FlatModel(nn.Linear(2, 2), torch.float64, cpu, 1, sums="device")
    device.sums.fill_(3)
    device.to_mpi()
    assert torch.is_tensor(device.buffer) and device.buffer.tolist() == [3] * 7


def test_autocast_is_of_training_passes_alone():
    """They give what torch's own autocast gives, and scores are those of the whole numbers."""
    torch.manual_seed(0)
    x, y = torch.randn(6, 1, 8, 8), torch.arange(6) % 3
    weights = torch.linspace(0.1, 0.6, 6)
    module = cnn((1, 8, 8), 3)
    plain = copy.deepcopy(module)
    models = [
        FlatModel(copy.deepcopy(module), torch.float32, torch.device("cpu"), 0, autocast=autocast)
        for autocast in (None, torch.bfloat16)
    ]
    for model in models:
        model.add_gradient(x, y, brier, lambda losses: weights)
    whole, short = models
    with torch.autocast("cpu", torch.bfloat16):
        logits = plain(x)
    brier(logits.float(), y).dot(weights).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in plain.parameters()])
    assert torch.allclose(short.change, expected, rtol=1e-5, atol=1e-7)
    assert short.change.dtype == short.theta.dtype == torch.float32
    apart = (short.change - whole.change).norm() / whole.change.norm()
    assert 1e-4 < apart < 0.05
    with torch.no_grad():
        assert torch.equal(short(x), whole(x))


def test_autocast_takes_a_perceptron_from_its_own_passes():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 2))
    x, y = torch.randn(9, 3), torch.arange(9) % 2
    changes = []
    for autocast in (None, torch.bfloat16):
        model = FlatModel(
            copy.deepcopy(module), torch.float32, torch.device("cpu"), 0, autocast=autocast
        )
        model.add_gradient(x, y, cross_entropy, lambda losses: torch.full((9,), 0.1))
        assert (model.batched_training(cross_entropy) is None) == (autocast is not None)
        changes.append(model.change)
    assert 1e-4 < (changes[1] - changes[0]).norm() / changes[0].norm() < 0.05
