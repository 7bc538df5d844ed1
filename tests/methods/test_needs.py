"""What a method may need, by small methods: see needy.py. Each against plain loops, and resumed.

On three ranks: test_states.py.
"""

from dataclasses import fields

import numpy as np
import pytest
import torch
from mpi4py import MPI
from needy import CLIENTS, NEEDY
from runs import cut_off_after, write_people

from fedmpi import data as datasets
from fedmpi import models
from fedmpi.data.options import DataOptions
from fedmpi.data.partition import partition
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError
from fedmpi.federation.clients import batch_order
from fedmpi.federation.failures import SurvivingTraining
from fedmpi.federation.job import Job
from fedmpi.mpi.allreduce import Flat
from fedmpi.mpi.ranks import Ranks
from fedmpi.run.arguments import resolve

ROUNDS, LR, SIZES = 6, 0.2, {"a": 40, "b": 25, "c": 15}


def options(folder, name: str) -> list[str]:
    csv = folder / "people.csv"
    csv = csv if csv.exists() else write_people(csv, SIZES)
    run = f"--method needy:{name} {NEEDY[name]} --rounds {ROUNDS} --lr {LR} --clients {CLIENTS}"
    run += " --model logistic --dtype float64 --eval-every 2 --checkpoint-every 1 --setting PSG"
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--skew", "2"]
    return [
        *data,
        *run.split(),
        "--data-dir",
        str(folder / "data"),
        "--solver",
        "paper",
        "--progress",
        "none",
    ]


class Loops:
    """The same training in plain loops: one process, torch's own gradients, a client at a time."""

    def __init__(self, folder) -> None:
        dataset = datasets.find(f"csv:{folder / 'people.csv'}")
        held = prepare(dataset, folder / "data", DataOptions(target="y", group=("g",)))
        group = np.array(held.array("train_group"))
        held_by = partition(group, held.groups, CLIENTS, "PSG", dataset, skew=2.0, seed=0)
        self.x = torch.from_numpy(np.array(held.array("train_x"))).double()
        self.y = torch.from_numpy(np.array(held.array("train_y")).astype(np.int64))
        self.rows = [np.flatnonzero(held_by.client_of_row == k) for k in range(CLIENTS)]
        self.shares = np.array([len(rows) for rows in self.rows]) / len(group)
        self.module = models.build("logistic", self.x.shape[1:], 2, 0).double()
        start = [p.detach() for p in self.module.parameters()]
        self.theta = torch.cat([p.reshape(-1) for p in start])

    def gradient(self, theta: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        theta = theta.clone().requires_grad_()
        weight, bias = theta[:-2].reshape(2, -1), theta[-2:]
        logits = self.x[rows] @ weight.t() + bias
        torch.nn.functional.cross_entropy(logits, self.y[rows]).backward()
        return theta.grad

    def local(self, k: int, t: int, pull: float = 0.0) -> torch.Tensor:
        """Client k's change of theta in round t: two epochs, batches of seven."""
        theta, rows = self.theta.clone(), self.rows[k]
        for epoch in range(2):
            order = batch_order(len(rows), 0, k, t, epoch) if len(rows) > 7 else range(len(rows))
            order = np.array(order)
            for start in range(0, len(rows), 7):
                batch = rows[order[start : start + 7]]
                theta -= LR * (self.gradient(theta, batch) + pull * (theta - self.theta))
        return theta - self.theta


def by_hand(folder, name: str) -> np.ndarray:
    """The last theta of each of the methods but Momentum, as its docstring says."""
    loops = Loops(folder)
    last = [torch.zeros_like(loops.theta) for _ in range(CLIENTS)]
    for t in range(1, ROUNDS + 1):
        chosen = range(CLIENTS)
        if name == "Sampled":
            chosen = np.sort(np.random.default_rng([0, t]).choice(CLIENTS, 2, replace=False))
        changes = {k: loops.local(k, t, 0.3 if name == "Proximal" else 0.0) for k in chosen}
        shares = {k: loops.shares[k] / sum(loops.shares[j] for j in chosen) for k in chosen}
        mean = sum(shares[k] * changes[k] for k in chosen)
        if name == "Remembering":
            mean = sum(shares[k] * (changes[k] + 0.5 * last[k]) for k in chosen)
            last = [changes[k].clone() for k in chosen]
        if name == "Squares":
            squares = sum(shares[k] * changes[k].square() for k in chosen)
            mean = 0.1 * mean / (squares.sqrt() + 1e-3)
        loops.theta = loops.theta + mean
    return loops.theta.numpy()


@pytest.mark.parametrize("name", [name for name in NEEDY if name != "Momentum"])
def test_against_plain_loops(train, tmp_path, name):
    run = train(*options(tmp_path, name))
    np.testing.assert_allclose(run.theta(), by_hand(tmp_path, name), rtol=0, atol=1e-9)


def test_momentum_against_its_recursion(train, tmp_path):
    """From the weights that the run itself reports: theta and v by hand, with all rows."""
    run = train(*options(tmp_path, "Momentum"), "--eval-every", 1, "--lr-mu", 0)
    loops, v = Loops(tmp_path), 0.0
    every = np.arange(len(loops.x))
    for _ in range(ROUNDS):
        v = 0.7 * v - LR * loops.gradient(loops.theta, every)
        loops.theta = loops.theta + v
    np.testing.assert_allclose(run.theta(), loops.theta.numpy(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NEEDY)
def test_resumed_in_one_process_it_is_the_same_bits(train, tmp_path, name):
    whole = train(*options(tmp_path, name), output="whole")
    with cut_off_after(3):
        train(*options(tmp_path, name), output="cut")
    resumed = train(*options(tmp_path, name), "--resume", output="cut")
    for which in ("last", "averaged"):
        np.testing.assert_array_equal(resumed.theta(which), whole.theta(which))


class EveryRoundTwice:
    """In place of Survivors: as if somebody without clients had died in each round."""

    def together(self, work, again):
        work()
        again([])
        return work()


@pytest.mark.parametrize("name", NEEDY)
def test_a_round_that_is_done_again_begins_where_it_began(train, tmp_path, name):
    whole = train(*options(tmp_path, name), output="whole")
    arguments = [*options(tmp_path, name), "--output", str(tmp_path / "twice")]
    job = Job(Ranks(MPI.COMM_SELF), resolve(arguments, 1, one_process=True))
    once = job.begin()

    def go_on(lost, t):
        job.reduction = Flat(job.ranks, job.model.buffer)
        job.exchange = job._exchange()
        return job.exchange, job.total_rows

    given = {field.name: getattr(once, field.name) for field in fields(once) if field.init}
    twice = SurvivingTraining(**given, survivors=EveryRoundTwice(), go_on_without=go_on)
    twice.run()
    job.plan.folder.release()
    state = job.model.state_dict(job.model.theta)
    theta = np.concatenate([part.numpy().reshape(-1) for part in state.values()])
    np.testing.assert_array_equal(theta, whole.theta())


def test_without_its_state_a_checkpoint_is_refused(train, tmp_path):
    with cut_off_after(3):
        train(*options(tmp_path, "Momentum"))
    path = tmp_path / "run/checkpoint.pt"
    state = torch.load(path, weights_only=True)
    torch.save(state | {"shared": {}}, path)
    with pytest.raises(UserError, match="is not what this run wrote"):
        train(*options(tmp_path, "Momentum"), "--resume")


def test_options_of_ones_own_are_on_the_command_line(train, tmp_path):
    run = train(*options(tmp_path, "Momentum"))
    assert run.config["beta"] == 0.7
    plain = [o for o in options(tmp_path, "Momentum") if o not in ("--beta", "0.7")]
    assert train(*plain, output="plain").config["beta"] == 0.5
    for wrong, message in (("1", "--beta 1.0: must be at least 0 and below 1"), ("x", "--beta")):
        with pytest.raises(UserError, match=message):
            train(*plain, "--beta", wrong, output="wrong")


OWN = """
from fedmpi.methods.fedavg import FedAvg
from fedmpi.methods.fedminmax import FedMinMax
from fedmpi.methods.option import Option

class TakesRows(FedMinMax):
    options = (*FedMinMax.options, Option("rows", int, 1))

class TakesMomentum(FedMinMax):
    options = (*FedMinMax.options, Option("momentum", default=0.5))

class Silent(FedAvg):
    def client_round(self, clients, now):
        for i, change in clients.local_changes(now.t, self.config):
            clients.add(change, clients.sizes[i] / now.total_rows)
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--method", "mine:TakesRows"], "its option 'rows' is a flag of fedmpi already"),
        (["--method", "mine:TakesMomentum"], "its option 'momentum' is a flag of fedmpi already"),
        (["--method", "mine:Silent"], "client_round of --method mine:Silent did not call"),
        (["--method", "needy:Momentum", "--optimizer", "adam"], "--optimizer does nothing with"),
    ],
)
def test_what_a_method_must_not_do(train, tmp_path, monkeypatch, given, message):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    plain = options(tmp_path, "Momentum")
    del plain[plain.index("--method") : plain.index("--beta") + 2]
    with pytest.raises(UserError, match=message):
        train(*plain, *given)
