"""The rounds, as in Algorithm 1 of the paper, on every rank."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.errors import UserError
from fedmpi.federation.clients import Clients
from fedmpi.federation.exchange import DONE, Exchange
from fedmpi.methods.method import Method, Round
from fedmpi.models.fixed_point import CHANGE_LIMIT, LOSS_LIMIT
from fedmpi.models.flat import FlatModel
from fedmpi.mpi import signals
from fedmpi.mpi.ranks import AgreedError, Ranks, Stopped

if TYPE_CHECKING:
    from fedmpi.federation.cohorts import Cohort, Cohorts
    from fedmpi.federation.server import Server
    from fedmpi.scoring.scores import Scores

BEYOND_LIMITS = (
    f"a client asks for a change of theta beyond {CHANGE_LIMIT:g}, or has a loss beyond "
    f"{LOSS_LIMIT:g}, the most that --sums exact can add"
)


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
    """Number n of the training rows of all clients."""
    rounds: int
    eval_every: int
    validation: Callable[[int], Scores] | None = None
    """Function that scores theta of a round on the validation rows, if there are some; call it on
    every rank."""
    done: int = 0
    """Number of rounds done before: 0, or the round of the checkpoint that is resumed."""
    cohorts: Cohorts | None = None
    """Who takes part in each round, if not all clients do."""
    t: int = field(default=0, init=False)
    """The round that is under way."""
    cohort: Cohort | None = field(default=None, init=False)
    """The clients of this round; None if all take part."""
    reported: bool = field(default=False, init=False)
    """Whether this rank has sent the losses of the round."""
    weighed: bool = field(default=False, init=False)
    """Whether this rank has sent its clients' changes for the server to compare."""
    diverged: bool = field(default=False, init=False)
    """Whether any of the risks that were reported last is not finite; on the server."""
    computing: float = field(default=0.0, init=False)
    equal_at: int = field(default=0, init=False)
    """Last round at which every rank was found to have the same theta."""

    def run(self) -> None:
        """Train from round `done + 1` to `rounds`; every rank ends with the same theta."""
        self.equal_at = self.done
        self.begin_rounds()
        for t in range(self.done + 1, self.rounds + 1):
            evaluate = t % self.eval_every == 0 or t in (1, self.rounds)
            if self.server:
                self.server.begin_round(t)
            split = self.whole_round(t, evaluate)
            if self.server:
                self.server.take_theta(t)
            if evaluate and self.validation:
                self.validate(t)
            if self.server:
                known = evaluate or self.method.reports == "groups"
                self.server.end_round(t, split if known else None)
            if self.exchange.done:
                self.rounds = t
            elif t < self.rounds:
                if self.exchange.asked_to_stop:
                    self.stop(t)
                self.save_if_due(t)
            if t == self.rounds:
                break
        self.end_rounds()
        if not torch.isfinite(self.model.theta.sum()):
            if self.server:
                self.server.keep_history()
            raise AgreedError(f"round {self.rounds}: theta is not finite. {self.advice()}")

    def validate(self, t: int) -> None:
        """Score what would be reported now on the validation rows; the server keeps the best."""
        assert self.validation
        own = self.model.theta.clone()
        try:
            if self.method.average != "last":
                if self.server:
                    self.model.theta.copy_(self.server.theta_mean)
                self.exchange.share_theta()
            scores = self.validation(t)
            if self.server:
                self.server.look_at_validation(t, scores)
        finally:
            self.model.theta.copy_(own)

    def begin_rounds(self) -> None:
        """Send the weights that the first round, or the first after a resume, begins with."""
        if self.method.reports and self.method.weighs_next_round:
            self.send_weights()

    def end_rounds(self) -> None:
        """Receive the weights that answered the last report, though nobody uses these weights."""
        self.exchange.receive_weights()

    def whole_round(self, t: int, evaluate: bool) -> tuple[float, float] | None:
        """Do round `t`; after one that is evaluated, or the last, call `look_at_ranks`."""
        self.one_round(t, evaluate)
        return self.look_at_ranks(t) if evaluate or self.exchange.done else None

    def one_round(self, t: int, evaluate: bool) -> None:
        """Do one round of Algorithm 1; the exchange overlaps with the clients' passes."""
        began, waited = time.perf_counter(), self.ranks.seconds_waited
        self.t = self.exchange.t = t
        clients = self.clients_of(t)
        self.model.clear_sums()
        self.reported = self.weighed = False
        if clients:
            now = Round(
                t,
                evaluate,
                self.total_rows,
                self.shares_of(clients),
                report=lambda losses, instead=None: self.report(
                    self.of_all(losses, clients),
                    evaluate,
                    None if instead is None else self.of_all(instead, clients),
                ),
                weights=lambda: self.of_some(self.exchange.receive_weights(), clients),
                weigh=lambda vectors: self.weigh(vectors, clients),
            )
            self.method.client_round(clients, now)  # theta_k - theta, weighted, into the sum
            self.check_reported(evaluate)
        else:
            self.report(self.of_all(None, None), evaluate)
            if self.method.compares_changes:
                self.weigh(None, None)
        waited = self.ranks.seconds_waited - waited
        self.computing += time.perf_counter() - began - waited
        self.sum_changes()
        self.check_finite(t)
        if self.server:
            self.server.certify(t, self.model)
        # A theta that is certified stays, and so does theta where nobody was there to change it.
        if not self.exchange.done and not self.nobody_is_there:
            self.step(t)

    def clients_of(self, t: int) -> Clients | None:
        """Draw the cohort of round `t`, if not all take part; return the hosted clients in it."""
        if self.cohorts:
            self.cohort = self.cohorts.of_round(t)
            self.method.counts_for = self.cohort.counts_for
        if self.cohort is None or self.clients is None:
            return self.clients
        return self.clients.among(self.cohort.counts_for)

    def shares_of(self, clients: Clients) -> np.ndarray:
        """Share of each of the `clients` in a mean over all clients of the round."""
        if self.cohort is None:
            return clients.sizes / self.total_rows
        return self.cohort.shares[clients.numbers]

    @property
    def nobody_is_there(self) -> bool:
        """Whether no client takes part in this round; the same on all ranks."""
        return self.cohort is not None and not len(self.cohort.clients)

    def sum_changes(self) -> None:
        """Sum sum_k (n_k / n)(theta_k - theta) over all ranks; on every rank."""
        self.exchange.sum_changes(self.flag())

    def step(self, t: int) -> None:
        """Step theta on sum_k (n_k / n)(theta_k - theta), on every rank alike."""
        second_order = self.method.optimizer.second_order
        if self.server or not second_order:
            self.method.apply(self.model, t)
        if second_order:
            self.exchange.share_theta()

    def flag(self) -> float:
        """What this rank tells all ranks in the sum: that the run diverged, is done, or to stop."""
        if self.diverged:
            return math.nan
        if self.server and self.server.is_done():
            return DONE
        return float(bool(signals.asked()))

    def report(
        self, losses: np.ndarray | None, evaluate: bool, instead: np.ndarray | None = None
    ) -> None:
        """Send the losses at theta. The server steps the adversary, and sends the new weights.

        The risks of clients and cells are those of `instead`, where the method gives it.
        """
        self.reported = True
        counts_for = None
        if self.cohort and self.clients:
            counts_for = self.cohort.counts_for[self.clients.numbers]
        self.exchange.send_losses(losses, evaluate, counts_for, instead)
        if self.server:
            risks = self.receive_risks(evaluate)  # r_a, or of clients or cells
            self.diverged = not self.all_finite(risks)
            if self.method.reports and not self.diverged and not self.nobody_is_there:
                assert risks is not None
                self.server.keep_weights()
                self.method.update_weights(risks)  # mu <- project(mu + lr_mu * r)
        if self.method.reports:
            self.send_weights()  # w = mu / rho

    def weigh(self, vectors: torch.Tensor | None, some: Clients | None) -> np.ndarray:
        """Send the vectors of `some` of the hosted clients; return the server's weight of each."""
        self.weighed = True
        hosted, size = len(self.clients.numbers) if self.clients else 0, self.model.size
        places = some.places if some else np.arange(0)
        part = np.zeros((hosted, size), dtype=self.method.config.dtype)
        if vectors is not None:
            part[places] = vectors.detach().cpu().numpy()
        gram = self.exchange.inner_products(part)
        weights = None
        if gram is not None:
            weights = np.zeros((len(gram), 1))
            if not self.nobody_is_there:
                weights[:, 0] = self.method.weigh_changes(gram)
        mine = np.empty((hosted, 1))
        self.exchange.scatter_clients(weights, mine)
        return mine[places, 0]

    def receive_risks(self, evaluate: bool) -> np.ndarray | None:
        """Wait, on the server, for the risks at theta."""
        return self.exchange.receive_risks(evaluate, self.cohort)

    def of_all(self, losses: np.ndarray | None, some: Clients | None) -> np.ndarray | None:
        """Losses of all hosted clients, from the losses of `some` of them: 0 for the others."""
        if self.clients is None or self.clients is some:
            return losses
        whole = np.zeros(self.clients.counts.T.shape)
        if some and losses is not None:
            whole[some.places] = losses
        return whole

    def of_some(self, weights: np.ndarray, some: Clients | None) -> np.ndarray:
        """Weights of `some` of the hosted clients; all `weights`, where these are of groups."""
        one_each = self.method.reports in ("clients", "cells") and some is not self.clients
        return weights[some.places] if some and one_each else weights

    def check_reported(self, evaluate: bool) -> None:
        """Raise a UserError for a method whose clients kept the server waiting for their losses."""
        missing = []
        if (evaluate or self.method.reports) and not self.reported:
            missing.append("now.report")
        if self.method.compares_changes and not self.weighed:
            missing.append("now.weigh")
        for call in missing:
            raise UserError(
                f"round {self.t}: client_round of --method {self.method.config.method} did not "
                f"call {call}, for which the server waits. See docs/extend.md."
            )

    def send_weights(self) -> None:
        self.exchange.send_weights(self.method.weights() if self.server else None)

    def all_finite(self, risks: np.ndarray | None) -> bool:
        """Whether all risks are finite: of groups that have rows, or of the round's clients."""
        if risks is None:
            return True
        if risks is self.exchange.estimates:
            risks = risks[self.exchange.present]
        elif self.cohort is not None:
            risks = risks[self.cohort.clients]
        return bool(np.isfinite(risks).all())

    def check_finite(self, t: int) -> None:
        """End a run that has diverged, on all ranks at once: all ranks see the same sums."""
        if math.isfinite(self.model.sums.sum().item()):  # torch.isfinite takes four more kernels
            return
        self.exchange.receive_weights()
        if self.server:
            self.server.keep_history()
        clients = self.ranks.gather(self.clients.diverged if self.clients else [])
        culprit = self.ranks.bcast(self.culprit(clients) if clients else "")
        what = culprit if culprit == BEYOND_LIMITS else f"{culprit} is not finite"
        raise AgreedError(f"round {t}: {what}. {self.advice()}")

    def culprit(self, clients_by_rank: list[list[int]]) -> str:
        """Name what is not finite in a run that has diverged: a client, a group, or the sum."""
        if self.model.exact and self.model.exact.beyond:
            return BEYOND_LIMITS
        clients = sorted(k for clients in clients_by_rank for k in clients)
        if clients:
            return f"the model of client {clients[0]}"
        of_groups, of_clients = self.exchange.estimates, self.exchange.client_risks
        if of_groups is not None and not self.all_finite(of_groups):
            bad = self.exchange.present & ~np.isfinite(of_groups)
            return f"the risk of group {self.groups[int(np.argmax(bad))]!r}"
        if len(of_clients) and not self.all_finite(of_clients):
            took_part = np.arange(len(of_clients)) if self.cohort is None else self.cohort.clients
            client = took_part[np.argwhere(~np.isfinite(of_clients[took_part]))[0][0]]
            return f"the risk of client {client}"
        return "the sum of the clients' changes"

    def advice(self) -> str:
        """Advice to the user for a run that has diverged."""
        lr = self.method.config.lr / 10
        return f"The steps are too long: try --lr {lr:g}. What was saved before stands."

    def stop(self, t: int) -> None:
        """End the run at a checkpoint, on all ranks, because a rank was asked to stop."""
        self.exchange.receive_weights()
        tables, save = self.client_tables(), self.server.stop if self.server else None
        raise Stopped(self.ranks.on_server(lambda: save(t, tables) if save else ""))

    def save_if_due(self, t: int) -> None:
        """Write a checkpoint after round `t`, if one is due by the server's clock."""
        due = bool(self.server and self.server.schedule.due(t))
        if self.method.of_clients:  # all ranks have to send this state; without it, none sends
            due = bool(self.exchange.tell(float(due)))
        if due:
            tables = self.client_tables()
            if self.server:
                self.server.save_checkpoint(t, tables)

    def client_tables(self) -> dict[str, np.ndarray]:
        """Gather the state of all clients on the server, a row for each client."""
        tables = {}
        for name, part in self.method.of_clients.items():
            table = self.exchange.gather_clients(part.detach().cpu().contiguous().numpy())
            if table is not None:
                tables[name] = table
        return tables

    def look_at_ranks(self, t: int) -> tuple[float, float] | None:
        """Check that every rank has the server's theta; return the split of the time.

        The split, on the server alone, is the mean and the longest time that a client rank spent in
        the clients' passes since the last call.
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
        """Raise a UserError on the server if theta differs between ranks, naming the odd ranks."""
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
