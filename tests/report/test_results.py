"""The committed results, whose run folders were not kept: the report shows them all the same."""

import csv
import json
import re
from pathlib import Path

import pytest

from fedmpi.report.__main__ import main
from fedmpi.report.collect import collect
from fedmpi.reproduce.gridfile import find_runs

RESULTS = Path(__file__).parents[2] / "results"
GRIDS = sorted(str(path.parent.relative_to(RESULTS)) for path in RESULTS.rglob("risks.csv"))
"""Reproductions; a comparison has no tables of one dataset."""


def data_of(page: Path) -> dict:
    """What a page draws."""
    (text,) = re.findall(
        r'<script[^>]*id="data"[^>]*>(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL
    )
    return json.loads(text)


@pytest.mark.parametrize("name", GRIDS)
def test_the_numbers_on_the_page_are_those_of_the_tables(name, tmp_path):
    page = tmp_path / "report.html"
    assert main([str(RESULTS / name), "--output", str(page)]) == 0
    (section,) = data_of(page)["sections"]
    cells = {tuple(cell["run"]): cell for cell in section["cells"]}
    assert len(cells) == len(section["cells"])
    count = 0
    for table in ("risks", "accuracies", "weights", "local_global"):
        path = RESULTS / name / f"{table}.csv"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for row in csv.DictReader(lines):
            run = int(row["clients"] or 0), row["setting"], row["method"], row["parameter"]
            if row["mean"] == "":
                assert run not in cells or cells[run]["groups"]["weight"][0] is None
                continue
            if row["group"] in section["groups"]:
                values = cells[run]["groups"][row["kind"]]
                mean, std = values[section["groups"].index(row["group"])]
            else:
                mean, std = cells[run]["stats"][f"{row['group']}_{row['kind']}"]
            assert mean == pytest.approx(float(row["mean"]), abs=1e-12), row
            assert std == (pytest.approx(float(row["std"]), abs=1e-12) if row["std"] else None)
            assert len(cells[run]["seeds"]) == int(row["runs"])
            count += 1
    assert count > 100
    told = json.loads((RESULTS / name / "claims.json").read_text())["claims"]
    assert [c["verdict"] for c in section["claims"]] == [c["verdict"] for c in told]
    without_curves = sum("curves over the rounds" in note for note in section["notes"])
    assert without_curves == name.startswith("paper-steps/")
    notes = [note for run in section["runs"] if "acs-" not in name for note in run["notes"]]
    assert all(note.startswith("The curves show ") for note in notes)
    assert not notes or not without_curves


def test_all_of_them_on_one_page_stay_apart():
    data = collect(find_runs([RESULTS]), [RESULTS])
    assert len(data["sections"]) == len(list(RESULTS.rglob("grid.json")))
    titles = [section["title"] for section in data["sections"]]
    assert len(set(titles)) == len(titles)
    assert {f"Adult ({of})" for of in ("solved", "comparison", "paper-steps")} < set(titles)
    assert sum(bool(s["claims"]) for s in data["sections"]) == len(GRIDS) and not data["claims"]


@pytest.mark.parametrize("name", GRIDS)
def test_figures_for_papers(name, tmp_path):
    assert main([str(RESULTS / name), "--format", "svg", "--output", str(tmp_path)]) == 0
    kinds = {path.stem.partition("-")[2].rpartition("-")[2] for path in tmp_path.iterdir()}
    curves = set() if name.startswith("paper-steps/") else {"trend"}
    assert kinds - {"h"} == {"risk", "accuracy", "weights"} | curves


def test_the_files_are_small():
    for name in GRIDS:
        file = RESULTS / name / "grid.json"
        runs = len(json.loads(file.read_text())["runs"])
        assert file.stat().st_size < min(1_800_000, max(1_000_000, 8_000 * runs))
