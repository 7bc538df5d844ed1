"""What rank 0 keeps of a run: the mean of theta, the history, the checkpoints."""

from __future__ import annotations

import json
import time
import zipfile

import numpy as np
import torch

from fedmpi.config import Config
from fedmpi.display import Progress
from fedmpi.errors import UserError
from fedmpi.exchange import Exchange
from fedmpi.flat import FlatModel
from fedmpi.methods.method import Method
from fedmpi.partition import Partition
from fedmpi.results import MANY
from fedmpi.runfolder import RunFolder

HISTORY_EVERY = 5.0


class Server:
    """The averaged model and the record of the run; no training rows."""

    def __init__(
        self,
        config: Config,
        method: Method,
        model: FlatModel,
        exchange: Exchange,
        folder: RunFolder,
        partition: Partition,
    ) -> None:
        self.config, self.method, self.model = config, method, model
        self.exchange, self.folder, self.groups = exchange, folder, partition.groups
        self.partition_digest = partition.digest()
        # In float64, because a running mean of thousands of float32 vectors loses digits.
        self.theta_mean = torch.zeros(model.size, dtype=torch.float64)
        self.history: list[dict] = []
        self.client_weights: list[np.ndarray] = []
        """A row of history.csv each, where the method weighs clients or cells."""
        self.seconds_before = 0.0

    def start_clock(self) -> None:
        """The rounds begin now."""
        self.began = self.row_began = self.history_kept = time.perf_counter()
        self.rounds_in_row = 0
        self.progress = Progress(self.config.progress, self.config.rounds)

    @property
    def seconds(self) -> float:
        """Time in the rounds, also before a resume."""
        return self.seconds_before + time.perf_counter() - self.began

    def end_round(self, t: int, split: tuple[float, float] | None) -> None:
        """Take theta^t into the mean; where the round was evaluated, write the history's row."""
        self.theta_mean.lerp_(self.model.theta.detach().to(self.theta_mean), 1 / t)
        self.rounds_in_row += 1
        if split:
            self.add_row(t, *split)
        risks = self.exchange.group_risks
        self.progress.update(t, self.groups, risks)
        if t % self.config.checkpoint_every == 0 and t < self.config.rounds:
            self.save_checkpoint(t)

    def add_row(self, t: int, mean_compute: float, longest_compute: float) -> None:
        """One row of history.csv; the time split is per round, over the rounds since the last row.

        `wait` is what the mean client rank waits for the slowest one, `exchange` is what is left
        of the round when the slowest one has computed.
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
        row |= self.add_client_weights()
        row |= {"worst": float(risks.max()), "best": float(risks.min())}
        row |= {"average": float(risks.mean())}
        row |= {
            "compute": round(mean_compute / n, 6),
            "exchange": round(max(0.0, wall - longest_compute) / n, 6),
            "wait": round((longest_compute - mean_compute) / n, 6),
        }
        self.history.append(row)
        if now - self.history_kept > HISTORY_EVERY:
            self.keep_history()

    def add_client_weights(self) -> dict[str, float]:
        """Keep the weights of clients or cells; few of them are columns of history.csv as well."""
        weights = self.method.client_weights()
        if weights is None:
            return {}
        self.client_weights.append(weights.copy())
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
        """Write history.csv as it stands."""
        self.history_kept = time.perf_counter()
        self.folder.write_csv("history.csv", self.history)
        if self.client_weights:
            rounds = np.array([row["round"] for row in self.history])
            self.folder.write_npz(
                "weights.npz", round=rounds, weights=np.stack(self.client_weights)
            )

    def save_checkpoint(self, t: int) -> None:
        """Write all that the rest of the run depends on."""
        state = {
            "round": t,
            "seconds": self.seconds,
            "theta": self.model.theta.detach().cpu(),
            "theta_mean": self.theta_mean,
            "method": {k: torch.from_numpy(np.array(v)) for k, v in self.method.state().items()},
            "history": self.history,
            "client_weights": [torch.from_numpy(w) for w in self.client_weights],
            "science": json.dumps(self.config.science()),
            "partition": self.partition_digest,
        }
        self.folder.write("checkpoint.pt", lambda file: torch.save(state, file))
        self.keep_history()

    def load_checkpoint(self) -> int:
        """Go back to where the checkpoint stood; the number of rounds that are done."""
        path = self.folder.path / "checkpoint.pt"
        try:
            with zipfile.ZipFile(path) as archive:  # torch does not look at the sums that it writes
                if bad := archive.testzip():
                    raise ValueError(f"damaged at {bad}")
            state = torch.load(path, weights_only=True)
            saved = json.loads(state["science"])
        except Exception as error:  # whatever a damaged file makes torch raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"{path} cannot be read ({reason}): --force starts over.") from None
        ours = json.loads(json.dumps(self.config.science()))
        differing = [k for k in ours if k != "rounds" and ours[k] != saved.get(k)]
        if differing:
            what = ", ".join(f"{k} was {saved.get(k)}, now {ours[k]}" for k in differing)
            raise UserError(f"{path} is of another configuration: {what}.")
        if state["partition"] != self.partition_digest:
            raise UserError(f"{path} is of another partition of the data: were the data changed?")
        self.model.theta.copy_(state["theta"])
        self.theta_mean.copy_(state["theta_mean"])
        self.method.restore({k: v.numpy() for k, v in state["method"].items()})
        self.history = list(map(dict, state["history"]))
        self.seconds_before = float(state["seconds"])
        columns = {"round", "seconds", "wait", *(f"risk/{name}" for name in self.groups)}
        if not all(columns <= row.keys() for row in self.history):
            raise ValueError("history")
        self.client_weights = [w.numpy() for w in state["client_weights"]]
        weights = self.method.client_weights()
        if any(weights is None or w.shape != weights.shape for w in self.client_weights):
            raise ValueError("client_weights")
        return state["round"]
