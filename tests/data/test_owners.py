"""Data of several owners: in one file, and in a file each that nobody else reads."""

import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import Run, launch

from fedmpi.data.agreement import InOneProcess, Owner, assemble, common_columns
from fedmpi.data.encoding import Numbers, Texts
from fedmpi.data.options import DataOptions
from fedmpi.data.owners import assign_owners
from fedmpi.data.tables import read_text
from fedmpi.errors import UserError
from fedmpi.run.arguments import resolve

OWNERS = {"ash": 40, "birch": 90, "elm": 25, "oak": 60, "yew": 33}
COLUMNS = ("age", "weight", "job", "smokes", "mixed", "sex", "ill")


def rows_of(owner: str, count: int, seed: int = 0) -> list[tuple]:
    """Rows with numbers, text, missing values, and a column that is text for one owner only."""
    rng = np.random.default_rng([seed, *owner.encode()])
    jobs = ["cook", "nurse", "pilot"] if owner in "ash birch" else ["clerk", "cook", ""]
    rows = []
    for _ in range(count):
        age, weight = rng.normal(40 + len(owner), 9), rng.normal(70, 12)
        mixed = "none" if owner == "oak" and rng.random() < 0.3 else str(rng.integers(3))
        sex = rng.choice(["f", "m"]) if owner != "elm" else "f"
        ill = int(age + rng.normal(0, 9) > 44)
        told = "" if rng.random() < 0.1 else f"{weight:.3f}"
        rows.append((f"{age:.4f}", told, rng.choice(jobs), rng.integers(2), mixed, sex, ill))
    return rows


def write(path, rows, header=COLUMNS):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")


@pytest.fixture
def together(tmp_path):
    """All rows in one file, those of the owners mixed."""
    rows = [(*row, name) for name, count in OWNERS.items() for row in rows_of(name, count)]
    places = np.argsort(np.random.default_rng(1).random(len(rows)))
    owner_of = np.array([row[-1] for row in rows])
    for name in OWNERS:  # the rows of one owner keep their order
        places[owner_of[places] == name] = np.flatnonzero(owner_of == name)
    write(tmp_path / "all.csv", [rows[place] for place in places], (*COLUMNS, "owner"))
    return tmp_path / "all.csv"


@pytest.fixture
def apart(tmp_path):
    """The same rows, a file for each owner."""
    for name, count in OWNERS.items():
        write(tmp_path / f"owners/{name}.csv", rows_of(name, count))
    return tmp_path / "owners"


LABELS = ["--target", "ill", "--group", "sex,ill", "--dtype", "float64"]
OPTIONS = [*LABELS, "--solver", "paper", "--rounds", "3", "--model", "logistic"]


def same(one: Run, other: Run) -> None:
    """The same model and the same result, to rounding."""
    assert one.result["clients"] == other.result["clients"] == len(OWNERS)
    np.testing.assert_allclose(other.theta(), one.theta(), rtol=0, atol=1e-9)
    for name, group in one.result["groups"].items():
        for measure, value in group.items():
            rounded = isinstance(value, float) or measure.endswith("_interval")
            expected = pytest.approx(value, abs=1e-9) if rounded else value
            assert other.result["groups"][name][measure] == expected


@pytest.mark.parametrize("method", ["fedminmax", "afl", "fedavg"])
def test_files_apart_equal_one_file(train, together, apart, method):
    options = [*OPTIONS, "--method", method]
    one = train("--dataset", f"csv:{together}", "--client", "owner", *options, output="one")
    many = train("--dataset", f"csv:{apart}", *options, output="many")
    same(one, many)
    assert many.result["setting"] == "owners"
    with np.load(many.folder / "partition.npz") as arrays:
        assert arrays["clients"].tolist() == sorted(OWNERS)
        assert arrays["counts"].sum(axis=0).tolist() == pytest.approx(
            [0.8 * OWNERS[name] for name in sorted(OWNERS)], abs=2
        )


def test_test_rows_may_have_files_of_their_own(train, together, apart, tmp_path):
    tests = {name: rows_of(name, 12, seed=1) for name in ("ash", "oak")}
    for name, rows in tests.items():
        write(tmp_path / f"tests/{name}.csv", rows)
    write(tmp_path / "test.csv", [row for rows in tests.values() for row in rows])
    one = train(
        *("--dataset", f"csv:{together}", "--client", "owner", *OPTIONS),
        *("--test", tmp_path / "test.csv"),
        output="one",
    )
    many = train(
        *("--dataset", f"csv:{apart}", *OPTIONS, "--test", tmp_path / "tests"), output="many"
    )
    same(one, many)
    assert sum(group["n_test"] for group in many.result["groups"].values()) == 24


@pytest.mark.launch
@pytest.mark.once
def test_each_rank_reads_its_own_files_alone(train, together, apart, tmp_path):
    """Ranks in folders of their own: what is apart on disks, no rank can read but its owner."""
    homes = {"server": [], "a": ["ash", "elm"], "b": ["birch", "oak", "yew"]}
    contexts: list[str] = []
    for home, names in homes.items():
        (tmp_path / home).mkdir()
        for name in names:
            (tmp_path / home / "data").mkdir(exist_ok=True)
            (apart / f"{name}.csv").rename(tmp_path / home / "data" / f"{name}.csv")
        command = [sys.executable, "-m", "fedmpi.train", "--dataset", "csv:data/", *OPTIONS]
        command += ["--output", str(tmp_path / "apart"), "--progress", "none"]
        contexts += [":"] * bool(contexts) + ["-n", "1", "-wdir", str(tmp_path / home), *command]
    done = launch(["mpirun", *contexts])
    assert done.returncode == 0, done.stderr
    one = train("--dataset", f"csv:{together}", "--client", "owner", *OPTIONS, output="one")
    same(one, Run(tmp_path / "apart"))
    again = launch(["mpirun", *contexts])
    assert "already finished" in again.stdout, again.stdout + again.stderr
    assert not list(tmp_path.glob("*/data/prepared"))  # nothing of the rows is stored elsewhere


@pytest.mark.launch
@pytest.mark.once
def test_an_owner_who_cannot_take_part_ends_the_job_for_all(mpirun, apart, tmp_path):
    write(apart / "elm.csv", [row[:-1] for row in rows_of("elm", 9)], COLUMNS[:-1])
    done = mpirun(3, "-m", "fedmpi.train", "--dataset", f"csv:{apart}", *OPTIONS)
    assert done.returncode == 2
    assert "elm.csv" in done.stderr and "'ill'" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "runs").exists()


def options_of(**given) -> DataOptions:
    return DataOptions(target="ill", group=("sex", "ill"), **given)


def owner(name: str, rows: list[tuple], header=COLUMNS) -> Owner:
    text = "\n".join(",".join(map(str, row)) for row in [header, *rows])
    return Owner(name, read_text(text.encode(), name, []))


class Recording(InOneProcess):
    """Owners that are apart, but in this process; and what leaves them."""

    salt = b"salt"

    def __init__(self, owners: list[Owner]) -> None:
        super().__init__(owners)
        self.told: list[bytes] = []

    def __call__(self, work, join):
        parts = [work(owner) for owner in self.owners]
        self.told.append(pickle.dumps(parts))
        return join(pickle.loads(self.told[-1]))


def test_what_leaves_an_owner_does_not_grow_with_its_rows():
    """Statistics, not rows: ten times the rows, and the messages are as long but for digits."""

    def sizes(factor: int) -> list[int]:
        agree = Recording([owner(name, rows_of(name, factor * n)) for name, n in OWNERS.items()])
        assemble(agree, options_of(), 0.2, "all")
        return list(map(len, agree.told))

    few, many = sizes(2), sizes(20)
    assert len(few) == 8
    assert all(abs(a - b) < 100 for a, b in zip(few, many, strict=True)), (few, many)


def test_a_column_that_names_people_does_not_leave_its_owner():
    rows = [(f"person {i}", *row) for i, row in enumerate(rows_of("ash", 30))]
    agree = Recording([owner("ash", rows, ("name", *COLUMNS))])
    with pytest.raises(UserError, match=r"ash: column 'name' is text .* --drop name") as error:
        assemble(agree, options_of(), 0.2, "all")
    assert b"person" not in b"".join(agree.told) and "person" not in error.value.line.text


def test_owners_must_have_the_same_columns():
    shared, notes, error = common_columns([("ash", [b"1", b"2", b"3"]), ("elm", [b"3", b"1"])])
    assert "elm lacks 1 of the 3 columns that ash has, and has 0" in error
    *_, error = common_columns([("ash", [b"1", b"2"]), ("elm", [b"3", b"4"])])
    assert "Is its first line the names" in error
    shared, notes, error = common_columns([("ash", [b"1", b"2"]), ("elm", [b"2", b"1", b"3"])])
    assert (shared, error) == ([b"1", b"2"], None)
    assert notes == ["elm: 1 columns left out that ash does not have"]


@pytest.mark.parametrize("least", [2, 6])
def test_rare_values_are_other_both_ways(train, together, apart, least):
    options = [*OPTIONS, "--min-value-rows", least]
    one = train("--dataset", f"csv:{together}", "--client", "owner", *options, output="one")
    many = train("--dataset", f"csv:{apart}", *options, output="many")
    same(one, many)


def test_a_value_is_told_by_the_owners_that_have_enough_rows_of_it():
    """Ash has six cooks, so elm's test row is a cook; its only one in training is not."""
    ash = [("1", "", job, 0, 1, "f", i % 2) for i, job in enumerate(["cook"] * 6 + ["smith"] * 2)]
    elm = [("1", "", job, 0, 1, "f", i % 2) for i, job in enumerate(["cook"] + ["nurse"] * 5)]
    agree = Recording([owner("ash", ash), owner("elm", elm)])
    for each, tests in zip(agree.owners, ([], [1]), strict=True):
        each.in_test = np.isin(np.arange(len(each.frame)), tests)
    agree.owners[1].frame.loc[1, "job"] = "cook"
    agreed = assemble(agree, options_of(min_value_rows=3), None, "all")
    jobs = [name for name in agreed.features if name.startswith("job")]
    assert jobs == ["job=cook", "job=nurse", "job other"]
    places = [agreed.features.index(name) for name in jobs]
    codes = [each.x[:, places].argmax(axis=1).tolist() for each in agree.owners]
    assert codes == [[0] * 6 + [2] * 2, [2, 0, 1, 1, 1, 1]]
    assert b"smith" not in b"".join(agree.told)


numbers = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.just(float("nan")), st.sampled_from([0.0, 1.0])), max_size=9
)


@given(st.lists(numbers, min_size=1, max_size=6))
@settings(deadline=None)
def test_statistics_of_parts_join_to_those_of_the_whole(parts):
    def known(values):
        return Numbers.of("v", np.array(values, dtype=float), np.zeros(len(values), dtype=bool))

    whole = known([value for part in parts for value in part])
    joined = known(parts[0])
    for part in parts[1:]:
        joined = joined.join(known(part))
    assert (joined.rows, joined.known, joined.constant, joined.binary) == (
        *(whole.rows, whole.known, whole.constant, whole.binary),
    )
    assert joined.mean == pytest.approx(whole.mean, rel=1e-9, abs=1e-9)
    assert joined.squares == pytest.approx(whole.squares, rel=1e-9, abs=1e-3)


def test_texts_join():
    column = read_text(b"v,w\na,1\n,1\n7,1\nb,1", "t", [])["v"]
    in_test = np.array([False, False, False, True])
    one = Texts.of(column[:2], in_test[:2]).join(Texts.of(column[2:], in_test[2:]))
    assert one == Texts.of(column, in_test)
    assert one.values == {"a", "7"} and one.missing == 1 and one.unlike_numbers == 1


def test_owners_go_to_ranks_that_have_their_files(tmp_path):
    a, b = {"x": (10, 1), "y": (30, 1)}, {"z": (5, 1), "w": (9, 1), "v": (9, 1)}
    names, hosted = assign_owners(tmp_path, [("h1", a), ("h2", b), ("h2", b)])
    assert names == ["v", "w", "x", "y", "z"]
    assert [some.tolist() for some in hosted] == [[2, 3], [0, 4], [1]]
    both = a | b
    _, hosted = assign_owners(tmp_path, [("h1", both)] * 2)
    assert sorted(k for some in hosted for k in some) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ([("h1", {}), ("h2", {})], "no file OWNER.csv on the hosts of the clients \\(h1, h2\\)"),
        ([("h1", {"x": (1, 1)}), ("h2", {"x": (2, 1)})], "not the same file on h1 and h2"),
        ([("h1", {"x": (1, 1)}), ("h1", {"x": (1, 1)})], "1 owners' files for 2 client ranks"),
        ([("h1", {"x": (1, 1), "y": (1, 1)}), ("h2", {})], "1 of them, on h2, would have nothing"),
    ],
)
def test_files_that_cannot_be_given_to_ranks(tmp_path, seen, message):
    with pytest.raises(UserError, match=message):
        assign_owners(tmp_path, seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--setting", "PSG"], "--setting is not for data where .* says who holds which rows"),
        (["--skew", "5"], "--skew is not for"),
        (["--limit-train", "9"], "--limit-train is not for"),
        (["--method", "centralized"], "centralized needs all rows in one place"),
    ],
)
def test_options_that_contradict_owners(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        resolve(["--dataset", f"csv:{tmp_path}", *LABELS, *options], 2, one_process=False)


def test_a_wrong_number_of_clients_is_refused(train, together, apart):
    for data in ([f"csv:{together}", "--client", "owner"], [f"csv:{apart}/"]):
        with pytest.raises(UserError, match=r"--clients 3, but .* 5 .*: leave --clients out"):
            train("--dataset", *data, *OPTIONS, "--clients", 3)
