"""One small run, on a table with numbers, text and missing cells, for all tests of scoring."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runs import Run

ROWS = 200


def table(seed: int, rows: int = ROWS) -> pd.DataFrame:
    """Ages (some missing), a 0/1, jobs (some missing), places by number; who is ill follows age."""
    rng = np.random.default_rng(seed)
    age, job = rng.normal(40, 9, rows).round(2), rng.choice(["cook", "nurse", "pilot, jet"], rows)
    ill = np.where(age + 6 * (job == "cook") + rng.normal(0, 6, rows) > 44, "yes", "no")
    frame = pd.DataFrame(
        {
            "age": age,
            "smokes": rng.integers(0, 2, rows),
            "job": job,
            "ward": rng.choice([1, 2, 10], rows),
            "ill": ill,
        }
    )
    frame.loc[rng.random(rows) < 0.1, "age"] = np.nan
    frame.loc[rng.random(rows) < 0.1, "job"] = None
    return frame


@dataclass
class Trained:
    """A finished run, and the raw rows that it was tested with."""

    run: Run
    folder: Path
    test: pd.DataFrame
    data: Path


@pytest.fixture(scope="package")
def trained(tmp_path_factory) -> Trained:
    from mpi4py import MPI

    from fedmpi.federation.job import Job
    from fedmpi.mpi.ranks import Ranks
    from fedmpi.run.arguments import resolve

    folder = tmp_path_factory.mktemp("trained")
    table(0).to_csv(folder / "people.csv", index=False)
    table(1).to_csv(folder / "test.csv", index=False)
    options = [
        *("--dataset", f"csv:{folder / 'people.csv'}", "--test", folder / "test.csv"),
        *("--target", "ill", "--group", "ward,ill", "--clients", "3", "--rounds", "30"),
        *("--lr", "0.3", "--model", "mlp", "--progress", "none"),
        *("--data-dir", folder / "data", "--output", folder / "run"),
    ]
    config = resolve([str(option) for option in options], 1, one_process=True)
    Job(Ranks(MPI.COMM_SELF), config).run()
    test = pd.read_csv(folder / "test.csv", dtype=str, keep_default_na=False)
    return Trained(Run(folder / "run"), folder / "run", test, folder / "data")
