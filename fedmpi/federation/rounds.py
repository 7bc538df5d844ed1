"""The rounds, as in Algorithm 1 of the paper, on every rank."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.errors import UserError
from fedmpi.federation.clients import Clients
from fedmpi.federation.exchange import Exchange
from fedmpi.methods.method import Method, Round
from fedmpi.models.flat import FlatModel
from fedmpi.mpi import signals
from fedmpi.mpi.ranks import AgreedError, Ranks, Stopped

if TYPE_CHECKING:
    from fedmpi.federation.server import Server


@dataclass
class Training:
    """One rank's part of a run: the model, the clients it hosts, and on rank 0 the server."""

    ranks: Ranks
    method: Method
    model: FlatModel
    exchange: Exchange
    clients: Clients | None
    server: Server | None
    groups: tuple[str, ...]
    total_rows: int
    """n, of all clients."""
    rounds: int
    eval_every: int
    done: int = 0
    """Rounds that are behind us: 0, or where a checkpoint stood."""
    t: int = field(default=0, init=False)
    """The round that is under way."""
    diverged: bool = field(default=False, init=False)
    """On the server: whether the risks that were reported last are not finite."""
    computing: float = field(default=0.0, init=False)
    equal_at: int = field(default=0, init=False)
    """The last round at which every rank was seen to have the same theta."""

    def run(self) -> None:
        """Train from round `done + 1` to `rounds`; every rank ends with the same theta."""
        self.equal_at = self.done
        self.begin_rounds()
        for t in range(self.done + 1, self.rounds + 1):
            evaluate = t % self.eval_every == 0 or t in (1, self.rounds)
            split = self.whole_round(t, evaluate)
            if self.server:
                self.server.end_round(t, split)
            if self.exchange.asked_to_stop and t < self.rounds:
                self.stop(t)
        self.end_rounds()
        if not torch.isfinite(self.model.theta.sum()):
            if self.server:
                self.server.keep_history()
            raise AgreedError(f"round {self.rounds}: theta is not finite. {self.advice()}")

    def begin_rounds(self) -> None:
        """Send the weights that the first round, or the first after a resume, begins with."""
        if self.method.reports and self.method.weighs_next_round:
            self.send_weights()

    def end_rounds(self) -> None:
        """Receive the weights that answered the last report; nobody uses them."""
        self.exchange.receive_weights()

    def whole_round(self, t: int, evaluate: bool) -> tuple[float, float] | None:
        """Do round `t` and, where it is to be evaluated, look at the ranks after it."""
        self.one_round(t, evaluate)
        return self.look_at_ranks(t) if evaluate else None

    def one_round(self, t: int, evaluate: bool) -> None:
        """Do one round of Algorithm 1; the exchange overlaps with the clients' passes."""
        began, waited = time.perf_counter(), self.ranks.seconds_waited
        self.t = t
        now = Round(
            t,
            evaluate,
            self.total_rows,
            report=lambda losses: self.report(losses, evaluate),
            weights=self.exchange.receive_weights,
        )
        self.model.sums.zero_()
        if self.clients:
            self.method.client_round(self.clients, now)  # theta_k - theta, weighted, into the sum
        else:
            self.report(None, evaluate)
        waited = self.ranks.seconds_waited - waited
        self.computing += time.perf_counter() - began - waited
        # NaN tells all ranks of a run that has diverged, 1 of a signal, in the sum that all share.
        self.exchange.sum_changes(flag=math.nan if self.diverged else float(bool(signals.asked())))
        self.check_finite(t)
        self.method.apply(self.model)  # theta <- theta + sum_k (n_k / n)(theta_k - theta)

    def report(self, losses: np.ndarray | None, evaluate: bool) -> None:
        """Send the losses at theta. The server steps the adversary, and sends its weights."""
        self.exchange.send_losses(losses, evaluate)
        if self.server:
            risks = self.exchange.receive_risks(evaluate)  # r_a, or those of clients or cells
            self.diverged = not self.all_finite(risks)
            if self.method.reports and not self.diverged:
                assert risks is not None
                self.method.update_weights(risks)  # mu <- project(mu + lr_mu * r)
        if self.method.reports:
            self.send_weights()  # w = mu / rho

    def send_weights(self) -> None:
        self.exchange.send_weights(self.method.weights() if self.server else None)

    def all_finite(self, risks: np.ndarray | None) -> bool:
        """Whether these risks are finite, but of groups that have lost all their rows."""
        if risks is None:
            return True
        if risks is self.exchange.group_risks:
            risks = risks[self.exchange.present]
        return bool(np.isfinite(risks).all())

    def check_finite(self, t: int) -> None:
        """End a run that has diverged, on all ranks at once: they all see the same sums."""
        if torch.isfinite(self.model.sums.sum()):
            return
        self.exchange.receive_weights()
        if self.server:
            self.server.keep_history()
        clients = self.ranks.gather(self.clients.diverged if self.clients else [])
        culprit = self.ranks.bcast(self.culprit(clients) if clients else "")
        raise AgreedError(f"round {t}: {culprit} is not finite. {self.advice()}")

    def culprit(self, clients_by_rank: list[list[int]]) -> str:
        """Name, on the server, what can be named of a run that has diverged."""
        clients = sorted(k for clients in clients_by_rank for k in clients)
        if clients:
            return f"the model of client {clients[0]}"
        of_groups, of_clients = self.exchange.group_risks, self.exchange.client_risks
        if not self.all_finite(of_groups):
            assert of_groups is not None
            bad = self.exchange.present & ~np.isfinite(of_groups)
            return f"the risk of group {self.groups[int(np.argmax(bad))]!r}"
        if not np.isfinite(of_clients).all():
            client = int(np.argwhere(~np.isfinite(of_clients))[0][0])
            return f"the risk of client {client}"
        return "the sum of the clients' changes"

    def advice(self) -> str:
        """What to do about a run that has diverged."""
        lr = self.method.config.lr / 10
        return f"The steps are too long: try --lr {lr:g}. What was saved before stands."

    def stop(self, t: int) -> None:
        """End the run at a checkpoint, on all ranks: one of them was asked to stop."""
        self.exchange.receive_weights()
        save = self.server.stop if self.server else None
        raise Stopped(self.ranks.on_server(lambda: save(t) if save else ""))

    def look_at_ranks(self, t: int) -> tuple[float, float] | None:
        """Check that every rank has the server's theta; on the server, the split of the time.

        That is the mean and the longest time in the clients' passes since the last call.
        """
        mine = np.array([[self.computing, 0.0]])
        mine.view(np.int64)[0, 1] = self.model.checksum()
        self.computing = 0.0
        whole = np.empty((self.ranks.size, 2)) if self.server else None
        self.ranks.wait(self.ranks.Igatherv(mine, whole, [2] * self.ranks.size))
        if whole is None:
            return None
        self.check_equal(t, whole.view(np.int64)[:, 1])
        seconds = whole[self.ranks.client_ranks, 0]
        return float(seconds.mean()), float(seconds.max())

    def check_equal(self, t: int, checksums: np.ndarray) -> None:
        """On the server: end the job if theta is not the same everywhere, and name who differs."""
        values, counts = np.unique(checksums, return_counts=True)
        if len(values) == 1:
            self.equal_at = t
            return
        usual = values[np.argmax(counts)] if counts.max() > 1 else checksums[0]
        different = np.flatnonzero(checksums != usual)
        odd = ", ".join(str(self.ranks.numbers[rank]) for rank in different)
        assert self.server
        raise UserError(
            f"round {t}: theta is not the same on all ranks, as it still was at round "
            f"{self.equal_at}. Ranks that differ: {odd}. Perhaps a memory or a network is faulty; "
            f"ranks.json has their hosts. {self.server.distrust(self.equal_at)}"
        )
