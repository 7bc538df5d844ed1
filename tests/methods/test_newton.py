"""--optimizer newton: the saddle point that a convex solver finds, in a handful of rounds."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from quadprog import solve_qp
from runs import Run, cut_off_after, launch, write_people
from scipy.optimize import minimize

from fedmpi import data as datasets
from fedmpi import models
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError
from fedmpi.methods.simplex import maximize_on_simplex
from fedmpi.models.curvature import Curvature
from fedmpi.models.flat import FlatModel
from fedmpi.run.arguments import resolve

DECAY, EPSILON = 0.01, 0.02


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.sampled_from([0.0, 0.01, 0.1]))
def test_the_maximum_on_the_simplex_is_that_of_a_quadratic_solver(seed, n, floor):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) * 10 ** rng.uniform(-2, 2)
    quadratic, linear = root @ root.T + 1e-6 * np.eye(n), rng.normal(size=n)
    limits = np.column_stack([np.ones(n), np.eye(n)])
    expected = solve_qp(quadratic, linear, limits, np.append(1.0, np.full(n, floor)), meq=1)[0]
    found = maximize_on_simplex(linear, quadratic, floor)
    assert found.sum() == pytest.approx(1) and found.min() >= floor - 1e-12

    def value(x):
        return linear @ x - x @ quadratic @ x / 2

    assert value(found) >= value(expected) - 1e-9 * (1 + abs(value(expected)))


def test_two_groups_with_the_same_rows_are_no_trouble():
    both = np.ones((2, 2))
    np.testing.assert_allclose(maximize_on_simplex(np.array([1.0, 1.0]), both).sum(), 1)
    np.testing.assert_allclose(maximize_on_simplex(np.array([2.0, 1.0]), both), [1, 0], atol=1e-9)


@pytest.mark.parametrize(("inputs", "classes"), [(3, 2), (2, 4)])  # the second lies across
def test_derivatives_are_those_of_autograd(inputs, classes):
    rng = np.random.default_rng(0)
    module = models.build("logistic", (inputs,), classes, 0)
    model = FlatModel(module, torch.float64, torch.device("cpu"), scalars=1)
    x = torch.from_numpy(rng.normal(size=(30, inputs)))
    y = torch.from_numpy(rng.integers(classes, size=30))
    of_groups = torch.from_numpy(rng.integers(3, size=(2, 30)).astype(float))
    of_rows = torch.from_numpy(rng.uniform(size=30))
    sums = Curvature(model, groups=2)
    for rows in (slice(0, 11), slice(11, 30)):
        sums.add(x[rows], y[rows], of_groups[:, rows], of_rows[rows])
    gradients, hessian = torch.empty(2, model.size).double(), torch.empty(model.size, model.size)
    hessian = hessian.double()
    sums.put(gradients, hessian)

    def losses(theta):
        weight, bias = model.cut(theta)
        return torch.nn.functional.cross_entropy(x @ weight.T + bias, y, reduction="none")

    theta = model.theta.detach().clone()
    for a in range(2):
        of_group = torch.func.grad(lambda t, a=a: of_groups[a] @ losses(t))(theta)
        torch.testing.assert_close(gradients[a], of_group, rtol=0, atol=1e-10)
    whole = torch.func.hessian(lambda t: of_rows @ losses(t))(theta)
    torch.testing.assert_close(hessian, whole, rtol=0, atol=1e-10)


def options(folder, *more: object) -> list[str]:
    csv = folder / "people.csv"
    csv = csv if csv.exists() else write_people(csv, {"a": 90, "b": 50, "c": 20}, lifted="b")
    data = ["--dataset", f"csv:{csv}", "--target", "y", "--group", "g", "--setting", "PSG"]
    run = f"--model logistic --optimizer newton --weight-decay {DECAY} --epsilon {EPSILON}"
    rest = "--dtype float64 --average last --rounds 12 --clients 4 --solver paper"
    rest += " --progress none --data-dir"
    return [*data, *run.split(), *rest.split(), str(folder / "data"), *map(str, more)]


def by_a_solver(folder) -> tuple[np.ndarray, np.ndarray, float]:
    """Theta, risks and value of: min z + decay / 2 |theta|^2, z >= each vertex of the weights."""
    held = prepare(
        datasets.find(f"csv:{folder / 'people.csv'}"),
        folder / "data",
        DataOptions(target="y", group=("g",)),
    )
    x, y, group = (np.array(held.array(f"train_{part}")) for part in ("x", "y", "group"))
    x = torch.from_numpy(x).double()
    y = torch.from_numpy(y.astype(np.int64))
    vertices = EPSILON + (1 - 3 * EPSILON) * np.eye(3)

    def risks(theta):
        logits = x @ theta[:-2].reshape(2, -1).T + theta[-2:]
        losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
        return torch.stack([losses[torch.from_numpy(group == a)].mean() for a in range(3)])

    def numbers(v):
        return vertices @ risks(torch.from_numpy(v[:-1])).numpy()

    def slopes(v):
        return vertices @ torch.func.jacrev(risks)(torch.from_numpy(v[:-1])).numpy()

    found = minimize(
        lambda v: v[-1] + DECAY / 2 * v[:-1] @ v[:-1],
        np.append(np.zeros(2 * x.shape[1] + 2), 1.0),
        jac=lambda v: np.append(DECAY * v[:-1], 1.0),
        constraints={
            "type": "ineq",
            "fun": lambda v: v[-1] - numbers(v),
            "jac": lambda v: np.column_stack([-slopes(v), np.ones(3)]),
        },
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    theta = found.x[:-1]
    return theta, risks(torch.from_numpy(theta)).numpy(), float(found.fun)


def test_it_ends_where_a_convex_solver_ends(train, tmp_path):
    run = train(*options(tmp_path))
    theta, risks, value = by_a_solver(tmp_path)
    np.testing.assert_allclose(run.theta(), theta, atol=1e-5)
    last = run.history[-1]
    mine = [float(last[f"risk/{g}"]) for g in "abc"]
    np.testing.assert_allclose(mine, risks, atol=1e-5)
    assert run.result["certificate"]["upper"] == pytest.approx(value, abs=1e-9)
    assert run.result["certificate"]["gap"] < 1e-9


def test_all_rows_in_one_place_give_the_same(train, tmp_path):
    """Lemma 2, and the settings: sums do not know who holds a row."""
    runs = [
        train(*options(tmp_path, "--setting", setting), output=setting)
        for setting in ("PSG", "ESG", "SSG")
    ]
    runs.append(train(*options(tmp_path, "--method", "centralized"), output="one"))
    for run in runs[1:]:
        np.testing.assert_allclose(run.theta(), runs[0].theta(), rtol=0, atol=1e-9)


def test_a_step_that_is_too_long_is_halved(train, tmp_path):
    """Without decay, from data that a plane divides, whole steps would never end."""
    rows = [f"{u},{u % 3},{'ab'[u % 2]},{'yes' if u > 20 else 'no'}" for u in range(40)]
    (tmp_path / "divided.csv").write_text("\n".join(["u,v,g,y", *rows]) + "\n")
    more = ["--weight-decay", 0, "--dataset", f"csv:{tmp_path / 'divided.csv'}", "--rounds", 25]
    more += ["--setting", "SSG"]
    worst = [float(row["worst"]) for row in train(*options(tmp_path, *more)).history]
    assert np.isfinite(worst).all() and worst[-1] < 0.05 < worst[0]


@pytest.mark.launch
@pytest.mark.once
def test_ranks_and_a_resume_change_nothing(train, tmp_path):
    one = train(*options(tmp_path), output="one")
    command = ["mpirun", "-n", "3", sys.executable, "-m", "fedmpi.train"]
    done = launch([*command, *options(tmp_path), "--output", str(tmp_path / "three")])
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(Run(tmp_path / "three").theta(), one.theta(), rtol=0, atol=1e-9)
    with cut_off_after(3):
        train(*options(tmp_path, "--checkpoint-every", 1), output="cut")
    resumed = train(*options(tmp_path, "--resume"), output="cut")
    np.testing.assert_array_equal(resumed.theta(), one.theta())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--lr", "1"], "--lr does nothing with --optimizer newton"),
        (["--batch-rows", "30"], "--batch-rows does nothing with --optimizer newton"),
        (["--model", "mlp"], "--optimizer newton is for --method fedminmax"),
        (["--loss", "brier"], "--optimizer newton is for --method fedminmax"),
        (["--method", "afl", "--epsilon", "0"], "does nothing with --method afl"),
    ],
)
def test_what_it_is_not_for(tmp_path, more, message):
    with pytest.raises(UserError, match=message):
        resolve(options(tmp_path, *more), 1, one_process=True)


def test_a_hessian_that_is_too_large_is_refused(train, tmp_path):
    names = [f"c{i}" for i in range(1100)]
    numbers = np.random.default_rng(0).normal(size=(30, 1100)).round(3)
    rows = [f"{','.join(map(str, x))},{'ab'[i % 2]},{i % 3 % 2}" for i, x in enumerate(numbers)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join([*names, "g", "y"]), *rows]) + "\n")
    with pytest.raises(UserError, match=r"2,206 × 2,206 numbers .* at most 2,000 parameters"):
        wide = ["--dataset", f"csv:{tmp_path / 'wide.csv'}", "--setting", "SSG"]
        train(*options(tmp_path, *wide))
