"""Clients by a column of the data: --setting by:COLUMN."""

import heapq

import numpy as np
import pandas as pd
import pytest
from runs import cut_off_after

from fedmpi.errors import UserError
from fedmpi.federation.plan import client_name
from fedmpi.report.collect import collect
from fedmpi.run.record import find_records


def write(folder, rows: int = 120) -> pd.DataFrame:
    """Write people.csv, whose wards are of many sizes and sometimes blank; and test.csv."""
    rng = np.random.default_rng(2)
    wards = ["north", "south", "east", "", "west", "up, down", "10", "9"]
    share = np.arange(1, 9) / 36
    frame = pd.DataFrame(rng.normal(size=(rows, 2)), columns=["u", "v"])
    frame["g"] = rng.choice(list("abc"), rows)
    frame["ward"] = rng.choice(wards, rows, p=share)
    frame["y"] = np.where(frame["u"] + rng.normal(size=rows) > 0, "yes", "no")
    frame.to_csv(folder / "people.csv", index=False)
    frame.head(40).to_csv(folder / "test.csv", index=False)
    return frame


def options(folder, *more: object) -> list[object]:
    """All rows of people.csv train, so that their counts can be told without the run."""
    data = ["--dataset", f"csv:{folder / 'people.csv'}", "--test", folder / "test.csv"]
    data += ["--target", "y", "--group", "g", "--model", "logistic", "--dtype", "float64"]
    return [*data, "--rounds", 4, *more]


def partition_of(run) -> tuple[list[str], pd.DataFrame]:
    with np.load(run.folder / "partition.npz") as arrays:
        names = [str(name) for name in arrays["clients"]]
        return names, pd.DataFrame(arrays["counts"], list(arrays["groups"]), names or None)


@pytest.mark.parametrize("drop", [False, True])
def test_clients_are_the_values_of_a_column(train, tmp_path, drop):
    frame = write(tmp_path)
    given = ["--setting", "by:ward", *(["--drop", "ward"] if drop else [])]
    run = train(*options(tmp_path, *given))
    names, counts = partition_of(run)
    expected = frame.assign(ward=frame["ward"].replace("", "(blank)"))
    expected = expected.groupby(["g", "ward"]).size().unstack(fill_value=0)
    assert names == sorted(expected.columns)
    assert (counts == expected[names].loc[counts.index]).all(axis=None)
    assert run.config["setting"] == "by:ward" and run.config["clients"] == 8
    features = sum("ward" in str(column) for column in column_names(run))
    assert features == (0 if drop else 1)


def column_names(run) -> list[str]:
    import torch

    told = torch.load(run.folder / "model.pt", weights_only=True)["description"]
    return [column["name"] for column in told["encoding"]["columns"]]


def test_fewer_clients_share_the_values_by_size(train, tmp_path):
    frame = write(tmp_path)
    run = train(*options(tmp_path, "--setting", "by:ward", "--clients", 3))
    heap = [(0, k) for k in range(3)]
    expected: dict[int, list[str]] = {0: [], 1: [], 2: []}
    sizes = frame["ward"].replace("", "(blank)").value_counts()
    for ward in sorted(sizes.index, key=lambda ward: (-sizes[ward], ward)):
        rows, k = heapq.heappop(heap)
        expected[k].append(ward)
        heapq.heappush(heap, (rows + int(sizes[ward]), k))
    names, counts = partition_of(run)
    assert names == [client_name(wards) for wards in expected.values()]
    assert counts.sum().tolist() == [sizes[wards].sum() for wards in expected.values()]
    assert client_name(list("abcde")) == "a + b + c + 2 more"


def test_the_report_draws_the_names(train, tmp_path):
    write(tmp_path)
    run = train(*options(tmp_path, "--setting", "by:ward"))
    data = collect(find_records([run.folder]), [run.folder])
    (partition,) = data["partitions"]
    assert partition["names"] == partition_of(run)[0] and "up, down" in partition["names"]
    assert dict(data["sections"][0]["data"])["by:ward"].startswith("a client is a value of")


def test_a_run_is_known_again_and_resumed(train, tmp_path):
    """Its number of clients is counted in the data: with or without --clients 8 is one split."""
    write(tmp_path)
    given = options(tmp_path, "--setting", "by:ward", "--checkpoint-every", 1)
    whole = train(*given, output="whole")
    with cut_off_after(2):
        train(*given)
    resumed = train(*given, "--resume")
    assert (resumed.theta() == whole.theta()).all()
    identity = resumed.config["science"]
    assert identity["setting"] == "by:ward" and "clients" not in identity
    eight = train(*given, "--clients", 8, output="eight")
    assert (eight.theta() == whole.theta()).all() and eight.config["science"]["clients"] == 8
    with pytest.raises(UserError, match="setting by:ward, not by:g"):
        train(*options(tmp_path, "--setting", "by:g", "--checkpoint-every", 1))


def test_a_drawn_split_is_resumed_and_no_other(train, tmp_path):
    write(tmp_path)
    given = options(tmp_path, "--clients", 9, "--checkpoint-every", 1)
    whole = train(*given, "--setting", "dirichlet:.30", output="whole")
    with cut_off_after(2):
        train(*given, "--setting", "dirichlet:.3")
    with pytest.raises(UserError, match=r"setting was dirichlet:0\.3, now dirichlet:0\.4"):
        train(*given, "--setting", "dirichlet:.4", "--resume")
    resumed = train(*given, "--setting", "dirichlet:0.3", "--resume")
    assert (resumed.theta() == whole.theta()).all()
    _, counts = partition_of(resumed)
    assert counts.to_numpy().sum() == 120 and counts.sum().min() >= 1


def test_rows_and_folds_may_leave_values_out(train, tmp_path):
    write(tmp_path)
    run = train(*options(tmp_path, "--setting", "by:ward", "--limit-train", 5))
    names, counts = partition_of(run)
    assert run.config["clients"] == len(names) < 8 and counts.to_numpy().sum() == 5
    assert counts.sum().min() >= 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--setting", "by:wart"), "has no column 'wart'.*Did you mean 'ward'"),
        (("--setting", "by:ward", "--clients", 9), "there are 8 values: use --clients 8 or fewer"),
        (("--setting", "by:u"), "1,100 values .* at most 1,000 can be clients"),
        (("--setting", "quantity:1", "--clients", 1101), "1,100 rows .* --clients 1100 or fewer"),
        (("--setting", "dirichlet:1", "--skew", 3), "--skew is of PSG and SSG"),
        (("--setting", "by:ward", "--client", "g"), "--setting is not for data where"),
        (("--setting", "by:x", "--dataset", "synthetic"), "does nothing with --dataset synthetic"),
    ],
)
def test_what_cannot_be_is_one_line(train, tmp_path, given, message):
    write(tmp_path, rows=1100)
    with pytest.raises(UserError, match=message) as error:
        train(*options(tmp_path, *given))
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_a_dataset_without_columns_says_so(train):
    with pytest.raises(UserError, match="synthetic has no columns to split by"):
        train("--dataset", "synthetic", "--rows", 50, "--setting", "by:x", "--model", "logistic")
