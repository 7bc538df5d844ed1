"""Somebody who knows all but one row attacks noisy rounds that are made of fedmpi's parts."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from attack import Attack, Seen
from torch import nn

from fedmpi.methods.adversary import ascend
from fedmpi.models.flat import FlatModel
from fedmpi.models.losses import cross_entropy
from fedmpi.privacy.accountant import Accountant, multiplier_for
from fedmpi.privacy.mechanism import Mechanism
from fedmpi.privacy.noise import Noise, share_deviation

ROWS, GROUPS, ROUNDS, RANKS, TARGET = 20, 2, 4, 2, 3
CLIP, BOUND, UNIT = 0.5, 1.0, 2.0**-30


class Federation:
    """FedMinMax on two ranks, each with half of the rows and a share of the noise."""

    def __init__(self, mechanism: Mechanism) -> None:
        draw = np.random.default_rng(5)
        x, self.y = draw.normal(size=(ROWS, 3)), draw.integers(0, 2, ROWS)
        x[TARGET] = 6.0  # far from the others, and with the label that its place speaks against
        self.y[TARGET] = 0
        x[:, 0] += self.y
        self.x, self.labels = torch.from_numpy(x), torch.from_numpy(self.y)
        self.group = (np.arange(ROWS) % 5 != TARGET).astype(int)
        self.counts = np.bincount(self.group)
        self.mechanism = mechanism
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        self.model = FlatModel(module, torch.float64, torch.device("cpu"), scalars=0)
        self.start = self.model.theta.clone()

    def sums(self, rows: np.ndarray, group_weights: np.ndarray) -> np.ndarray:
        """One rank's clipped gradient and losses over these rows, in units."""
        model, q = self.model, self.mechanism.sampling
        losses = np.zeros(len(rows))
        model.change.zero_()

        def weights(found: torch.Tensor) -> torch.Tensor:
            losses[:] = found
            return torch.from_numpy(group_weights[self.group[rows]] / q)

        if len(rows):
            model.add_clipped_gradient(
                self.x[rows], self.labels[rows], cross_entropy, weights, CLIP
            )
        by_group = np.bincount(self.group[rows], np.minimum(losses, BOUND) / q, minlength=GROUPS)
        return np.rint(np.concatenate([model.change.numpy(), by_group]) / UNIT).astype(np.int64)

    def play(self, present: bool, repetition: int) -> Iterator[Seen]:
        """Yield the rounds of a run, all of whose chance is in the ranks' secrets."""
        secret = bytes([present]) + repetition.to_bytes(4, "big") + bytes(26)
        ranks = [Noise(secret + bytes([rank])) for rank in range(RANKS)]
        mine = np.array_split(np.arange(ROWS), RANKS)
        self.model.theta.copy_(self.start)
        mu = self.counts / ROWS
        size = self.model.size
        for _ in range(ROUNDS):
            weights = mu / self.counts
            deviation = np.full(size + GROUPS, self.mechanism.loss_deviation(UNIT)) / UNIT
            deviation[:size] = self.mechanism.gradient_deviation(weights, UNIT, size) / UNIT
            released, known = np.zeros((2, size + GROUPS), dtype=np.int64)
            row = np.zeros_like(known)
            for noise, rows in zip(ranks, mine, strict=True):
                batch = rows[noise.sample(len(rows), self.mechanism.sampling)]
                others = self.sums(batch[batch != TARGET], weights)
                known += others
                if TARGET in rows:
                    row = self.sums(np.union1d(batch, [TARGET]), weights) - others
                released += others
                if TARGET in batch and present:
                    released += row
                if self.mechanism.multiplier:
                    released[:size] += noise.rounded(size, share_deviation(deviation[0], RANKS))
                    released[size:] += noise.rounded(GROUPS, share_deviation(deviation[-1], RANKS))
            yield Seen(released, known + row, known, deviation)
            self.model.theta.sub_(torch.from_numpy(released[:size] * UNIT))
            risks = released[size:] * UNIT / self.counts
            # A small step: the row's group keeps the largest weight, so the row is worth the most.
            mu = ascend(mu, risks, 0.01, 0.001, "projected")


def attacked(multiplier: float, sampling: float = 1.0, repetitions: int = 250) -> Attack:
    mechanism = Mechanism(multiplier, CLIP, BOUND, share=0.3, sampling=sampling)
    return Attack(Federation(mechanism).play, repetitions, sampling)


def test_without_noise_the_row_is_always_found():
    assert attacked(0, repetitions=20).excess().value == 1


@pytest.mark.parametrize("sampling", [pytest.param(1.0, marks=pytest.mark.slow), 0.5])
def test_with_noise_the_attack_stays_below_what_is_promised_and_not_far_below(sampling):
    z = multiplier_for(2.0, 0.05, ROUNDS, sampling)
    attack = attacked(z, sampling)
    for delta in (0.01, 0.05, 0.2, 0.4):
        epsilon = Accountant(delta, z, sampling).epsilon(ROUNDS)
        found = attack.excess(epsilon)
        assert found.value <= delta + 4 * found.error
    # The last delta is nearly reached: this attack would notice.
    assert found.value > 0.8 * delta


@pytest.mark.parametrize("sampling", [pytest.param(1.0, marks=pytest.mark.slow), 0.5])
def test_a_third_of_the_noise_would_be_noticed(sampling):
    z = multiplier_for(2.0, 0.05, ROUNDS, sampling)
    attack = attacked(z / 3, sampling)
    found = attack.excess(Accountant(0.2, z, sampling).epsilon(ROUNDS))
    assert found.value > 0.2 + 4 * found.error
