"""The server's desk: what is decided before a run, announced, and saved when it is done.

Rank 0 alone imports this, and with it all that knows settings, files and tables; the ranks of
clients start without. The rounds are in rounds.py, what the server keeps of them in server.py.
"""

from __future__ import annotations

import os
import platform
import sys

import mpi4py
import numpy as np
import torch

import fedmpi
from fedmpi import data as datasets
from fedmpi import models
from fedmpi.data.options import options_from
from fedmpi.data.owners import OwnedRows
from fedmpi.data.partition import Partition
from fedmpi.data.store import Prepared
from fedmpi.errors import UserError, said_by
from fedmpi.federation.evaluation import Scores
from fedmpi.federation.exchange import Exchange
from fedmpi.federation.fairness import fairness_of
from fedmpi.federation.plan import Deal, deal, leave
from fedmpi.federation.result import result_of
from fedmpi.federation.server import WEIGHTS, Server
from fedmpi.methods.method import Method
from fedmpi.models.flat import FlatModel
from fedmpi.models.micro_batch import rows_of_a_pass
from fedmpi.mpi.allreduce import Room, choose
from fedmpi.mpi.init import MPI
from fedmpi.mpi.launcher import command_line
from fedmpi.mpi.placement import Placement
from fedmpi.mpi.ranks import Ranks
from fedmpi.run import checkpoint, lost_ranks
from fedmpi.run.checkpoint import NEWEST, PREVIOUS
from fedmpi.run.config import IDENTITY, Config
from fedmpi.run.display import Progress, facts, say
from fedmpi.run.folder import RunFolder
from fedmpi.run.lost_ranks import RANKS

SPEED = "rows a second on rank "
"""In `measured`, before the number of the rank."""


class Desk:
    """What the server knows of a job beside its rounds."""

    deal: Deal
    whole: Partition
    """Who holds what when nobody is lost."""
    lost: list[dict]
    """The client ranks that the run goes on without."""
    notes: list[str]
    """What the user should know of the data and of how they are held."""
    server: Server

    def __init__(
        self, ranks: Ranks, config: Config, method: Method, progress: Progress | None
    ) -> None:
        self.ranks, self.config, self.method, self.progress = ranks, config, method, progress
        self.dataset = datasets.find(config.dataset)
        self.folder = RunFolder(config.output)
        self.result: dict | None = None
        self.sums: dict[str, float] = {}
        """Seconds of a sum of each kind, if they were measured."""

    def speeds_before(self) -> list[float] | None:
        """Of the client ranks, as they were measured before the run that is resumed."""
        if not self.config.resume:
            return None
        known = self.folder.read_json("config.json").get("measured", {})
        speeds = [known.get(f"{SPEED}{rank}", 0.0) for rank in self.ranks.client_ranks]
        return speeds if all(speeds) else None

    def plan(self, prepared: Prepared | OwnedRows, speeds: list[float] | None = None) -> int:
        """Check what can be checked before, and give every client rank its rows.

        With the `speeds` of the client ranks, slower ones get fewer.
        What is returned are the rows of a pass: those of the run that is resumed, unless the user
        says otherwise, for another cache must not change its bits.
        """
        c, groups = self.config, prepared.groups
        self.prepared = prepared
        epsilon = c.options.get("epsilon")
        if epsilon and epsilon * len(groups) > 1:
            raise UserError(
                f"--epsilon {epsilon}: {len(groups)} groups cannot all weigh that much; "
                f"use at most {1 / len(groups):.4g}."
            )
        shape = prepared.array("train_x").shape[1:]
        module = models.build(c.model, shape, len(prepared.classes), c.seed)
        models.check(c.model, module, shape, len(prepared.classes))
        self.lost = checkpoint.lost_in(self.folder.path) if c.resume else []
        lost = [k for rank in self.lost for k in rank["clients"]]
        if isinstance(prepared, OwnedRows):
            self.deal = leave(prepared, lost)
        else:
            alone, client_ranks = self.method.single_client, len(self.ranks.client_ranks)
            self.deal = deal(prepared, self.dataset, c, alone, client_ranks, lost, speeds)
        self.speeds = speeds
        self.whole = self.deal.partition
        self.deal.partition = self.whole.without([k for k in lost if 0 <= k < self.whole.clients])
        if not self.deal.partition.total:
            raise UserError(f"the run in {self.folder.path} had lost all its clients: --force it.")
        self.notes = [*prepared.notes, *self.deal.notes]
        # Last: a mistake above must not cost a run that is there.
        self.folder.claim(c, c.identity())
        before = self.folder.read_json("config.json").get("micro_batch") if c.resume else None
        if not c.micro_batch and isinstance(before, int) and before > 0:
            return before
        return c.micro_batch or rows_of_a_pass(c.model, module, getattr(torch, c.dtype).itemsize)

    def choose_reduction(self, wanted: str, rooms: list[Room]) -> str:
        """How the changes of theta are summed; as before, where a run goes on with its ranks."""
        if self.config.resume and wanted in ("auto", "measure"):
            before = self.folder.read_json("config.json").get("layout", {})
            same = before.get("ranks") == self.ranks.size
            wanted = before.get("reduce", wanted) if same else wanted
        kind, note = choose(wanted, rooms)
        self.notes += [note] if note else []
        return kind

    def sit_down(self, model: FlatModel, exchange: Exchange) -> Server:
        """The server of the rounds."""
        self.server = Server(
            self.config, self.method, model, exchange, self.folder, self.whole, self.lost
        )
        return self.server

    def start_clock(self) -> None:
        """The rounds begin now."""
        self.server.start_clock()
        self.server.progress = self.progress or self.server.progress

    def resume(self) -> int:
        """Go back to the checkpoint: the rounds that are done. UserError if it is none of ours."""
        shapes = {name: np.shape(value) for name, value in self.method.state().items()}
        try:
            done = self.server.load_checkpoint()
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

    def announce(self, placement: Placement, device: str, reduction: str, done: int) -> None:
        """Save and print what is about to run."""
        model = self.server.model
        hosted: list[list[int]] = [[]] if self.ranks.size > 1 else []
        hosted += [mine.tolist() for mine in self.deal.assignment]
        processes = [(place.host, place.pid) for place in placement.places]
        self.folder.write_json(
            RANKS, lost_ranks.where(processes, hosted, command_line(self.ranks.size))
        )
        settings = self.config.saved()
        self.server.measured |= {
            "micro_batch": self.config.micro_batch or 0,
            "hierarchical": int(reduction == "hierarchical"),
        }
        for kind, seconds in self.sums.items():
            self.server.measured[f"seconds of a {kind} sum"] = seconds
        for rank, speed in zip(self.ranks.client_ranks, self.speeds or (), strict=False):
            self.server.measured[f"{SPEED}{rank}"] = speed
        waiting = "polite" if self.ranks.polite else "spinning"
        layout = {
            "ranks": self.ranks.size,
            **placement.saved(),
            "clients_per_rank": [len(mine) for mine in self.deal.assignment],
            "device": device,
            "threads": self.ranks.threads,
            "waiting": waiting,
            "reduce": reduction,
        }
        extra = {
            "parameters": model.size,
            "prepared": str(self.prepared.folder),
            "notes": self.notes,
            "scale": self.prepared.scale,
            "layout": layout,
            "measured": self.server.measured,
            "versions": versions(),
            "command": sys.argv,
            IDENTITY: self.config.identity(),
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
            f"  {model.size:,} parameters on {device}, {self.ranks.threads} thread(s) "
            f"a rank, {waiting} waits, {reduction} sums"
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
        for loss in self.lost:
            say(
                f"  without {lost_ranks.clients_of([loss])}, lost in round {loss['last_round'] + 1}"
            )

    def save(self, last: Scores, mean: Scores, last_theta: torch.Tensor, costs: dict) -> None:
        """Write what a run leaves, once: when a rank dies meanwhile, all come here again."""
        if self.result:
            return
        self._check_scores(last, mean)
        model, prepared = self.server.model, self.prepared
        scores = mean if self.method.averages_theta else last
        fairness = fairness_of(
            self.dataset,
            options_from(self.config),
            prepared.groups,
            prepared.classes,
            scores.confusion,
        )
        partition = self.deal.partition
        result = result_of(self.config, self.method, partition, scores, last, costs, fairness)
        states = {
            "averaged": model.state_dict(model.theta),
            "last": model.state_dict(last_theta),
        }
        self.server.finish_history()
        if self.lost or self.config.on_client_failure == "continue":
            result["lost"] = self.lost
        self.folder.write("model.pt", lambda file: torch.save(states, file))
        self.folder.write_json("result.json", result)
        self.folder.remove(NEWEST, PREVIOUS, WEIGHTS, RANKS)
        self.result = result

    def _check_scores(self, *scores: Scores) -> None:
        """A model that diverged in its last rounds is not a result."""
        for score in scores:
            bad = ~np.isfinite(score.risk) & (score.rows > 0)
            if bad.any():
                raise UserError(
                    f"the test risk of group {self.prepared.groups[int(np.argmax(bad))]!r} is not "
                    f"finite. The steps are too long: try --lr {self.config.lr / 10:g}."
                )


def versions() -> dict[str, str]:
    """Of what the numbers may depend on."""
    vendor, number = MPI.get_vendor()
    return {
        "fedmpi": fedmpi.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "mpi4py": mpi4py.__version__,
        "mpi": f"{vendor} {'.'.join(map(str, number))}",
    }
