"""The messages of a round, in the order in which every rank posts them.

    send_losses       losses at theta   clients → server   Ireduce, or Igatherv per client
    send_weights      weights           server → clients   Ibcast, or Iscatterv per client
    sum_changes       change of theta   all ↔ all          within each host, then Iallreduce

Where all ranks are on one host, a board in shared memory takes the place of Ireduce and Ibcast.

The losses and the weights are under way while the clients' backward passes run, and are waited for
where the numbers are first needed. Nothing else travels in a round, except that an evaluated round
ends with gathering the time that each rank computed. The exchange knows buffers and no method: what
the numbers mean is in rounds.py and in the methods.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.methods.method import Reports
from fedmpi.models.fixed_point import FixedPoint
from fedmpi.models.flat import FlatModel
from fedmpi.mpi.allreduce import Flat, Hierarchical
from fedmpi.mpi.board import Board
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import Ranks, Waited

if TYPE_CHECKING:
    from fedmpi.federation.cohorts import Cohort
    from fedmpi.federation.private import Private
    from fedmpi.privacy.masks import Masks

DONE = -1e6
"""Flag of a run that has come to its end before its last round: less than all ranks' signals."""


GATHERED = 1 << 16
"""Entries of each client's vector that the server holds at a time: of 1,000 clients, 500 MB."""


def divide(sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sums over sizes; NaN where the size is 0."""
    return np.divide(sums, sizes, out=np.full(len(sums), np.nan), where=sizes > 0)


class Exchange:
    """One rank's end of the exchange.

    `reports` says which losses travel in every round. `hosted` is the number of clients on this
    rank. The server also has the `counts` n_{a,k} (groups × clients) and the `assignment` of
    clients to client ranks: gathered clients arrive in the assignment's order, rank by rank.
    """

    def __init__(
        self,
        ranks: Ranks,
        model: FlatModel,
        reduction: Flat | Hierarchical,
        reports: Reports,
        groups: int,
        hosted: int,
        counts: np.ndarray | None = None,
        assignment: list[np.ndarray] | None = None,
        board: Board | None = None,
        exact_losses: FixedPoint | None = None,
        masks: Masks | None = None,
        attempt: int = 0,
        private: Private | None = None,
    ) -> None:
        """Set up the buffers. With `exact_losses` the sums of losses by group are of integers.

        With `private` a client rank adds its noise to its losses. With `masks` these and changes
        leave the rank masked. `attempt` counts how often ranks have died, so that a round that is
        done again has other masks.
        """
        self.ranks, self.model, self.reports, self.board = ranks, model, reports, board
        self.reduction = reduction
        """The sum over the ranks; the reduction's buffer is the model's."""
        self.group_risks: np.ndarray | None = None
        """Risks r_a at the theta that the last evaluated round began with, of the rows that took
        part: NaN where no row of a group did; on the server."""
        self.estimates: np.ndarray | None = None
        """Unbiased estimates of r_a over all rows: the same, unless a cohort took part."""
        self.client_risks = np.zeros(0)
        """Risks r_k or r_{a,k} of the last round, if `reports` is by client; on the server."""
        self.done = False
        """Whether the server has said that the last round was the last: all ranks know it."""
        self.asked_to_stop = False
        """Whether any rank had been asked to stop when the last round closed; same on all ranks."""
        self._by_group = reports == "groups"
        self._by_client = reports in ("clients", "cells")
        if masks and self._by_client:
            raise ValueError(f"masks hide in sums: reports of {reports} have no sum to hide in")
        self.t = 0
        """The round that is under way."""
        self._exact, self.masks, self.attempt = exact_losses, masks, attempt
        self._private = private
        self._group_sums = np.empty(groups, dtype=np.uint64 if exact_losses else np.float64)
        width = groups if reports == "cells" else 1
        self._part = np.empty((hosted, width))
        self._weights = np.empty(groups) if self._by_group else np.empty((hosted, width))
        self._sent: list[MPI.Request] = []
        self._answer: Waited | None = None
        self._whole: np.ndarray | None = None
        self._lengths: list[int] | None = None
        if ranks.is_server:
            assert counts is not None and assignment is not None
            self._counts = counts
            self.present = counts.sum(axis=1) > 0
            """Which groups have rows: all, until ranks die."""
            self._cell_sizes = counts.T if width > 1 else counts.sum(axis=0)[:, None]
            self._order = np.concatenate(assignment)
            self._whole = np.empty((len(self._order), width))
            self._lengths = [len(mine) * width for mine in assignment]
            if ranks.size > 1:
                self._lengths.insert(0, 0)  # the server hosts nobody

    def send_losses(
        self,
        losses: np.ndarray | None,
        evaluate: bool,
        counts_for: np.ndarray | None = None,
        instead: np.ndarray | None = None,
    ) -> None:
        """Send this rank's loss sums (hosted clients × groups; None on a server without clients).

        With `evaluate` the sums by group travel, too, whatever `reports` says. In these a hosted
        client counts for `counts_for` clients. The sums by client are those of `instead`, if the
        server weighs by other sums than those of losses.
        """
        if self.ranks.is_server:
            self.receive_weights()  # the weights must have left the buffer that losses arrive in
        if evaluate or self._by_group:
            self._group_sums[:] = 0
            if losses is not None:
                sums = losses if counts_for is None else losses * counts_for[:, None]
                sums = self._exact.integers(sums) if self._exact else sums
                self._group_sums[:] = sums.sum(axis=0)
                if self._private and self._exact:
                    self._group_sums += self._private.loss_noise(len(self._group_sums), self._exact)
            self._mask(self._group_sums, "LOSSES")
            if self.board:
                self.board.tell(self._group_sums)
            else:
                self._sent.append(self.ranks.Ireduce(self._group_sums))
        if self._by_client:
            of_cells = losses if instead is None else instead
            if of_cells is not None:
                by_client = of_cells.sum(axis=1, keepdims=True)
                self._part[:] = of_cells if self.reports == "cells" else by_client
            self._sent.append(self.ranks.Igatherv(self._part, self._whole, self._lengths))

    def receive_risks(self, evaluate: bool, cohort: Cohort | None = None) -> np.ndarray | None:
        """Wait, on the server, for the losses of all ranks; return the risks that are reported.

        Those of groups are estimates over all rows: 0 for a group that no client of the cohort has.
        The risks of groups without rows, and of clients that are not in the cohort, are NaN.
        """
        self._finish_sending()
        risks = None
        if self.board and (evaluate or self._by_group):
            self.ranks.wait(self.board.told)
            self._group_sums[:] = self.board.total()
        if evaluate or self._by_group:
            exact = self._exact
            sums = exact.numbers(self._group_sums) if exact else self._group_sums
            risks = self.estimates = self.group_risks = divide(sums, self._counts.sum(axis=1))
            if cohort is not None:
                self.group_risks = divide(sums, self._counts @ cohort.counts_for)
        if self._by_client:
            assert self._whole is not None
            of_cells = np.zeros(self._cell_sizes.shape)
            of_cells[self._order] = self._whole
            # An empty cell has no risk, but no rows.
            risks = of_cells / np.maximum(self._cell_sizes, 1)
            risks = risks if self.reports == "cells" else risks[:, 0]
            if cohort is not None:
                risks[cohort.counts_for == 0] = np.nan
            self.client_risks = risks
        return risks

    def send_weights(self, weights: np.ndarray | None) -> None:
        """Send the server's `weights` to the clients; weights by client go to that client alone."""
        self.receive_weights()  # a buffer that is still being filled is not given to MPI again
        if self._by_group:
            if weights is not None:
                self._weights[:] = weights
            if self.board:
                self._answer = self.board.answer(None if weights is None else self._weights)
            else:
                self._answer = self.ranks.Ibcast(self._weights)
        else:
            if self._whole is not None and weights is not None:
                self._whole[:] = weights.reshape(self._cell_sizes.shape)[self._order]
            self._answer = self.ranks.Iscatterv(self._whole, self._lengths, self._weights)

    def receive_weights(self) -> np.ndarray:
        """Wait for the weights that the server sent last: per group, or a row per hosted client."""
        if self._answer is not None:
            self.ranks.wait(self._answer)
            if self.board and self._by_group:
                self.board.read(self._weights)
            self._answer = None
        return self._weights

    def sum_changes(self, flag: float) -> None:
        """Sum the ranks' changes of theta in the one reduction of the round, which closes it.

        `flag` is summed with the changes: NaN where a rank has diverged, 1 where a rank is to stop.
        """
        self.model.scalars[-1] = flag
        self.model.to_mpi()
        if self.model.exact:
            self._mask(self.model.exact.own, "CHANGES", self.model.buffer)
        self.reduction.start()
        self._finish_sending()
        self.reduction.finish()
        self.take_sum()
        if self.ranks.is_server:
            self.receive_weights()

    def take_sum(self) -> None:
        """Take what the sum of all ranks says: the change of theta, and whether to go on."""
        summed = self.model.flag()
        self.asked_to_stop, self.done = summed > 0, summed < 0
        self.model.from_mpi()

    def _mask(self, numbers: np.ndarray, message: str, out: np.ndarray | None = None) -> None:
        """Mask `numbers`, if the sums are secret, and copy them to `out`, if it is given.

        In the sum over the ranks masks cancel. What is not masked does not leave the rank: MPI and
        shared memory have masked numbers only.
        """
        if self.masks:
            from fedmpi.privacy.masks import Message  # which needs a package that others do without

            self.masks.add(numbers, self.t, self.attempt, Message[message], out)

    def share_theta(self) -> None:
        """Copy the server's theta to every rank's, where the server alone has stepped."""
        values = self.model.theta.detach().cpu().numpy().copy()  # a death may leave it to MPI
        self.ranks.wait(self.ranks.Ibcast(values))
        self.model.theta.copy_(torch.from_numpy(values))

    def tell(self, number: float) -> float:
        """Broadcast the server's `number`; return it on every rank."""
        told = np.array([number])
        self.ranks.wait(self.ranks.Ibcast(told))
        return float(told[0])

    def gather_clients(self, part: np.ndarray) -> np.ndarray | None:
        """Gather a table with a row for each client on the server, by the clients' numbers."""
        whole, lengths = self._whole_table(part)
        self.ranks.wait(self.ranks.Igatherv(part, whole, lengths))
        if whole is None:
            return None
        table = np.empty_like(whole, shape=(len(self._cell_sizes), *part.shape[1:]))
        table[:] = 0  # stays 0 for the clients of dead ranks
        table[self._order] = whole
        return table

    def inner_products(self, part: np.ndarray) -> np.ndarray | None:
        """Inner products of the vectors of all clients, on the server, by the clients' numbers.

        `part` has a row for each hosted client. The server has GATHERED entries of each vector at a
        time, never all vectors.
        """
        gram = None
        for start in range(0, part.shape[1], GATHERED):
            table = self.gather_clients(np.ascontiguousarray(part[:, start : start + GATHERED]))
            if table is not None:
                table = table.astype(np.float64)
                gram = table @ table.T + (0.0 if gram is None else gram)
        return gram

    def scatter_clients(self, table: np.ndarray | None, part: np.ndarray) -> None:
        """Scatter the server's `table`, a row for each client; `part` gets the hosted clients'."""
        whole, lengths = self._whole_table(part)
        if whole is not None and table is not None:
            whole[:] = table[self._order]
        self.ranks.wait(self.ranks.Iscatterv(whole, lengths, part))

    def _whole_table(self, part: np.ndarray) -> tuple[np.ndarray | None, list[int] | None]:
        """Buffer on the server for the rows of all clients, and how many numbers each rank has."""
        if self._lengths is None:
            return None, None
        width = self._part.shape[1]
        size = math.prod(part.shape[1:])
        lengths = [length // width * size for length in self._lengths]
        return np.empty((len(self._order), *part.shape[1:]), dtype=part.dtype), lengths

    def _finish_sending(self) -> None:
        for request in self._sent:
            self.ranks.wait(request)
        self._sent.clear()
