"""Equal rows that are computed once against the same rows one by one, in float64."""

import numpy as np
import pytest
import torch

from fedmpi.data import duplicates
from fedmpi.data.duplicates import find_equal
from fedmpi.federation import clients as clients_module
from fedmpi.federation.clients import Clients, Rows
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import LOSSES
from fedmpi.models.perceptron import perceptron

CLIENTS, GROUPS, SIZE = 3, 2, 40


def table(rows: int, values: int, columns: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Columns of few values, so that rows repeat themselves."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randint(values, (rows, columns), generator=draw).double()
    return x, torch.randint(2, (rows,), generator=draw)


def clients(loss: str, hidden: int) -> Clients:
    x, y = table(CLIENTS * SIZE, 2)
    group = torch.randint(GROUPS, (len(x),), generator=torch.Generator().manual_seed(4))
    counts = np.stack([np.bincount(g, minlength=GROUPS) for g in group.view(CLIENTS, SIZE)], axis=1)
    torch.manual_seed(1)
    module = perceptron((3,), 2, hidden, width=7)
    model = FlatModel(module, torch.float64, torch.device("cpu"), 1)
    numbers = np.arange(CLIENTS)
    return Clients(numbers, counts, Rows(x, y, group), model, LOSSES[loss], 5, seed=0)


@pytest.mark.parametrize(("loss", "hidden"), [("cross-entropy", 1), ("brier", 0)])
def test_the_step_and_the_risks_are_those_of_all_rows(loss, hidden):
    weights = np.random.default_rng(5).random((CLIENTS, GROUPS))
    apart, merged = clients(loss, hidden), clients(loss, hidden)
    merged.merge_equal_rows()
    assert len(merged.x) == 16 < len(apart.x)
    reports: list[np.ndarray] = []
    for some in (apart, merged):
        some.full_batch_step(lambda: weights, 0.1, reports.append)
        reports.append(some.loss_sums())
    assert apart.model.change.abs().max() > 1e-3
    assert torch.allclose(merged.model.change, apart.model.change, rtol=1e-12, atol=1e-14)
    for report in reports[1:]:
        np.testing.assert_allclose(report, reports[0], rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_another_class_or_a_last_bit_apart_are_not_equal(dtype):
    x = torch.zeros(9, 2, dtype=dtype)
    x[4, 1] = torch.finfo(dtype).tiny
    y = torch.tensor([0, 0, 0, 0, 0, 0, 1, 0, 0])
    found = find_equal(x, y)
    assert found is not None and len(found.x) == 3
    assert torch.equal(found.x[found.place], x) and torch.equal(found.y[found.place], y)


@pytest.mark.parametrize("method", ["fedminmax", "afl", "localfedminmax", "fedavg"])
def test_a_run_gives_the_model_of_the_rows_apart(train, tmp_path, monkeypatch, method):
    """With local epochs, batches are of the rows as they are, and nothing is merged."""
    people = tmp_path / "people.csv"
    x, y = table(400, 3)
    rows = [f"a{u:.0f},b{v:.0f},{w:.0f},{t}" for (u, v, w), t in zip(x, y, strict=True)]
    people.write_text("\n".join(["u,v,g,y", *rows]) + "\n")
    asked = ["--dataset", f"csv:{people}", "--target", "y", "--group", "g", "--clients", "4"]
    asked += ["--method", method, "--rounds", "20", "--dtype", "float64", "--lr", ".5"]
    found: list[object] = []
    monkeypatch.setattr(clients_module, "find_equal", lambda x, y: found.append(find_equal(x, y)))
    apart = train(*asked, output="apart")
    monkeypatch.undo()
    merged = train(*asked, output="merged")
    assert bool(found) == (method != "fedavg") and None not in found
    np.testing.assert_allclose(merged.theta(), apart.theta(), atol=1e-12)


def test_rows_are_left_alone_where_it_hardly_pays():
    x, y = table(100, 10**6)
    assert find_equal(x, y) is None
    x[1:10], y[1:10] = x[0], y[0]  # 91 of 100
    assert find_equal(x, y) is None
    x[10], y[10] = x[0], y[0]
    assert find_equal(x, y) is not None


def test_images_and_no_rows_are_left_alone():
    assert find_equal(torch.zeros(8, 1, 2, 2), torch.zeros(8)) is None
    assert find_equal(torch.zeros(0, 3), torch.zeros(0)) is None


def test_two_rows_with_one_hash_are_not_taken_for_equal(monkeypatch):
    monkeypatch.setattr(duplicates, "_hashes", lambda table, classes: np.zeros(len(table)))
    x, y = table(50, 2)
    assert find_equal(x, y) is None
    x[:] = x[0]
    assert find_equal(x, y) is None, "the classes differ"
    assert find_equal(x, torch.zeros_like(y)) is not None
