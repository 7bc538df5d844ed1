"""docs/reproduction.md says of each dataset what results/ has: the worst groups, the verdicts."""

import csv
import json
import re
from pathlib import Path

import pytest

from fedmpi.reproduce import paper
from fedmpi.reproduce.claims import FAIL, OPEN, PASS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
TITLES = {
    "adult": "Adult",
    "synthetic": "Synthetic",
    "acs-employment": "ACS Employment, Massachusetts",
    "acs-race": "ACS by race, Massachusetts",
    "fashionmnist": "FashionMNIST",
    "cifar10": "CIFAR-10",
}
ROWS = {
    ("fedavg", ""): "FedAvg",
    ("qfedavg", ""): "q-FedAvg",
    ("term", ""): "TERM, tilting clients",
    ("term", "rows"): "TERM, tilting rows",
    ("afl", ""): "AFL",
    ("localfedminmax", ""): "LocalFedMinMax",
    ("fedminmax", ""): "**FedMinMax**",
    ("centralized", ""): "one machine with all rows",
}
VERDICTS = {PASS: "pass", FAIL: "fail", OPEN: "-"}
SETTINGS = ("ESG", "PSG", "SSG")


def folders() -> list[str]:
    return [name for name in TITLES if (ROOT / "results" / name).exists()]


def section(title: str) -> list[str]:
    """Lines of the part of the page that has this title."""
    found = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^#)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/reproduction.md has no part {title}"
    return found[1].splitlines()


def three(number: str | float) -> str:
    return f"{float(number):.3f}".removeprefix("0")


def of_paper(dataset: str, method: str, setting: str, groups: set[str]) -> str:
    """Risk of the worst of these groups in a row of the paper's table, or nothing."""
    run = dataset, paper.CLIENTS, method
    values = [
        cell.mean
        for cell in paper.printed("risk")
        if (cell.dataset, cell.clients, cell.method) == run
        and (cell.setting == setting or not cell.setting)
        and cell.group in groups
    ]
    return three(max(values)) if values else ""


def expected(dataset: str) -> list[str]:
    """Rows of a dataset's table on the page, from results/."""
    found, groups = {}, set()
    for folder in ("term", "."):  # where both have a method, that of the dataset's own folder
        path = ROOT / "results" / folder / dataset / "risks.csv"
        for row in csv.DictReader(path.open(encoding="utf-8")) if path.exists() else ():
            groups.add(row["group"])
            if row["group"] == "worst":
                found[row["method"], row["parameter"], row["setting"]] = row
    settings = [s for s in SETTINGS if any(key[2] == s for key in found)]
    lines = []
    for (method, parameter), title in ROWS.items():
        of = settings if method != "centralized" else [""]
        rows = [row for s in of if (row := found.get((method, parameter, s)))]
        if not rows:
            continue
        assert len(rows) == len(of), f"{dataset}: {title} lacks a setting"
        solved = [
            three(r["mean"]) + (f" [{three(r['low'])}, {three(r['high'])}]" if r["low"] else "")
            for r in rows
        ]
        steps = [three(r["paper_steps_mean"]) for r in rows if r["paper_steps_mean"]]
        printed = [figure for s in of if (figure := of_paper(dataset, method, s, groups))]
        cells = [title, *solved, *[""] * (len(settings) - len(of))]
        lines.append(f"| {' | '.join([*cells, ', '.join(steps), ', '.join(printed)])} |")
    return lines


@pytest.mark.parametrize("dataset", folders())
def test_worst_groups_are_those_of_the_results(dataset):
    told = [line for line in section(TITLES[dataset]) if line.startswith("|")]
    table = told[2 : 2 + len(expected(dataset))]
    assert table == expected(dataset)


@pytest.mark.parametrize("dataset", folders())
def test_verdicts_are_those_of_the_results(dataset):
    told = json.loads((ROOT / f"results/{dataset}/claims.json").read_text(encoding="utf-8"))
    verdicts = [VERDICTS[claim["verdict"]] for claim in told["claims"]]
    name = TITLES[dataset].partition(",")[0]
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| [{name}]"))
    assert [cell.strip(" ()") for cell in line.split("|")[2:-1]] == verdicts


def test_every_dataset_is_on_the_page():
    assert set(folders()) == set(TITLES)
