"""The noise of a round, against the sensitivities of plain sums."""

import math

import numpy as np
import pytest

from fedmpi.errors import UserError
from fedmpi.privacy.mechanism import Mechanism


def test_the_two_noises_are_one_of_the_multiplier():
    for share in (0.01, 0.1, 0.5):
        m = Mechanism(3.0, clip=2.0, loss_bound=4.0, share=share)
        together = 1 / m.gradient_multiplier**2 + 1 / m.loss_multiplier**2
        assert together == pytest.approx(1 / 3.0**2, rel=1e-14)
        assert m.gradient_multiplier**2 / m.loss_multiplier**2 == pytest.approx(share / (1 - share))


@pytest.mark.parametrize("sampling", [1.0, 0.2])
@pytest.mark.parametrize("unit", [0, 2.0**-6])
def test_no_row_moves_the_sums_by_more_than_one_over_the_multiplier(sampling, unit):
    """Rows are taken out one at a time; sums are rounded as a rank rounds them, if they are."""
    rng = np.random.default_rng(0)
    rows, size, groups, clip, bound, z = 60, 30, 3, 0.8, 1.5, 2.5
    group = rng.integers(0, groups, rows)
    group_weights = rng.dirichlet(np.ones(groups)) / np.bincount(group)
    gradients = rng.normal(size=(rows, size)) * rng.exponential(size=(rows, 1)) / 3
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    gradients *= np.minimum(1, clip / norms)
    losses = np.minimum(rng.exponential(size=rows) * 2, bound)

    def released(rows_in: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weighted = rows_in * group_weights[group] / sampling
        sums = np.bincount(group, rows_in * losses / sampling, minlength=groups)
        both = weighted @ gradients, sums
        return both if not unit else tuple(np.rint(part / unit) * unit for part in both)

    m = Mechanism(z, clip, bound, share=0.3, sampling=sampling)
    deviations = m.gradient_deviation(group_weights, unit, size), m.loss_deviation(unit)
    distances = []
    for i in range(rows):
        out = np.ones(rows)
        out[i] = 0
        pairs = zip(released(np.ones(rows)), released(out), deviations, strict=True)
        moved = [np.linalg.norm(a - b) / s for a, b, s in pairs]
        distances.append(math.hypot(*moved))
    assert max(distances) <= 1 / z * (1 + 1e-12)
    if not unit:  # and the worst row reaches it
        worst = np.flatnonzero(group_weights[group] == group_weights.max())
        full = [i for i in worst if norms[i] > clip and losses[i] == bound]
        assert full and distances[full[0]] == pytest.approx(1 / z, rel=1e-12)


def test_steps_of_either_sign_have_the_same_noise():
    m = Mechanism(2.0, clip=1.0, loss_bound=1.0)
    weights = np.array([0.1, 0.3])
    assert m.gradient_deviation(-weights) == m.gradient_deviation(weights) > 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"share": 0}, "share of 0"),
        ({"share": 1}, "share of 1"),
        ({"clip": 0}, "gradient of 0"),
        ({"loss_bound": math.inf}, "loss of inf"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, said):
    with pytest.raises(UserError, match=said):
        Mechanism(**{"multiplier": 1.0, "clip": 1.0, "loss_bound": 1.0, **changed})
