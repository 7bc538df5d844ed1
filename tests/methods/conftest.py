"""A small table of people, the run on it, and the statement of the same training."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from statements import METHODS, Federation

from fedmpi import datasets, models
from fedmpi.datasets.options import DataOptions
from fedmpi.datasets.prepared import prepare
from fedmpi.partition import partition, single_client

GROUPS = ("north", "east", "south", "west")
GROUP_SHARES = (0.5, 0.27, 0.15, 0.08)
OTHER = {"job": "rich", "rich": "job"}
TOLERANCE = 1e-9
FAST = {"model": "logistic", "rounds": 3, "lr": 0.5, "dtype": "float64", "eval_every": 1}
FEDERATION = ("model", "loss", "seed", "skew", "target")


def flat(theta: list[torch.Tensor]) -> np.ndarray:
    return torch.cat([p.reshape(-1) for p in theta]).numpy()


def assert_same(found: np.ndarray, expected: np.ndarray, start: np.ndarray) -> None:
    """Equal to 1e-9 of how far theta went, which is stricter than of theta."""
    assert found.dtype == np.float64
    went = np.abs(expected - start).max()
    assert went > 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * went)


@dataclass
class People:
    """A CSV file, and where it is prepared."""

    file: Path
    data_dir: Path

    def arguments(self, target: str = "job") -> list[object]:
        """What fedmpi.train needs to read it: `job` has three classes, `rich` two."""
        source = ["--dataset", f"csv:{self.file}", "--data-dir", self.data_dir]
        return [*source, "--target", target, "--group", "place", "--drop", OTHER[target]]

    def federation(
        self,
        setting: str,
        clients: int,
        model: str = "logistic",
        loss: str = "cross-entropy",
        seed: int = 0,
        skew: float = 50.0,
        target: str = "job",
    ) -> Federation:
        """The same rows, clients and start as the program has, in float64."""
        dataset = datasets.find(f"csv:{self.file}")
        options = DataOptions(seed=seed, target=target, group=("place",), drop=(OTHER[target],))
        data = prepare(dataset, self.data_dir, options)
        x, y, group = (np.array(data.array(f"train_{part}")) for part in ("x", "y", "group"))
        if setting == "centralized":
            held = single_client(group, data.groups)
        else:
            held = partition(group, data.groups, clients, setting, dataset, skew=skew, seed=seed)
        start = models.build(model, x.shape[1:], len(data.classes), seed)
        return Federation(
            x=torch.from_numpy(x).double(),
            y=torch.from_numpy(y.astype(np.int64)),
            group=group.tolist(),
            groups=len(data.groups),
            clients=[np.flatnonzero(held.client_of_row == k).tolist() for k in range(clients)],
            theta=[p.detach().double() for p in start.parameters()],
            loss=loss,
            seed=seed,
        )


@pytest.fixture(scope="session")
def people(tmp_path_factory) -> People:
    """300 rows in four groups of very unequal size, on which the risks of the groups differ."""
    rng = np.random.default_rng(7)
    place = rng.choice(len(GROUPS), 300, p=GROUP_SHARES)
    x = rng.normal(size=(300, 4)) + 0.3 * place[:, None]
    score = x[:, 0] - x[:, 1] * (place - 1) + rng.normal(size=300) * (0.3 + place)
    folder = tmp_path_factory.mktemp("people")
    lines = ["a,b,c,d,place,job,rich"]
    for row, a, s in zip(x, place, score, strict=True):
        job = "cook" if s < -0.8 else "nurse" if s < 0.8 else "pilot"
        rich = "yes" if s > 0.5 else "no"
        lines.append(",".join([*(f"{v:.6f}" for v in row), GROUPS[a], job, rich]))
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    return People(folder / "people.csv", folder / "data")


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny products: a second thread costs more than it helps."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(people, train):
    """Train on `people` in float64: run("afl", "SSG", 4, lr_mu=0.5) -> Run."""
    numbers = count()

    def start(method: str, setting: str, clients: int, **options: object):
        target = options.pop("target", "job")
        options = FAST | {"setting": setting, "clients": clients, "method": method} | options
        if method == "centralized":
            del options["setting"], options["clients"]
        flags = [f"--{name.replace('_', '-')}" for name in options]
        pairs = zip(flags, options.values(), strict=True)
        arguments = [item for pair in pairs for item in pair]
        return train(*people.arguments(target), *arguments, output=f"run{next(numbers)}")

    return start


@pytest.fixture
def agree(people, run):
    """Train, state the same training, and compare: every theta, the weights and the risks."""

    def compare(method: str, setting: str, clients: int, **options: object) -> None:
        found = run(method, setting, clients, **options)
        of_rows = {n: options.pop(n) for n in FEDERATION if n in options}
        f = people.federation(setting, clients, **of_rows)
        stated = METHODS[method](f, **({"rounds": 3, "lr": 0.5} | options))
        assert_same(found.theta("last"), stated.thetas[-1], flat(f.theta))
        assert_same(found.theta("averaged"), np.mean(stated.thetas, axis=0), flat(f.theta))
        for kind, rows in (("risk", stated.risks), ("weight", stated.weights)):
            columns = [name for name in found.history[0] if name.startswith(f"{kind}/")]
            assert len(columns) == f.groups
            for line, row in zip(found.history, rows, strict=True):
                if row:
                    np.testing.assert_allclose([float(line[c]) for c in columns], row, rtol=1e-9)

    return compare
