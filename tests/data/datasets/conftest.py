from pathlib import Path

import pytest

from fedmpi.data import find
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare


@pytest.fixture(scope="session")
def adult_dir() -> Path:
    """The repository's own data folder with Adult in it, so that only the first run downloads."""
    data_dir = Path(__file__).parents[3] / "data"
    prepare(find("adult"), data_dir, DataOptions())
    return data_dir
