"""Lemma 2 and its kin: how clients lie on ranks changes nothing but rounding."""

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from layouts import COHORTS, LAYOUTS, OTHERS, QUICK, RUNS, RUNS_OF, name_of
from runs import REPOSITORY, Run, launch

from fedmpi.scoring.replicates import read_replicates

PROGRAM = REPOSITORY / "tests/helpers/layouts.py"
ROUNDS = 5
pytestmark = pytest.mark.launch


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("layouts")
    (out / "people.csv").write_text(people())
    return out


@pytest.fixture
def runs(request, folder) -> Path:
    """The runs, on 1, 3 and 6 ranks in one launch of a real mpirun; for slow tests a second one."""
    for which in RUNS_OF if request.node.get_closest_marker("slow") else ("quick",):
        if not (folder / which).exists():
            command = ["mpirun", "-n", str(max(LAYOUTS)), sys.executable, str(PROGRAM)]
            done = launch([*command, str(folder), str(folder / "people.csv"), str(ROUNDS), which])
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
            (folder / which).touch()
    return folder


def cases(some: list[tuple[str, str, str]]) -> list:
    """Parameters of a test: those whose runs are not quick are slow."""
    return [pytest.param(*r, marks=[] if r in QUICK else [pytest.mark.slow]) for r in some]


def slow_unless_quick(settings: Iterable[str]) -> list:
    """Settings of FedMinMax."""
    return [
        pytest.param(s, marks=[] if ("fedminmax", s, "") in QUICK else [pytest.mark.slow])
        for s in settings
    ]


def people() -> str:
    """400 rows of four groups whose sizes differ by an order of magnitude."""
    rng = np.random.default_rng(0)
    group = rng.choice(4, size=400, p=[0.5, 0.3, 0.13, 0.07])
    x = rng.normal(size=(400, 3)) + group[:, None] / 2
    y = (x.sum(1) + group + rng.normal(size=400) > 2).astype(int)
    h = rng.geometric(0.15, size=400).clip(max=15)  # for the setting by:h, on 11 clients
    rows = [f"{a},{b},{c},{g},{t},{s}" for (a, b, c), g, t, s in zip(x, group, y, h, strict=True)]
    return "\n".join(["u,v,w,g,y,h", *rows]) + "\n"


def difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize(
    ("method", "setting", "steps"), cases([r for r in RUNS if r[0] != "centralized"])
)
def test_every_layout_gives_the_same_theta(runs, method, setting, steps):
    for which in ("last", "averaged"):
        folders = [runs / name_of(method, setting, steps, n) for n in LAYOUTS]
        one, *others = (Run(folder).theta(which) for folder in folders)
        assert one.dtype == np.float64 and len(others) == 2
        for other in others:
            assert difference(other, one) < 1e-9
    one, *others = (Run(folder).result.get("personal") for folder in folders)
    for other in others if one else ():  # the clients' own models, of which no file is left
        for name, figures in one["groups"].items():
            assert other["groups"][name] == pytest.approx(figures, rel=1e-9)


@pytest.mark.parametrize(
    ("method", "setting", "steps"),
    cases([r for r in RUNS if r[0] == "fedminmax" and r[2] not in COHORTS]),
)
@pytest.mark.parametrize("ranks", LAYOUTS)
def test_the_federation_gives_the_centralized_model(runs, method, setting, steps, ranks):
    """Lemma 2 of the paper, after some rounds of unequal shards and missing groups."""
    federated = Run(runs / name_of(method, setting, steps, ranks))
    alone = "ESG" if setting in OTHERS else setting  # of which the baseline makes nothing
    centralized = Run(runs / name_of("centralized", alone, steps, 1))
    for which in ("last", "averaged"):
        assert difference(federated.theta(which), centralized.theta(which)) < 1e-9
    for group, row in centralized.result["groups"].items():
        assert federated.result["groups"][group]["weight"] == pytest.approx(row["weight"], abs=1e-9)


@pytest.mark.parametrize("method", ["fedminmax", "fedavg"])
def test_every_layout_gives_the_same_replicates(runs, method):
    """FedMinMax reports the mean of theta, FedAvg the last: row 0 is what result.json has."""
    folders = [runs / name_of(method, "PSG", "", n) for n in LAYOUTS]
    one, *others = (read_replicates(folder) for folder in folders)
    assert one and len(one.risk) == 1001
    for other in filter(None, others):
        assert other.test_rows == one.test_rows
        np.testing.assert_allclose(other.losses, one.losses, rtol=1e-9)
        np.testing.assert_array_equal(other.right, one.right)
        np.testing.assert_array_equal(other.rows, one.rows)
    result = Run(folders[0]).result
    assert one.risk[0].max() == result["worst_risk"]
    spread = np.nanstd(one.risk[1:], axis=0) / [
        row["risk_error"] for row in result["groups"].values()
    ]
    assert spread == pytest.approx(1, abs=0.25)  # of eight rows in the smallest group


@pytest.mark.parametrize("setting", slow_unless_quick(["PSG", *OTHERS]))
def test_the_metrics_are_of_the_model_not_of_the_layout(runs, setting):
    """Every rank scores a part of the test rows, and histograms are summed."""
    one, *others = (Run(runs / name_of("fedminmax", setting, "", n)).result for n in LAYOUTS)
    assert 0.5 < one["metrics"]["all"]["AUC"] < 1 and len(one["metrics"]["values"]) == 4
    for other in others:
        for part in ("all", "over_values"):
            assert other["metrics"][part] == pytest.approx(one["metrics"][part], abs=1e-9)


@pytest.mark.parametrize("some", [QUICK, pytest.param(RUNS, marks=pytest.mark.slow)])
def test_the_methods_differ(runs, some):
    """The comparisons above could not fail if every method and every step did the same."""
    alike = ("centralized", "ditto")  # by Lemma 2; and Ditto's theta is FedAvg's
    names = [r for r in dict.fromkeys(some) if r[1] == "PSG" and r[0] not in alike]
    names = [r for r in names if r[2] != "sgd-projected-all"]  # as without options
    thetas = [Run(runs / name_of(*name, 1)).theta() for name in names]
    for i, a in enumerate(thetas):
        assert all(difference(a, b) > 1e-6 for b in thetas[:i])


@pytest.mark.parametrize("setting", slow_unless_quick(["PSG", "SSG", *OTHERS]))
def test_the_shards_are_unequal_and_clients_lack_groups(runs, setting):
    folder = runs / name_of("fedminmax", setting, "", max(LAYOUTS))
    with np.load(folder / "partition.npz") as partition:
        counts = partition["counts"]
    assert (counts == 0).any() and len(set(counts.sum(axis=0))) > 3


def test_the_payload_is_theta_and_the_risks(runs):
    """Per round and rank: theta, plus a few numbers a group (and the odd time split)."""
    for method in ("fedminmax", "afl", "localfedminmax"):
        run = Run(runs / f"{method}-PSG-{max(LAYOUTS)}")
        theta = 8 * run.config["parameters"]
        risks = 8 * 4 * 11
        assert theta <= run.result["bytes_per_round"] <= 1.1 * theta + risks
