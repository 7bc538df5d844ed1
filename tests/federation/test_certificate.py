"""Bounds of the minimax risk: never wrong, and a run that ends by them."""

import sys

import numpy as np
import pytest
import torch
from runs import Run, cut_off_after, launch, write_people
from scipy.optimize import minimize

from fedmpi.errors import UserError
from fedmpi.federation.certificate import Certificate, Residual

EPSILON, LR = 0.01, 0.3


class Game:
    """A random convex game: logistic losses of a few groups, with weight decay."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.groups = int(rng.integers(2, 5))
        self.decay = float(10 ** rng.uniform(-2, 0))
        self.x = [rng.normal(rng.normal(), 1, size=(12, 2)) for _ in range(self.groups)]
        self.y = [rng.choice([-1.0, 1.0], size=12) for _ in range(self.groups)]

    def risks(self, theta: np.ndarray) -> np.ndarray:
        pairs = zip(self.x, self.y, strict=True)
        return np.array([np.logaddexp(0, -y * (x @ theta)).mean() for x, y in pairs])

    def slopes(self, theta: np.ndarray) -> np.ndarray:
        pairs = zip(self.x, self.y, strict=True)
        return np.array([(-y / (1 + np.exp(y * (x @ theta)))) @ x / len(y) for x, y in pairs])

    def worst(self, risks: np.ndarray) -> float:
        return EPSILON * risks.sum() + (1 - self.groups * EPSILON) * risks.max()

    def optimum(self) -> float:
        """By sequential quadratic programming: min z, z >= each vertex of the weights' simplex."""
        free = 1 - self.groups * EPSILON
        vertices = EPSILON + free * np.eye(self.groups)

        def objective(v):
            return v[-1] + self.decay / 2 * v[:2] @ v[:2]

        def slope(v):
            return np.append(self.decay * v[:2], 1.0)

        limits = {
            "type": "ineq",
            "fun": lambda v: v[-1] - vertices @ self.risks(v[:2]),
            "jac": lambda v: np.column_stack(
                [-vertices @ self.slopes(v[:2]), np.ones(self.groups)]
            ),
        }
        start = np.array([0.0, 0.0, 1.0])
        settings = {"ftol": 1e-13, "maxiter": 500}
        found = minimize(objective, start, jac=slope, constraints=limits, options=settings)
        theta = found.x[:2]
        return self.worst(self.risks(theta)) + self.decay / 2 * theta @ theta


@pytest.mark.parametrize("tries", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_never_wrong_in_random_games(tries):
    """At random weights and thetas, and along a descent: lower <= optimum <= upper."""
    narrow = 0
    for seed in range(tries):
        game, rng = Game(seed), np.random.default_rng([1, seed])
        best = game.optimum()
        bounds = Certificate(game.decay, EPSILON, LR)
        theta, mu = rng.normal(size=2), np.full(game.groups, 1 / game.groups)
        for _ in range(40):
            risks = game.risks(theta)
            change = -LR * mu @ game.slopes(theta)
            bounds.look(mu, risks, torch.from_numpy(theta), torch.from_numpy(change))
            # The solver itself is exact to about 1e-9.
            assert bounds.lower <= best + 1e-8 <= bounds.upper + 2e-8, seed
            theta = theta + change - LR * game.decay * theta
            mu = mu * np.exp(0.5 * risks)
            mu = EPSILON + (1 - game.groups * EPSILON) * mu / mu.sum()
        narrow += bounds.gap < 0.05
    assert narrow > tries / 2  # bounds that are never wrong could also say nothing


def options(folder, *more: object) -> list[str]:
    csv = folder / "people.csv"
    csv = csv if csv.exists() else write_people(csv, {"a": 60, "b": 30, "c": 20}, lifted="b")
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--setting", "PSG"]
    run = "--model logistic --weight-decay .1 --dtype float64 --lr .5 --clients 4 --lr-mu .3"
    fast = "--optimizer nesterov --adversary multiplicative --epsilon .01 --rounds 2000"
    where = ["--data-dir", str(folder / "data"), "--solver", "paper", "--progress", "none"]
    return [*data, *run.split(), *fast.split(), *where, *map(str, more)]


def test_a_run_ends_when_it_is_near_enough(train, tmp_path):
    run = train(*options(tmp_path, "--until", "gap=1e-3", "--eval-every", 7))
    proven, rounds = run.result["certificate"], run.result["rounds"]
    assert proven["gap"] <= 1.1e-3 and rounds < 500
    assert proven["lower"] <= proven["upper"]
    rows = [int(row["round"]) for row in run.history]
    assert rows[-1] == rounds and {"upper", "lower", "gap"} <= set(run.history[0])
    nearer = train(*options(tmp_path, "--until", "gap=1e-5"), output="nearer").result
    assert nearer["rounds"] > rounds
    # The same game, solved longer, lies within the first one's bounds.
    assert proven["lower"] <= nearer["certificate"]["upper"] <= proven["upper"] + 1e-9
    assert nearer["certificate"]["lower"] <= proven["upper"]


def test_theta_is_the_one_that_is_certified(train, tmp_path):
    """Its upper bound, by hand, from the model and the training rows."""
    from fedmpi import data as datasets
    from fedmpi.data.options import DataOptions
    from fedmpi.data.prepare import prepare

    run = train(*options(tmp_path, "--until", "gap=1e-3"))
    found = datasets.find(f"csv:{tmp_path / 'people.csv'}")
    held = prepare(found, tmp_path / "data", DataOptions(target="y", group=("g",)))
    x, y, group = (np.array(held.array(f"train_{part}")) for part in ("x", "y", "group"))
    theta = run.theta("last")
    logits = torch.from_numpy(x.astype(float) @ theta[:-2].reshape(2, -1).T + theta[-2:])
    target = torch.from_numpy(y.astype(np.int64))
    losses = torch.nn.functional.cross_entropy(logits, target, reduction="none").numpy()
    risks = np.array([losses[group == a].mean() for a in range(3)])
    upper = 0.01 * risks.sum() + 0.97 * risks.max() + 0.05 * theta @ theta
    assert run.result["certificate"]["upper"] == pytest.approx(upper, abs=1e-12)


@pytest.mark.launch
@pytest.mark.once
def test_all_ranks_end_together_and_a_resume_ends_there_too(train, tmp_path):
    more = ["--until", "gap=1e-3", "--checkpoint-every", 5]
    one = train(*options(tmp_path, *more), output="one")
    command = ["mpirun", "-n", "3", sys.executable, "-m", "fedmpi.train"]
    done = launch([*command, *options(tmp_path, *more), "--output", str(tmp_path / "three")])
    assert done.returncode == 0, done.stderr
    three = Run(tmp_path / "three")
    assert three.result["rounds"] == one.result["rounds"]
    np.testing.assert_allclose(three.theta(), one.theta(), rtol=0, atol=1e-9)
    with cut_off_after(5):
        train(*options(tmp_path, *more), output="cut")
    resumed = train(*options(tmp_path, *more, "--resume"), output="cut")
    assert resumed.result["rounds"] == one.result["rounds"]
    np.testing.assert_array_equal(resumed.theta(), one.theta())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--until", "gap=0"], "--until gap=0: give a gap above 0"),
        (["--until", "1e-3"], "--until 1e-3: give a gap above 0"),
        (["--until", "gap=1", "--model", "mlp"], "--until needs a certificate"),
        (["--until", "gap=1", "--loss", "brier"], "--until needs a certificate"),
        (["--until", "gap=1", "--weight-decay", 0], "--until needs a certificate"),
        (["--until", "gap=1", "--batch-rows", 9], "--until needs a certificate"),
    ],
)
def test_what_is_refused(train, tmp_path, more, message):
    with pytest.raises(UserError, match=message):
        train(*options(tmp_path, *more))


def test_the_residual_is_that_of_the_last_quarter_of_the_rounds(train, tmp_path):
    """By autograd, along the thetas of shorter runs, which are the rounds of the longer one."""
    from fedmpi import data as datasets
    from fedmpi import models
    from fedmpi.data.options import DataOptions
    from fedmpi.data.prepare import prepare

    more = ["--model", "mlp", "--rounds", 8]
    residual = train(*options(tmp_path, *more)).result["residual"]
    found = datasets.find(f"csv:{tmp_path / 'people.csv'}")
    held = prepare(found, tmp_path / "data", DataOptions(target="y", group=("g",)))
    x, y, group = (np.array(held.array(f"train_{part}")) for part in ("x", "y", "group"))
    x, y = torch.from_numpy(x).double(), torch.from_numpy(y.astype(np.int64))
    module = models.build("mlp", x.shape[1:], 2, 0).double()
    gradients, all_risks, played = [], [], []
    for t in (6, 7):  # rounds 7 and 8 begin with these
        short = train(*options(tmp_path, *more, "--rounds", t), output=f"short{t}")
        mu = torch.from_numpy(np.array([short.history[-1][f"weight/{g}"] for g in "abc"], float))
        theta = torch.from_numpy(short.theta("last"))
        torch.nn.utils.vector_to_parameters(theta, module.parameters())
        losses = torch.nn.functional.cross_entropy(module(x), y, reduction="none")
        risks = torch.stack([losses[torch.from_numpy(group == a)].mean() for a in range(3)])
        slopes = torch.autograd.grad(mu @ risks, list(module.parameters()))
        gradients.append(torch.cat([g.reshape(-1) for g in slopes]) + 0.1 * theta)
        all_risks.append(risks.detach())
        played.append(float(mu @ risks))
    mean = torch.stack(all_risks).mean(0)
    best = 0.01 * float(mean.sum()) + 0.97 * float(mean.max())
    assert residual["rounds"] == 2
    assert residual["stationarity"] == pytest.approx(
        float(torch.stack(gradients).mean(0).norm()), abs=1e-9
    )
    assert residual["regret"] == pytest.approx(best - np.mean(played), abs=1e-9)


@pytest.mark.parametrize(
    ("risks", "best"), [((-0.2, 0.0, -0.6), -0.2), ((0.3, 0.0, -0.6), 0.3), ((0.0, 0.0, 0.0), 0.0)]
)
def test_the_residual_stands_risks_that_noise_took_below_zero(risks, best):
    """The second group has no rows."""
    residual = Residual(weight_decay=0.0, epsilon=0.0, lr=0.1)
    mu = np.array([0.5, 0.0, 0.5])
    told = np.array([risks[0], np.nan, risks[2]])
    residual.look(mu, told, torch.zeros(2), torch.zeros(2))
    assert residual.saved()["regret"] == pytest.approx(best - mu @ risks)
