"""The server's record of a run: the mean of theta, the history, the checkpoints, the result."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedmpi.data.options import options_from
from fedmpi.errors import UserError, said_by
from fedmpi.federation import metrics
from fedmpi.federation.certificate import certificate_for, residual_for
from fedmpi.federation.exchange import Exchange
from fedmpi.federation.plan import Plan
from fedmpi.federation.receipt import receipt_of
from fedmpi.federation.result import MANY, personal_of, result_of
from fedmpi.federation.validation import Best
from fedmpi.models.flat import FlatModel
from fedmpi.mpi import launcher, signals
from fedmpi.run import checkpoint
from fedmpi.run.checkpoint import NEWEST, PREVIOUS
from fedmpi.run.config import IDENTITY
from fedmpi.run.display import Progress, warn
from fedmpi.run.journal import Journal
from fedmpi.run.logs import Logs
from fedmpi.run.lost_ranks import RANKS
from fedmpi.run.until import read_until
from fedmpi.scoring.describe import describe
from fedmpi.scoring.fairness import fairness_of
from fedmpi.scoring.replicates import FILE, Replicates
from fedmpi.scoring.scores import PersonalScores, Scores

if TYPE_CHECKING:
    from fedmpi.scoring.bootstrap import Bootstrap

HISTORY_EVERY = 5.0
WEIGHTS = "weights.bin"
"""File of the weights of clients during the run; weights.npz is made of it at the end."""


class Server:
    """The averaged model and the record of the run; no training rows."""

    def __init__(self, plan: Plan, model: FlatModel, exchange: Exchange) -> None:
        self.plan, self.model, self.exchange = plan, model, exchange
        self.config, self.method, self.folder = plan.config, plan.method, plan.folder
        partition, config, folder = plan.whole, plan.config, plan.folder
        self.groups = partition.groups
        self.result: dict | None = None
        self.partition_digest, self.identity = partition.digest(), config.identity()
        # In float64, because a running mean of thousands of float32 vectors loses digits.
        self.theta_mean = torch.zeros(model.size, dtype=torch.float64)
        tail = self.method.average == "tail"
        self.averaged_from = 3 * config.rounds // 4 + 1 if tail else 1
        """The first round of the mean: until then it follows theta."""
        self.history = Journal(folder.path / "history.csv")
        self.client_weights = Journal(folder.path / WEIGHTS)
        """Rows of the round, then the weights, where the method weighs clients or cells."""
        size = model.size * (model.theta.element_size() + self.theta_mean.element_size())
        self.schedule = checkpoint.Schedule(config.checkpoint_every, size / checkpoint.SLOW_DISK)
        self.saved: list[int] = []
        """The rounds of the checkpoints that were written."""
        self.measured: dict[str, float] = {}
        """Numbers measured or chosen at the start, kept in config.json and in checkpoints."""
        self.best = Best(self.groups, config.patience) if config.validate is not None else None
        self.certificate = certificate_for(config)
        self.residual = residual_for(config, self.method)
        self.logs = Logs(config.log)
        self.until = read_until(config.until)
        self.weights_used: np.ndarray | None = None
        self.personal: PersonalScores | None = None
        """Scores of the clients' own models, if the method has them."""
        self.spent = ""
        """What the rounds have spent of a privacy budget, for the progress line."""
        shape = len(self.groups), len(plan.prepared.classes)
        self.validated = metrics.without_rows(plan.metrics, *shape)
        """Metrics over the groups of the validation rows, for history.csv."""
        self.rounds_done = 0
        self.seconds_before = 0.0
        self.client_tables: dict[str, np.ndarray] = {}
        """State of all clients, a row for each, from the checkpoint that is resumed."""

    def begin_round(self, t: int) -> None:
        """Count round `t` against the privacy budget, before anybody sees anything of it."""
        if self.plan.budget:
            self.plan.budget.spend(t)

    def keep_weights(self) -> None:
        """Keep the weights of this round's gradient, before the adversary steps, for the bounds."""
        weights = self.method.group_weights() if self.residual else None
        self.weights_used = None if weights is None else weights.copy()

    def certify(self, t: int, model: FlatModel) -> None:
        """Take the round into the residual, and into the bounds of the minimax risk."""
        risks, mu = self.exchange.group_risks, self.weights_used
        if risks is None or mu is None:
            return
        if self.residual and t > 3 * self.config.rounds // 4:
            self.residual.look(mu, risks, model.theta, model.change)
        if self.certificate:
            self.certificate.look(mu, risks, model.theta, model.change)
            self.measured["lower bound"] = self.certificate.lower

    def look_at_validation(self, t: int, scores: Scores) -> None:
        """Keep the model's theta, which was scored on the validation rows, if it is the best."""
        assert self.best
        self.best.look(t, scores, self.model.theta)
        self.validated = self.metrics_of(scores)["over_values"]

    def metrics_of(self, scores: Scores) -> dict:
        """Part of result.json for the metrics that are asked for."""
        dataset, prepared = self.plan.dataset, self.plan.prepared
        attribute = dataset.attribute(prepared.groups, options_from(self.config))
        return metrics.section(self.plan.metrics, scores, self.groups, attribute)

    @property
    def reported_theta(self) -> torch.Tensor:
        """The theta of the reported model: the best on the validation rows, or the mean."""
        best = self.best.theta if self.best else None
        return self.theta_mean if best is None else best

    def is_done(self) -> bool:
        """Whether the gap is small enough, or patience at its end: this round is the last."""
        near = self.certificate and self.until and self.certificate.gap <= self.until
        return bool(near or (self.best and self.best.done))

    def begin_again(self) -> None:
        """Forget what holds for the rows of dead ranks: other rows are another problem."""
        if self.certificate:
            self.certificate.lower = -math.inf
        if self.residual:
            self.residual.rounds = 0
        if self.best:
            self.best.risk = math.inf

    def start_clock(self) -> None:
        """Start the clock and the progress display: the rounds begin now."""
        self.began = self.row_began = self.history_kept = time.perf_counter()
        self.rounds_in_row = 0
        self.schedule.start()
        own = self.plan.progress
        self.progress = own or Progress(self.config.progress, self.config.rounds)

    @property
    def seconds(self) -> float:
        """Seconds spent in the rounds, including those before a resume."""
        return self.seconds_before + time.perf_counter() - self.began

    def take_theta(self, t: int) -> None:
        """Take theta^t into the mean."""
        theta, rounds = self.model.theta.detach(), t - self.averaged_from + 1
        if rounds <= 1:  # before the averaged tail; a mean costs ResNet-18 a tenth of a round
            self.theta_mean.copy_(theta)
        else:
            self.theta_mean.lerp_(theta.to(self.theta_mean), 1 / rounds)

    def end_round(self, t: int, split: tuple[float, float] | None) -> None:
        """Show that the round is done; if it was evaluated, add a row to the history."""
        self.rounds_in_row += 1
        self.rounds_done = t
        if split:
            self.add_row(t, *split)
        budget = self.plan.budget
        if split and budget:  # with sampled batches it takes 10 ms to tell
            self.spent = f"epsilon {budget.spent(t):.3g}"
        self.progress.update(t, self.groups, self.exchange.group_risks, self.spent)

    def add_row(self, t: int, mean_compute: float, longest_compute: float) -> None:
        """Add a row to history.csv; its times are per round, over the rounds since the last row.

        `wait` is the time that the mean client rank waits for the slowest rank; `exchange` is the
        time left of the round after the slowest rank has computed.
        """
        now, n = time.perf_counter(), self.rounds_in_row
        wall, self.row_began, self.rounds_in_row = now - self.row_began, now, 0
        risks = self.exchange.group_risks
        weights = self.method.group_weights()
        assert risks is not None
        row: dict = {"round": t, "seconds": round(self.seconds, 4)}
        row |= {f"risk/{g}": float(r) for g, r in zip(self.groups, risks, strict=True)}
        if weights is not None:
            row |= {f"weight/{g}": float(w) for g, w in zip(self.groups, weights, strict=True)}
        row |= self.add_client_weights(t)
        # A group whose rows are all on dead ranks, or at clients that did not take part, has none.
        risks = risks[~np.isnan(risks)] if not np.isnan(risks).all() else risks
        row |= {"worst": float(risks.max()), "best": float(risks.min())}
        row |= {"average": float(risks.mean())}
        if self.method.counts_for is not None:
            row |= {"clients": np.count_nonzero(self.method.counts_for)}
        row |= {
            "compute": round(mean_compute / n, 6),
            "exchange": round(max(0.0, wall - longest_compute) / n, 6),
            "wait": round((longest_compute - mean_compute) / n, 6),
        }
        if self.plan.budget:
            row |= {"epsilon": self.plan.budget.spent(t)}
        if self.best:
            row |= {"validation": self.best.now}
            row |= {f"validation/{name}": x for name, x in self.validated.items()}
        if self.certificate:
            row |= self.certificate.saved()
        self.logs.log(t, row)
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(row))
        if not self.history:
            writer.writeheader()
        writer.writerow(row)
        self.history.add(text.getvalue().encode())
        if now - self.history_kept > HISTORY_EVERY:
            self.keep_history()

    def add_client_weights(self, t: int) -> dict[str, float]:
        """Keep the weights of clients or cells; return those that are columns of history.csv, too.

        Only up to MANY weights are columns.
        """
        weights = self.method.client_weights()
        if weights is None:
            return {}
        self.client_weights.add(np.append(float(t), weights).tobytes())
        if weights.size > MANY:
            return {}
        named = [
            (
                f"weight/client {k}"
                if weights.ndim == 1
                else f"weight/{self.groups[a[0]]}/client {k}"
            )
            for k, *a in np.ndindex(weights.shape)
        ]
        return dict(zip(named, weights.ravel().tolist(), strict=True))

    def keep_history(self) -> None:
        """Write the new rows of history.csv, and the weights of clients of the same rounds."""
        self.history_kept = time.perf_counter()
        if not self.history:  # a run that diverges in its first round leaves an empty one
            self.folder.write("history.csv", lambda file: None)
        self.history.keep()
        self.client_weights.keep()

    def finish_history(self) -> None:
        """Write the rest of the history at the end of the run, and the weights as one archive."""
        self.keep_history()
        weights = self.method.client_weights()
        if weights is not None:
            shape = weights.shape
            table = np.fromfile(self.client_weights.path).reshape(-1, 1 + math.prod(shape))
            weights = table[:, 1:].reshape(-1, *shape)
            self.folder.write_npz("weights.npz", round=table[:, 0].astype(int), weights=weights)

    def save_checkpoint(self, t: int, client_tables: dict[str, np.ndarray]) -> None:
        """Write all that the rest of the run depends on."""
        began = time.perf_counter()
        self.keep_history()
        state = {
            "round": t,
            "seconds": self.seconds,
            "theta": self.model.theta.detach().cpu(),
            "theta_mean": self.theta_mean,
            "method": {k: torch.from_numpy(np.array(v)) for k, v in self.method.state().items()},
            "shared": {k: v.detach().cpu() for k, v in self.method.kept_everywhere().items()},
            "of_clients": {k: torch.from_numpy(v) for k, v in client_tables.items()},
            "history": self.history.mark(),
            "client_weights": self.client_weights.mark(),
            IDENTITY: json.dumps(self.identity),
            "partition": self.partition_digest,
            "measured": self.measured,
            "lost": json.dumps(self.plan.lost),
        }
        if self.best:
            state["best"] = self.best.saved()
        if self.residual:
            state["residual"] = self.residual.state()
        checkpoint.save(self.folder, state)
        self.saved.append(t)
        self.schedule.wrote(time.perf_counter() - began)
        if "checkpoint_seconds" not in self.measured:
            self.measured["checkpoint_seconds"] = round(self.schedule.cost, 6)
            self.folder.update_json("config.json", {"measured": self.measured})

    def resume(self) -> int:
        """Go back to the checkpoint; return the number of rounds done.

        Raise a UserError if the checkpoint is not what this run wrote.
        """
        shapes = {name: np.shape(value) for name, value in self.method.state().items()}
        try:
            done = self.load_checkpoint()
            found = {name: np.shape(value) for name, value in self.method.state().items()}
            if found != shapes or not (isinstance(done, int) and 0 < done <= self.config.rounds):
                raise ValueError(f"round {done}, weights of {found}")
            if self.plan.budget:
                self.plan.budget.resume(done)
            return done
        except (UserError, OSError):
            raise
        except Exception as error:  # whatever foreign contents lead to
            raise UserError(
                f"the checkpoint in {self.folder.path} is not what this run wrote "
                f"({said_by(error)}): --force instead of --resume starts over."
            ) from error

    def load_checkpoint(self) -> int:
        """Restore the state of the run from the checkpoint; return the number of rounds done."""
        path = self.folder.path
        state, note = checkpoint.load(path, self.identity, self.partition_digest)
        if state["round"] > self.config.rounds:
            raise UserError(
                f"--rounds {self.config.rounds}: the checkpoint in {path} is of round "
                f"{state['round']} already. Give at least that many."
            )
        if note:
            warn(note)
        self.model.theta.copy_(state["theta"])
        self.theta_mean.copy_(state["theta_mean"])
        self.method.restore({k: v.numpy() for k, v in state["method"].items()})
        for name, value in self.method.kept_everywhere().items():
            value.copy_(state["shared"][name])
        self.client_tables = {k: state["of_clients"][k].numpy() for k in self.method.of_clients}
        self.seconds_before = float(state["seconds"])
        self.measured = self.folder.read_json("config.json").get("measured", {})
        self.measured |= state["measured"]
        if self.best:
            self.best.restore(state["best"])
        if self.residual and "residual" in state:
            self.residual.restore(state["residual"])
        if self.certificate:
            self.certificate.lower = self.measured.get("lower bound", -math.inf)
        self.schedule.cost = self.measured.get("checkpoint_seconds", self.schedule.cost)
        for journal, name in ((self.history, "history"), (self.client_weights, "client_weights")):
            if not journal.restore(state[name]):
                warn(
                    f"{journal.path} is not what the checkpoint of round {state['round']} saw: "
                    "its rows until then are lost, the model is not"
                )
        return state["round"]

    def stop(self, t: int, client_tables: dict[str, np.ndarray]) -> str:
        """Save a checkpoint of round `t`, as a signal asked to; return the line on how to go on."""
        self.progress.close()
        self.save_checkpoint(t, client_tables)
        signal = signals.asked()
        by = signal.name if signal else "a signal to another rank"
        how = launcher.resumed(launcher.command_line(self.exchange.ranks.size))
        return f"stopped by {by} after round {t} of {self.config.rounds}, saved. Go on with: {how}"

    def distrust(self, t: int) -> str:
        """Rename checkpoints of later rounds than `t`; return what to tell the user."""
        folder = self.folder.path
        names = (checkpoint.NEWEST, checkpoint.PREVIOUS)
        for name, when in zip(names, reversed(self.saved), strict=False):
            if when > t:
                os.replace(folder / name, folder / "checkpoint-suspect.pt")
        if any((folder / name).exists() for name in names):
            return "The checkpoint from before stands: go on with --resume."
        return "There is no checkpoint from before: start over."

    def save(
        self,
        last: Scores,
        mean: Scores,
        last_theta: torch.Tensor,
        costs: dict,
        bootstrap: Bootstrap | None = None,
    ) -> None:
        """Write the run's files, once: when a rank dies meanwhile, all ranks call this again."""
        if self.result:
            return
        self._check_scores(last, mean)
        model, prepared = self.model, self.plan.prepared
        scores = last if self.method.average == "last" and not self.best else mean
        fairness = fairness_of(
            self.plan.dataset,
            options_from(self.config),
            prepared.groups,
            prepared.classes,
            scores.confusion,
        )
        partition = self.plan.allocation.partition
        own = self.plan.metrics
        result = result_of(self.config, self.method, partition, scores, last, costs, fairness, own)
        if own:
            result["metrics"] = self.metrics_of(scores)
        whole = {
            "averaged": model.state_dict(model.theta),
            "last": model.state_dict(last_theta),
        }
        self.finish_history()
        result["rounds"] = self.rounds_done
        if self.best:
            result |= {"model": "averaged", "validation": self.best.result()}
        if self.certificate:  # of the theta that the last round began with
            result["certificate"] = self.certificate.saved()
        elif self.residual and self.residual.rounds:
            result["residual"] = self.residual.saved()
        if self.personal:
            self._check_scores(self.personal.own, what="risk with the clients' own models")
            result["personal"] = personal_of(self.groups, self.personal)
        if self.plan.budget:
            result["privacy"] = self.plan.budget.result(self.rounds_done)
        if self.config.sums == "exact":
            result["receipt"] = receipt_of(self.config, whole)
        if self.plan.lost or self.config.on_client_failure == "continue":
            result["lost"] = self.plan.lost
        whole["description"] = describe(self.config, self.plan.dataset, prepared, result)
        self.folder.write("model.pt", lambda file: torch.save(whole, file))
        if bootstrap:
            self._save_replicates(scores, bootstrap)
        self.folder.write_json("result.json", result)
        self.folder.remove(NEWEST, PREVIOUS, WEIGHTS, RANKS)
        self.result = result
        self.logs.finish(result)

    def _save_replicates(self, scores: Scores, bootstrap: Bootstrap) -> None:
        """Write the sums over the test rows, and over each of their replicates."""
        found = Replicates(
            tuple(self.plan.prepared.groups),
            np.vstack([scores.losses, bootstrap.losses]),
            np.vstack([scores.right, bootstrap.right]),
            np.vstack([scores.rows, bootstrap.rows]),
            f"{self.config.data_key} {bootstrap.fingerprint}",
        )
        self.folder.write_npz(FILE, **found.arrays())

    def _check_scores(self, *scores: Scores, what: str = "test risk") -> None:
        """Raise a UserError for a model that diverged in the last rounds, which is no result."""
        for score in scores:
            bad = ~np.isfinite(score.risk) & (score.rows > 0)
            if bad.any():
                raise UserError(
                    f"the {what} of group {self.groups[int(np.argmax(bad))]!r} is not "
                    f"finite. The steps are too long: try --lr {self.config.lr / 10:g}."
                )
