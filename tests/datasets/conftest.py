from pathlib import Path

import pytest

from fedmpi.datasets import find
from fedmpi.datasets.options import DataOptions
from fedmpi.datasets.preparing import prepare


@pytest.fixture(scope="session")
def adult_dir() -> Path:
    """The repository's own data folder with Adult in it, so that only the first run downloads."""
    data_dir = Path(__file__).parents[2] / "data"
    prepare(find("adult"), data_dir, DataOptions())
    return data_dir
