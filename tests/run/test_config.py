"""A configuration that is resolved stays as it is, and knows its rows by one look at their file."""

import dataclasses
import pickle
import sys

import pytest

import fedmpi.train
from fedmpi.data import files, tables
from fedmpi.run.arguments import resolve


@pytest.fixture
def options(tmp_path) -> list[str]:
    rows = [f"{i % 7},{'ab'[i % 2]},{i // 2 % 2}" for i in range(40)]
    (tmp_path / "p.csv").write_text("\n".join(["u,g,y", *rows]) + "\n")
    given = f"--dataset csv:{tmp_path / 'p.csv'} --target y --group g --clients 2 --rounds 2"
    return [*given.split(), *f"--data-dir {tmp_path / 'data'} --progress none".split()]


@pytest.fixture
def looks(monkeypatch) -> list:
    """The files that are read as a whole, to hash them or to take their rows."""
    content_of, seen = files.content_of, []

    def count(path):
        seen.append(path)
        return content_of(path)

    for module in (files, tables):
        monkeypatch.setattr(module, "content_of", count)
    return seen


def test_a_configuration_is_frozen(options):
    config = resolve(options, 1, one_process=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.clients = 3
    assert config.replace(clients=3).clients == 3 and config.clients == 2


def test_a_run_hashes_a_csv_file_once(options, looks, monkeypatch, tmp_path):
    def looks_of_a_run(output: str) -> int:
        looks.clear()
        monkeypatch.setattr(sys, "argv", ["train", *options, "--output", str(tmp_path / output)])
        assert fedmpi.train.main() == 0
        return len(looks)

    assert looks_of_a_run("first") == 2  # once to hash it, once to prepare its rows
    assert looks_of_a_run("second") == 1
    assert looks_of_a_run("second") == 1  # it is finished


def test_the_rows_are_looked_at_again_where_they_may_be_others(options, looks, tmp_path):
    config = resolve(options, 1, one_process=True)
    key = config.data_key
    assert config.identity()["data"] == key == config.replace(micro_batch=7, clients=3).data_key
    assert len(looks) == 1
    assert config.replace(seed=1).data_key != key and len(looks) == 2
    # Another process may be on a host where that name is of another file.
    (tmp_path / "p.csv").write_text("u,g,y\n1,a,0\n2,b,1\n")
    assert config.data_key == key != pickle.loads(pickle.dumps(config)).data_key
    assert config.replace(data="csv-owners-1").data_key == "csv-owners-1"
