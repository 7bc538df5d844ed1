"""The messages of a round, in the order in which every rank posts them.

    report            losses at theta   clients → server   Ireduce, or Igatherv per client
    receive_weights   weights           server → clients   Ibcast, or Iscatterv per client
    sum_changes       change of theta   all ↔ all          within each host, then Iallreduce

The first two are under way while the clients' backward passes run, and are waited for where their
content is first needed. Nothing else travels in a round, but that an evaluated one ends with the
gathering of the time that each rank computed.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from fedmpi.methods.method import Method
from fedmpi.models.flat import FlatModel
from fedmpi.mpi import signals
from fedmpi.mpi.allreduce import Flat, Hierarchical
from fedmpi.mpi.ranks import Ranks


class Exchange:
    """One rank's end of the exchange.

    `hosted` is the number of clients on this rank. The server also has the `counts` n_{a,k}
    (groups × clients) and the `assignment` of clients to client ranks: gathered clients arrive in
    its order, rank by rank.
    """

    def __init__(
        self,
        ranks: Ranks,
        method: Method,
        model: FlatModel,
        reduction: Flat | Hierarchical,
        groups: tuple[str, ...],
        hosted: int,
        total_rows: int,
        counts: np.ndarray | None = None,
        assignment: list[np.ndarray] | None = None,
    ) -> None:
        self.ranks, self.method, self.model = ranks, method, model
        self.reduction = reduction
        """Its buffer is the model's."""
        self.total_rows = total_rows
        self.groups = groups
        self.round, self.evaluate = 0, False
        self._client_risks = np.zeros(0)
        self.group_risks: np.ndarray | None = None
        """On the server: r_a at the theta that the round began with, once reported."""
        self.asked_to_stop = False
        """Whether some rank had been asked to stop when the last round closed: all know it."""
        self._risks_are_finite = True
        self._sums_by_group = method.reports == "groups"
        self._sums_by_client = method.reports in ("clients", "cells")
        self._group_sums = np.empty(len(groups))
        width = len(groups) if method.reports == "cells" else 1
        self._part = np.empty((hosted, width))
        self._weights = np.empty(len(groups)) if self._sums_by_group else np.empty((hosted, width))
        self._sent: list[MPI.Request] = []
        self._answer: MPI.Request | None = None
        self._whole: np.ndarray | None = None
        self._lengths: list[int] | None = None
        if ranks.is_server:
            assert counts is not None and assignment is not None
            self._group_sizes = counts.sum(axis=1)
            self._present = self._group_sizes > 0
            self._cell_sizes = counts.T if width > 1 else counts.sum(axis=0)[:, None]
            self._order = np.concatenate(assignment)
            self._whole = np.empty((len(self._order), width))
            self._lengths = [len(mine) * width for mine in assignment]
            if ranks.size > 1:
                self._lengths.insert(0, 0)  # the server hosts nobody

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
        if self.ranks.is_server:
            self.receive_weights()  # what it sends must have left before it receives there
        if self.evaluate or self._sums_by_group:
            self._group_sums[:] = 0 if losses is None else losses.sum(axis=0)
            self._sent.append(self.ranks.Ireduce(self._group_sums))
        if self._sums_by_client:
            if losses is not None:
                by_client = losses.sum(axis=1, keepdims=True)
                self._part[:] = losses if self.method.reports == "cells" else by_client
            self._sent.append(self.ranks.Igatherv(self._part, self._whole, self._lengths))
        if self.ranks.is_server:
            self._finish_sending()
            self._update_weights()
        if self.method.reports:
            self._send_weights()

    def _update_weights(self) -> None:
        """The server's step between the risks and the weights."""
        if self.evaluate or self._sums_by_group:
            risks = np.full(len(self.groups), np.nan)  # as it stays for a group that lost its rows
            np.divide(self._group_sums, self._group_sizes, out=risks, where=self._present)
            self.group_risks = risks
            self._risks_are_finite = bool(np.isfinite(risks[self._present]).all())
        if self._sums_by_client:
            assert self._whole is not None
            sums = np.zeros(self._cell_sizes.shape)
            sums[self._order] = self._whole
            risks = sums / np.maximum(self._cell_sizes, 1)  # an empty cell has no risk, but no rows
            risks = risks if self.method.reports == "cells" else risks[:, 0]
            self._client_risks = risks
            self._risks_are_finite = bool(np.isfinite(risks).all())
        if self.method.reports and self._risks_are_finite:
            self.method.update_weights(risks)

    def _send_weights(self) -> None:
        self.receive_weights()  # a buffer that is still being filled is not given to MPI again
        if self._sums_by_group:
            if self.ranks.is_server:
                self._weights[:] = self.method.weights()
            self._answer = self.ranks.Ibcast(self._weights)
        else:
            if self._whole is not None:
                weights = self.method.weights().reshape(self._cell_sizes.shape)
                self._whole[:] = weights[self._order]
            self._answer = self.ranks.Iscatterv(self._whole, self._lengths, self._weights)

    def receive_weights(self) -> np.ndarray:
        """The weights that the server sent last: per group, or one row per hosted client."""
        if self._answer is not None:
            self.ranks.wait(self._answer)
            self._answer = None
        return self._weights

    def sum_changes(self) -> None:
        """Sum the ranks' changes of theta: the one reduction, which closes the round."""
        if not self._risks_are_finite:
            # Every rank then sees that the run has diverged, in the sum that they all share.
            self.model.scalars[-1] = float("nan")
        elif signals.asked():
            self.model.scalars[-1] = 1.0
        self.model.hand_over()
        self.reduction.start()
        self._finish_sending()
        self.reduction.finish()
        self.asked_to_stop = bool(self.model.buffer[-1] > 0)
        self.model.take_back()
        if self.ranks.is_server:
            self.receive_weights()

    def culprit(self, clients_by_rank: list[list[int]]) -> str:
        """What the server can name of a run that has diverged."""
        clients = sorted(k for clients in clients_by_rank for k in clients)
        if clients:
            return f"the model of client {clients[0]}"
        bad = self._present & ~np.isfinite(self._group_sums)
        if self.group_risks is not None and bad.any():
            worst = int(np.argmax(bad))
            return f"the risk of group {self.groups[worst]!r}"
        if not np.isfinite(self._client_risks).all():
            client = int(np.argwhere(~np.isfinite(self._client_risks))[0][0])
            return f"the risk of client {client}"
        return "the sum of the clients' changes"

    def _finish_sending(self) -> None:
        for request in self._sent:
            self.ranks.wait(request)
        self._sent.clear()
