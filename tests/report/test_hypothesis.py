"""h(x) of the synthetic data, against the formula of a model that has one."""

import numpy as np
import pytest
import torch
from reports import FAST

from fedmpi.data.datasets.synthetic import draw
from fedmpi.errors import UserError
from fedmpi.report.hypothesis import GRID, learned, optima
from fedmpi.run.record import read_record


@pytest.mark.parametrize("method, which", [("fedminmax", "averaged"), ("fedavg", "last")])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_h_of_a_logistic_regression_is_a_sigmoid(train, method, which, dtype):
    run = train(*f"{FAST} --method {method} --lr 1 --dtype {dtype}".split())
    state = torch.load(run.folder / "model.pt", weights_only=True)[which]
    weight, bias = (value.double().numpy() for value in state.values())
    slope, start = weight[1, 0] - weight[0, 0], bias[1] - bias[0]
    expected = 1 / (1 + np.exp(-(slope * GRID + start)))
    assert np.ptp(expected) > 0.01
    assert learned(read_record(run.folder)) == pytest.approx(expected, abs=1e-6)


def test_the_optima_are_the_frequencies_of_the_data():
    x, y, group = draw(200_000, np.random.default_rng(0))
    for a, (left, *_, right) in enumerate(optima().values()):
        for side, expected in ((x[:, 0] <= 0, left), (x[:, 0] > 0, right)):
            assert y[side & (group == a)].mean() == pytest.approx(expected, abs=0.01)


def test_a_run_does_not_choose_what_is_imported(run, edit):
    edit(run / "config.json", model="antigravity:geohash")
    with pytest.raises(UserError, match="own models"):
        learned(read_record(run))
