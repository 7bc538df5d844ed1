"""Whatever rows are given: scores, or one clear line; and what was odd is counted."""

import gzip
import io
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from runs import launcher, limit

from fedmpi import evaluate, models, predict
from fedmpi.scoring.model import FORMAT

COLUMNS = ["age", "smokes", "job", "ward", "ill"]
ROWS = ["41.5,1,cook,10,yes", "30,0,nurse,1,no", ",0,,2,no"]


def csv(*rows: str, header: list[str] = COLUMNS) -> str:
    return "\n".join([",".join(header), *(rows or ROWS)]) + "\n"


def column(name: str, *values: str) -> str:
    """The rows with other values in a column, one after the other."""
    rows = [row.split(",") for row in ROWS]
    for row, value in zip(rows, values, strict=False):
        row[COLUMNS.index(name)] = value
    return csv(*map(",".join, rows))


def without(*names: str) -> str:
    keep = [i for i, name in enumerate(COLUMNS) if name not in names]
    rows = (",".join(row.split(",")[i] for i in keep) for row in ROWS)
    return csv(*rows, header=[COLUMNS[i] for i in keep])


@dataclass
class Case:
    """Rows in a file, or whatever `make` leaves; further words of the command; what it says."""

    says: str
    rows: str | bytes | None = csv()
    words: str = ""
    file: str = "rows.csv"
    run: str = "run"
    make: Callable[[Path], object] = lambda folder: None


def images(folder: Path, shape=(4, 1, 8, 8), dtype=np.uint8) -> None:
    np.save(folder / "rows.npy", np.zeros(shape, dtype))


def arrays(folder: Path, **named: np.ndarray) -> None:
    np.savez(folder / "rows.npz", **named)


IMAGES = np.zeros((3, 8, 8), np.uint8)
REFUSED = {
    "no file": Case("cannot read .*rows.csv: No such file .*, seen from", rows=None),
    "a folder": Case("Is a directory", None, make=lambda f: (f / "rows.csv").mkdir()),
    "an empty file": Case("rows.csv is empty", ""),
    "a missing column": Case("no column 'job', which is needed", without("job")),
    "all missing columns at once": Case(
        "no columns 'age', 'ward', which are needed", without("age", "ward")
    ),
    "a column by another name": Case(
        "Is 'smoke' meant for 'smokes'", csv(header=["age", "smoke", *COLUMNS[2:]])
    ),
    "a column twice": Case("more than one column 'job'", csv(header=[*COLUMNS[:4], "job"])),
    "a row too long": Case("line 3: 6 cells, and the header has 5", csv(ROWS[0], "1,2,3,4,5,6")),
    "a quote left open": Case("is a quote left open", csv('"1,0,cook,1,no')),
    "no header": Case("no columns .* which are needed", "\n".join(ROWS)),
    "numbers that are all text": Case(
        "'age' was numbers in training, and all 2 .* text, or .* One of them is '30,0'",
        column("age", '"41,5"', '"30,0"'),
    ),
    "an infinite number": Case("'age' has 1 values that are infinite", column("age", "inf")),
    "a number too large": Case("infinite or too large", column("age", "1e300")),
    "a scored file": Case(
        "a column 'predicted' already", csv("1,0,cook,1,no", header=[*COLUMNS[:4], "predicted"])
    ),
    "latin-1 after much ASCII": Case(
        "not UTF-8", csv(*ROWS * 5000, "1,0,Köchin,1,no").encode("latin1")
    ),
    "an Excel file": Case("Excel workbook", b"PK\x03\x04 xl/workbook" + bytes(50)),
    "owners' files": Case("each owner of rows can score its own", file="csv:owners/"),
    "a table for images": Case("takes images of 1 × 8 × 8: give an array", run="images"),
    "images for a table": Case(
        "rows of 1 × 8 × 8 were given, the model takes", None, file="rows.npy", make=images
    ),
    "images of another size": Case(
        r"rows of 1 × 9 × 9 were given, the model takes 1 × 8 × 8 \(channels",
        *(None, "", "rows.npy", "images"),
        make=lambda f: images(f, (4, 1, 9, 9)),
    ),
    "images of fractions": Case(
        "images of float64 were given, the model takes bytes",
        *(None, "", "rows.npy", "images"),
        make=lambda f: images(f, dtype=np.float64),
    ),
    "a pickle": Case(
        "is no array of numpy's",
        *(None, "", "rows.npy"),
        make=lambda f: np.save(f / "rows.npy", np.array([{}], dtype=object)),
    ),
    "arrays without x": Case(
        "call the rows x",
        *(None, "", "rows.npz"),
        make=lambda f: arrays(f, a=IMAGES, b=IMAGES),
    ),
    "no run": Case("there is no .*nothing: give the folder of a finished run", run="nothing"),
    "a run without a model": Case("there is no .*model.pt", run="."),
    "an output that is there": Case(
        "is there already: give another name, or --force",
        words="--output out.csv",
        make=lambda f: (f / "out.csv").write_text("precious"),
    ),
    "an output that is the input": Case("is the file of the rows", words="--output rows.csv"),
    "an output that is a folder": Case("that is a folder", words="--output ."),
    "an output in no folder": Case("there is no folder nowhere", words="--output nowhere/out.csv"),
    "nothing to score": Case("give a FILE of rows to score, or --export onnx", file=""),
    "rows and an export": Case("give a FILE .* or --export onnx", words="--export onnx"),
    "an export to the screen": Case("as --output model.onnx", words="--export onnx", file=""),
}
LABELLED = {
    "no target": Case("no column 'ill', which is needed", without("ill")),
    "no class that is known": Case(
        "has no row of a class and a group", column("ill", "maybe", "?", "")
    ),
    "images without classes": Case(
        "has no y: save it as .npz", *(None, "", "rows.npy", "images"), make=images
    ),
    "classes that the model has not": Case(
        "y has 0 to 7; the model has 0 to 1",
        *(None, "", "rows.npz", "images"),
        make=lambda f: arrays(f, x=IMAGES, y=np.array([0, 1, 7])),
    ),
    "classes that are no numbers": Case(
        "y must be a whole number for each row",
        *(None, "", "rows.npz", "images"),
        make=lambda f: arrays(f, x=IMAGES, y=np.array([0.5, 1, 0])),
    ),
}


@pytest.fixture
def folder(trained, tmp_path, monkeypatch) -> Path:
    """A folder with a run on a table, and a model of images."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(trained.folder)
    state = models.build("cnn", (1, 8, 8), 2, 0).state_dict()
    description = {
        **{"format": FORMAT, "model": "cnn", "row_shape": [1, 8, 8], "dtype": "float32"},
        **{"loss": "brier", "reports": "last", "classes": ["a", "b"], "groups": ["a", "b"]},
        **{"features": [], "encoding": None, "attribute": None},
        "scale": {"mean": [100.0], "std": [50.0]},
    }
    (tmp_path / "images").mkdir()
    whole = {"averaged": state, "last": state, "description": description}
    torch.save(whole, tmp_path / "images/model.pt")
    return tmp_path


def tried(case: Case, main, folder: Path) -> int:
    case.make(folder)
    if case.rows is not None:
        content = case.rows.encode() if isinstance(case.rows, str) else case.rows
        (folder / "rows.csv").write_bytes(content)
    return main([case.run, *([case.file] if case.file else []), *case.words.split()])


@pytest.mark.parametrize(
    ("main", "case"),
    [
        *(pytest.param(predict.main, case, id=name) for name, case in REFUSED.items()),
        *(pytest.param(evaluate.main, case, id=name) for name, case in LABELLED.items()),
    ],
)
def test_bad_rows_are_refused_in_one_line(folder, capsys, main, case):
    (folder / "other.csv").write_text("precious")
    before = {path.name for path in folder.iterdir()} | {"rows.csv", "rows.npy", "rows.npz"}
    assert tried(case, main, folder) == 2
    line = capsys.readouterr().err
    assert re.fullmatch(rf"fedmpi: .*{case.says}.*\n", line), line
    assert {path.name for path in folder.iterdir()} <= before | {"out.csv"}
    if (folder / "out.csv").exists():
        assert (folder / "out.csv").read_text() == "precious"


ODD = {
    "as it should be": (csv(), ["columns that the model does not use: ill"]),
    "another order and an extra column": (
        "id,ward,ill,job,smokes,age\n7,10,yes,cook,1,41.5\n8,1,no,nurse,0,30\n9,2,no,,0,\n",
        ["columns that the model does not use: id, ill"],
    ),
    "without the target": (without("ill"), []),
    "spaces, and a whole number as 1.0": (
        csv(" 41.5 , 1.0,cook ,10.0, yes", "30.0,0,nurse,1,no", ",0,,2,no"),
        ["columns that the model does not use: ill"],
    ),
    "an unseen category": (column("job", "judge"), ["column 'job': 1 values not seen in training"]),
    "a number that is text": (column("age", "old"), ["column 'age': 1 values are text"]),
    "a missing value as never in training": (
        column("smokes", ""),
        ["column 'smokes': 1 missing, where training had all values"],
    ),
    "a short row": (csv(ROWS[0], "30,0"), ["1 rows have fewer cells than the header"]),
    "no rows": (",".join(COLUMNS) + "\n", ["0 rows scored"]),
    "semicolons": (csv().replace(",", ";"), ["columns that the model does not use: ill"]),
    "tabs": (csv().replace(",", "\t"), ["3 rows scored"]),
    "no line end": (csv().rstrip("\n"), ["3 rows scored"]),
}


@pytest.mark.parametrize(("rows", "says"), ODD.values(), ids=list(ODD))
def test_odd_rows_are_scored_and_counted(folder, capsys, rows, says):
    assert tried(Case("", rows, "--output out.csv"), predict.main, folder) == 0
    told = capsys.readouterr().err
    assert all(line in told for line in says), told
    separator = next((mark for mark in ";\t" if mark in rows), ",")
    found, given = (
        pd.read_csv(folder / name, dtype=str, keep_default_na=False, sep=separator)
        for name in ("out.csv", "rows.csv")
    )
    assert len(found) == len(given)
    assert found.columns.tolist() == [*given.columns, "predicted", *PROBABILITIES]
    if len(given) == 3 and "training" not in told and "text" not in told:
        (folder / "plain.csv").write_text(csv())
        assert predict.main(["run", "plain.csv", "--output", "plain.out"]) == 0
        plain = pd.read_csv(folder / "plain.out", dtype=str)
        assert found[PROBABILITIES].equals(plain[PROBABILITIES])


PROBABILITIES = ["probability/no", "probability/yes"]


@pytest.mark.parametrize("form", ["UTF-16", "Latin-1", "Parquet", "gzip"])
def test_other_files_that_training_reads_are_scored(folder, capsys, form):
    """The whole file is read as training reads it, but for gzip."""
    frame = pd.read_csv(io.StringIO(csv("41.5,1,Köchin,10,yes", *ROWS)))
    frame.to_csv(folder / "plain.csv", index=False)
    if form == "Parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(folder / "rows.parquet")
    elif form == "gzip":
        (folder / "rows.parquet").write_bytes(gzip.compress((folder / "plain.csv").read_bytes()))
    else:
        frame.to_csv(folder / "rows.parquet", index=False, encoding=form)
    for name in ("plain.csv", "rows.parquet"):
        assert predict.main(["run", name, "--output", f"{name}.out"]) == 0
    plain, other = (pd.read_csv(folder / f"{name}.out") for name in ("plain.csv", "rows.parquet"))
    pd.testing.assert_frame_equal(plain, other)
    assert "1 values not seen in training" in capsys.readouterr().err


def test_rows_that_cannot_be_evaluated_are_counted(folder, capsys):
    rows = csv(*ROWS, "30,0,nurse,1,maybe", "30,0,nurse,77,no", "30,0,nurse,,no", "30,0,nurse,1,")
    assert tried(Case("", rows), evaluate.main, folder) == 0
    told = capsys.readouterr()
    assert "2 rows without a target, or of a class that was not trained on left out" in told.err
    assert "2 rows without a group, or of one that was not trained on, left out" in told.err
    assert re.search(r"^10 / yes +1 ", told.out, re.MULTILINE)


def test_the_data_of_a_model_may_have_changed(trained, folder, capsys):
    """`test` is of the rows that the model was trained with, or a line."""
    contents = torch.load(trained.folder / "model.pt", weights_only=True)
    (folder / "other").mkdir()
    contents["description"]["trained_on"]["data"] = "csv-people-000000000000"
    torch.save(contents, folder / "other/model.pt")
    assert evaluate.main(["other", "test", "--data-dir", str(trained.data)]) == 2
    assert "has changed since the model was trained" in capsys.readouterr().err
    contents["description"]["trained_on"]["dataset"] = "csv:owners/"
    torch.save(contents, folder / "other/model.pt")
    assert evaluate.main(["other", "test"]) == 2
    assert "are with their owners" in capsys.readouterr().err


def test_streams(folder):
    """Standard input and output; and a reader that has seen enough is no error of ours."""
    many = csv(*ROWS * 2_000)
    (folder / "rows.csv").write_text(many)
    command = f"{sys.executable} -m fedmpi.predict run"
    done = subprocess.run(
        ["sh", "-c", f"{command} - < rows.csv > out.csv; {command} rows.csv 2>err.txt | head -2"],
        cwd=folder,
        env=launcher(),
        capture_output=True,
        text=True,
        timeout=limit(),
    )
    assert done.returncode == 0 and "6,000 rows scored" in done.stderr
    with open(folder / "out.csv") as file:
        assert file.readline() + file.readline() == done.stdout
        assert sum(1 for _ in file) == 6_000 - 1
    assert "Traceback" not in (folder / "err.txt").read_text()
