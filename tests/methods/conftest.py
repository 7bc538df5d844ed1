"""A small table of people, the run on it, and the statement of the same training."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import Run
from statements import METHODS, Federation, Trace, flat

from fedmpi import data as datasets
from fedmpi import models
from fedmpi.data.options import DataOptions
from fedmpi.data.partition import partition
from fedmpi.data.prepare import prepare

GROUPS = ("north", "east", "south", "west")
GROUP_SHARES = (0.5, 0.27, 0.15, 0.08)
OTHER_TARGET = {"job": "rich", "rich": "job"}
TOLERANCE = 1e-9
OPTIONS = {"model": "logistic", "rounds": 3, "lr": 0.5, "dtype": "float64", "eval_every": 1}
OF_THE_ROWS = ("model", "loss", "seed", "skew", "target", "group")


@dataclass
class People:
    """A CSV file, and where it is prepared. The target `job` has three classes, `rich` two.

    The groups are places, or with --group sex,rich the two classes of each sex.
    """

    file: Path
    data_dir: Path

    def arguments(self, target: str, group: str = "place") -> list[object]:
        """What fedmpi.train needs to read it."""
        where = ["--dataset", f"csv:{self.file}", "--data-dir", self.data_dir]
        drop = ",".join(left_out(target, group))
        return [*where, "--target", target, "--group", group, "--drop", drop]

    def federation(
        self,
        setting: str,
        clients: int,
        model: str = "logistic",
        loss: str = "cross-entropy",
        seed: int = 0,
        skew: float = 50.0,
        target: str = "job",
        group: str = "place",
    ) -> Federation:
        """The rows, clients and start that the program has, in float64."""
        dataset = datasets.find(f"csv:{self.file}")
        drop = left_out(target, group)
        options = DataOptions(seed=seed, target=target, group=tuple(group.split(",")), drop=drop)
        data = prepare(dataset, self.data_dir, options)
        x, y, of_row = (np.array(data.array(f"train_{part}")) for part in ("x", "y", "group"))
        held = partition(of_row, data.groups, clients, setting, dataset, skew=skew, seed=seed)
        start = models.build(model, x.shape[1:], len(data.classes), seed)
        return Federation(
            x=torch.from_numpy(x).double(),
            y=torch.from_numpy(y.astype(np.int64)),
            group=of_row.tolist(),
            groups=len(data.groups),
            clients=[np.flatnonzero(held.client_of_row == k).tolist() for k in range(clients)],
            theta=[p.detach().double() for p in start.parameters()],
            loss=loss,
            seed=seed,
        )


def left_out(target: str, group: str) -> tuple[str, ...]:
    """Columns that are no inputs: the other target, and the sex, if no group is made of it."""
    return (OTHER_TARGET[target], *(() if "sex" in group else ("sex",)))


@pytest.fixture(scope="session")
def people(tmp_path_factory) -> People:
    """300 rows in four groups of very unequal size, whose risks differ."""
    rng = np.random.default_rng(7)
    place = rng.choice(len(GROUPS), 300, p=GROUP_SHARES)
    x = rng.normal(size=(300, 4)) + 0.3 * place[:, None]
    score = x[:, 0] - x[:, 1] * (place - 1) + rng.normal(size=300) * (0.3 + place)
    sex = np.where(score + 2 * rng.normal(size=300) > 0, "m", "f")
    lines = ["a,b,c,d,place,sex,job,rich"]
    for row, a, s, mf in zip(x, place, score, sex, strict=True):
        job = "cook" if s < -0.8 else "nurse" if s < 0.8 else "pilot"
        rich = "yes" if s > 0.5 else "no"
        lines.append(",".join([*(f"{v:.6f}" for v in row), GROUPS[a], mf, job, rich]))
    folder = tmp_path_factory.mktemp("people")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    return People(folder / "people.csv", folder / "data")


@pytest.fixture(
    params=[
        ("ESG", 4, {"target": "rich"}),
        ("PSG", 7, {"loss": "brier", "seed": 1}),
        ("PSG", 4, {"model": "mlp"}),
        ("SSG", 7, {"skew": 1.0, "seed": 3}),
    ],
    ids=["ESG-two-classes", "PSG-brier", "PSG-mlp", "SSG-tiny-shards"],
)
def case(request) -> tuple[str, int, dict]:
    """A setting, a number of clients, and options beside those of the method."""
    return request.param


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """On so few rows a second thread costs more than it helps, and others need the core."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def run(people, train):
    """Train on `people` in float64: run("afl", "SSG", 4, lr_mu=0.5) -> Run."""
    numbers = count()

    def start(method: str, setting: str, clients: int, **options: object):
        options = OPTIONS | {"setting": setting, "clients": clients, "method": method} | options
        arguments = people.arguments(options.pop("target", "job"), options.pop("group", "place"))
        for name, value in options.items():
            arguments += ["--" + name.replace("_", "-"), value]
        return train(*arguments, output=f"run{next(numbers)}")

    return start


@pytest.fixture
def same(people):
    """Equal to 1e-9 of how far theta went from the start, which is stricter than of theta."""

    def check(found: np.ndarray, expected: np.ndarray, **of_the_rows: object) -> None:
        start = flat(people.federation("ESG", 1, **of_the_rows).theta)
        assert found.dtype == np.float64
        went = np.abs(expected - start).max()
        assert went > 1e-3
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * went)

    return check


@pytest.fixture
def agree(people, run, same):
    """Train, state the same training, and compare every theta, risk and weight.

    The statement is that of METHODS, unless the test has its own. Return the run and the trace.
    """

    def compare(
        method: str, setting: str, clients: int, statement=None, **options: object
    ) -> tuple[Run, Trace]:
        found = run(method, setting, clients, **options)
        rows = {name: options.pop(name) for name in OF_THE_ROWS if name in options}
        f = people.federation(setting, clients, **rows)
        state = statement or METHODS[method]
        stated = state(f, **({"rounds": 3, "lr": 0.5} | options))
        same(found.theta("last"), stated.thetas[-1], **rows)
        same(found.theta("averaged"), np.mean(stated.thetas, axis=0), **rows)
        names = sorted(GROUPS)
        if "group" in rows:  # and class
            values = {"sex": ("f", "m")}.get(rows["group"].partition(",")[0], names)
            names = [f"{value} / {rich}" for value in values for rich in ("no", "yes")]
        numbers = [f"client {k}" for k in range(clients)]
        assert_columns(found, "risk", names, stated.risks)
        assert_columns(found, "weight", names, stated.group_weights)
        assert_columns(found, "weight", numbers, stated.client_weights)
        return found, stated

    return compare


def assert_columns(found, kind: str, names: list[str], stated: list[list[float]]) -> None:
    """history.csv has these columns with these values; or none of them, where nothing is stated."""
    for line, row in zip(found.history, stated, strict=True):
        if row:
            in_file = [float(line[f"{kind}/{name}"]) for name in names]
            np.testing.assert_allclose(in_file, row, rtol=TOLERANCE, atol=1e-15)
        else:
            assert not any(f"{kind}/{name}" in line for name in names)
