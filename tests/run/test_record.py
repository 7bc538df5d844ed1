"""Finished runs, read back from their folders."""

import numpy as np
import pytest

from fedmpi.errors import UserError
from fedmpi.run.record import find_records, read_record

OPTIONS = "--dataset synthetic --rows 60 --rounds 4 --eval-every 2 --model logistic --clients 3"


def test_a_run_is_read_back(train):
    run = train(*OPTIONS.split())
    record = read_record(run.folder)
    assert record.result == run.result and record.config == run.config
    assert record.history["round"].tolist() == [1, 2, 4]
    assert record.history["worst"].tolist() == [float(row["worst"]) for row in run.history]
    assert record.partition["counts"].sum() == 60
    assert np.allclose(record.partition["P_A"].sum(axis=0), 1)


def test_runs_are_found_below_a_folder_and_each_once(train, tmp_path):
    runs = [train(*OPTIONS.split(), "--seed", s, output=f"all/s{s}") for s in (0, 1)]
    found = find_records([tmp_path / "all", runs[1].folder])
    assert [record.folder for record in found] == [run.folder for run in runs]
    assert [record.result["seed"] for record in found] == [0, 1]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        find_records([tmp_path / "absent"])
    with pytest.raises(UserError, match="no finished run"):
        find_records([tmp_path])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"no result\.json"):
        read_record(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        find_records([tmp_path])
