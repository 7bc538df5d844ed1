"""Compare forms of one local epoch of several clients on a rank: a loop, or one batched program.

    python benchmarks/local_epochs.py [--clients 20] [--rows 800] [--repeats 7]

The same minibatch SGD (batch 100, the MLP of Adult) for all the clients of a rank, in three forms:
a loop over the clients on flat buffers (what fedmpi does), torch.func (stacked parameters, vmap of
grad), and bmm (stacked parameters, autograd through batched products). All forms must end at the
same parameters. One thread, as on a rank; the forms take turns, so that noise hits all alike.
"""

import argparse
import statistics
import time

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedmpi import models
from fedmpi.models.flat import FlatModel

INPUTS, CLASSES, BATCH, LR = 91, 2, 100, 0.01


def loop(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Train client after client, on one flat vector."""
    model = FlatModel(module, torch.float32, torch.device("cpu"), scalars=0)
    received = model.theta.clone()
    ends = []
    for k in range(len(x)):
        model.theta.copy_(received)
        for rows in torch.arange(x.shape[1]).split(BATCH):
            model.change.zero_()
            logits = model.module(x[k].index_select(0, rows))
            nn.functional.cross_entropy(logits, y[k].index_select(0, rows)).backward()
            model.theta.add_(model.change, alpha=-LR)
        ends.append(model.theta.clone())
    model.theta.copy_(received)
    return torch.stack(ends)


def with_vmap(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Train all clients at once, by torch.func."""
    stacked = {n: p.detach().expand(len(x), *p.shape).clone() for n, p in module.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(module, parameters, (x,)), y)

    gradients = vmap(grad(loss))
    for rows in torch.arange(x.shape[1]).split(BATCH):
        step = gradients(stacked, x.index_select(1, rows), y.index_select(1, rows))
        for name, parameter in stacked.items():
            parameter.add_(step[name], alpha=-LR)
    return torch.cat([p.reshape(len(x), -1) for p in stacked.values()], dim=1)


def with_bmm(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Train all clients at once, by batched products written for this MLP."""
    w1, b1, w2, b2 = (
        p.detach().expand(len(x), *p.shape).clone().requires_grad_() for p in module.parameters()
    )
    for rows in torch.arange(x.shape[1]).split(BATCH):
        hidden = torch.baddbmm(b1[:, None], x.index_select(1, rows), w1.transpose(1, 2)).relu()
        logits = torch.baddbmm(b2[:, None], hidden, w2.transpose(1, 2))
        target = y.index_select(1, rows)
        losses = nn.functional.cross_entropy(
            logits.reshape(-1, CLASSES), target.reshape(-1), reduction="none"
        )
        (losses.sum() / len(rows)).backward()
        with torch.no_grad():
            for parameter in (w1, b1, w2, b2):
                parameter.add_(parameter.grad, alpha=-LR)
                parameter.grad = None
    return torch.cat([p.detach().reshape(len(x), -1) for p in (w1, b1, w2, b2)], dim=1)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--clients", type=int, default=20)
    p.add_argument("--rows", type=int, default=800)
    p.add_argument("--repeats", type=int, default=7)
    a = p.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(a.clients, a.rows, INPUTS, generator=generator)
    y = torch.randint(CLASSES, (a.clients, a.rows), generator=generator)
    forms = {"loop": loop, "vmap": with_vmap, "bmm": with_bmm}
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(a.repeats + 1):
        ends = {}
        for name, form in forms.items():
            module = models.build("mlp", (INPUTS,), CLASSES, seed=0)
            began = time.perf_counter()
            ends[name] = form(module, x, y)
            seconds[name].append(time.perf_counter() - began)
        for name in ("vmap", "bmm"):
            assert torch.allclose(ends[name], ends["loop"], atol=1e-5), name
    print(f"{a.clients} clients of {a.rows} rows, batch {BATCH}, one epoch, one thread")
    print("form   ratio to the loop (median of paired ratios)   ms")
    for name in forms:
        ratios = [s / r for s, r in zip(seconds[name][1:], seconds["loop"][1:], strict=True)]
        ms = 1000 * statistics.median(seconds[name][1:])
        print(f"{name:5}  {statistics.median(ratios):.2f}   {ms:8.1f}")


if __name__ == "__main__":
    main()
