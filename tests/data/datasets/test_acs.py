"""ACS: made Census files through the real reader, against folktables' own reading of them."""

import http.server
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from census_files import write_all, write_state

from fedmpi.data import find
from fedmpi.data.__main__ import main
from fedmpi.data.datasets import census
from fedmpi.data.encoding import Encoding
from fedmpi.data.options import DataOptions
from fedmpi.data.partition import partition
from fedmpi.data.prepare import prepare
from fedmpi.errors import UserError

folktables = pytest.importorskip("folktables")
EMPLOYMENT, RACE = find("acs-employment"), find("acs-race")
BOTH = DataOptions(states=("RI", "ma"))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Massachusetts as folktables leaves it, with quotes; Rhode Island packed, without."""
    folder = tmp_path_factory.mktemp("data")
    write_state(folder / "raw/acs/2018/1-Year", "MA", 1500, quoted=True)
    write_state(folder / "raw/acs", "RI", 900, packed=True)
    return folder


@pytest.fixture(scope="module")
def definition(data_dir, tmp_path_factory):
    """Features, labels and groups of both states, by folktables alone."""
    root = tmp_path_factory.mktemp("folktables")
    (root / "2018/1-Year").mkdir(parents=True)
    shutil.copy(data_dir / "raw/acs/2018/1-Year/psam_p25.csv", root / "2018/1-Year")
    with zipfile.ZipFile(data_dir / "raw/acs/csv_pri.zip") as archive:
        archive.extract("psam_p44.csv", root / "2018/1-Year")
    source = folktables.ACSDataSource("2018", "1-Year", "person", root_dir=str(root))
    return folktables.ACSEmployment.df_to_numpy(source.get_data(states=["MA", "RI"]))


@pytest.fixture
def offline(monkeypatch):
    """No Census site, and no package index but what a test sets up."""
    monkeypatch.setattr(census, "SITE", "http://nobody.invalid/pums")  # never resolves (RFC 2606)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def decoded(prepared, split):
    """The rows of a prepared split as tuples of folktables' codes, the label last."""
    x, y = prepared.array(f"{split}_x"), prepared.array(f"{split}_y")
    columns = {}
    for j, name in enumerate(prepared.features):
        feature, _, code = name.partition("=")
        columns.setdefault(feature, np.zeros(len(x)))
        columns[feature] += x[:, j] * (float(code) if code else 1)
    return columns, y


def test_the_states_are_those_of_folktables():
    from folktables.load_acs import _STATE_CODES, state_list

    assert _STATE_CODES == census.STATES and list(census.STATES) == state_list


def test_rows_are_those_of_folktables(data_dir, definition):
    x, y, _ = definition
    people, sources = census.read_people("acs", ("MA", "RI"), data_dir)
    assert people.features == tuple(folktables.ACSEmployment.features) and len(people) == 2400
    np.testing.assert_array_equal(people.codes, x)
    np.testing.assert_array_equal(people.employed, y)
    assert [s["file"] for s in sources] == ["psam_p25.csv", "csv_pri.zip"]


def test_chunks_make_no_difference(data_dir, definition, monkeypatch):
    monkeypatch.setattr(census, "CHUNK_ROWS", 77)
    people, _ = census.read_people("acs", ("MA", "RI"), data_dir)
    np.testing.assert_array_equal(people.codes, definition[0])


def test_the_inputs_are_the_codes_and_the_standardised_age(data_dir, definition):
    x, y, _ = definition
    ages = x[:, 0]
    prepared = prepare(EMPLOYMENT, data_dir, BOTH)
    found = Counter()
    mean, deviation = None, None
    for split in ("train", "test"):
        columns, labels = decoded(prepared, split)
        assert tuple(columns) == tuple(folktables.ACSEmployment.features)  # ESR is not among them
        if split == "train":
            assert abs(columns["AGEP"].mean()) < 1e-6 and abs(columns["AGEP"].std() - 1) < 1e-6
            # Two of the training ages give the statistics, which the test rows must share.
            low, high = columns["AGEP"].min(), columns["AGEP"].max()
            deviation = (ages.max() - ages.min()) / (high - low)
            mean = ages.min() - low * deviation
        columns["AGEP"] = np.round(columns["AGEP"] * deviation + mean, 3)
        found += Counter(map(tuple, np.column_stack([*columns.values(), labels]).tolist()))
    assert found == Counter((*row, int(label)) for row, label in zip(x.tolist(), y, strict=True))


@pytest.mark.parametrize("name", ["state", "ST", "SCHL"])
def test_a_client_is_a_state(data_dir, definition, train, name):
    """On made files of two states: a person's codes tell which file the person is in."""
    x, y, _ = definition
    state_of = {
        (*codes[1:], int(job)): i >= 1500
        for i, (*codes, job) in enumerate(np.column_stack([x, y]).tolist())
    }
    run = train(
        *("--dataset", "acs-employment", "--states", "RI,MA", "--setting", f"by:{name}"),
        *("--model", "logistic", "--rounds", 1, "--data-dir", data_dir),
    )
    with np.load(run.folder / "partition.npz") as partition:
        names, counts = partition["clients"].tolist(), partition["counts"]
    columns, labels = decoded(prepare(EMPLOYMENT, data_dir, BOTH), "train")
    if name == "SCHL":
        expected = Counter(columns["SCHL"].astype(int).astype(str).tolist())
    else:
        del columns["AGEP"]  # which is standardised
        people = np.column_stack([*columns.values(), labels]).astype(int).tolist()
        expected = Counter(("MA", "RI")[state_of[tuple(person)]] for person in people)
    assert dict(zip(names, counts.sum(axis=0).tolist(), strict=True)) == dict(expected)


@pytest.mark.parametrize("dataset", [EMPLOYMENT, RACE], ids=["employment", "race"])
def test_raw_rows_become_the_prepared_arrays(data_dir, dataset):
    """Of a Census file as pandas reads it: the same rows, though in another order."""
    prepared = prepare(dataset, data_dir, DataOptions(states=("MA",), min_group_rows=2))
    encoding = Encoding.from_json(prepared.encoding)
    people = pd.read_csv(data_dir / "raw/acs/2018/1-Year/psam_p25.csv")
    found = [encoding.encode(people), encoding.labels.y(people), encoding.labels.group(people)]
    known = found[2] >= 0
    raw = np.column_stack([part[known] for part in found])
    stored = np.concatenate(
        [
            np.column_stack([prepared.array(f"{split}_{part}") for part in ("x", "y", "group")])
            for split in ("train", "test")
        ]
    )
    np.testing.assert_array_equal(np.unique(raw, axis=0), np.unique(stored, axis=0))
    assert len(raw) == len(stored)


def test_no_input_depends_on_the_label(tmp_path, data_dir):
    text = (data_dir / "raw/acs/2018/1-Year/psam_p25.csv").read_text().splitlines()
    place = text[0].split(",").index('"ESR"')
    for i in range(1, len(text)):
        cells = text[i].split(",")
        cells[place] = "6" if cells[place] == "1" else "1"
        text[i] = ",".join(cells)
    (tmp_path / "psam_p25.csv").write_text("\n".join(text) + "\n")
    before, _ = census.read_people("acs", ["MA"], data_dir)
    after, _ = census.read_people("acs", ["MA"], tmp_path)
    np.testing.assert_array_equal(before.codes, after.codes)
    np.testing.assert_array_equal(before.employed, 1 - after.employed)


def test_groups_and_the_split(data_dir, definition):
    _, y, race = definition
    for dataset in (EMPLOYMENT, RACE):
        prepared = prepare(dataset, data_dir, BOTH)
        if dataset is EMPLOYMENT:
            names = np.array(["White", "Black", "Other"])[np.minimum(race, 3).astype(int) - 1]
            expected = np.char.add(np.where(y, "Employed ", "Unemployed "), names)
        else:
            expected = np.array(RACE.groups)[race.astype(int) - 1]
        assert prepared.groups == dataset.groups
        for name, of_label in Counter(zip(expected.tolist(), y.tolist(), strict=True)).items():
            code = prepared.groups.index(name[0])
            in_test, in_train = (
                np.sum(
                    (prepared.array(f"{split}_group") == code)
                    & (prepared.array(f"{split}_y") == name[1])
                )
                for split in ("test", "train")
            )
            assert in_test + in_train == of_label
            assert abs(in_test - 0.2 * of_label) <= 1 and in_train
        assert any("2,400 people of MA, RI only" in note for note in prepared.notes)


def test_the_seed_chooses_the_test_rows(data_dir):
    first = prepare(EMPLOYMENT, data_dir, BOTH)
    other = prepare(EMPLOYMENT, data_dir, DataOptions(seed=1, states=("MA", "RI")))
    assert first.folder.name == "acs-employment-MA+RI-seed0"
    assert other.folder != first.folder and other.counts == first.counts
    assert not np.array_equal(other.array("test_x"), first.array("test_x"))
    keys = {EMPLOYMENT.key(DataOptions(states=s)) for s in [("MA",), ("RI",), ("all",)]}
    assert len(keys) == 3 and EMPLOYMENT.key(DataOptions()) in keys


def test_who_holds_what():
    first, second = EMPLOYMENT.psg_blocks(EMPLOYMENT.groups)
    assert {EMPLOYMENT.groups[a] for a in first} == {
        *("Unemployed White", "Employed Black", "Employed White")
    }
    assert len(second) == 3
    clients = EMPLOYMENT.ssg_clients(EMPLOYMENT.groups, 40)
    assert dict(zip(EMPLOYMENT.groups, clients, strict=True)).pop("Employed White") == 10
    assert sorted(clients) == [6, 6, 6, 6, 6, 10]
    assert RACE.psg_blocks(RACE.groups) == ((0, 1, 2, 3, 4), (5, 6, 7, 8))
    assert RACE.ssg_clients(RACE.groups, 40) == [8, *[4] * 8]
    some = ("White", "Asian", "Multiple")
    assert RACE.psg_blocks(some) == ((0,), (1, 2))
    assert RACE.ssg_clients(some, 40) == [20, 10, 10]
    with pytest.raises(UserError, match="one half of PSG"):
        RACE.psg_blocks(("Asian", "Other", "Multiple"))


def test_small_groups_are_left_out_when_asked_and_named(data_dir, train):
    whole = prepare(RACE, data_dir, BOTH)
    sizes = whole.counts["train"]
    least = sorted(sizes.values())[3]  # three races have fewer
    part = prepare(RACE, data_dir, DataOptions(states=("MA", "RI"), min_group_rows=least))
    small = [name for name, rows in sizes.items() if rows < least]
    assert part.groups == tuple(name for name in whole.groups if name not in small)
    assert part.counts["train"] == {name: n for name, n in sizes.items() if n >= least}
    (note,) = [note for note in part.notes if "--min-group-rows" in note]
    assert all(f"{name} ({sizes[name]})" in note for name in small)
    gone = {f"RAC1P={RACE.groups.index(name) + 1}" for name in small}
    assert set(whole.features) - set(part.features) == gone
    codes = {name for name in part.features if name.startswith("RAC1P")}
    for code, name in enumerate(part.groups):  # the numbers of the groups have moved with them
        column = part.features.index(f"RAC1P={RACE.groups.index(name) + 1}")
        assert part.array("test_x")[part.array("test_group") == code, column].all()
    assert len(codes) == len(part.groups)
    options = ["--dataset", "acs-race", "--states", "MA,RI", "--min-group-rows", least]
    options += ["--clients", 12, "--rounds", 2, "--data-dir", data_dir]
    for setting in ("ESG", "PSG", "SSG"):
        result = train(*options, "--setting", setting, output=setting).result
        assert set(result["groups"]) == set(part.groups)
        assert all(np.isfinite(group["risk"]) for group in result["groups"].values())


def test_too_few_rows_are_told_in_one_line_with_the_options():
    sizes = [45_568, 3351, 66, 1, 31, 3757, 22, 1726, 1582]  # Massachusetts
    rows = np.repeat(np.arange(9), sizes)
    for setting, least, left_out in (
        ("ESG", 32, ("Alaska Native", "A.I. &/or A.N. Tribes", "N. Hawaiian & other P.I.")),
        ("PSG", 2, ("Alaska Native",)),
        ("SSG", 2, ("Alaska Native",)),
    ):
        with pytest.raises(UserError) as error:
            partition(rows, RACE.groups, 40, setting, RACE, skew=50, seed=0)
        text = str(error.value)
        assert "group 'Alaska Native' has 1 row to train" in text and "\n" not in text
        assert "N. Hawaiian & other P.I. 22" in text
        assert f"--min-group-rows {least} (without {', '.join(left_out)})" in text
        # What it advises works.
        for name, clients in re.findall(r"--setting (\w+) --clients (\d+)", text):
            partition(rows, RACE.groups, int(clients), name, RACE, skew=50, seed=0)
        large = np.flatnonzero(np.array(sizes) >= least)
        kept = np.searchsorted(large, rows[np.isin(rows, large)])
        names = tuple(RACE.groups[a] for a in large)
        partition(kept, names, 40, setting, RACE, skew=50, seed=0)


def test_a_race_that_the_states_do_not_have(tmp_path):
    write_state(tmp_path, "VT", 60)
    vermont = DataOptions(states=("VT",))
    with pytest.raises(UserError, match=r"has no rows to train on.*White \d+.*--min-group-rows 1"):
        prepare(RACE, tmp_path, vermont)
    some = prepare(RACE, tmp_path, DataOptions(states=("VT",), min_group_rows=1))
    assert 2 <= len(some.groups) < 9
    with pytest.raises(UserError, match="fewer than two groups"):
        prepare(RACE, tmp_path, DataOptions(states=("VT",), min_group_rows=59))


def change(old, new):
    return lambda path: path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    "damage, message",
    [
        (change("2018HU0000003", "2017HU0000003"), "not the file of 2018"),
        (change(",00302,1,25,", ",00302,1,44,"), "other states than MA"),
        (change(",RELP,", ",RELSHIPP,"), "RELP"),  # as it is called from 2019 on
        (change(",1013097,00018,", ",1013097,00018,x"), "could not convert"),
        (change(",1013097,00018,", ",1013097,00018,300"), "no codes of the survey"),
        (lambda path: path.write_bytes(path.read_bytes()[:-700]), "last line is not whole"),
        (lambda path: path.write_text(path.read_text().splitlines()[0] + "\n"), "no people"),
        (lambda path: path.write_bytes(b""), "last line is not whole"),
        (lambda path: path.write_bytes(b"\n"), "damaged"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, damage, message):
    damage(write_state(tmp_path / "raw/acs", "MA", 40))
    with pytest.raises(UserError, match=message) as error:
        prepare(EMPLOYMENT, tmp_path, DataOptions(states=("MA",)))
    assert "psam_p25.csv is damaged" in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "prepared").exists()


def test_a_damaged_zip_is_refused_and_verify_sees_it(tmp_path, capsys):
    path = write_state(tmp_path / "raw/acs", "MA", 2000, packed=True)
    where = ["--data-dir", str(tmp_path)]
    assert main(["fetch", "acs-employment", "--states", "MA", *where]) == 0
    assert main(["verify", *where]) == 0
    assert capsys.readouterr().out.count(f"ok     {path}") == 1
    assert main(["list", *where]) == 0
    assert re.search(r"acs-race +raw files present", capsys.readouterr().out)
    whole = path.read_bytes()
    other = write_state(tmp_path / "other", "MA", 2000, seed=1, packed=True)
    for damaged in (whole[:-100], whole[:5000] + b"!!" + whole[5002:], other.read_bytes()):
        path.write_bytes(damaged)
        assert main(["verify", *where]) == 1
        assert f"WRONG  {path} is damaged" in capsys.readouterr().out
    path.write_bytes(whole[:5000] + b"!!" + whole[5002:])
    with pytest.raises(UserError, match="damaged"):
        prepare(RACE, tmp_path, DataOptions(states=("MA",)))


def test_offline_tells_what_was_tried(tmp_path, offline):
    with pytest.raises(UserError) as error:
        prepare(EMPLOYMENT, tmp_path, DataOptions())
    text = str(error.value)
    for part in ("all states", "psam_pNN.csv", census.SITE, "--states MA works", "by hand"):
        assert part in text
    assert str(tmp_path / "raw/acs") in text and "\n" not in text
    with pytest.raises(UserError) as error:
        prepare(EMPLOYMENT, tmp_path, DataOptions(states=("MA",)))
    text = str(error.value)
    for part in ("could not get MA", census.SITE, "PyPI nannyml==0.13.1", "No matching"):
        assert part in text
    write_state(tmp_path, "RI", 50)
    with pytest.raises(UserError, match=r"could not get NH\. Tried"):
        prepare(EMPLOYMENT, tmp_path, DataOptions(states=("NH", "RI")))
    assert not (tmp_path / "prepared").exists()


def test_a_corrupt_mirror_file_is_refused(tmp_path, offline):
    (tmp_path / "raw/acs").mkdir(parents=True)
    for file in census.MIRROR_FILES:
        (tmp_path / "raw/acs" / file.name).write_bytes(b"PAR1 not quite PAR1")
    with pytest.raises(UserError, match=r"employment_MA_analysis\.pq is damaged"):
        prepare(EMPLOYMENT, tmp_path, DataOptions(states=("MA",)))
    assert not (tmp_path / "prepared").exists()


@pytest.mark.parametrize("given", ["DC", "Massachusetts", "MA,all"])
def test_unknown_states(given):
    with pytest.raises(UserError, match="unknown state in --states"):
        census.chosen_states(given.split(","))


@pytest.fixture
def answering(monkeypatch):
    """A site that answers when it is asked whether it is there."""
    handler = http.server.BaseHTTPRequestHandler  # with a 501: it has no do_HEAD
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(census, "SITE", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(handler, "log_message", lambda *_: None)
    yield
    server.shutdown()
    server.server_close()


def test_folktables_downloads_from_the_census(tmp_path, answering, monkeypatch, capsys):
    packed = write_state(tmp_path / "site", "RI", 200, packed=True).read_bytes()
    asked = []

    def get(url):  # folktables' address of the Census is fixed, and not reachable from everywhere
        asked.append(url)
        return SimpleNamespace(content=packed if "csv_pri" in url else b"<html>sorry</html>")

    monkeypatch.setattr("requests.get", get)
    options = DataOptions(states=("RI",))
    prepared = prepare(EMPLOYMENT, tmp_path, options)
    assert asked == [
        "https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/csv_pri.zip"
    ]
    assert prepared.sources[0]["origin"] == census.SITE
    assert prepared.rows("train") + prepared.rows("test") == 200
    names = {path.name for path in (tmp_path / "raw/acs").iterdir()}
    assert names == {"psam_p44.csv", "psam_p44.csv.origin"}
    with pytest.raises(UserError, match=r"could not get NH\..*NH: Exception: +File is not a zip"):
        prepare(EMPLOYMENT, tmp_path, DataOptions(states=("NH",)))
    assert {path.name for path in (tmp_path / "raw/acs").iterdir()} == names
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_massachusetts_from_its_mirror(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(census, "SITE", "http://nobody.invalid/pums")
    where = ["--data-dir", str(tmp_path)]
    for name in ("acs-employment", "acs-race"):
        assert main(["fetch", name, "--states", "MA", *where]) == 0
        assert "70,131 people of MA only" in capsys.readouterr().out
    assert main(["verify", *where]) == 0
    options = DataOptions(states=("MA",))

    def counts(dataset):
        splits = prepare(dataset, tmp_path, options).counts
        return [splits["train"][name] + splits["test"][name] for name in dataset.groups]

    assert counts(EMPLOYMENT) == [29_263, 1939, 4220, 27_697, 2250, 4762]
    assert counts(RACE) == [56_960, 4189, 83, 1, 39, 4697, 27, 2157, 1978]
    assert (
        prepare(RACE, tmp_path, options).notes[-1].startswith("group 'Alaska Native' has no test")
    )
    prepared = prepare(EMPLOYMENT, tmp_path, options)
    assert len(prepared.features) == 98
    assert {source["origin"] for source in prepared.sources} == {"PyPI nannyml==0.13.1"}


@pytest.mark.slow
def test_all_states_prepare_in_little_memory(tmp_path):
    """3.2 million rows of 286 columns: 3.4 GB of text, 1.3 GB of arrays."""
    rows = 3_236_107
    write_all(tmp_path / "raw/acs", rows)
    code = (
        "import re, sys; from fedmpi.data.__main__ import main; code = main(sys.argv[1:]);"
        # Not ru_maxrss, which a process inherits from the one that started it.
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read());"
        "print(int(peak[1]) // 1024); sys.exit(code)"
    )
    command = ["fetch", "acs-employment", "--data-dir", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    shutil.rmtree(tmp_path / "raw")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) < 1024  # MB; the limit is 4 GB, and 347 were measured
    prepared = prepare(EMPLOYMENT, tmp_path, DataOptions())
    assert prepared.rows("train") + prepared.rows("test") == rows
    some = np.random.default_rng(0).permutation(prepared.rows("train"))[: rows // 50]
    np.testing.assert_array_equal(prepared.take("train_x", some), prepared.array("train_x")[some])
    shutil.rmtree(tmp_path / "prepared")
