"""The rounds, as in Algorithm 1 of the paper, on every rank."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.errors import UserError
from fedmpi.federation.clients import Clients
from fedmpi.federation.exchange import Exchange
from fedmpi.methods.method import Method
from fedmpi.models.flat import FlatModel
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
    rounds: int
    eval_every: int
    done: int = 0
    """Rounds that are behind us: 0, or where a checkpoint stood."""
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
        """What comes before the first of them."""
        self.exchange.send_first_weights()

    def end_rounds(self) -> None:
        """What is left after the last: the weights that answered its report; nobody uses them."""
        self.exchange.receive_weights()

    def whole_round(self, t: int, evaluate: bool) -> tuple[float, float] | None:
        """Round `t` and, where it is to be evaluated, a look at the ranks after it."""
        self.one_round(t, evaluate)
        return self.look_at_ranks(t) if evaluate else None

    def one_round(self, t: int, evaluate: bool) -> None:
        """One round of Algorithm 1; the exchange overlaps with the clients' passes."""
        began, waited = time.perf_counter(), self.ranks.seconds_waited
        self.exchange.begin_round(t, evaluate)
        self.model.sums.zero_()
        if self.clients:
            self.method.client_round(self.clients, self.exchange)
        else:
            self.exchange.report(None)
        waited = self.ranks.seconds_waited - waited
        self.computing += time.perf_counter() - began - waited
        self.exchange.sum_changes()
        self.check_finite(t)
        self.method.apply(self.model)

    def check_finite(self, t: int) -> None:
        """End a run that has diverged, on all ranks at once: they all see the same sums."""
        if torch.isfinite(self.model.sums.sum()):
            return
        self.exchange.receive_weights()
        if self.server:
            self.server.keep_history()
        clients = self.ranks.gather(self.clients.diverged if self.clients else [])
        culprit = self.ranks.bcast(self.exchange.culprit(clients) if clients else "")
        raise AgreedError(f"round {t}: {culprit} is not finite. {self.advice()}")

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
