import pytest

from fedmpi.data.dataset import Arrays, Dataset
from fedmpi.data.datasets.synthetic import Synthetic
from fedmpi.data.hosts import Found, compare, digest
from fedmpi.data.options import DataOptions
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError

SERVER = Found("n1", "people-1", "d1")


def test_hosts_that_have_the_same_are_well():
    compare([SERVER, Found("n2", "people-1", "d1")])
    compare([SERVER])


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ([Found("n2", error="no a.csv."), Found("n3")], "n2 cannot prepare the data: no a.csv. H"),
        ([Found("n2", "people-2", "d1")], "n2 and n1 have different files"),
        ([Found("n2", "people-1", "d1"), Found("n3", "people-1", "d2")], "n3 and n1 have prepared"),
        ([Found(f"n{k}", error="?") for k in range(2, 9)], "n2, n3, n4, n5 and others cannot"),
    ],
)
def test_hosts_that_differ_are_named(others, says):
    with pytest.raises(UserError, match=says):
        compare([SERVER, *others])


class Renamed(Dataset):
    """Synthetic data whose groups have other names."""

    name = "renamed"

    def read(self, data_dir, options, progress=False) -> Arrays:
        arrays = Synthetic().read(data_dir, options)
        arrays.groups = ("a", "b")
        return arrays


def test_the_digest_is_of_rows_and_names_not_of_the_place(tmp_path):
    options = DataOptions(rows=50)
    one, again = (
        prepare(Synthetic(), tmp_path / place, options).folder for place in ("one", "two")
    )
    assert one != again and digest(one) == digest(again)
    assert digest(prepare(Synthetic(), tmp_path, DataOptions(rows=51)).folder) != digest(one)
    assert digest(prepare(Renamed(), tmp_path, options).folder) != digest(one)
