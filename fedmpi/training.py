"""The rounds, as in Algorithm 1 of the paper, on every rank."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.clients import Clients
from fedmpi.exchange import Exchange
from fedmpi.flat import FlatModel
from fedmpi.methods.method import Method
from fedmpi.ranks import AgreedError, Ranks

if TYPE_CHECKING:
    from fedmpi.server import Server


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

    def run(self) -> None:
        """Train from round `done + 1` to `rounds`; every rank ends with the same theta."""
        self.exchange.send_first_weights()
        for t in range(self.done + 1, self.rounds + 1):
            evaluate = t % self.eval_every == 0 or t in (1, self.rounds)
            self.one_round(t, evaluate)
            if evaluate:
                split = self.time_split()
            if self.server:
                self.server.end_round(t, split if evaluate else None)
        self.exchange.receive_weights()  # those that answered the last report; nobody uses them
        if not torch.isfinite(self.model.theta.sum()):
            if self.server:
                self.server.keep_history()
            raise AgreedError(f"round {self.rounds}: theta is not finite. {self.advice()}")

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

    def time_split(self) -> tuple[float, float] | None:
        """Mean and longest time in the clients' passes since the last call; on the server."""
        seconds = np.array([[self.computing]] if self.clients else np.empty((0, 1)))
        self.computing = 0.0
        number = len(self.ranks.client_ranks)
        counts = [int(r in self.ranks.client_ranks) for r in range(self.ranks.size)]
        whole = np.empty((number, 1)) if self.server else None
        self.ranks.wait(self.ranks.Igatherv(seconds, whole, counts))
        return (float(whole.mean()), float(whole.max())) if whole is not None else None
