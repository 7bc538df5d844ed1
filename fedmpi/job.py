"""One run from its configuration to its files, on the ranks of a communicator."""

from __future__ import annotations

import dataclasses
import os
import platform
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import mpi4py
import numpy as np
import torch
from mpi4py import MPI

import fedmpi
from fedmpi import checkpoint, datasets, lost, methods, models, signals
from fedmpi.checkpoint import NEWEST, PREVIOUS
from fedmpi.clients import Clients, Rows
from fedmpi.command import command_line
from fedmpi.config import Config
from fedmpi.datasets.csvfile import CsvFolder
from fedmpi.datasets.options import options_from
from fedmpi.datasets.prepared import Prepared
from fedmpi.dealing import Deal, deal, leave
from fedmpi.display import Progress, at_terminal, facts, say
from fedmpi.errors import UserError, said_by
from fedmpi.evaluation import Scores, evaluate
from fedmpi.exchange import Exchange
from fedmpi.fairness import fairness_of
from fedmpi.flat import FlatModel
from fedmpi.holdings import Holdings, fingerprint, hold
from fedmpi.hosts import prepare_on_every_host
from fedmpi.layout import spread_rows
from fedmpi.losses import LOSSES
from fedmpi.lost import RANKS
from fedmpi.partition import Partition
from fedmpi.pieces import rows_of_a_pass
from fedmpi.placement import Placement, here
from fedmpi.ranks import AgreedError, Ranks
from fedmpi.reduction import Flat, Hierarchical, choose, hierarchical, room
from fedmpi.results import result_of
from fedmpi.runfolder import RunFolder
from fedmpi.server import WEIGHTS, Server
from fedmpi.survivors import Losses, SurvivingTraining, Survivors, refuse_method
from fedmpi.training import Training

T = TypeVar("T")


class Job:
    """A training run on `ranks`. `run` it once; the server gets the result, the others None."""

    prepared: Prepared | Holdings
    deal: Deal
    whole: Partition
    """On the server: who holds what when nobody is lost."""
    lost: list[dict]
    """On the server: the client ranks that the run goes on without."""
    notes: list[str]
    """On the server only: who holds what, and what the user should know."""

    def __init__(self, ranks: Ranks, config: Config, progress: Progress | None = None) -> None:
        """With a `progress` of the caller's, the run reports to that, and prints nothing itself."""
        self.ranks, self.config, self.progress = ranks, config, progress
        self.dataset = datasets.find(config.dataset)
        self.method = methods.find(config.method)(config)
        self.loss = LOSSES[config.loss]
        self.folder = RunFolder(config.output)
        self.survivors = Survivors(ranks) if config.on_client_failure == "continue" else None
        self.began_with = ranks.size
        self.reduction: Flat | Hierarchical | None = None

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
            self.folder.release()

    def _free(self) -> None:
        """Give back what MPI has lent, all ranks together: a grid has many runs in one launch."""
        if self.reduction:
            self.model.drop_sums()
            self.reduction.free()
            self.reduction = None

    def begin(self) -> Training:
        """All that comes before the first round; every rank leaves it at the same time."""
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
            self.server.progress = self.progress or self.server.progress
        c = self.config
        mine = (self.ranks, self.method, self.model, self.exchange, self.clients, self.server)
        if not self.survivors:
            return Training(*mine, c.rounds, c.eval_every, done)
        return SurvivingTraining(
            *mine,
            c.rounds,
            c.eval_every,
            done,
            survivors=self.survivors,
            go_on_without=self.go_on_without,
        )

    def _prepare(self) -> None:
        """Get the data ready and decide who holds what. Users' errors end here."""
        c, options = self.config, options_from(self.config)
        self.ranks.on_server(lambda: pick_device(c.device, self.ranks))
        if isinstance(self.dataset, CsvFolder):
            c.data = c.data or fingerprint(self.ranks, self.dataset, options)
            self.prepared = hold(self.ranks, self.dataset, options)
        else:
            bar = c.progress == "bar" or (c.progress == "auto" and at_terminal())
            self.prepared = prepare_on_every_host(
                self.ranks, self.dataset, Path(c.data_dir), options, bar
            )
        if self.prepared.clients and not self.method.single_client:
            self._count_owners(len(self.prepared.clients))
        c.micro_batch = self.ranks.on_server(self._plan)

    def _count_owners(self, owners: int) -> None:
        """The data say how many clients there are; the user may only agree."""
        if self.config.clients not in (None, owners):
            raise AgreedError(
                f"--clients {self.config.clients}, but the rows have {owners} owners: leave "
                "--clients out."
            )
        self.config.clients = owners

    def _plan(self) -> int:
        """On the server: check what can be checked before, and give every client rank its rows.

        What is returned are the rows of a pass: those of the run that is resumed, unless the user
        says otherwise, for another cache must not change its bits.
        """
        c, prepared, groups = self.config, self.prepared, self.prepared.groups
        if c.epsilon and c.epsilon * len(groups) > 1:
            raise UserError(
                f"--epsilon {c.epsilon}: {len(groups)} groups cannot all weigh that much; "
                f"use at most {1 / len(groups):.4g}."
            )
        shape = prepared.array("train_x").shape[1:]
        module = models.build(c.model, shape, len(prepared.classes), c.seed)
        models.check(c.model, module, shape, len(prepared.classes))
        self.lost = checkpoint.lost_in(self.folder.path) if c.resume else []
        lost = [k for rank in self.lost for k in rank["clients"]]
        if isinstance(prepared, Holdings):
            self.deal = leave(prepared, lost)
        else:
            alone, client_ranks = self.method.single_client, len(self.ranks.client_ranks)
            self.deal = deal(prepared, self.dataset, c, alone, client_ranks, lost)
        self.whole = self.deal.partition
        self.deal.partition = self.whole.without([k for k in lost if 0 <= k < self.whole.clients])
        if not self.deal.partition.total:
            raise UserError(f"the run in {self.folder.path} had lost all its clients: --force it.")
        self.notes = [*prepared.notes, *self.deal.notes]
        self.folder.claim(c, c.science())  # last: a mistake above must not cost a run that is there
        before = self.folder.read_json("config.json").get("micro_batch") if c.resume else None
        if not c.micro_batch and isinstance(before, int) and before > 0:
            return before
        return c.micro_batch or rows_of_a_pass(c.model, module, getattr(torch, c.dtype).itemsize)

    def _share_rows(self) -> None:
        """Tell each rank its own clients and rows; of the others it learns the total alone."""
        parts: list[tuple] = []
        total, groups = 0, len(self.prepared.groups)
        if self.ranks.is_server:
            partition = self.deal.partition
            total = partition.total
            for mine, rows in zip(self.deal.assignment, self.deal.rows, strict=True):
                parts.append((mine, partition.counts[:, mine].T, *rows))
            if self.ranks.size > 1:
                nobody = np.empty(0, dtype=np.int64)
                parts.insert(0, (nobody, np.empty((0, groups), dtype=np.int64), nobody, nobody))
        self.total_rows: int = self.ranks.bcast(total)
        mine = self.ranks.comm.scatter(parts or None)
        self.my_clients, self.my_counts, self.my_rows, self.my_test_rows = mine

    def _build(self) -> None:
        """The model, this rank's clients, its end of the exchange, and the server."""
        c = self.config
        torch.set_num_threads(self.ranks.threads)
        self.device, self.dtype = pick_device(c.device, self.ranks), getattr(torch, c.dtype)
        row_shape = self.prepared.array("train_x").shape[1:]
        module = models.build(c.model, row_shape, len(self.prepared.classes), c.seed)
        # The last scalar is the exchange's own: it tells all ranks of a run that has diverged.
        scalars, scale = self.method.scalars + 1, self.prepared.scale
        length = sum(p.numel() for p in module.parameters()) + scalars
        kind = self._choose_reduction(length)
        shared = hierarchical(self.ranks, length, c.dtype) if kind == "hierarchical" else None
        if self.ranks.is_server and kind == "hierarchical" and not shared:
            self.notes.append("sums are flat: MPI gave no window of shared memory")
        buffer = shared.buffer if shared else None
        self.model = FlatModel(module, self.dtype, self.device, scalars, scale, buffer)
        self.reduction = shared or Flat(self.ranks, self.model.buffer)
        self.clients = None
        if len(self.my_clients):
            rows = self._load("train", self.my_rows)
            numbers, counts = self.my_clients, self.my_counts
            assert c.micro_batch
            self.clients = Clients(
                numbers, counts, rows, self.model, self.loss, c.micro_batch, c.seed
            )
        self.exchange = self._exchange()
        self.server = None
        if self.ranks.is_server:
            self.server = Server(
                c, self.method, self.model, self.exchange, self.folder, self.whole, self.lost
            )

    def _exchange(self) -> Exchange:
        assert self.reduction
        of_server: tuple = ()
        if self.ranks.is_server:
            first = self.ranks.client_ranks[0]
            hosted = [self.deal.assignment[n - first] for n in self.ranks.numbers[first:]]
            of_server = self.deal.partition.counts, hosted
        return Exchange(
            self.ranks,
            self.method,
            self.model,
            self.reduction,
            self.prepared.groups,
            len(self.my_clients),
            self.total_rows,
            *of_server,
        )

    def _choose_reduction(self, length: int) -> str:
        """How the changes of theta are summed; as before, where a run goes on with its ranks."""
        rooms = self.ranks.gather(room(self.ranks, length, self.config.dtype, str(self.device)))

        def decide() -> str:
            wanted = "flat" if self.survivors else self.config.reduce
            if self.config.resume and wanted == "auto":
                before = self.folder.read_json("config.json").get("layout", {})
                same = before.get("ranks") == self.ranks.size
                wanted = before.get("reduce", wanted) if same else wanted
            kind, note = choose(wanted, rooms or [])
            self.notes += [note] if note else []
            return kind

        return self.ranks.on_server(decide)

    def _load(self, split: str, rows: np.ndarray) -> Rows:
        """This rank's own rows, copied out of the mapped files; bytes stay bytes."""

        def copy(part: str) -> torch.Tensor:
            return torch.from_numpy(self.prepared.take(f"{split}_{part}", rows))

        x = copy("x")
        return Rows(
            x.to(self.device, x.dtype if self.prepared.scale else self.dtype),
            copy("y").to(self.device, torch.int64),
            copy("group").to(self.device, torch.int64),
        )

    def _start(self) -> int:
        """Begin afresh, or at the checkpoint; the number of rounds that are done."""

        def start() -> int:
            assert self.server
            self.method.start(self.deal.partition.counts)
            if self.survivors:
                refuse_method(self.method)
            done = self._resume(self.server) if self.config.resume else 0
            placement = Placement(places or [])
            self.losses = Losses(self.deal, self.lost, self.folder, placement, self.config.rounds)
            self._announce(placement, done)
            return done

        places = self.ranks.gather(here(self.ranks.host, self.device))
        done = self.ranks.on_server(start)
        self._bcast_theta()
        return done

    def _resume(self, server: Server) -> int:
        """On the server: go back to the checkpoint; UserError if it is none of ours."""
        shapes = {name: np.shape(value) for name, value in self.method.state().items()}
        try:
            done = server.load_checkpoint()
            found = {name: np.shape(value) for name, value in self.method.state().items()}
            if found != shapes or not (isinstance(done, int) and 0 < done <= self.config.rounds):
                raise ValueError(f"round {done}, weights of {found}")
            return done
        except (UserError, OSError):
            raise
        except Exception as error:  # whatever other contents than ours lead to
            raise UserError(
                f"the checkpoint in {self.folder.path} is not what this run wrote "
                f"({said_by(error)}): --force instead of --resume starts over."
            ) from error

    def _bcast_theta(self) -> None:
        """The server's theta, on every rank."""
        theta = self.model.theta.detach().cpu().numpy()
        if self.survivors:
            theta = theta.copy()  # a message that a death cut off may still be written
        self.ranks.wait(self.ranks.Ibcast(theta))
        self.model.theta.copy_(torch.from_numpy(theta))

    def _announce(self, placement: Placement, done: int) -> None:
        """Save and print what is about to run."""
        assert self.server and self.reduction
        hosted: list[list[int]] = [[]] if self.ranks.size > 1 else []
        hosted += [mine.tolist() for mine in self.deal.assignment]
        processes = [(place.host, place.pid) for place in placement.places]
        self.folder.write_json(RANKS, lost.where(processes, hosted, command_line(self.ranks.size)))
        settings = dataclasses.asdict(self.config)
        waiting = "polite" if self.ranks.polite else "spinning"
        layout = {
            "ranks": self.ranks.size,
            **placement.saved(),
            "clients_per_rank": [len(mine) for mine in self.deal.assignment],
            "device": str(self.device),
            "threads": self.ranks.threads,
            "waiting": waiting,
            "reduce": self.reduction.kind,
        }
        extra = {
            "parameters": self.model.size,
            "prepared": str(self.prepared.folder),
            "notes": self.notes,
            "scale": self.prepared.scale,
            "layout": layout,
            "measured": self.server.measured,
            "versions": versions(),
            "command": sys.argv,
            "science": self.config.science(),
        }
        self.folder.write_json("config.json", settings | extra)
        partition = self.whole
        shares, counts = partition.shares, partition.counts
        names = {"groups": partition.groups, "clients": partition.names}
        arrays = {kind: np.array(some, dtype=str) for kind, some in names.items()}
        self.folder.write_npz("partition.npz", P_A=shares, counts=counts, **arrays)
        if self.progress:
            return
        say(f"fedmpi {fedmpi.__version__}, {self.ranks.size} rank(s), {versions()['mpi']}")
        say(facts({k: v for k, v in settings.items() if v not in (None, (), False)}))
        say(
            f"  {self.model.size:,} parameters on {self.device}, {self.ranks.threads} thread(s) "
            f"a rank, {waiting} waits, {self.reduction.kind} sums"
        )
        for line in placement.lines():
            say(f"  {line}")
        for note in self.notes:
            say(f"  note: {note}")
        if "PRTE_LAUNCHED" in os.environ:  # Open MPI's mpirun
            say("  note: on Ctrl-C and TERM this mpirun kills its ranks; USR1 saves and stops them")
        say(partition.summary())
        if done:
            say(f"going on after round {done} of {self.config.rounds}")
        for rank in self.lost:
            say(f"  without {lost.clients_of([rank])}, lost in round {rank['last_round'] + 1}")

    def finish(self, training: Training) -> dict | None:
        """Evaluate the last and the mean theta on the test rows, and write what a run leaves."""
        seconds = self.server.seconds if self.server else 0.0
        handed = self.ranks.bytes_handed - self._bytes_before
        bytes_per_round = handed / max(1, training.rounds - training.done)
        last_theta = self.model.theta.clone() if self.server or self.survivors else None
        scored = self._together(lambda: self._score_both(bytes_per_round), last_theta)
        last, mean, by_rank = scored
        result: dict = {}
        done: list[bool] = []

        def save() -> None:
            assert self.server and by_rank and last_theta is not None
            if done:
                return  # and a rank has died since
            self._check_scores(last, mean)
            costs = {
                "seconds": seconds,
                "seconds_per_round": seconds / self.config.rounds,
                "bytes_per_round": max(b for b, _ in by_rank),
                "peak_rss_mb": max(r for _, r in by_rank),
            }
            scores = mean if self.method.averages_theta else last
            fairness = fairness_of(
                self.dataset,
                options_from(self.config),
                self.prepared.groups,
                self.prepared.classes,
                scores.confusion,
            )
            partition = self.deal.partition
            result.update(
                result_of(self.config, self.method, partition, scores, last, costs, fairness)
            )
            states = {
                "averaged": self.model.state_dict(self.model.theta),
                "last": self.model.state_dict(last_theta),
            }
            self.server.finish_history()
            if self.lost or self.survivors:
                result["lost"] = self.lost
            self.folder.write("model.pt", lambda file: torch.save(states, file))
            self.folder.write_json("result.json", result)
            self.folder.remove(NEWEST, PREVIOUS, WEIGHTS, RANKS)
            done.append(True)

        self._together(lambda: self.ranks.on_server(save))
        return result or None

    def _score_both(self, bytes_per_round: float) -> tuple[Scores, Scores, list | None]:
        """The last theta and the mean theta on the test rows, and what each rank needed."""
        rows = self._test_rows()
        last = self._score(rows)
        if self.server:
            self.model.theta.copy_(self.server.theta_mean)
        self._bcast_theta()
        mean = self._score(rows)
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return last, mean, self.ranks.gather((bytes_per_round, rss))

    def _together(self, work: Callable[[], T], theta: torch.Tensor | None = None) -> T:
        """`work` after the rounds; again, and at `theta`, if a rank dies in it."""
        if not self.survivors:
            return work()

        def again(ranks: list[int]) -> None:
            if theta is not None:
                self.model.theta.copy_(theta)
            if self.server:
                self.losses.note(ranks, self.config.rounds + 1)

        return self.survivors.together(work, again)

    def go_on_without(self, ranks: list[int], t: int) -> Exchange:
        """Take the clients of these ranks out of the run, from round `t` on; on every rank.

        The ranks that are left learn of it the number of rows that are left.
        """
        rows = np.array([self.total_rows])
        if self.server:
            self.losses.note(ranks, t)
            if t <= self.config.rounds:
                self.method.lose(self.deal.partition.counts)
            rows[0] = self.deal.partition.total
        self.ranks.wait(self.ranks.Ibcast(rows))
        self.total_rows = int(rows[0])
        self.reduction = Flat(self.ranks, self.model.buffer)  # which is another one by now
        self.exchange = self._exchange()
        if self.server:
            self.server.exchange = self.exchange
        return self.exchange

    def _check_scores(self, *scores: Scores) -> None:
        """A model that diverged in its last rounds is not a result."""
        for score in scores:
            bad = ~np.isfinite(score.risk) & (score.rows > 0)
            if bad.any():
                raise UserError(
                    f"the test risk of group {self.prepared.groups[int(np.argmax(bad))]!r} is not "
                    f"finite. The steps are too long: try --lr {self.config.lr / 10:g}."
                )

    def _test_rows(self) -> Rows | None:
        """This rank's even share of the test rows; those of a fold are training rows."""
        if self.ranks.size < self.began_with and not isinstance(self.prepared, Holdings):
            self._deal_test_rows_again()
        if self.ranks.rank not in self.ranks.client_ranks:
            return None
        return self._load("train" if self.config.fold else "test", self.my_test_rows)

    def _deal_test_rows_again(self) -> None:
        """Spread the test rows over the client ranks that are left: they are on every host."""
        parts = None
        if self.ranks.is_server:
            rows = np.concatenate([test for _, test in self.deal.rows])
            blocks = spread_rows(len(rows), len(self.ranks.client_ranks))
            parts = [rows[:0], *(rows[block] for block in blocks)]
        self.my_test_rows = self.ranks.comm.scatter(parts)

    def _score(self, rows: Rows | None) -> Scores:
        groups, classes = len(self.prepared.groups), len(self.prepared.classes)
        micro_batch = self.config.micro_batch
        assert micro_batch
        return evaluate(self.ranks, self.model, self.loss, rows, groups, classes, micro_batch)


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


def versions() -> dict[str, str]:
    """Of what the numbers may depend on."""
    return {
        "fedmpi": fedmpi.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "mpi4py": mpi4py.__version__,
        "mpi": " ".join(map(str, (MPI.get_vendor()[0], ".".join(map(str, MPI.get_vendor()[1]))))),
    }
