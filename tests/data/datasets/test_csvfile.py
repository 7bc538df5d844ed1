import gzip
import io
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmpi.data import find
from fedmpi.data.__main__ import main
from fedmpi.data.datasets.adult import COLUMNS
from fedmpi.data.datasets.csvfile import CsvFile
from fedmpi.data.encoding import Encoding
from fedmpi.data.options import DataOptions, names_of_list
from fedmpi.data.prepare import prepare
from fedmpi.data.splits import hold_out
from fedmpi.errors import UserError

PEOPLE = """age,job,smokes,sex,race,rich
20,nurse,0,F,x,no
40,cook,1,M,y,yes
60,cook,0,F,y,yes
,nurse,1,M,x,no
40,,1,M,x,yes
40,cook,0,F,x,no
"""
TEST = """age,job,smokes,sex,race,rich
50,pilot,0,F,x,no
,cook,1,M,y,yes
"""


def table(rows, header="v,g,t"):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)])


FINE = [(v, v % 2, v // 2 % 2) for v in range(200)]


def read(folder, content=PEOPLE, test=None, target="rich", group=("sex",), **options):
    """The arrays of a CSV file with `content`; a `test` of several lines is a second file."""
    path, test_path = folder / "people.csv", folder / "test.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if test and "\n" in test:
        test_path.write_text(test)
        test = str(test_path)
    options = DataOptions(target=target, group=group, test=test, **options)
    return find(f"csv:{path}").read(folder, options)


def column(data, name, split="train"):
    return getattr(data, f"{split}_x")[:, data.features.index(name)]


def test_columns_become_inputs(tmp_path):
    data = read(tmp_path, test=TEST, group=("sex", "race"))
    assert data.features == (
        *("age", "age missing", "job=cook", "job=nurse", "job missing", "smokes"),
        *("sex=F", "sex=M", "race=x", "race=y"),
    )
    ages = np.array([20, 40, 60, 40, 40, 40])  # the mean of the five known is 40
    deviation = np.std([20, 40, 60, 40, 40])
    np.testing.assert_allclose(column(data, "age"), (ages - 40) / deviation, rtol=1e-6)
    np.testing.assert_allclose(column(data, "age", "test"), [10 / deviation, 0], rtol=1e-6)
    assert column(data, "age missing").tolist() == [0, 0, 0, 1, 0, 0]
    assert column(data, "age missing", "test").tolist() == [0, 1]
    assert column(data, "job missing").tolist() == [0, 0, 0, 0, 1, 0]
    assert column(data, "smokes").tolist() == [0, 1, 0, 1, 1, 0]
    jobs = [column(data, f"job{name}", "test").tolist() for name in ("=cook", "=nurse", " missing")]
    assert jobs == [[0, 1], [0, 0], [0, 0]]  # pilot was never seen
    assert data.classes == ("no", "yes")
    assert data.train_y.tolist() == [0, 1, 1, 0, 1, 0]
    assert data.groups == ("F / x", "F / y", "M / x", "M / y")
    assert data.train_group.tolist() == [0, 3, 1, 2, 2, 0]
    assert data.test_group.tolist() == [0, 3]
    assert any("1 test values not seen in training" in note for note in data.notes)
    assert any("1 training and 1 test values missing" in note for note in data.notes)


def test_groups_may_include_the_target_which_is_never_an_input(tmp_path):
    data = read(tmp_path, test=TEST, group=("sex", "rich"), drop=("sex",))
    assert data.groups == ("F / no", "F / yes", "M / no", "M / yes")
    assert not any(name.startswith(("rich", "sex")) for name in data.features)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xef\xbb\xbf" + PEOPLE.encode(), id="BOM"),
        pytest.param(PEOPLE.replace("\n", "\r\n"), id="CRLF"),
        pytest.param(PEOPLE.replace(",", ", "), id="spaces"),
        pytest.param(PEOPLE.replace("\n", "\n\n"), id="blank lines"),
        pytest.param(PEOPLE.rstrip("\n"), id="no last newline"),
        pytest.param(PEOPLE.replace("\n", ",\n"), id="trailing comma"),
        pytest.param(PEOPLE.replace("cook", '"cook"'), id="quotes"),
        pytest.param(PEOPLE.replace("40", "40.0"), id="floats"),
        pytest.param(PEOPLE.replace(",", ";"), id="semicolons"),
        pytest.param("sep=;\n" + PEOPLE.replace(",", ";"), id="for Excel"),
        pytest.param(PEOPLE.replace(",", "\t"), id="tabs"),
        pytest.param(PEOPLE.replace(",", "|"), id="bars"),
        pytest.param(PEOPLE.encode("utf-16"), id="UTF-16"),
        pytest.param(PEOPLE.encode("utf-16-be"), id="UTF-16 without a mark"),
        pytest.param(gzip.compress(PEOPLE.encode()), id="gzip"),
        pytest.param(PEOPLE.replace(",", ";").replace("40", "40,0"), id="decimal comma"),
    ],
)
def test_dialects_read_the_same(tmp_path, content):
    plain, other = read(tmp_path, seed=1), read(tmp_path, content, seed=1)
    assert other.features == plain.features
    for name in ("train_x", "train_y", "train_group", "test_x", "test_y", "test_group"):
        np.testing.assert_array_equal(getattr(other, name), getattr(plain, name))


TEXT_ID = table([(f"id{v}", g, t) for v, g, t in FINE])


@pytest.mark.parametrize(
    "content, options, message",
    [
        (None, {}, "cannot read .*No such file"),
        ("", {}, "is empty"),
        ("\n\n", {}, "is empty"),
        ("v,g,t\n", {}, "header but no rows"),
        (table(FINE), {"target": "tt"}, "has no column 'tt'.* Did you mean 't'"),
        (table(FINE), {"group": ("g", "gg")}, "'gg'.* Did you mean 'g'"),
        (table(FINE), {"drop": ("vv",)}, "'vv'.* Did you mean 'v'"),
        (table(FINE), {"target": None}, "needs --target.*its columns are v, g, t"),
        (table(FINE), {"group": ()}, "needs --target COL and --group"),
        (table(FINE, "v,v,t"), {}, "rename .* more than one column 'v'"),
        (table(FINE) + "\n1,2,3,4", {}, "Expected 3 fields in line 202, saw 4"),
        (table(FINE) + '\n1,"2,3', {}, "is not a table"),
        ("é".encode() * 9 + b"\xe9,g,t\n1,0,1\n", {}, "damaged: byte 18 is neither utf-8"),
        (b"PK\x03\x04 xl/workbook.xml", {}, "is an Excel workbook: save its sheet as CSV"),
        (b"PK\x03\x04 a.csv", {}, "is a zip archive: unpack it"),
        (b"BZh9", {}, "packed with bzip2: unpack it first, or pack it with gzip"),
        (gzip.compress(table(FINE).encode())[:-20], {}, "packed with gzip, but damaged"),
        (b"PAR1 and no more", {}, "cannot be read as Parquet"),
        (table([(v, g, 1) for v, g, _ in FINE]), {}, "one value only .* It is '1'"),
        (table([(v, g, v / 7) for v, g, _ in FINE]), {}, "must be classes"),
        (table([(v, v % 2, v) for v in range(1001)]), {}, "1001 different values"),
        (table([(v, v, v % 2) for v in range(1001)]), {}, "makes 1001 groups"),
        (table([(v, g, "") for v, g, _ in FINE]), {}, "no row with a value in each"),
        (TEXT_ID, {}, "column 'v' is text with .* --drop v"),
        (table([("inf" if v == 7 else v, g, t) for v, g, t in FINE]), {}, "'v' has .*infinite"),
        (table([(f"{v}e300", g, t) for v, g, t in FINE]), {}, "'v' has values too large"),
        (table([(1, g, t) for _, g, t in FINE]), {"drop": ("g",)}, "no column is left"),
        (table(FINE), {"test": "1.5"}, "between 0 and 1"),
        (table(FINE), {"test": "0"}, "between 0 and 1"),
        (table(FINE), {"test": "none.csv"}, "cannot read none.csv"),
        (table(FINE), {"test": "v,g\n1,1\n"}, "test.csv has no column 't'"),
        (table(FINE), {"test": "v,g,t\n1,1,1\n2,1,yes\n"}, "1 rows with a target value .* 'yes'"),
        (table(FINE), {"test": "v,g,t\n1e60,1,1\n"}, "'v' has test values .*too large"),
        (table(FINE), {"test": "v,g,t\n1,5,1\n"}, "no test rows are left"),
        ("v,g,t\n1,a,0\n2,b,1\n", {}, "no test rows are left"),
        (table(FINE, "v" * 2000 + ",g,t"), {}, r"2,000 characters: is a quote left open\?"),
        (
            table([*FINE, ("x" * 2000, 1, 1)]),
            {},
            r"2,000 characters \(row 201\).*--drop v.*'x{9}",
        ),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path, content, options, message):
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, content, **({"target": "t", "group": ("g",)} | options))
    assert "\n" not in str(error.value)


def test_a_directory_is_not_a_file(tmp_path):
    with pytest.raises(UserError, match="never in one place"):
        find(f"csv:{tmp_path}").read(tmp_path, DataOptions())
    with pytest.raises(UserError, match="Is a directory"):
        CsvFile(str(tmp_path)).key(DataOptions())


@pytest.mark.parametrize(
    "content, test, note",
    [
        (table([*FINE, (3, "", 1), (3, 1, "")]), None, "2 rows without a target or a group"),
        (table([(5, *row) for row in FINE], "c,v,g,t"), None, "constant columns left out: c"),
        (table([(n, *row) for n, row in enumerate(FINE)], ",v,g,t"), None, "1 columns without a"),
        (table(FINE), "v,g,t\n1,1,1\n1,7,1\n", "1 test rows of groups without training .*: 7"),
        (table(FINE), "v,g,t,u\n1,1,1,1\n", r"1 columns only in test.csv ignored \(u\)"),
        (table([(v, 1, t) for v, _, t in FINE]), None, "one group only"),
        (table([*FINE * 99, *[("x", 0, 1)] * 9]), None, "'v' is taken for text: . training .* 'x'"),
        (
            table([*FINE * 99, *[("?", 0, 1)] * 9]),
            None,
            "'v': . training and . test values missing",
        ),
        (table([*FINE, (3, 1)]), None, r"1 rows have fewer cells .*3 \(the first ends in line 202"),
        (table([("", *row) for row in FINE], "e,v,g,t"), None, "without a value .* left out: e$"),
        (table([("?", *row) for row in FINE], "e,v,g,t"), None, "without a value .* left out: e$"),
        (
            table([("" if row[0] % 20 == 0 else "ab"[row[1]], *row) for row in FINE], "e,v,g,t"),
            None,
            r"'e': \d+ training and \d+ test values missing, a category of their own",
        ),
        (table([*FINE, (3, 1, "?")]), None, "1 rows without a target or a group"),
    ],
)
def test_what_was_done_to_the_data_is_noted(tmp_path, content, test, note):
    data = read(tmp_path, content, test, target="t", group=("g",))
    assert any(re.search(note, text) for text in data.notes), data.notes


@pytest.mark.parametrize("cell", ["unknown", "?", "", "1"])
def test_a_test_cell_does_not_change_the_inputs_of_training_rows(tmp_path, cell):
    """Kinds and categories come from training rows alone, with a test file and without."""
    options = {"target": "t", "group": ("g",)}
    plain = read(tmp_path, table(FINE), test="v,g,t\n1,1,1\n", **options)
    other = read(tmp_path, table(FINE), test=f"v,g,t\n{cell},1,1\n{cell},word,1\n", **options)
    assert other.features == plain.features and other.groups == plain.groups
    np.testing.assert_array_equal(other.train_x, plain.train_x)
    # The same for a row that is held out.
    group, y = (np.array([row[place] for row in FINE]) for place in (1, 2))
    place = int(np.flatnonzero(hold_out(group, y, 0.2, seed=0))[0])
    rows = [(cell, *row[1:]) if i == place else row for i, row in enumerate(FINE)]
    plain, other = (read(tmp_path, table(some), **options) for some in (FINE, rows))
    assert other.features == plain.features
    np.testing.assert_array_equal(other.train_x, plain.train_x)


def test_a_column_without_values_is_no_input(tmp_path):
    data = read(tmp_path, table([("", *row) for row in FINE], "e,v,g,t"), target="t", group=("g",))
    assert data.features == ("v", "g")


def test_rows_that_end_in_an_empty_cell_are_not_short(tmp_path):
    content = table([(t, v, g, "") for v, g, t in FINE], "t,v,g,e")
    data = read(tmp_path, content, target="t", group=("g",))
    assert not any("fewer cells" in note for note in data.notes)


def test_whole_numbers_beyond_a_float_stay_apart(tmp_path):
    content = table([(v, 2**53 + g, t) for v, g, t in FINE])
    assert len(read(tmp_path, content, target="t", group=("g",), drop=("g",)).groups) == 2


def test_the_key_follows_contents_and_options(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    (tmp_path / "test.csv").write_text(TEST)

    def key(**options):
        return find(f"csv:{path}").key(DataOptions(target="rich", group=("sex",), **options))

    base = key()
    assert base.startswith("csv-people-") and key() == base == key(test="0.2")
    assert len({base, key(seed=1), key(test="0.3"), key(drop=("age",))}) == 4
    test = str(tmp_path / "test.csv")
    assert key(test=test) == key(test=test, seed=1) != base
    path.touch()
    assert key() == base
    path.write_text(PEOPLE.replace("60", "61"))
    assert key() != base


def test_it_goes_through_preparation(tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE)
    options = DataOptions(target="rich", group=("sex",), test="0.3")
    prepared = prepare(find(f"csv:{tmp_path / 'people.csv'}"), tmp_path, options)
    assert prepared.groups == ("F", "M")
    assert prepared.counts == {"train": {"F": 2, "M": 2}, "test": {"F": 1, "M": 1}}
    assert prepared.sources[0]["file"] == "people.csv"


@given(
    values=st.lists(
        # Not so small that training rows differ by less than float32 can divide test rows by.
        st.one_of(st.none(), st.integers(-(10**9), 10**9).map(lambda n: n / 1000)),
        min_size=8,
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_numbers_become_finite_and_standardised(values, tmp_path_factory):
    rows = [("" if v is None else repr(v), n % 2, n // 2 % 2) for n, v in enumerate(values)]
    data = read(tmp_path_factory.mktemp("csv"), table(rows), target="t", group=("g",))
    assert np.isfinite(data.train_x).all() and np.isfinite(data.test_x).all()
    if "v" in data.features and not set(column(data, "v")) <= {0.0, 1.0}:
        x = column(data, "v")
        train = x[x != 0] if "v missing" in data.features else x
        assert abs(train.sum()) < 1e-3 * max(1, abs(train).max() * len(train))


def frame_of(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text))


@pytest.mark.parametrize("parts", [1, 3], ids=["a file", "a folder of parts"])
def test_parquet_reads_as_csv(tmp_path, parts):
    pytest.importorskip("pyarrow", reason="Parquet is an extra")
    frame = frame_of(PEOPLE).assign(
        day=pd.date_range("2024-02-27", periods=6), kind=pd.Categorical(list("aabbcc"))
    )
    frame.to_csv(tmp_path / "p.csv", index=False)
    path = tmp_path / "people.parquet"
    if parts == 1:
        frame.to_parquet(path)
    else:
        path.mkdir()
        for i in range(parts):
            frame[2 * i : 2 * i + 2].to_parquet(path / f"part-{i}.parquet")
    options = DataOptions(target="rich", group=("sex",), seed=1)
    datasets = [find(f"csv:{tmp_path / 'p.csv'}"), find(f"csv:{path}")]
    plain, other = (dataset.read(tmp_path, options) for dataset in datasets)
    assert other.features == plain.features and "day" in plain.features
    np.testing.assert_array_equal(other.train_x, plain.train_x)
    assert len({dataset.key(options) for dataset in datasets}) == 2


def test_latin_1_is_read_and_noted(tmp_path):
    data = read(tmp_path, PEOPLE.replace("cook", "chef é").encode("latin1"), seed=1)
    assert "job=chef é" in data.features
    assert any("read as Windows-1252" in note for note in data.notes)


def test_numbers_can_be_cut_into_groups(tmp_path):
    data = read(tmp_path, table(FINE), target="t", group=("v:50,120", "g"), test="0.1")
    assert len(data.groups) == 6
    assert data.groups[::2] == ("v < 50 / 0", "50 <= v < 120 / 0", "v >= 120 / 0")
    assert np.bincount(np.append(data.train_group, data.test_group))[::2].tolist() == [25, 35, 40]
    labels = Encoding.from_json(data.encoding).labels
    rows = frame_of("v,g,t\n49.9,0,1\n50,0,1\n120,1,0\n,1,1\n")
    assert labels.group(rows).tolist() == [0, 2, 5, -1]


def test_a_target_of_numbers_can_be_cut_into_classes(tmp_path):
    content = table([(g, v + 0.5, t) for v, g, t in FINE], "g,amount,t")
    data = read(tmp_path, content, target="amount", group=("g",), bins=4)
    assert len(data.classes) == 4 and data.classes[0].startswith("amount < 50")
    counts = np.bincount(data.train_y) + np.bincount(data.test_y)
    assert counts.tolist() == [50, 50, 50, 50]
    data = read(tmp_path, content, target="amount:20", group=("g", "amount"))
    assert data.classes == ("amount < 20", "amount >= 20")
    assert data.groups[0] == "0 / amount < 20"


SMALL = table([*FINE, *[(1, 7, 0), (2, 7, 1)] * 3, *[(1, 8, 0), (2, 8, 1)] * 2])


def test_small_groups_are_merged_or_left_out(tmp_path):
    plain = read(tmp_path, SMALL, target="t", group=("g",))
    assert plain.groups == ("0", "1", "7", "8")
    merged = read(tmp_path, SMALL, target="t", group=("g",), merge_small=20)
    assert merged.groups == ("0", "1", "other groups")
    np.testing.assert_array_equal(merged.train_group, np.minimum(plain.train_group, 2))
    assert "--merge-small 20 makes one group, 'other groups', of" in "\n".join(merged.notes)
    left = read(tmp_path, SMALL, target="t", group=("g",), min_group_rows=4)
    assert left.groups == ("0", "1", "7") and len(left.train_y) == np.sum(plain.train_group < 3)
    assert any(re.search(r"--min-group-rows 4 leaves out .*: 8 \(3\)", n) for n in left.notes)
    labels = Encoding.from_json(merged.encoding).labels
    assert labels.group(frame_of("g,t\n8,0\n7,1\n1,1\n9,1\n")).tolist() == [2, 2, 1, -1]


def test_a_group_may_be_called_na(tmp_path):
    content = table([(v, "NA" if g else "x", t) for v, g, t in FINE])
    data = read(tmp_path, content, target="t", group=("g",))
    assert data.groups == ("NA", "x") and "g=NA" in data.features
    assert any("called 'NA' (80 training rows): if that" in note for note in data.notes)
    data = read(tmp_path, content, target="t", group=("g",), missing=("NA",))
    assert data.groups == ("x",)
    assert any("100 rows without a target or a group left out (g 100)" in n for n in data.notes)
    encoding = Encoding.from_json(data.encoding)
    assert encoding.missing == ("NA",) and encoding.labels.group(frame_of("g,t\nx,1")) == [0]


@pytest.mark.parametrize(
    "cell, kind, value",
    [
        ("{0},5", "decimal comma", 3.5),
        ("{0}%", "percent plain", 3),
        ("$ {0}.25", "currency plain", 3.25),
        ("2024-01-{1:02}", "date", 19726),
    ],
)
def test_numbers_in_their_forms_are_numbers_for_other_rows_too(tmp_path, cell, kind, value):
    rows = [(f'"{cell.format(v, 1 + v % 28)}"', *row) for v, row in enumerate(FINE)]
    data = read(tmp_path, table(rows, "c,v,g,t"), target="t", group=("g",))
    found = {column["name"]: column["kind"] for column in data.columns}
    assert found == {"t": "", "c": kind, "v": "number", "g": "number"}
    encoding = Encoding.from_json(data.encoding)
    rule = encoding.columns["c"]
    x = encoding.encode(pd.DataFrame({"c": [cell.format(3, 4)], "v": ["1"], "g": ["0"]}))
    assert x[0, 0] == pytest.approx((value - rule.mean) / rule.deviation, rel=1e-5)


def test_what_became_of_each_column_is_printed(tmp_path, capsys):
    content = table([(5, "", f"id{v}", *row) for v, row in enumerate(FINE)], "c,e,name,v,g,t")
    (tmp_path / "p.csv").write_text(content)
    command = ["fetch", f"csv:{tmp_path}/p.csv", "--target", "t", "--group", "g", "--drop", "name"]
    assert main([*command, "--data-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for line in (
        r"c +number +left out: constant",
        r"e +number +160 +left out: no value",
        r"name +left out: --drop",
        r"v +number +1$",
        r"t +the target",
        r"0 +80 +20$",
        r"note: classes and their training rows: 0 \d+, 1 \d+",
        r"note: another whole number in every row, as of an id: 'v'.*--drop v$",
    ):
        assert re.search(line, said, re.MULTILINE), (line, said)


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    rows = [(f"n{i}", f"m{i}", "inf" if i == 3 else 1, *row) for i, row in enumerate(FINE)]
    content = table(rows, '"Name, first",e mail,w,v,g,t')
    with pytest.raises(UserError, match="3 columns cannot be inputs") as error:
        read(tmp_path, content, target="t", group=("g",))
    (option,) = re.findall("--drop (.*)[.] One", str(error.value))
    drop = names_of_list(shlex.split(option)[0])
    assert drop == ("Name, first", "e mail", "w")
    assert read(tmp_path, content, target="t", group=("g",), drop=drop).features == ("v", "g")


def test_real_people(adult_dir, tmp_path):
    """Adult, as a CSV file of the user's, is the same arrays as the dataset `adult`."""
    train, test = (
        (adult_dir / "raw/adult" / name).read_text() for name in ("adult.data", "adult.test")
    )
    header = ",".join(COLUMNS) + "\n"
    test = test.partition("\n")[2].replace("K.\n", "K\n")
    data = read(
        tmp_path,
        header + train,
        header + test,
        target="income",
        group=("sex", "income"),
        drop=("fnlwgt", "education"),
    )
    adult = prepare(find("adult"), adult_dir, DataOptions())
    assert data.features == adult.features
    assert data.groups == ("Female / <=50K", "Female / >50K", "Male / <=50K", "Male / >50K")
    for name in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(data, name), adult.array(name))
