"""Small real runs for the report: made once, and copied for each test that wants them."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from reports import FAST, NASTY


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """`runs`: three methods, two settings where they have one, two seeds; `nasty`: one more."""
    from mpi4py import MPI

    from fedmpi.federation.job import Job
    from fedmpi.mpi.ranks import Ranks
    from fedmpi.run.arguments import resolve

    folder = tmp_path_factory.mktemp("made")

    def train(options: list[str], output: str) -> None:
        fixed = ["--output", str(folder / output), "--data-dir", str(folder / "data")]
        Job(Ranks(MPI.COMM_SELF), resolve([*options, *fixed], 1, one_process=True)).run()

    for method in ("fedavg", "fedminmax", "centralized"):
        for setting in ("ESG", "SSG") if method != "centralized" else ("ESG",):
            for seed in (0, 1):
                options = f"{FAST} --method {method} --setting {setting} --seed {seed}"
                train(options.split(), f"runs/{setting}-{method}-s{seed}")
    path = folder / "people.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "who", "y"])
        writer.writerows([i % 7, NASTY[i % 3], (i // 3) % 2] for i in range(90))
    options = f"--dataset csv:{path} --target y --group who --rounds 3 --model logistic --clients 3"
    train(options.split(), "nasty")
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    options = "--target y --group who --rounds 3 --model logistic"
    (folder / "owners").mkdir()
    for owner, some in (("First Bank", rows[:45]), ("Second Bank", rows[45:])):
        text = "\n".join([head, *some])
        (folder / f"owners/{owner}.csv").write_text(text, encoding="utf-8")
    train(["--dataset", f"csv:{folder}/owners/", *options.split()], "owned")
    return folder


@pytest.fixture
def runs(made, tmp_path) -> Path:
    """Ten runs: FedAvg and FedMinMax in ESG and SSG, and the baseline, of two seeds."""
    return shutil.copytree(made / "runs", tmp_path / "runs")


@pytest.fixture
def run(made, tmp_path) -> Path:
    """One run."""
    return shutil.copytree(made / "runs" / "ESG-fedminmax-s0", tmp_path / "run")


@pytest.fixture
def nasty(made, tmp_path) -> Path:
    """One run on groups whose names are HTML, TeX and Unicode."""
    return shutil.copytree(made / "nasty", tmp_path / "nasty")


@pytest.fixture
def owned(made, tmp_path) -> Path:
    """One run on the files of two owners."""
    return shutil.copytree(made / "owned", tmp_path / "owned")


@pytest.fixture
def edit() -> Callable[..., None]:
    """Change what a JSON file says: edit(path, key=value, ...)."""

    def change(path: Path, **values: object) -> None:
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change
