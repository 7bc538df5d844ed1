"""The messages of a round, in the order in which every rank posts them.

    report            losses at theta   clients → server   Ireduce, or Igatherv per client
    receive_weights   weights           server → clients   Ibcast, or Iscatterv per client
    sum_changes       change of theta   all ↔ all          Iallreduce, in place

The first two are under way while the clients' backward passes run, and are waited for where their
content is first needed. Nothing else travels in a round.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from fedmpi.flat import FlatModel
from fedmpi.methods.method import Method
from fedmpi.ranks import Ranks


class Exchange:
    """One rank's end of the exchange.

    `hosted` is the number of clients on this rank. The server also has the `counts` n_{a,k}
    (groups × clients) and the `order` in which gathered clients arrive: rank by rank.
    """

    def __init__(
        self,
        ranks: Ranks,
        method: Method,
        model: FlatModel,
        groups: tuple[str, ...],
        hosted: int,
        total_rows: int,
        counts: np.ndarray | None = None,
        assignment: list[np.ndarray] | None = None,
    ) -> None:
        self.ranks, self.method, self.model = ranks, method, model
        self.total_rows = total_rows
        self.groups = groups
        self.round, self.evaluate = 0, False
        self.group_risks: np.ndarray | None = None
        """On the server: r_a at the theta that the round began with, once reported."""
        self._risks_are_finite = True
        self._group_sums = np.empty(len(groups))
        self._width = len(groups) if method.reports == "cells" else 1
        self._part = np.empty((hosted, self._width))
        self._sent: list[MPI.Request] = []
        self._answer: MPI.Request | None = None
        if method.reports == "groups":
            self._weights = np.empty(len(groups))
        else:
            self._weights = np.empty((hosted, self._width))
        self._parts: list[int] | None = None
        if ranks.is_server:
            assert counts is not None and assignment is not None
            self._counts = counts
            self._order = np.concatenate(assignment)
            on_server = 1 if ranks.size == 1 else 0
            self._parts = [0] * (1 - on_server) + [len(a) * self._width for a in assignment]
            self._whole = np.empty((counts.shape[1], self._width))

    def send_first_weights(self) -> None:
        """Give the clients the weights that round 1, or the first after a resume, begins with."""
        if self.method.reports and self.method.weighs_next_round:
            self._send_weights()

    def begin_round(self, t: int, evaluate: bool) -> None:
        """Round `t` begins; `evaluate` if the server wants the group risks whatever the method."""
        self.round, self.evaluate = t, evaluate

    def report(self, losses: np.ndarray | None) -> None:
        """Send this rank's loss sums (hosted clients × groups; None on a bare server).

        The server waits for them, lets the method update its weights, and sends these.
        """
        per_client = self.method.reports in ("clients", "cells")
        if self.evaluate or self.method.reports == "groups":
            self._group_sums[:] = 0 if losses is None else losses.sum(axis=0)
            self._sent.append(self.ranks.Ireduce(self._group_sums))
        if per_client:
            if losses is not None:
                self._part[:] = losses if self._width > 1 else losses.sum(axis=1, keepdims=True)
            whole = self._whole if self.ranks.is_server else None
            self._sent.append(self.ranks.Igatherv(self._part, whole, self._parts))
        if self.ranks.is_server:
            self._finish_sending()
            self._update_weights(per_client)
        if self.method.reports:
            self._send_weights()

    def _update_weights(self, per_client: bool) -> None:
        """The server's step between the risks and the weights."""
        if self.evaluate or self.method.reports == "groups":
            self.group_risks = self._group_sums / self._counts.sum(axis=1)
            self._risks_are_finite = bool(np.isfinite(self.group_risks).all())
        if not per_client:
            risks = self.group_risks
        else:
            sums = np.empty_like(self._whole)
            sums[self._order] = self._whole
            counts = self._counts.T if self._width > 1 else self._counts.sum(axis=0)[:, None]
            risks = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0).squeeze()
            self._risks_are_finite = bool(np.isfinite(risks).all())
        if self.method.reports and self._risks_are_finite:
            self.method.update_weights(risks)

    def _send_weights(self) -> None:
        self.receive_weights()  # a buffer that is still being filled is not given to MPI again
        if self.method.reports == "groups":
            if self.ranks.is_server:
                self._weights[:] = self.method.weights()
            self._answer = self.ranks.Ibcast(self._weights)
        else:
            if self.ranks.is_server:
                weights = self.method.weights().reshape(-1, self._width)
                self._whole[:] = weights[self._order]
            whole = self._whole if self.ranks.is_server else None
            self._answer = self.ranks.Iscatterv(whole, self._parts, self._weights)

    def receive_weights(self) -> np.ndarray:
        """The weights that the server sent last: per group, or one row per hosted client."""
        if self._answer is not None:
            self.ranks.wait(self._answer)
            self._answer = None
        return self._weights

    def sum_changes(self) -> None:
        """Sum the ranks' changes of theta: the one Allreduce, which closes the round."""
        if not self._risks_are_finite:
            # Every rank then sees that the run has diverged, in the sum that they all share.
            self.model.scalars[-1] = float("nan")
        self.model.to_host()
        request = self.ranks.Iallreduce(self.model.buffer)
        self._finish_sending()
        self.ranks.wait(request)
        self.model.from_host()
        if self.ranks.is_server:
            self.receive_weights()

    def culprit(self, clients_by_rank: list[list[int]]) -> str:
        """What the server can name of a run that has diverged."""
        clients = sorted(k for clients in clients_by_rank for k in clients)
        if clients:
            return f"the model of client {clients[0]}"
        if self.group_risks is not None and not np.isfinite(self.group_risks).all():
            worst = int(np.argmin(np.isfinite(self.group_risks)))
            return f"the risk of group {self.groups[worst]!r}"
        return "the sum of the clients' changes"

    def _finish_sending(self) -> None:
        for request in self._sent:
            self.ranks.wait(request)
        self._sent.clear()
