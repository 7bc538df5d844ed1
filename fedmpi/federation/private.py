"""Differential privacy of rows in the rounds: --dp-epsilon.

Each row's gradient and loss are cut to a limit, and every client rank adds its share of a Gaussian
noise to the integers that it sends. What the noise must be is in privacy/mechanism.py, what rounds
spend in privacy/accountant.py, and both in words in docs/privacy.md.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.errors import UserError
from fedmpi.models.fixed_point import FixedPoint
from fedmpi.models.flat import FlatModel
from fedmpi.privacy.accountant import Accountant, multiplier_for
from fedmpi.privacy.mechanism import Mechanism
from fedmpi.privacy.noise import Noise, share_deviation

if TYPE_CHECKING:
    from fedmpi.run.config import Config
    from fedmpi.run.folder import RunFolder

CHANGE_BITS, LOSS_BITS = 34, 20
"""Most bits behind the point where there is noise: a share's deviation has 10 to 40 bits."""
LEDGER = "privacy.json"
AHEAD = 100
"""The ledger is written a hundredth of the rounds ahead: not in every round."""


class Private:
    """This rank's part of the noise."""

    def __init__(self, config: Config, shares: int, multiplier: float, sampling: float) -> None:
        assert config.dp_clip and config.dp_loss_clip
        self.clip, self.loss_clip = config.dp_clip, config.dp_loss_clip
        self.shares = shares
        """Number of ranks that add noise: those that host clients, of the ranks that are left."""
        self.sampling = sampling
        """Probability with which a row is in the batch of a round; 1 without --batch-rows."""
        self.mechanism = Mechanism(multiplier, self.clip, self.loss_clip, sampling=sampling)
        self.noise = Noise()

    def sample(self, rows: int) -> np.ndarray:
        """Draw the rows of a batch, which nobody else knows."""
        return np.flatnonzero(self.noise.sample(rows, self.sampling))

    def add_noise(self, model: FlatModel, row_weights: np.ndarray) -> None:
        """Add this rank's share to its change; `row_weights`: lr × w_a / n of each group."""
        assert model.exact
        fixed, size = model.exact.fixed, model.size
        deviation = self.mechanism.gradient_deviation(row_weights, 1 / fixed.scale, size)
        model.exact.add_integers(self._share(size, deviation, fixed))

    def loss_noise(self, groups: int, fixed: FixedPoint) -> np.ndarray:
        """This rank's share of the noise on the sums of losses by group, as integers."""
        deviation = self.mechanism.loss_deviation(1 / fixed.scale)
        return self._share(groups, deviation, fixed).view(np.uint64)

    def _share(self, length: int, deviation: float, fixed: FixedPoint) -> np.ndarray:
        share = share_deviation(deviation, self.shares)
        try:
            return self.noise.rounded(length, share * fixed.scale)
        except ValueError as error:
            raise UserError(f"--dp-epsilon: {error} Try another --dp-clip or --lr.") from None


@dataclass
class Budget:
    """What a run may spend, and what it has spent; on the server."""

    config: Config
    folder: RunFolder
    rows: int
    """Number n of the training rows."""

    def __post_init__(self) -> None:
        c = self.config
        assert c.dp_epsilon and c.dp_delta
        if c.dp_delta * self.rows >= 1:
            raise UserError(
                f"--dp-delta {c.dp_delta:g}: must be below 1 / rows, here {1 / self.rows:.2g}; "
                "else a run that tells one row in full would pass."
            )
        batch = c.options.get("batch_rows")
        self.sampling = min(1.0, batch / self.rows) if batch else 1.0
        self.multiplier = c.dp_noise or multiplier_for(
            c.dp_epsilon, c.dp_delta, c.rounds, self.sampling
        )
        self.accountant = Accountant(c.dp_delta, self.multiplier, self.sampling)
        self.reserved = self.wasted = 0
        """Rounds that may have been told so far; those of them that a resumed run does again."""

    def resume(self, done: int) -> None:
        """Count rounds that were told after the checkpoint, and are now done again."""
        with contextlib.suppress(KeyError, TypeError, ValueError):
            self.reserved = int(self.folder.read_json(LEDGER)["rounds"])
        self.wasted = max(0, self.reserved - done)
        self.reserved = self.wasted + done

    def rounds(self, done: int) -> int:
        """Number of the last round that the budget allows, at most that of --rounds."""
        c = self.config
        assert c.dp_epsilon
        allowed = self.accountant.rounds_within(c.dp_epsilon, c.rounds + self.wasted)
        if allowed - self.wasted <= done:
            raise UserError(
                f"--dp-epsilon {c.dp_epsilon:g} allows no round more: with a noise multiplier of "
                f"{self.multiplier:.4g} one more would spend "
                f"{self.accountant.epsilon(done + self.wasted + 1):.3g}."
            )
        return min(c.rounds, allowed - self.wasted)

    def spend(self, t: int) -> None:
        """Write down, before round `t` is told to anybody, that it may have been."""
        if t + self.wasted <= self.reserved:
            return
        ahead = max(1, self.config.rounds // AHEAD)
        self.reserved = t + self.wasted + ahead - 1
        self.folder.write_json(LEDGER, {"rounds": self.reserved, "multiplier": self.multiplier})

    def spent(self, t: int) -> float:
        """Epsilon that the rounds until `t` have spent."""
        return self.accountant.epsilon(t + self.wasted)

    def result(self, t: int) -> dict:
        """Contents of `privacy` in result.json."""
        c = self.config
        return {
            "epsilon": self.spent(t),
            "delta": c.dp_delta,
            "budget": c.dp_epsilon,
            "multiplier": self.multiplier,
            "sampling": self.sampling,
            "clip": c.dp_clip,
            "loss_clip": c.dp_loss_clip,
            "rounds": t + self.wasted,
            "neighbours": "one row's contribution is zero; counts of groups are public",
        }

    def note(self) -> str:
        """Line for the user at the start."""
        c = self.config
        batch = f", batches of {self.sampling:.3g} of the rows" if self.sampling < 1 else ""
        return (
            f"differential privacy of rows: epsilon {c.dp_epsilon:g}, delta {c.dp_delta:g}, noise "
            f"multiplier {self.multiplier:.4g}{batch}; training risks shown have noise, test "
            "figures have none"
        )
