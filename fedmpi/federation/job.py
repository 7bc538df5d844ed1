"""One training run from start to end, on every rank of a job."""

from __future__ import annotations

import hashlib
import math
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from fedmpi import methods, models
from fedmpi.data.hosts import prepare_on_every_host
from fedmpi.errors import UserError
from fedmpi.federation.clients import Clients, Rows
from fedmpi.federation.evaluation import ExactScores, evaluate, evaluate_personal
from fedmpi.federation.exchange import Exchange
from fedmpi.federation.rounds import Training
from fedmpi.models.fixed_point import CHANGE_LIMIT, LOSS_LIMIT, FixedPoint, in_lines, units_of
from fedmpi.models.flat import FlatModel, Sums, sums_length
from fedmpi.models.losses import LOSSES
from fedmpi.mpi import signals
from fedmpi.mpi.allreduce import Flat, Hierarchical, hierarchical, room, seconds_of_a_sum
from fedmpi.mpi.board import Board
from fedmpi.mpi.placement import Placement, here
from fedmpi.mpi.ranks import AgreedError, Ranks
from fedmpi.privacy.versions import check_same_versions
from fedmpi.run.config import Config
from fedmpi.scoring.scores import PersonalScores, Scores

if TYPE_CHECKING:
    from fedmpi.data.owners import OwnedRows
    from fedmpi.data.store import Prepared
    from fedmpi.federation.batches import Batches
    from fedmpi.federation.cohorts import Cohorts
    from fedmpi.federation.failures import LostRanks
    from fedmpi.federation.plan import Plan
    from fedmpi.federation.private import Private
    from fedmpi.federation.server import Server
    from fedmpi.mpi.failures import Survivors
    from fedmpi.privacy.masks import Masks
    from fedmpi.run.display import Progress
    from fedmpi.scoring.bootstrap import Bootstrap

T = TypeVar("T")


@dataclass
class Totals:
    """Numbers of rows and units of all clients together, which every rank may know."""

    rows: int = 0
    """Number n of the training rows."""
    units: int = 1
    """Bound of the units of a round, and of the rows before any rank died, for exact sums."""
    first_rows: int = 1
    adding: int = 1
    """Number of client ranks that host clients: others add nothing to sums, and no noise."""
    test_rows: int = 0
    validation_rows: int = 0
    left_out: tuple[list[int], list[int], list[int]] = ([], [], [])
    """Groups whose rows to train, to test and to validate with are too few (--min-count)."""
    multiplier: float = 0.0
    """Noise multiplier, and probability of a row to be in a batch, of differential privacy."""
    sampling: float = 1.0
    histograms: bool = False
    """Whether evaluation sums histograms of the scores, too, for --metrics."""


class Job:
    """A training run on `ranks`. Call `run` once: the result on the server, None elsewhere."""

    prepared: Prepared | OwnedRows
    plan: Plan | None = None
    """Plan of the run; on the server alone, as are `server` and `lost_ranks`."""
    server: Server | None = None
    survivors: Survivors | None = None
    lost_ranks: LostRanks
    """Dead ranks so far, if the run goes on without them (--on-client-failure continue)."""
    reduction: Flat | Hierarchical | None = None
    board: Board | None = None
    masks: Masks | None = None
    """Masks of what this rank sends, with --secure."""
    attempt: int = 0
    """How often ranks have died, so that a message that is sent again has another mask."""
    totals: Totals
    cohorts: Cohorts | None = None
    """Who takes part in each round, if not all clients do."""
    private: Private | None = None
    """This rank's noise, with --dp-epsilon."""
    fixed: FixedPoint | None = None
    fixed_losses: FixedPoint | None = None
    """Integers of changes and of losses, in exact sums."""

    def __init__(self, ranks: Ranks, config: Config, progress: Progress | None = None) -> None:
        """Set up the run. With a caller's `progress`, the run reports to it and prints nothing."""
        self.ranks, self.config = ranks, config
        self.method = methods.find(config.method)(config)
        self.loss = LOSSES[config.loss]
        # Modules that not all ranks need are imported where needed: 41 ranks start at once.
        if ranks.is_server:
            from fedmpi.federation.plan import Plan

            self.plan = Plan(ranks, config, self.method, progress)
        if config.on_client_failure == "continue":
            from fedmpi.mpi.failures import Survivors

            self.survivors = Survivors(ranks)
        self.owners_apart = config.dataset.endswith("/")
        self.exact = config.sums == "exact"
        if self.exact:
            # A product of matrices on several threads may be added in another order.
            ranks.threads = 1
        self.began_with = ranks.size
        self._scored: dict[tuple[bool, bytes], Scores] = {}
        """Scores that the server has, of sums that are secret: on the rows to validate with, or on
        those to test with, by a hash of theta."""

    def run(self) -> dict | None:
        """Prepare, train, evaluate, save."""
        try:
            training = self.begin()
            training.run()
            result = self.finish(training)
            self._free()
            return result
        except AgreedError:
            self._free()
            raise
        finally:
            if self.server:
                self.server.logs.close()
            if self.plan:
                self.plan.folder.release()

    def _free(self) -> None:
        """Free the memory that MPI allocated, on all ranks: a grid has many runs in one launch."""
        if self.reduction:
            self.model.drop_sums()
            if self.board:
                self.board.free()
            self.reduction.free()
            self.reduction, self.board = None, None

    def begin(self) -> Training:
        """Do all that comes before the first round; every rank returns at the same time."""
        if self.exact:
            check_same_versions(self.ranks, secure=self.config.secure)
        self._prepare()
        self._share_rows()
        self._build()
        signals.wait_for_the_round()
        done = self._start()
        self.ranks.stall_timeout = self.config.stall_timeout
        self.ranks.meet()
        self._bytes_before = self.ranks.bytes_handed
        if self.server:
            self.server.start_clock()
        c = self.config
        mine = (self.ranks, self.method, self.model, self.exchange, self.clients, self.server)
        validation = self._validation() if c.validate is not None else None
        rounds = self._on_server(lambda plan: plan.budget.rounds(done) if plan.budget else c.rounds)
        all_of_it = (
            self.prepared.groups,
            self.total_rows,
            rounds,
            c.eval_every,
            validation,
            done,
        )
        if not self.survivors:
            return Training(*mine, *all_of_it, cohorts=self.cohorts)
        from fedmpi.federation.failures import SurvivingTraining

        return SurvivingTraining(
            *mine,
            *all_of_it,
            cohorts=self.cohorts,
            survivors=self.survivors,
            go_on_without=self.go_on_without,
        )

    def _on_server(self, work: Callable[[Plan], T]) -> T:
        """Call `work` with the server's plan, on the server; return its value on every rank."""

        def with_plan() -> T:
            assert self.plan
            return work(self.plan)

        return self.ranks.on_server(with_plan)

    def _prepare(self) -> None:
        """Prepare the data and allocate the rows. Most mistakes of the user are found here."""
        c = self.config
        self.ranks.on_server(lambda: check_device(c, self.ranks))
        self.device = pick_device("cpu" if self.exact else c.device, self.ranks)
        if self.owners_apart:
            from fedmpi.data.owners import fingerprint, read_owned_rows

            if not c.data:
                self._settle(data=fingerprint(self.ranks, c))
            self.prepared = read_owned_rows(self.ranks, c, c.validate)
        else:
            self.prepared = prepare_on_every_host(self.ranks, c)
        if self.prepared.clients and not self.method.single_client:
            self._count_owners(len(self.prepared.clients))
        told = self._agree_on_masks() if c.secure else []
        some, counted = self.method.has_cohorts() or c.partial, self.config.clients is None
        if some and not counted:
            self._set_up_cohorts()
        speeds = self._speeds() if c.balance == "speed" else None
        settled = self._on_server(lambda plan: plan.allocate(self.prepared, speeds))
        self._settle(**settled)
        if some and counted:  # the values of a column are the clients: --setting by:COLUMN
            self._set_up_cohorts()
        if self.plan:
            self.plan.notes += told

    def _settle(self, **changes: object) -> None:
        """Replace options that are known only now, in every copy of the configuration here."""
        self.config = self.method.config = self.config.replace(**changes)
        self.method.optimizer.config = self.config
        if self.plan:
            self.plan.config = self.config

    def _speeds(self) -> list[float] | None:
        """Rows per second of each client rank, from the resumed run if it had as many ranks."""
        if known := self._on_server(lambda plan: plan.speeds_before()):
            return known
        from fedmpi.federation.speed import rows_per_second

        shape, mine = self.prepared.array("train_x").shape[1:], 0.0
        if self.ranks.rank in self.ranks.client_ranks:
            mine = rows_per_second(self.config, shape, len(self.prepared.classes), self.device)
        measured = self.ranks.gather(mine)
        return measured and [measured[rank] for rank in self.ranks.client_ranks]

    def _count_owners(self, owners: int) -> None:
        """Set the number of clients to that of the data; AgreedError if the user gave another."""
        if self.config.clients not in (None, owners):
            raise AgreedError(
                f"--clients {self.config.clients}, but the rows have {owners} owners: leave "
                "--clients out."
            )
        self._settle(clients=owners)

    def _set_up_cohorts(self) -> None:
        """Set up who takes part in each round; an AgreedError if the options do not fit the data.

        Until here nobody knew how many owners there are, and their names.
        """
        from fedmpi.federation.cohorts import Cohorts
        from fedmpi.run.participation import among_clients, numbered, probabilities

        try:
            options = among_clients(self.config.options, self.config.clients)
            if options != self.config.options:
                self._settle(options=options)
            c, names = self.config, self.prepared.clients or numbered(self.config.clients)
            available = probabilities(c.available, names) if c.available else None
        except UserError as error:  # the same on all ranks
            raise AgreedError(str(error)) from None
        if self.method.has_cohorts() or c.partial:
            self.cohorts = Cohorts(self.method, c, available)

    def _share_sizes(self) -> None:
        """Tell every rank the rows of each client, by which cohorts are drawn and weighed."""
        if not self.cohorts:
            return
        sizes = np.zeros_like(self.cohorts.sizes)
        if self.plan:
            sizes[:] = self.plan.allocation.partition.client_sizes
        self.ranks.wait(self.ranks.Ibcast(sizes))
        self.cohorts.sizes = sizes

    def _share_rows(self) -> None:
        """Send each rank its own clients and rows, and of the others' rows the total alone."""
        parts: list[tuple] = []
        totals, groups = Totals(), len(self.prepared.groups)
        if self.plan:
            allocation = self.plan.allocation
            totals = self._totals(self.plan)
            clients = zip(allocation.assignment, allocation.rows, allocation.runs, strict=True)
            for mine, rows, runs in clients:
                parts.append((mine, allocation.partition.counts[:, mine], *rows, runs))
            if self.ranks.size > 1:
                nobody = np.empty(0, dtype=np.int64)
                none = np.empty((groups, 0), dtype=np.int64)
                parts.insert(0, (nobody, none, nobody, nobody, nobody, ([], [])))
        self.totals = self.ranks.bcast(totals)
        self.total_rows = self.totals.rows
        mine = self.ranks.comm.scatter(parts or None)
        self.my_clients, self.my_counts, self.my_rows, *others = mine
        self.my_test_rows, self.my_validation_rows, runs = others
        self.my_test_runs, self.my_validation_runs = runs
        if self.owners_apart:  # of all others the server has left them out
            self._leave_out_small_groups()
        self._share_sizes()

    def _leave_out_small_groups(self) -> None:
        """Leave out this rank's own rows of groups that have too few rows in the federation."""
        from fedmpi.data.owners import SPLITS

        names = ("my_rows", "my_test_rows", "my_validation_rows")
        for name, split, groups in zip(names, SPLITS, self.totals.left_out, strict=True):
            rows = getattr(self, name)
            if groups:
                of_rows = self.prepared.take(f"{split}_group", rows)
                setattr(self, name, rows[~np.isin(of_rows, groups)])

    def _totals(self, plan: Plan) -> Totals:
        """Count what all ranks may know of all rows; on the server."""
        allocation, units = plan.allocation, units_of(plan.whole.client_sizes)
        test, validation = (sum(sum(runs[i]) for runs in allocation.runs) for i in (0, 1))
        total, first = allocation.partition.total, plan.whole.total
        totals = Totals(total, units, first, plan.adding(), test, validation)
        totals.left_out = plan.left_out
        totals.histograms = any(metric.histograms for metric in plan.metrics)
        if plan.budget:
            totals.multiplier, totals.sampling = plan.budget.multiplier, plan.budget.sampling
        return totals

    def _share_batches(self) -> None:
        """Set up the batches of the federation of all rows that are left; call on every rank."""
        groups = len(self.prepared.groups)
        mine = (groups, len(self.my_clients)) if self.owners_apart else len(self.my_rows)
        sizes, places = np.empty(groups, dtype=np.int64), np.empty(mine, dtype=np.int64)
        whole, lengths = None, None
        if self.plan:
            sizes[:] = self.plan.allocation.partition.group_sizes
            parts = [part.reshape(-1) for part in self.plan.places()]
            whole, lengths = np.concatenate(parts), [len(part) for part in parts]
            if self.ranks.size > 1:
                lengths.insert(0, 0)  # the server has no rows
        self.ranks.wait(self.ranks.Ibcast(sizes))
        self.ranks.wait(self.ranks.Iscatterv(whole, lengths, places))
        if self.clients:
            self.clients.take_batches(self._batches(self.clients, sizes, places))

    def _batches(self, clients: Clients, sizes: np.ndarray, places: np.ndarray) -> Batches:
        """The batches of the federation, as far as this rank's rows go, from what was shared."""
        from fedmpi.federation.batches import Batches, places_in_groups

        c, group = self.config, (clients.cell % len(sizes)).cpu().numpy()
        if self.owners_apart:
            rows = np.split(group, clients.ends[:-1])
            parts = [places_in_groups(g, f) for g, f in zip(rows, places.T, strict=True)]
            places = np.concatenate(parts)
        return Batches(c.seed, c.options["batch_rows"], sizes, group, places)

    def _agree_on_masks(self) -> list[str]:
        """Agree with the other client ranks on masks, by key files or by keys of this run alone.

        Return notes for the user. A wrong key is found before the folder of the run is touched.
        """
        from fedmpi.privacy.graph import too_few
        from fedmpi.privacy.keyfiles import KeyFolder
        from fedmpi.privacy.masks import Masks, on_every_rank

        ranks, path = self.ranks, self.config.keys
        me = ranks.numbers[ranks.rank]
        name = self._owner() or f"rank-{me}"

        def look() -> KeyFolder | None:
            return KeyFolder(path) if path and not ranks.is_server else None

        keys = on_every_rank(ranks, f"rank {me} ({name})", look)
        self.masks = Masks.agree(ranks, name, keys, self.config.data or "")
        by = f"keys in {path}" if path else "keys of this run alone, which trusts the launcher"
        few = too_few(len(ranks.client_ranks))
        return [f"sums are masked by {by}: {self.masks.fingerprint}", *([few] if few else [])]

    def _owner(self) -> str | None:
        """Name of the owner that this rank hosts, if it is exactly one of csv:DIR/."""
        if not self.owners_apart or self.ranks.is_server:
            return None
        hosted = self.prepared.hosted[self.ranks.rank - 1]  # type: ignore[union-attr]
        return self.prepared.clients[int(hosted[0])] if len(hosted) == 1 else None

    def _mask(self, message: str, t: int) -> Callable[[np.ndarray], None] | None:
        """Function that masks the sums of a `message` after round `t`; None if none is secret."""
        if not self.masks:
            return None
        from fedmpi.privacy.masks import Message

        masks, attempt = self.masks, self.attempt
        return lambda sums: masks.add(sums, t, attempt, Message[message])

    def _build(self) -> None:
        """Build the model, this rank's clients, its end of the exchange, and the server."""
        c = self.config
        torch.set_num_threads(self.ranks.threads)
        self.dtype = getattr(torch, c.dtype)
        row_shape = self.prepared.array("train_x").shape[1:]
        module = models.build(c.model, row_shape, len(self.prepared.classes), c.seed)
        # The last scalar is the exchange's own: a flag tells all ranks that the run has diverged.
        scalars, scale = self.method.scalars + 1, self.prepared.scale
        size = sum(p.numel() for p in module.parameters())
        vectors = self.method.vectors_of(size, len(self.prepared.groups))
        shared = self._shared_sums(sums_length(size, vectors, scalars))
        buffer = shared.buffer if shared else None
        sums: Sums | None = "device" if c.cuda_aware else None
        self._fix_points()
        what = (module, self.dtype, self.device, scalars, scale, buffer, sums, vectors)
        autocast = getattr(torch, c.autocast) if c.autocast else None
        self.model = FlatModel(*what, self.fixed, secret=c.secure, autocast=autocast)
        self.reduction = shared or Flat(self.ranks, self.model.buffer)
        self.clients = None
        if len(self.my_clients):
            rows = self._load("train", self.my_rows)
            numbers, counts = self.my_clients, self.my_counts
            assert c.micro_batch
            self.clients = Clients(
                numbers, counts, rows, self.model, self.loss, c.micro_batch, c.seed
            )
            one_step = not c.local_epochs and not c.options.get("batch_rows")
            if one_step and not self.cohorts and not self.exact:
                self.clients.merge_equal_rows()
            self.clients.private = self.private
        if c.options.get("batch_rows") and not self.private:
            self._share_batches()
        self.method.shared = self.method.shared_state(self.model)
        self.method.optimizer.shared = self.method.optimizer.state(self.model)
        self.method.of_clients = {
            name: first.expand(len(self.my_clients), *first.shape).clone()
            for name, first in self.method.client_state(self.model).items()
        }
        if shared and shared.hosts == 1:
            of_lines = "uint64" if self.exact else "float64"
            self.board = Board(shared, len(self.prepared.groups), of_lines)
            if self.method.reports not in ("clients", "cells"):
                self.board.sleep_until_woken(shared)
        self.exchange = self._exchange()
        if self.plan:
            from fedmpi.federation.server import Server

            self.server = Server(self.plan, self.model, self.exchange)

    def _fix_points(self) -> None:
        """Set how many bits exact sums have behind the point, and this rank's noise, if any."""
        if not self.exact:
            return
        units, rows, bits = self.totals.units, self.totals.first_rows, (62, 62)
        if self.cohorts:  # a row counts for several
            rows = math.ceil(rows * self.cohorts.most())
        if self.config.dp_epsilon is not None:
            from fedmpi.federation.private import CHANGE_BITS, LOSS_BITS, Private

            multiplier, sampling = self.totals.multiplier, self.totals.sampling
            self.private = Private(self.config, self.totals.adding, multiplier, sampling)
            bits = CHANGE_BITS, LOSS_BITS
        self.fixed = FixedPoint(CHANGE_LIMIT, units, bits[0])
        self.fixed_losses = FixedPoint(LOSS_LIMIT, rows, bits[1])

    def _shared_sums(self, length: int) -> Hierarchical | None:
        """Sums in memory that the ranks of a host share; None where the sums are flat."""
        dtype = "uint64" if self.exact else self.config.dtype
        rooms = self.ranks.gather(room(self.ranks, length, dtype, str(self.device)))
        wanted = "flat" if self.survivors else self.config.reduce
        kind = self._on_server(lambda plan: plan.choose_reduction(wanted, rooms or []))
        if kind == "flat":
            return None
        shared = hierarchical(self.ranks, length, dtype)
        if self.plan and not shared:
            self.plan.notes.append("sums are flat: MPI gave no window of shared memory")
        if shared and kind == "measure" and not self._is_faster(shared):
            shared.free()
            return None
        return shared

    def _is_faster(self, shared: Hierarchical) -> bool:
        """Measure whether hierarchical sums are faster than flat; keep the times in the plan."""
        seconds = seconds_of_a_sum(self.ranks, shared)
        if self.plan:
            self.plan.sums = seconds
        return seconds["hierarchical"] <= seconds["flat"]

    def _exchange(self) -> Exchange:
        assert self.reduction
        of_server: dict[str, Any] = {}
        if self.plan:
            first = self.ranks.client_ranks[0]
            assignment = self.plan.allocation.assignment
            hosted = [assignment[n - first] for n in self.ranks.numbers[first:]]
            counts = self.plan.allocation.partition.counts
            of_server = {"counts": counts, "assignment": hosted}
        return Exchange(
            self.ranks,
            self.model,
            self.reduction,
            self.method.reports,
            len(self.prepared.groups),
            len(self.my_clients),
            board=self.board,
            exact_losses=self.fixed_losses,
            masks=self.masks,
            attempt=self.attempt,
            private=self.private,
            **of_server,
        )

    def _load(self, split: str, rows: np.ndarray) -> Rows:
        """Copy this rank's own rows out of the mapped files; bytes stay bytes."""

        def copy(part: str) -> torch.Tensor:
            return torch.from_numpy(self.prepared.take(f"{split}_{part}", rows))

        x = copy("x")
        x = x.to(self.device, x.dtype if self.prepared.scale else self.dtype)
        return Rows(
            in_lines(x) if self.exact else x,
            copy("y").to(self.device, torch.int64),
            copy("group").to(self.device, torch.int64),
        )

    def _start(self) -> int:
        """Begin afresh, or at the checkpoint; return the number of rounds that are done."""

        def start(plan: Plan) -> int:
            from fedmpi.federation.announce import announce

            assert self.reduction and self.server
            self.method.start(plan.allocation.partition.counts)
            placement = Placement(places or [])
            if self.survivors:
                from fedmpi.federation.failures import LostRanks, refuse_method

                refuse_method(self.method)
                self.lost_ranks = LostRanks(
                    plan.allocation,
                    plan.lost,
                    plan.folder,
                    placement,
                    self.config.rounds,
                    self.config.secure,
                )
            done = self.server.resume() if self.config.resume else 0
            if self.cohorts:
                plan.notes.append(self.cohorts.note())
            announce(plan, self.server, placement, str(self.device), self.reduction.kind, done)
            return done

        places = self.ranks.gather(here(self.ranks.host, self.device))
        done = self._on_server(start)
        for vector in (self.model.theta, *self.method.kept_everywhere().values()):
            self._bcast(vector)
        if done:
            self._give_client_state()
        return done

    def _bcast(self, vector: torch.Tensor) -> None:
        """Copy the server's `vector` to every rank's."""
        values = vector.detach().cpu().numpy()
        if self.survivors:
            values = values.copy()  # a message that a death cut off may still be written
        self.ranks.wait(self.ranks.Ibcast(values))
        vector.copy_(torch.from_numpy(values))

    def _give_client_state(self) -> None:
        """Scatter the clients' state in the checkpoint to the ranks that host the clients now."""
        for name, state in self.method.of_clients.items():
            part = np.empty(state.shape, dtype=state.detach().cpu().numpy().dtype)
            table = self.server.client_tables[name] if self.server else None
            self.exchange.scatter_clients(table, part)
            state.copy_(torch.from_numpy(part))

    def finish(self, training: Training) -> dict | None:
        """Evaluate the last and the mean theta on the test rows; write the result."""
        seconds = self.server.seconds if self.server else 0.0
        handed = self.ranks.bytes_handed - self._bytes_before
        bytes_per_round = handed / max(1, training.rounds - training.done)
        last_theta = self.model.theta.clone() if self.server or self.survivors else None
        scored = self._together(lambda: self._score_both(bytes_per_round), last_theta)
        last, mean, personal, bootstrap, by_rank = scored

        def save(plan: Plan) -> None:
            assert self.server and by_rank and last_theta is not None
            self.server.personal = personal
            costs = {
                "seconds": seconds,
                "seconds_per_round": seconds / self.server.rounds_done,
                "bytes_per_round": max(b for b, _ in by_rank),
                "peak_rss_mb": max(r for _, r in by_rank),
            }
            self.server.save(last, mean, last_theta, costs, bootstrap)

        self._together(lambda: self._on_server(save))
        return self.server.result if self.server else None

    def _score_both(
        self, bytes_per_round: float
    ) -> tuple[Scores, Scores, PersonalScores | None, Bootstrap | None, list | None]:
        """Scores of the last and of the mean theta on the test rows, and each rank's costs.

        Between them, those of the clients' own models, and the replicates of the test rows: both
        beside the theta that is reported.
        """
        personal = None
        rows = self._test_rows()
        totals, t = (self.totals.test_rows, self.my_test_runs), self.config.rounds
        bootstrap = self._bootstrap() if self.config.bootstrap else None
        of_last, of_mean = (bootstrap, None) if self.reports_last else (None, bootstrap)
        last = self._score(rows, *totals, "SCORES_LAST", t, of_last)
        if self.method.personal and self.reports_last:
            personal = self._score_personal()
        if self.server:
            self.model.theta.copy_(self.server.reported_theta)
        self._bcast(self.model.theta)
        mean = self._score(rows, *totals, "SCORES_MEAN", t, of_mean)
        if self.method.personal and not self.reports_last:
            personal = self._score_personal()
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return last, mean, personal, bootstrap, self.ranks.gather((bytes_per_round, rss))

    @property
    def reports_last(self) -> bool:
        """Whether the last theta is the reported one, not the mean or the best on other rows."""
        return self.method.average == "last" and self.config.validate is None

    def _bootstrap(self) -> Bootstrap:
        """Replicates of this rank's share of the test rows, whose sums are still zero."""
        from fedmpi.scoring.bootstrap import Bootstrap, owners_keys, row_keys

        if self.owners_apart:
            owners = [self.prepared.clients[k] for k in self.my_clients]
            keys = owners_keys(owners, self.my_test_runs)
        else:
            keys = row_keys(self.my_test_rows)
        groups, count = len(self.prepared.groups), self.config.bootstrap
        assert count
        return Bootstrap(count, groups, keys, self.totals.test_rows)

    def _score_personal(self) -> PersonalScores:
        """Scores of the clients' own models, and of theta on the same rows.

        A client has test rows of its own only if its owner keeps them apart; otherwise these are
        its training rows.
        """
        rows: Rows | None = None
        sizes: list[int] = []
        if self.owners_apart:
            rows, sizes = self._test_rows(), self.my_test_runs
        elif self.clients:
            group = self.clients.cell % len(self.prepared.groups)
            rows = Rows(self.clients.x, self.clients.y, group)
            sizes = self.clients.sizes.tolist()
        assert self.config.micro_batch
        what = (self.ranks, self.model, self.loss, rows, *self._shape(), self.config.micro_batch)
        own = evaluate_personal(*what, sizes, self.method.of_clients[self.method.personal])
        return PersonalScores("test" if self.owners_apart else "train", own, evaluate(*what))

    def _together(self, work: Callable[[], T], theta: torch.Tensor | None = None) -> T:
        """Do `work` after the rounds; repeat it, from `theta`, if a rank dies meanwhile."""
        if not self.survivors:
            return work()

        def again(ranks: list[int]) -> None:
            self._mask_among_the_rest()
            if theta is not None:
                self.model.theta.copy_(theta)
            if self.plan:
                self.lost_ranks.note(ranks, self.config.rounds + 1)
            self._refuse_few_rows((1,))  # of those to test with alone are there more sums

        return self.survivors.together(work, again)

    def go_on_without(self, ranks: list[int], t: int) -> tuple[Exchange, int]:
        """Take the clients of these ranks out of the run, from round `t` on; call on every rank.

        Return this rank's new end of the exchange, and the number of rows that are left.
        """
        left = np.array([self.total_rows, 0])
        self._mask_among_the_rest()
        if self.plan:
            self.lost_ranks.note(ranks, t)
            if t <= self.config.rounds:
                self.method.lose(self.plan.allocation.partition.counts)
            left[:] = self.plan.allocation.partition.total, self.plan.adding()
        self._refuse_few_rows((0, 1, 2))
        self.ranks.wait(self.ranks.Ibcast(left))
        self.total_rows = int(left[0])
        self._share_sizes()
        if self.private:
            self.private.shares = int(left[1])
        batches = self.config.options.get("batch_rows") and not self.private
        if batches and t <= self.config.rounds:
            self._share_batches()
        self.reduction = Flat(self.ranks, self.model.buffer)  # the buffer is a new one by now
        self.board = None
        self.exchange = self._exchange()
        if self.server:
            self.server.exchange = self.exchange
            self.server.begin_again()
        return self.exchange, self.total_rows

    def _mask_among_the_rest(self) -> None:
        """Mask with the ranks that are left, and with other masks than in the attempt before."""
        self.attempt += 1
        self.exchange.attempt = self.attempt
        if self.masks:
            self.masks = self.exchange.masks = self.masks.among(self.ranks)
            if self.plan:
                self.lost_ranks.warn_of_few(len(self.ranks.client_ranks))

    def _refuse_few_rows(self, splits: tuple[int, ...]) -> None:
        """End the run if a group has fewer rows left than --min-count; call on every rank."""
        if self.config.min_count is not None:
            self._on_server(lambda plan: plan.refuse_few_rows(splits))

    def _test_rows(self) -> Rows | None:
        """Load this rank's share of the test rows; with --fold, these are training rows."""
        if self.ranks.size < self.began_with and not self.owners_apart:
            self._share_test_rows_again()
        if self.ranks.rank not in self.ranks.client_ranks:
            return None
        return self._load("train" if self.config.fold else "test", self.my_test_rows)

    def _validation(self) -> Callable[[int], Scores]:
        """Function that scores theta on the validation rows, of which each rank has a part."""
        rows = None
        if self.ranks.rank in self.ranks.client_ranks:
            split = "validate" if self.owners_apart else "train"
            rows = self._load(split, self.my_validation_rows)
        totals = self.totals.validation_rows, self.my_validation_runs
        return lambda t: self._score(rows, *totals, "VALIDATION", t)

    def _share_test_rows_again(self) -> None:
        """Spread the test rows over the surviving client ranks."""
        parts = [(self.my_test_rows[:0], []), *self.plan.spread_test_rows()] if self.plan else None
        self.my_test_rows, self.my_test_runs = self.ranks.comm.scatter(parts)

    def _score(
        self,
        rows: Rows | None,
        total: int,
        runs: list[int],
        message: str,
        t: int,
        bootstrap: Bootstrap | None = None,
    ) -> Scores:
        """Score theta after round `t` on the rows that all ranks have a part of.

        If the sums are secret and ranks may die, the server keeps what it got, and asks for it no
        second time at the same theta: the difference of two sums would be what the dead ranks had.
        """
        keep = self.masks is not None and self.survivors is not None
        bits = hashlib.sha256(self.model.theta.numpy().data).digest() if keep else b""
        key = message == "VALIDATION", bits
        if keep and self.exchange.tell(float(key in self._scored)):
            return self._scored.get(key, Scores(*self._shape(), self.totals.histograms))
        micro_batch = self.config.micro_batch
        assert micro_batch
        what = (self.model, self.loss, rows, *self._shape(), micro_batch)
        exact = ExactScores(total, runs, self._mask(message, t)) if self.exact else None
        scores = evaluate(self.ranks, *what, exact, bootstrap, self.totals.histograms)
        if keep and self.plan:
            self._scored[key] = scores
        return scores

    def _shape(self) -> tuple[int, int]:
        """Numbers of groups and of classes."""
        return len(self.prepared.groups), len(self.prepared.classes)


def check_device(config: Config, ranks: Ranks) -> None:
    """Raise a UserError if the device that is asked for is missing."""
    device = pick_device(config.device, ranks)
    if config.cuda_aware and device.type == "cpu":
        raise UserError(
            f"--cuda-aware, but {ranks.host} has no GPU that torch can use: leave it out."
        )


def pick_device(wanted: str, ranks: Ranks) -> torch.device:
    """The GPU of this rank's place on the node, or the CPU."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cuda" and not gpus:
        raise UserError(
            f"--device cuda, but {ranks.host} has no GPU that torch can use: use --device cpu."
        )
    if wanted == "cpu" or not gpus:
        return torch.device("cpu")
    return torch.device("cuda", ranks.local_rank % gpus)
