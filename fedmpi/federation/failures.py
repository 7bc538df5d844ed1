"""Going on without the client ranks that die: --on-client-failure continue.

    mpirun --with-ft ulfm -n 6 python -m fedmpi.train --dataset adult --on-client-failure continue

The surviving ranks notice a death, agree on it and shrink in mpi/failures.py. This module is what
the training does then: the clients of the dead ranks are taken out, and the round in which these
ranks died is repeated from the state in which the round began. The evaluation after the last round
is repeated likewise.

The flag needs Open MPI 5: MPICH ends the job when a rank dies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.errors import UserError
from fedmpi.federation.rounds import Training
from fedmpi.methods import method as base
from fedmpi.models.fixed_point import is_whole
from fedmpi.mpi import launcher
from fedmpi.mpi.failures import Survivors, keep
from fedmpi.mpi.init import MPI
from fedmpi.mpi.ranks import Ranks
from fedmpi.privacy.graph import too_few
from fedmpi.run.display import warn
from fedmpi.run.lost_ranks import RANKS, clients_of

if TYPE_CHECKING:
    from fedmpi.federation.exchange import Exchange
    from fedmpi.federation.plan import Allocation
    from fedmpi.methods.method import Method
    from fedmpi.mpi.placement import Placement
    from fedmpi.run.config import Config
    from fedmpi.run.folder import RunFolder


@dataclass(kw_only=True)
class SurvivingTraining(Training):
    """Training that repeats a round in which ranks died, without the clients of the dead ranks.

    Until all ranks have agreed that a round is done, nothing of the round is kept: not on the
    server, in the mean of theta or in a file, and on no rank in theta.
    """

    survivors: Survivors
    go_on_without: Callable[[list[int], int], tuple[Exchange, int]]
    """Function of the dead ranks and the round from which on their clients are out; see Job."""
    _weights_due: bool = field(default=True, init=False)
    """Whether the clients have yet to be told the weights that the round begins with."""

    _risks: np.ndarray | None = field(default=None, init=False)
    """Risks of the round that the server has got, if sums are secret."""
    _risks_known: bool = field(default=False, init=False)
    """Whether the server has them, on every rank."""
    _total: np.ndarray | None = field(default=None, init=False)
    """Sum of the round that this rank has got, if sums are secret."""
    _handed: bool = field(default=False, init=False)
    """Whether MPI has got what this rank adds to that sum, masked, in the model's buffer."""
    _unsaved: bool = field(default=False, init=False)
    """Whether no checkpoint knows yet that ranks have died in a run whose sums are secret."""

    def begin_rounds(self) -> None:
        """Leave sending the first weights to the first round, which is repeated after a death."""
        self._theta = torch.empty_like(self.model.theta)

    def whole_round(self, t: int, evaluate: bool) -> tuple[float, float] | None:
        self._risks, self._risks_known = None, False
        self._total, self._handed = None, False
        self._theta.copy_(self.model.theta)
        beside = [*self.method.kept_everywhere().values(), *self.method.of_clients.values()]
        before = [value.clone() for value in beside]
        state, ascended = self._weights_now(), False

        def work() -> tuple[float, float] | None:
            if self._weights_due:
                self._weights_due = False
                Training.begin_rounds(self)
            return Training.whole_round(self, t, evaluate)

        def again(lost: list[int]) -> None:
            nonlocal state, ascended
            self.model.theta.copy_(self._theta)
            for value, old in zip(beside, before, strict=True):
                value.copy_(old)
            self.method.restore(state)
            if self.exchange.masks:
                self._share_what_is_known()
            if self._total is None:
                self._lose(lost, t)
                return
            # The sum of the round has the dead ranks' part, and so have the risks. The next round
            # has not.
            risks = None if ascended or self.diverged else self._risks
            if self.method.reports and risks is not None:
                self.method.update_weights(risks)
                state, ascended = self._weights_now(), True
            self._lose(lost, t + 1)

        return self.survivors.together(work, again)

    def _weights_now(self) -> dict[str, np.ndarray]:
        """Copy of the method's state; on the server."""
        if not self.server:
            return {}
        return {name: np.array(value) for name, value in self.method.state().items()}

    def _share_what_is_known(self) -> None:
        """Tell all ranks what any of them has got of a round whose sums are secret.

        A sum over all ranks and one over those that are left, at the same theta, must never both
        exist: their difference is what the dead ranks had. So a sum that any rank has is the sum
        of the round, and is not asked for again; nor are losses that the server has. MPI may have
        completed the sum in a rank's buffer, and yet failed there: when it passed the sum on to a
        rank that is dead, say. Then the rank has it as well.
        """
        if self._total is None and self._handed and is_whole(self.model.buffer):
            self._total = self.model.buffer.copy()
        known = np.array([self._risks is not None, self._total is not None])
        whose = np.where(known, self.ranks.rank, -1)
        self.ranks.wait(self.ranks.Iallreduce(whose, MPI.MAX))
        self._risks_known, root = bool(whose[0] >= 0), int(whose[1])
        if root < 0:
            return
        total = np.zeros_like(self.model.buffer) if self._total is None else self._total
        try:
            self.ranks.wait(self.ranks.Ibcast(total, root))
        except MPI.Exception:
            self._total = total if is_whole(total) else None
            raise
        self._total = total

    def report(
        self, losses: np.ndarray | None, evaluate: bool, instead: np.ndarray | None = None
    ) -> None:
        Training.report(self, None if self._risks_known else losses, evaluate, instead)

    def receive_risks(self, evaluate: bool) -> np.ndarray | None:
        risks = Training.receive_risks(self, evaluate)
        if self._risks is not None:  # the ranks have sent zeros
            risks = self.exchange.estimates = self.exchange.group_risks = self._risks
        elif self.exchange.masks:
            self._risks = risks
        return risks

    def sum_changes(self) -> None:
        self._handed = self.exchange.masks is not None
        Training.sum_changes(self)
        if self.exchange.masks:
            self._total = self.model.buffer.copy()

    def one_round(self, t: int, evaluate: bool) -> None:
        """Do the round, or end it with the sum that some rank had got when others died."""
        if self._total is None:
            Training.one_round(self, t, evaluate)
            return
        self.t = self.exchange.t = t
        self.model.clear_sums()
        self.model.buffer[:] = self._total
        self.exchange.estimates = self.exchange.group_risks = self._risks
        self.exchange.take_sum()
        self.check_finite(t)
        if not self.exchange.done:
            self.step(t)

    def stop(self, t: int) -> None:
        self.survivors.together(
            lambda: Training.stop(self, t), lambda lost: self._lose(lost, t + 1)
        )

    def validate(self, t: int) -> None:
        self.survivors.together(
            lambda: Training.validate(self, t), lambda lost: self._lose(lost, t + 1)
        )

    def save_if_due(self, t: int) -> None:
        if self._unsaved:
            # A run that is resumed must know of the dead: with them it would form sums over all
            # at the theta of sums that are without them.
            self._unsaved = False
            if self.server:
                self.server.save_checkpoint(t, {})
            return
        if not self.method.of_clients:  # nobody has to talk
            Training.save_if_due(self, t)
            return
        self.survivors.together(
            lambda: Training.save_if_due(self, t), lambda lost: self._lose(lost, t + 1)
        )

    def end_rounds(self) -> None:
        self.survivors.together(
            lambda: self.exchange.receive_weights(), lambda lost: self._lose(lost, self.rounds + 1)
        )

    def _lose(self, lost: list[int], t: int) -> None:
        """Leave the buffers to MPI, which may still write there; begin round `t` without `lost`."""
        keep((self.exchange, self.model.buffer, self.model.sums))
        self.model.new_sums()
        self._handed, self._unsaved = False, self.exchange.masks is not None
        if self.clients:
            self.clients.diverged.clear()
        before = self.exchange
        self.exchange, self.total_rows = self.go_on_without(lost, t)
        # What the last sums told stands, if this is after a round, until the next one is done.
        self.exchange.group_risks, self.exchange.estimates = before.group_risks, before.estimates
        self.exchange.done, self.exchange.asked_to_stop = before.done, before.asked_to_stop
        self._weights_due = True


@dataclass
class LostRanks:
    """The dead client ranks of a run that goes on, and the rows that are left; on the server."""

    allocation: Allocation
    events: list[dict]
    """Entry of result.json and of checkpoints for each dead rank."""
    folder: RunFolder
    placement: Placement
    rounds: int
    secret: bool
    """Whether sums are secret."""
    _noted: set[int] = field(default_factory=set)

    def note(self, ranks: list[int], t: int) -> None:
        """Note that `ranks`, by their original numbers, died in round `t`.

        After the last round the clients of a dead rank stay counted: the model has their part.
        """
        for rank in sorted(set(ranks) - self._noted):
            self._noted.add(rank)
            self._note_one(rank, t)
        if not self.allocation.partition.total:
            raise UserError("no client is left. What was saved stands: go on with --resume.")
        try:
            # So that a rank that dies when the job ends is not taken for one that died before, and
            # a run that is resumed does not forget who died (Plan).
            ranks_now = self.folder.read_json(RANKS)["ranks"]
            left = [r for r in ranks_now if r["rank"] not in self._noted]
            self.folder.update_json(RANKS, {"ranks": left, "lost": self.events})
        except (UserError, KeyError):
            if self.secret:
                raise

    def warn_of_few(self, client_ranks: int) -> None:
        """Warn if masks among the client ranks that are left hide little."""
        if few := too_few(client_ranks):
            warn(few.rstrip("."))

    def _note_one(self, rank: int, t: int) -> None:
        before = self.allocation.partition
        place, clients = self.placement.places[rank], self.allocation.assignment[rank - 1].tolist()
        if t <= self.rounds:
            self.allocation.partition = before.without(clients)
        gone = (before.group_sizes > 0) & (self.allocation.partition.group_sizes == 0)
        names = np.array(before.groups)[gone].tolist()
        event = {"rank": rank, "host": place.host, "pid": place.pid, "clients": clients}
        self.events.append(event | {"groups": names, "last_round": t - 1})
        when = f"in round {t}" if t <= self.rounds else "after the last round"
        groups = f"; nobody has rows of {', '.join(names)} any more" if names else ""
        who = f"rank {rank} (PID {place.pid} on {place.host})"
        had = clients_of([event]) or "no clients"
        left = f"{self.allocation.partition.total:,} rows"
        warn(f"lost {who} with {had} {when}, going on with {left}{groups}")


FLAG = "--on-client-failure continue"


def refuse(config: Config, single_client: bool, ranks: Ranks) -> None:
    """Raise a UserError if this run, or this MPI, cannot go on after a death."""
    vendor = MPI.get_vendor()[0]
    if single_client:
        raise UserError(f"{FLAG}: --method {config.method} has one client, and ends with it.")
    if config.reduce in ("hierarchical", "measure"):
        raise UserError(
            f"{FLAG}: hierarchical sums are in memory that a rank would take with it; leave out "
            f"--reduce {config.reduce}, or use --reduce flat."
        )
    if vendor != "Open MPI":
        raise UserError(
            f"{FLAG} needs Open MPI 5 and its mpirun --with-ft ulfm, but this Python's MPI library "
            f"is {vendor}: use an environment with Open MPI (./launch/local.sh --mpi openmpi), or "
            "leave it out."
        )
    if ranks.size < 3:
        raise UserError(f"{FLAG}: on {ranks.size} rank(s) nobody could go on; use 3 or more.")
    if not launcher.survives_failures():
        raise UserError(
            f"{FLAG} needs mpirun --with-ft ulfm -n {ranks.size} ...; without it Open MPI ends the "
            "job when a rank dies."
        )


def refuse_method(method: Method) -> None:
    """Raise a UserError for a user's method whose weights we would not know how to scale."""
    says_how = type(method).lose is not base.Method.lose
    if not says_how and any(abs(np.sum(w) - 1) > 1e-6 for w in method.state().values()):
        raise UserError(
            f"{FLAG}: the state of --method {method.config.method} is not of weights that sum to "
            "one, so it has to say how it goes on without some clients (Method.lose)."
        )
