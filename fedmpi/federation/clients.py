"""The clients that a rank hosts: the clients' rows, and what the clients compute from theta."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedmpi.data.duplicates import Distinct, find_equal
from fedmpi.federation.assignment import spread_rows
from fedmpi.models.batched_clients import FEW, BatchedTraining, ClientBatch, batch_clients
from fedmpi.models.fixed_point import in_lines
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import Loss

if TYPE_CHECKING:
    from fedmpi.federation.batches import Batches
    from fedmpi.federation.private import Private
    from fedmpi.run.config import Config

Objective = Callable[[Tensor, Tensor], Tensor]
"""Function that a local step descends on, of the losses and the cells of a batch's rows."""

Correction = Callable[[int, Tensor], Tensor | None]
"""Function of a client's place and drift, called before each local step. Its value, if it has one,
is added to the gradient of the step. The drift is the client's theta minus the theta that it
received; FedProx's correction is the drift itself, times a number."""

BATCHES = int.from_bytes(b"batch", "big")


def batch_order(rows: int, seed: int, client: int, t: int, epoch: int) -> np.ndarray:
    """Permutation in which a client goes through its rows, the same on whichever rank."""
    return np.random.default_rng([BATCHES, seed, client, t, epoch]).permutation(rows)


@dataclass
class Rows:
    """Some rows of a dataset, as tensors on the device."""

    x: Tensor
    """Numbers of the model's dtype, or bytes that the model standardises."""
    y: Tensor
    group: Tensor


@dataclass
class Batch:
    """This rank's rows of a batch of the federation."""

    x: Tensor
    y: Tensor
    cell: Tensor
    counts_for: Tensor
    """Number of rows that each row counts for."""
    losses: Tensor


class Clients:
    """The rows of the clients on this rank, ordered by client, and the passes over them.

    A cell is one group of one hosted client; `counts` has the rows of each cell, groups × hosted
    clients, as counts are everywhere. Losses and weights have a row for each client, as they are
    sent. Several clients cost what their rows cost: a full-batch step is one fused pass.
    """

    def __init__(
        self,
        numbers: np.ndarray,
        counts: np.ndarray,
        rows: Rows,
        model: FlatModel,
        loss: Loss,
        micro_batch: int,
        seed: int,
    ) -> None:
        self.numbers, self.counts = numbers, counts
        self.places = np.arange(len(numbers))
        """Places of these clients among all that the rank hosts: all places, or a cohort's."""
        self.counts_for = np.ones(len(numbers))
        """For how many clients each of these counts: 1, or in a cohort 1 / its probability."""
        self.sizes = counts.sum(axis=0)
        self._cells = counts.T.shape
        self.exact = model.exact is not None
        """Whether sums have the same bits on any layout: then clients share no pass."""
        self.x, self.y = rows.x, rows.y
        hosted = torch.from_numpy(np.repeat(np.arange(len(numbers)), self.sizes))
        self.cell = hosted.to(rows.group.device) * len(counts) + rows.group
        self.ends = np.cumsum(self.sizes)
        self.model, self.loss, self.micro_batch, self.seed = model, loss, micro_batch, seed
        self.diverged: list[int] = []
        """Clients whose local training ended at numbers that are not finite."""
        self.losses = torch.empty(len(self.y), dtype=model.theta.dtype, device=self.y.device)
        self.batches: Batches | None = None
        """With --batch-rows: which rows are in the batch of a round."""
        self.private: Private | None = None
        """With --dp-epsilon: limits of gradients and losses, and this rank's noise."""
        self._counts_for = self.losses[:0]
        self._distinct: Distinct | None = None
        self._received: Tensor | None = None
        self._batch: Tensor | None = None
        self._client_batches: list[ClientBatch] | None = None
        self._batched_training: BatchedTraining | None = None

    def merge_equal_rows(self) -> None:
        """Keep one of the rows that are equal: for methods that never train on batches of rows.

        `x`, `y` and `losses` are then of the rows that are kept, `cell` is of all rows.
        """
        self._distinct = find_equal(self.x, self.y)
        if self._distinct:
            self.x, self.y = self._distinct.x, self._distinct.y
            self.losses = self.losses.new_empty(len(self.y))

    def among(self, counts_for: np.ndarray) -> Clients | None:
        """Return the hosted clients that are in a cohort, with their rows; None if none is.

        `counts_for` is above 0 for those of all clients that are in the cohort.
        """
        places = np.flatnonzero(counts_for[self.numbers])
        if not len(places):
            return None
        some = self if len(places) == len(self.numbers) else self._some(places)
        some.counts_for = counts_for[some.numbers]
        return some

    def _some(self, places: np.ndarray) -> Clients:
        """Return the hosted clients at these places, with a copy of their rows.

        The copy takes a twentieth of the round of a cohort with Adult's perceptron, a fifth with
        logistic regression (benchmarks/cohorts.py).
        """
        assert self._distinct is None, "rows of several clients were merged"
        runs = [slice(self.ends[i] - self.sizes[i], self.ends[i]) for i in places]
        tables = (self.x, self.y, self.cell)
        x, y, cell = (torch.cat([table[rows] for rows in runs]) for table in tables)
        rows = Rows(in_lines(x) if self.exact else x, y, cell % len(self.counts))
        numbers, counts = self.numbers[places], self.counts[:, places]
        some = Clients(numbers, counts, rows, self.model, self.loss, self.micro_batch, self.seed)
        some.places, some.diverged = places, self.diverged
        return some

    def full_batch_step(
        self,
        cell_weights: Callable[[], np.ndarray],
        lr: float,
        report: Callable[[np.ndarray], None],
        t: int = 0,
    ) -> None:
        """Add -lr × the gradient of sum over rows of cell weight × loss to the model's change.

        In a cohort the rows of a client count for those of 1 / pi_k clients, so that the sum is an
        unbiased estimate of that over the rows of all clients.
        With --batch-rows the sums are over the batch of round `t`, whose rows count for all rows.
        `cell_weights` is called when the first backward pass needs the weights; `report` as soon
        as the last forward pass has computed the losses, before the last backward pass.
        """
        private = self.private
        sampled = self.batches or (private and private.sampling < 1)
        batch = self._rows_of_round(t) if sampled else None
        x, y, kept = (batch.x, batch.y, batch.losses) if batch else (self.x, self.y, self.losses)
        of_cells = np.zeros(0)
        """The weights of this round: once it has been reported, others may be on their way."""
        if not len(x):
            of_cells = cell_weights()
            report(np.zeros(self._cells))
        step = kept[:0]
        micro_batches = self._micro_batches(batch)
        ends = set(self._client_ends(batch) if self.exact else ())

        def weights(losses: Tensor) -> Tensor:
            nonlocal step, of_cells
            kept[rows] = losses.clamp(max=private.loss_clip) if private else losses
            if rows is micro_batches[0]:
                of_cells = cell_weights()
                steps = self.by_cell(-lr * of_cells * self.counts_for[:, None])
                step = steps[batch.cell].mul_(batch.counts_for) if batch else steps[self.cell]
                step = step if batch else self._of_kept_rows(step)
            if rows is micro_batches[-1]:
                report(self._sum_by_cell(batch))
            return step[rows]

        for rows in micro_batches if len(x) else []:
            what = x[rows], y[rows], self.loss, weights
            if private:
                self.model.add_clipped_gradient(*what, private.clip)
            else:
                self.model.add_gradient(*what)
            if rows.stop in ends:
                self.model.close_unit()
        if private:
            private.add_noise(self.model, lr * of_cells)

    def second_order_sums(
        self,
        cell_weights: Callable[[], np.ndarray],
        lr: float,
        report: Callable[[np.ndarray], None],
    ) -> None:
        """Add the groups' gradients and the Hessian of the weighted risk to the model's vectors.

        The change gets what `full_batch_step` adds. `cell_weights` are per group.
        """
        from fedmpi.models.curvature import Curvature  # which other steps do without

        report(self.loss_sums())
        groups, dtype = len(self.counts), self.model.theta.dtype
        gradients, hessian = self.model.vectors[:groups], self.model.vectors[groups:]
        group = self.cell % groups
        weights = cell_weights()
        of_groups = torch.stack([self._of_kept_rows((group == a).to(dtype)) for a in range(groups)])
        of_rows = self._of_kept_rows(self.by_cell(weights)[self.cell])
        sums = Curvature(self.model, groups)
        for rows in self._micro_batches():
            sums.add(self.x[rows], self.y[rows], of_groups[:, rows], of_rows[rows])
        sums.put(gradients, hessian)
        self.model.change.add_(torch.from_numpy(-lr * weights).to(gradients) @ gradients)

    def take_batches(self, batches: Batches) -> None:
        """Train on these batches of the federation from now on: at the start, and after a death."""
        self.batches = batches
        of_groups = torch.from_numpy(batches.counts_for).to(self.losses)
        self._counts_for = of_groups[self.cell % len(self.counts)]

    def _rows_of_round(self, t: int) -> Batch:
        """The rows of this rank in the batch of round `t`."""
        if self.private:
            rows = self.private.sample(len(self.x))
            counts_for = self.losses.new_full((len(rows),), 1 / self.private.sampling)
        else:
            assert self.batches
            rows = self.batches.rows(t)
        chosen = torch.from_numpy(rows).to(self.cell.device)
        if not self.private:
            counts_for = self._counts_for.index_select(0, chosen)
        return Batch(
            self._gather(self.x, chosen),
            self.y.index_select(0, chosen),
            self.cell.index_select(0, chosen),
            counts_for,
            self.losses.new_empty(len(chosen)),
        )

    def _of_kept_rows(self, weights: Tensor) -> Tensor:
        """Sum the weights of all rows up to weights of the rows that are kept."""
        return self._distinct.sum_up(weights) if self._distinct else weights

    def by_cell(self, weights: np.ndarray) -> Tensor:
        """Expand `weights` per group, per hosted client (a column) or per cell to each cell."""
        table = np.broadcast_to(weights, self._cells)
        return torch.tensor(table.reshape(-1), dtype=self.model.theta.dtype, device=self.x.device)

    def loss_sums(self) -> np.ndarray:
        """Sum the losses of each cell at the model's theta; return hosted clients × groups."""
        with torch.no_grad():
            for rows in self._micro_batches():
                self.losses[rows] = self.loss(self.model(self.x[rows]), self.y[rows])
        return self._sum_by_cell()

    def count_predicted(self, label: int) -> np.ndarray:
        """Count the rows of each cell that are predicted to be of class `label`, at theta."""
        with torch.no_grad():
            for rows in self._micro_batches():
                chosen = self.model(self.x[rows]).argmax(dim=1) == label
                self.losses[rows] = chosen.to(self.losses.dtype)
        return self._sum_by_cell()

    def _sum_by_cell(self, batch: Batch | None = None) -> np.ndarray:
        """Sum `losses` by cell, in one segmented sum over all rows: hosted clients × groups."""
        sums = torch.zeros(self.counts.size, dtype=torch.float64, device=self.cell.device)
        exact = self.model.exact
        if exact and not exact.may_add(batch.losses if batch else self.losses):
            pass  # all ranks learn of it when the changes are summed
        elif batch:
            sums.index_add_(0, batch.cell, batch.losses.double() * batch.counts_for)
        else:
            losses = self.losses[self._distinct.place] if self._distinct else self.losses
            sums.index_add_(0, self.cell, losses.double())
        return sums.cpu().numpy().reshape(self._cells)

    def add_local_changes(
        self,
        t: int,
        config: Config,
        shares: Callable[[], np.ndarray],
        squares: np.ndarray | None = None,
        objective: Objective | None = None,
        correction: Correction | None = None,
    ) -> None:
        """Train each hosted client from theta by minibatch SGD; add share × change to the sum.

        `shares`, which gives one share for each hosted client, is called when the first share is
        needed; `squares` is filled with the squared norms of the changes. The result is that of
        `local_changes` and `add`, but small clients are trained together, as one batch of clients,
        unless there is an `objective` or a `correction`.
        """
        alone = np.ones(len(self.numbers), dtype=bool)
        for batch in [] if objective or correction else self._small_ones(config):
            batch.shuffle(lambda i, epoch: self._order(i, t, epoch))
            self._train_together(batch, config.lr, shares, squares)
            alone[batch.places] = False
        places = np.flatnonzero(alone).tolist()
        for i, change in self.local_changes(t, config, objective, places, correction):
            if squares is not None:
                squares[i] = float(change.double().square().sum())
            self.add(change, float(shares()[i]))

    def local_changes(
        self,
        t: int,
        config: Config,
        objective: Objective | None = None,
        places: Iterable[int] | None = None,
        correction: Correction | None = None,
    ) -> Iterator[tuple[int, Tensor]]:
        """Train each hosted client from theta by minibatch SGD; yield its place and its change.

        A step descends on `objective`, by default the batch's mean loss. With a `correction`, each
        step is theta <- theta - lr (gradient + correction). The yielded change is in theta's own
        memory until the next client begins: `add` it before, if it is to be summed. When the last
        client is done, theta is as before and the sum is in the model's change.
        """
        theta = self.model.theta
        if self._received is None:
            self._received = torch.empty_like(theta)
        received = self._received.copy_(theta)
        for i in range(len(self.numbers)) if places is None else places:
            if self.sizes[i]:
                self._train_locally(i, t, config, objective, correction)
            yield i, theta.sub_(received)
            theta.copy_(received)
        if not self.diverged and not self.model.change_is_finite():
            self._find_diverged(t, config, objective, correction)

    def weighted_mean(self, weights: np.ndarray) -> Objective:
        """Objective of local steps on the mean of weight × loss over the rows of a batch.

        `weights` are per group, per hosted client (a column) or per cell.
        """
        by_cell = self.by_cell(weights)
        return lambda losses, cell: (by_cell[cell] * losses).mean()

    def add(self, change: Tensor, share: float) -> None:
        """Add `share` × a client's change to the sum."""
        self.model.change.add_(change, alpha=share)
        self.model.close_unit()

    def gradients(self) -> list[Tensor]:
        """Gradient of the mean loss of each hosted client at theta, over all its rows."""
        change = self.model.change
        summed, found = change.clone(), []
        for size, end in zip(self.sizes.tolist(), self.ends.tolist(), strict=True):
            change.zero_()
            mean = partial(torch.full_like, fill_value=1 / max(1, size))
            for rows in split_run(end - size, end, self.micro_batch) if size else []:
                self.model.add_gradient(self.x[rows], self.y[rows], self.loss, mean)
            found.append(change.clone())
        change.copy_(summed)
        return found

    def _find_diverged(
        self,
        t: int,
        config: Config,
        objective: Objective | None,
        correction: Correction | None,
    ) -> None:
        """Train again to find whose change is not finite: cheaper than to check every change."""
        received = self.model.theta.clone()
        for i in range(len(self.numbers)):
            self._train_locally(i, t, config, objective, correction)
            if not torch.isfinite(self.model.theta.sum()):
                self.diverged.append(int(self.numbers[i]))
            self.model.theta.copy_(received)

    def _small_ones(self, config: Config) -> list[ClientBatch]:
        """Batches of clients that are trained together: of a perceptron, those with few rows."""
        if self._client_batches is None:
            self._batched_training = self.model.batched_training(self.loss)
            few = self.sizes * config.local_epochs <= FEW
            if config.local_epochs == 1:  # one step from the common theta, and no second one
                few |= self.sizes <= min(config.batch_size, self.micro_batch)
            few &= self._batched_training is not None and not self.exact
            small = np.flatnonzero(few)
            self._client_batches = batch_clients(
                small,
                (self.ends - self.sizes)[small],
                self.sizes[small],
                config.local_epochs,
                config.batch_size,
                self.micro_batch,
            )
        return self._client_batches

    def _train_together(
        self,
        batch: ClientBatch,
        lr: float,
        shares: Callable[[], np.ndarray],
        squares: np.ndarray | None,
    ) -> None:
        """Train a batch of clients for the local epochs; add share × change of each to the sum."""
        rows = torch.from_numpy(batch.rows.reshape(-1)).to(self.cell.device)
        x = self.model.standardised(self._gather(self.x, rows))
        y = self.y.index_select(0, rows)

        def of_batch() -> Tensor:
            return torch.from_numpy(shares()[batch.places]).to(x)

        assert self._batched_training
        self._batched_training.add_changes(
            x, y, batch, lr, of_batch, self.model.into_change, squares
        )

    def _order(self, i: int, t: int, epoch: int) -> np.ndarray:
        """Order in which the i-th hosted client goes through its rows in an epoch of round `t`."""
        return batch_order(int(self.sizes[i]), self.seed, int(self.numbers[i]), t, epoch)

    def _train_locally(
        self,
        i: int,
        t: int,
        config: Config,
        objective: Objective | None,
        correction: Correction | None = None,
    ) -> None:
        """Train E epochs of SGD on the rows of the i-th hosted client, in seeded random batches."""
        theta = self.model.theta
        received = theta.clone() if correction else theta

        def step(x: Tensor, y: Tensor, cell: Tensor) -> None:
            added = correction(i, theta - received) if correction else None
            self._step(x, y, cell, config.lr, objective)
            if added is not None:
                theta.sub_(added, alpha=config.lr)

        rows, start = int(self.sizes[i]), int(self.ends[i] - self.sizes[i])
        mine = slice(start, start + rows)
        x, y, cell = self.x[mine], self.y[mine], self.cell[mine]
        for epoch in range(config.local_epochs):
            if rows <= config.batch_size:  # the order within a batch changes nothing but rounding
                step(x, y, cell)
                continue
            for chosen in (
                torch.from_numpy(self._order(i, t, epoch))
                .to(self.cell.device)
                .split(config.batch_size)
            ):
                cells = cell.index_select(0, chosen) if objective else cell
                ys = y.index_select(0, chosen)
                step(self._gather(x, chosen), ys, cells)

    def _step(
        self, x: Tensor, y: Tensor, cell: Tensor, lr: float, objective: Objective | None
    ) -> None:
        """Step theta down the objective of a batch, by default the batch's mean loss."""

        def weights(losses: Tensor) -> Tensor:
            if objective is None:
                return losses.new_full((len(losses),), -lr / len(losses))
            with torch.enable_grad():
                objective(losses.requires_grad_(), cell).backward()
            assert losses.grad is not None
            return losses.grad.mul_(-lr)

        self.model.add_gradient(x, y, self.loss, weights, to_theta=True)

    def _gather(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Gather the chosen rows into a buffer that the next batch overwrites."""
        if self._batch is None or len(self._batch) < len(chosen):
            batch = x.new_empty(len(chosen), *x.shape[1:])
            self._batch = in_lines(batch) if self.exact else batch
        return torch.index_select(x, 0, chosen, out=self._batch[: len(chosen)])

    def _micro_batches(self, batch: Batch | None = None) -> list[slice]:
        """Split the rows into as few micro-batches as possible, of equal length.

        Of equal length, because the last backward pass hides the messages of the round. For exact
        sums none has rows of two clients, so that its bits do not depend on who shares the rank.
        """
        if not self.exact:
            return split_run(0, len(batch.x if batch else self.x), self.micro_batch)
        ends = self._client_ends(batch)
        return [
            rows
            for start, stop in zip([0, *ends], ends, strict=False)
            for rows in split_run(start, stop, self.micro_batch)
        ]

    def _client_ends(self, batch: Batch | None = None) -> list[int]:
        """Return where the rows of each client that has some end."""
        if batch:
            client = (batch.cell // len(self.counts)).cpu().numpy()
            return (np.flatnonzero(np.diff(client, append=-1)) + 1).tolist()
        return self.ends[self.sizes > 0].tolist()


def split_run(start: int, stop: int, most: int) -> list[slice]:
    """Split the rows from `start` to `stop` into runs of equal length, of `most` rows at most."""
    parts = spread_rows(stop - start, max(1, -(-(stop - start) // most)))
    return [slice(start + rows.start, start + rows.stop) for rows in parts]
