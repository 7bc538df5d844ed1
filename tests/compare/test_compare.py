"""fedmpi.compare as a user starts it: layouts, cuts, tables in three forms, slips."""

import csv
import json
import os
import re
import shutil
import signal
import sys

import numpy as np
import pytest
from runs import write_people

from fedmpi.compare.__main__ import main
from fedmpi.errors import UserError
from fedmpi.federation.grid import GridProgress
from fedmpi.federation.rounds import Training
from fedmpi.mpi import signals
from fedmpi.mpi.ranks import Stopped
from fedmpi.report.collect import collect
from fedmpi.reproduce.gridfile import find_runs
from fedmpi.scoring.comparison import difference, estimate
from fedmpi.scoring.replicates import read_replicates

SMALL = "--model logistic --loss brier --rounds 4 --local-rounds 2 --clients 4 --dtype float64"
GRID = "--methods fedminmax fedavg centralized --seeds 0 1 --budget 2 --folds 2"
CELLS = 3 * 2 + 2
"""Three blocks of two methods; centralized has no setting."""
FOLDS, RUNS = CELLS * 2 * 2, CELLS * 2
ROUNDS = 4 * (CELLS - 3) + 2 * 3
"""Of one run of each cell; FedAvg takes two."""
COSTS = ("seconds", "bytes")
"""Columns that depend on the layout and the hour."""
TESTS = ("difference", "difference_low", "difference_high", "p", "p_holm", "verdict")


def run(*arguments: object) -> int:
    """fedmpi.compare in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["compare", *map(str, arguments)])
        return main()


def rows_of(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def assert_same(folder, other, but: tuple[str, ...] = (), setting: str = "") -> None:
    """Tables and choices of two folders are the same, but for rounding and costs.

    With a `setting`, the other folder has that setting alone.
    """
    names = ["comparison.csv", "choices.csv", *([] if setting else ["ranks.csv"])]
    for name in names:
        ours, theirs = rows_of(folder / name), rows_of(other / name)
        ours = [row for row in ours if not setting or row["setting"] == setting]
        theirs = [row for row in theirs if not setting or row["setting"] == setting]
        assert len(ours) == len(theirs) > 0
        for mine, yours in zip(ours, theirs, strict=True):
            for key, value in mine.items():
                number = re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", value)
                if key not in (*COSTS, *but):
                    expected = pytest.approx(float(value), abs=1e-9) if number else value
                    assert (float(yours[key]) if number else yours[key]) == expected, key


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """Two datasets, one of three groups."""
    folder = tmp_path_factory.mktemp("compare")
    people = write_people(folder / "people.csv", {"a": 90, "b": 60, "c": 60}, lifted="a")
    data = ["--datasets", "synthetic", f"csv:{people}", "--rows", 90, "--limit-test", 40]
    data += ["--target", "y", "--group", "g", "--data-dir", folder / "data"]
    return [*data, "--settings", "ESG", "PSG", *SMALL.split(), *GRID.split(), "--progress", "none"]


@pytest.fixture(scope="module")
def whole(options, tmp_path_factory):
    """Folder of a comparison in this process, and the number of rounds that were trained."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    with counted() as rounds:
        assert run(*options, "--output", folder) == 0
    return folder, rounds[0]


class counted:
    """The rounds that are trained meanwhile, as a list of one number."""

    def __enter__(self) -> list[int]:
        self.patch, rounds, one_round = pytest.MonkeyPatch(), [0], Training.one_round

        def count(training, *arguments):
            rounds[0] += 1
            return one_round(training, *arguments)

        self.patch.setattr(Training, "one_round", count)
        return rounds

    def __exit__(self, *raised) -> None:
        self.patch.undo()


def test_every_block_method_and_seed_is_there(whole):
    folder, rounds = whole
    table = rows_of(folder / "comparison.csv")
    # PSG on the two groups of synthetic is SSG, and left out.
    blocks = {(row["dataset"].partition(":")[0], row["setting"]) for row in table}
    assert blocks == {("synthetic", "ESG"), ("csv", "ESG"), ("csv", "PSG")}
    assert [row["method"] for row in table] == ["fedminmax", "fedavg", "centralized"] * 3
    assert rounds == 2 * 2 * ROUNDS + 2 * ROUNDS
    for row in table:
        setting = "" if row["method"] == "centralized" else f"-{row['setting']}"
        data = "synthetic" if row["dataset"] == "synthetic" else "csv-people"
        runs = [folder / f"{data}/runs/{data}{setting}-{row['method']}-s{s}-k4" for s in (0, 1)]
        if not setting:
            runs = [path.with_name(path.name.removesuffix("-k4")) for path in runs]
        results = [json.loads((path / "result.json").read_text()) for path in runs]
        risks = np.array([[g["risk"] for g in result["groups"].values()] for result in results])
        worst = risks[:, np.argmax(risks.mean(axis=0))]
        assert float(row["risk"]) == pytest.approx(np.mean(worst))
        assert float(row["std"]) == pytest.approx(np.std(worst, ddof=1))
        assert float(row["rounds"]) == (2 if row["method"] == "fedavg" else 4)
        epochs = json.loads((runs[0] / "config.json").read_text()).get("local_epochs")
        assert float(row["passes"]) == float(row["rounds"]) * (epochs or 1)
    assert not list(folder.glob("*/tuning/*/*/model.pt"))


def test_the_overview_has_risks_and_verdicts_of_the_table(whole):
    folder, _ = whole
    table, overview = rows_of(folder / "comparison.csv"), rows_of(folder / "overview.csv")
    assert overview == sorted(
        ({name: row[name] for name in overview[0]} for row in table),
        key=lambda row: [r["method"] for r in overview].index(row["method"]),
    )
    lines = (folder / "overview.md").read_text().splitlines()
    head, *body = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert head == ["Method", "synthetic ESG", "csv-people ESG", "csv-people PSG"]
    signs = {"lower": " ↓", "higher": " ↑", "equal": " =", "not decided": "", "": ""}
    titles = {"FedMinMax": "fedminmax", "FedAvg": "fedavg", "Centralized": "centralized"}
    cells = {
        (titles[row[0]], where): cell
        for row in body[1:]
        for where, cell in zip(head, row, strict=True)
    }
    for row in table:
        data = "csv-people" if "csv" in row["dataset"] else row["dataset"]
        told = f"{float(row['risk']):.3f}{signs[row['verdict']]}<br>{float(row['other_risk']):.3f}"
        assert cells[row["method"], f"{data} {row['setting']}"] == told
    assert {row["verdict"] for row in table} >= {"equal"}


def test_the_ranks_are_those_of_the_table(whole):
    folder, _ = whole
    table, ranks = rows_of(folder / "comparison.csv"), rows_of(folder / "ranks.csv")
    assert {row["method"] for row in ranks} == {"fedminmax", "fedavg"}
    for row in ranks:
        mine = []
        for setting in ("synthetic ESG", "csv-people ESG", "csv-people PSG"):
            data, where = setting.split()
            block = {
                r["method"]: float(r["risk"])
                for r in table
                if r["setting"] == where and ("csv" in r["dataset"]) == ("csv" in data)
            }
            del block["centralized"]
            mine.append(1 + sorted(block.values()).index(block[row["method"]]))
            assert float(row[setting]) == mine[-1]
        assert float(row["mean_rank"]) == pytest.approx(np.mean(mine))


def test_intervals_and_tests_are_of_seeds_and_rows(whole):
    folder, _ = whole
    table = [r for r in rows_of(folder / "comparison.csv") if r["setting"] == "PSG"]
    names = {"fedminmax": "PSG-fedminmax-s{}-k4", "fedavg": "PSG-fedavg-s{}-k4"}
    names["centralized"] = "centralized-s{}"
    runs = {
        method: {
            s: read_replicates(folder / f"csv-people/runs/csv-people-{name.format(s)}")
            for s in (0, 1)
        }
        for method, name in names.items()
    }
    control, *others = table
    assert control["difference"] == control["p_holm"] == ""
    p = []
    for row in table:
        told = estimate(runs[row["method"]])
        assert float(row["risk"]) == pytest.approx(told.value)
        ends = [max(0, told.low), told.high]
        assert [float(row[end]) for end in ("low", "high")] == pytest.approx(ends)
        assert ends[0] < told.value < ends[1]
    for row in others:
        found = difference(runs[row["method"]], runs["fedminmax"])
        risks = float(row["risk"]) - float(control["risk"])
        assert float(row["difference"]) == pytest.approx(risks, abs=1e-12)
        assert float(row["difference_low"]) == pytest.approx(found.low)
        assert float(row["p"]) == pytest.approx(found.p_different)
        p.append(found.p_different)
    first, second = sorted(p)  # Holm, by hand
    by_hand = {first: min(1, 2 * first), second: max(min(1, 2 * first), second)}
    assert [float(row["p_holm"]) for row in others] == pytest.approx([by_hand[x] for x in p])
    verdicts = {row["method"]: row["verdict"] for row in others}
    assert verdicts["centralized"] == "equal"  # Lemma 2


def numbers(text: str) -> list[str]:
    return re.findall(r"[-+]?\d[\d,]*\.?\d*(?:e-?\d+)?", text)


@pytest.mark.parametrize("name", ["comparison", "ranks", "choices"])
def test_the_three_forms_have_the_same_figures(whole, name):
    folder, _ = whole
    data = rows_of(folder / f"{name}.csv")
    body = (folder / f"{name}.md").read_text().split("\n\n")[1].splitlines()[2:]
    latex = (folder / f"{name}.tex").read_text()
    lines = [s for s in latex.split("\\midrule", 1)[1].splitlines() if " & " in s]
    assert len(body) == len(lines) == len(data) > 0
    for row, mine, yours in zip(data, body, lines, strict=True):
        assert numbers(mine) == numbers(yours.replace("$\\pm$", "±"))
        first = {"comparison": "risk", "ranks": "mean_rank", "choices": "risk"}[name]
        form = ".2f" if name == "ranks" else ".4f"
        assert f"{float(row[first]):{form}}" in numbers(mine)


def test_the_report_shows_the_runs_and_not_the_folds(whole, tmp_path):
    folder, _ = whole
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    found = find_runs([copy])
    assert len(found) == RUNS and not any(r.config.get("fold") for r in found)
    data = collect(found, [copy])
    assert [len(s["runs"]) for s in data["sections"]] == [6, 10]
    assert all(cell["seeds"] == [0, 1] for s in data["sections"] for cell in s["cells"])
    for path in copy.glob("*/runs"):
        shutil.rmtree(path)
    assert len(find_runs([copy])) == RUNS  # from grid.json


def test_options_that_were_tuned_for_each_seed_are_one_method(whole, tmp_path):
    """Seed 1 of FedAvg has another step, by tuning, and then by the user."""
    copy = tmp_path / "copy"
    shutil.copytree(whole[0], copy)
    path = copy / "synthetic/runs/synthetic-ESG-fedavg-s1-k4/config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"lr": 7.0}))
    section = collect(find_runs([copy]), [copy])["sections"][0]
    assert "FedAvg" in [method["label"] for method in section["methods"]]
    assert any(note.startswith("Options were tuned") for note in section["notes"])
    path.write_text(json.dumps(config | {"lr": 7.0, "tuned_options": None}))
    section = collect(find_runs([copy]), [copy])["sections"][0]
    assert any(m["label"].startswith("FedAvg (η = 7, ") for m in section["methods"])


def test_what_is_noted_needs_no_folders(whole, options, tmp_path):
    """A clone of the results has tuned.json and grid.json: the tables, and no training of folds."""
    folder, _ = whole
    copy = tmp_path / "copy"
    left = shutil.ignore_patterns("runs", "tuning", "comparison.*", "overview.*")
    shutil.copytree(folder, copy, ignore=left)
    with counted() as rounds:
        assert run(*options, "--output", copy, "--tables-only") == 0
    assert rounds == [0]
    assert_same(folder, copy, but=TESTS)  # for which the test rows' replicates are needed
    text = (copy / "tuned.json").read_text()
    assert str(options[2]).removeprefix("csv:") not in text and '"csv:people.csv"' in text


def test_tables_with_tests_are_not_replaced_by_tables_without(whole, options, tmp_path, capsys):
    """As in a clone of the results, which has the tables and no folders of runs."""
    folder, _ = whole
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("runs", "tuning"))
    capsys.readouterr()
    assert run(*options, "--output", copy, "--tables-only") == 0
    told = capsys.readouterr().out
    assert f"{RUNS} runs are in grid.json alone" in told
    assert f"{RUNS} of {RUNS} runs finished, 0 failed" in told
    for path in folder.glob("*.*"):
        assert (copy / path.name).read_bytes() == path.read_bytes(), path.name


def test_tables_stay_where_other_options_were_asked_for(whole, options, tmp_path, capsys):
    """Nothing of what is asked for is tuned or run; the tables are of runs that are kept."""
    folder, _ = whole
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("runs", "tuning"))
    assert run(*options, "--budget", 3, "--output", copy, "--tables-only") == 0
    told = capsys.readouterr().out
    assert "stay as they are" in told and f"0 of {RUNS} runs finished" in told
    for path in [*folder.glob("*.*"), *folder.glob("*/grid.json")]:
        assert (copy / path.relative_to(folder)).read_bytes() == path.read_bytes(), path.name


def test_who_replaces_what_is_kept_is_told(whole, options, tmp_path, capsys):
    folder, _ = whole
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("runs", "tuning"))
    few = ["--methods", "fedavg"]
    assert run(*options, *few, "--no-tune", "--output", copy) == 0
    assert (
        f"{RUNS} runs in grid.json alone: the tables and this file are" in capsys.readouterr().out
    )
    assert len(rows_of(copy / "runs.csv")) < RUNS


def test_a_comparison_that_is_stopped_goes_on(whole, options, tmp_path):
    """By USR1 among the folds, and then among the runs: nothing is trained twice."""
    folder, all_rounds = whole
    given = [*options, "--output", tmp_path / "out", "--checkpoint-every", 1]
    begin, begun = GridProgress.begin, []

    def begin_and_stop(progress, plan):
        begin(progress, plan)
        begun.append("fold" in plan.title)
        if begun in ([True] * 5, [True] * (FOLDS + 1) + [False] * 3):
            os.kill(os.getpid(), signal.SIGUSR1)

    with counted() as rounds:
        for _ in range(2):
            with pytest.MonkeyPatch.context() as patch, signals.listening(True):
                patch.setattr(GridProgress, "begin", begin_and_stop)
                with pytest.raises(Stopped, match="Go on with"):
                    run(*given)
        assert 0 < rounds[0] < all_rounds and begun[-1] is False
        assert run(*given) == 0
    assert rounds == [all_rounds]
    assert_same(folder, tmp_path / "out")


def test_a_larger_budget_trains_what_is_new(whole, options, tmp_path):
    folder, _ = whole
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    more = [*options, "--output", copy, "--budget", 3]
    changed = False
    with counted() as rounds:
        try:
            assert run(*more) == 0
        except UserError as error:  # of the runs, for which other options were chosen
            assert "--force to replace it" in str(error)
            changed = True
    assert rounds[0] == 2 * ROUNDS
    with counted() as again:
        assert run(*more, "--force") == 0
    tuned = [json.loads((f / "tuned.json").read_text())["cells"] for f in (folder, copy)]
    others = [a["options"] != b["options"] for a, b in zip(*tuned, strict=True)]
    assert any(others) == changed
    rounds_of = [2 if cell["method"] == "fedavg" else 4 for cell in tuned[1]]
    assert again[0] == 2 * np.dot(others, rounds_of)


@pytest.mark.launch
@pytest.mark.once
def test_three_ranks_give_the_same_tables(whole, options, mpirun, tmp_path):
    few = ["--datasets", options[2], "--settings", "PSG", "--output", tmp_path / "out"]
    without_rows = [*options[:3], *options[5:]]
    done = mpirun(3, "-m", "fedmpi.compare", *without_rows, *few)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 runs finished, 0 failed" in done.stdout
    assert_same(whole[0], tmp_path / "out", setting="PSG")


def test_a_method_that_fails_is_last_and_said(options, tmp_path, capsys):
    given = [*options, "--methods", "fedminmax", "fedavg,lr=1e200", "--model", "mlp"]
    given += ["--loss", "cross-entropy", "--settings", "ESG", "--no-tune", "--rounds", 1]
    assert run(*given, "--output", tmp_path / "out") == 1
    told = capsys.readouterr().out
    assert "FAILED synthetic ESG fedavg,lr=1e200 s0" in told and "4 failed" in told
    last = rows_of(tmp_path / "out/ranks.csv")[-1]
    assert (last["method"], float(last["mean_rank"])) == ("fedavg,lr=1e200", 2)
    table = (tmp_path / "out/comparison.md").read_text()
    assert table.count("| failed |") == 2 and "Failed: fedavg,lr=1e200 on csv-people ESG" in table
    assert not (tmp_path / "out/tuned.json").exists()


def test_a_method_is_left_out_where_the_data_do_not_allow_it(options, tmp_path, capsys):
    """Named or not; and refused if it is named and nowhere possible."""
    given = [*options, "--group", "g,y", "--settings", "ESG", "SSG", "--tables-only"]
    given += ["--methods", "fedminmax", "eominmax", "--no-tune", "--output", tmp_path / "out"]
    assert run(*given) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert len(told) == 1 and told[0].startswith("synthetic ESG, SSG: eominmax is left out: ")
    blocks = [(row["dataset"], row["method"]) for row in rows_of(tmp_path / "out/comparison.csv")]
    assert blocks.count(("synthetic", "fedminmax")) == blocks.count(("csv:people.csv", "eominmax"))
    assert ("synthetic", "eominmax") not in blocks
    with pytest.raises(UserError, match="eominmax needs groups"):
        run(*given, "--group", "g")


def test_settings_of_other_kinds(options, tmp_path):
    """As many clients as a column has values, and one client, whose rows are prepared apart."""
    given = [*options[:3], *options[5:], "--datasets", options[2], "--methods", "fedminmax"]
    given += ["centralized", "--settings", "by:g", "Dirichlet:.50", "--no-tune", "--skew", 9]
    at = given.index("--clients")
    assert run(*given[:at], *given[at + 2 :], "--output", tmp_path) == 0
    runs = {r.config["setting"]: r.config for r in find_runs([tmp_path])}
    assert runs["by:g"]["clients"] == 3 and runs["dirichlet:0.5"]["clients"] == 40
    assert runs["ESG"]["clients"] == 1 and runs["dirichlet:0.5"]["skew"] is None
    table = rows_of(tmp_path / "comparison.csv")
    tested = {(row["setting"], row["method"]) for row in table if row["verdict"]}
    assert tested == {("dirichlet:0.5", "centralized")}
    text = (tmp_path / "comparison.md").read_text()
    assert "No test of centralized on csv-people by:g" in text


def test_a_candidate_that_fails_is_out_of_the_running(options, tmp_path, capsys, monkeypatch):
    """Also in the next launch, for which the others are noted, and where all of them fail."""
    monkeypatch.setattr("fedmpi.methods.option.STEPS", (1e200,))
    monkeypatch.setattr("fedmpi.run.tuned.STEPS", (1e200,))
    given = [*options, "--datasets", options[2], "--methods", "fedavg", "--local-epochs", 1]
    given = [*given[:3], *given[5:], "--settings", "ESG", "--model", "mlp", "--output", tmp_path]
    given += ["--loss", "cross-entropy"]
    for _ in range(2):
        assert run(*given) == 0
        (cell,) = json.loads((tmp_path / "tuned.json").read_text())["cells"]
        good, bad = cell["tried"]
        assert cell["options"] == good["options"] != bad["options"] == {"lr": 1e200}
        assert bad["risk"] is None and "finite" in bad["failed"]
        shutil.rmtree(tmp_path / "csv-people/tuning")
    assert "2, 1 failed" in (tmp_path / "choices.md").read_text()
    capsys.readouterr()
    del given[given.index("--local-epochs") : given.index("--local-epochs") + 2]
    assert run(*given, "--methods", "fedavg,lr=1e200") == 1
    told = capsys.readouterr().out
    assert "NOT TUNED csv-people ESG fedavg,lr=1e200: " in told and "0 of 2 runs" in told
    assert "| failed |" in (tmp_path / "comparison.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--methods", "fedminimax"], "'fedminmax'"),
        (["--methods", "fedavg,q"], "qfedavg,q=5"),
        (["--seeds", "0"], "as 0 1 2"),
        (["--seeds", "1", "1"], "two or more"),
        (["--seeds"], "expected at least one argument"),
        (["--seeds", "0", "-1"], "at least 0"),
        (["--datasets", "adlt"], "'adult'"),
        (["--settings", "PSB"], "'PSG'"),
        (["--datasets", "synthetic", "--settings", "PSG"], "does nothing|no setting is left"),
        (["--budget", "0"], "at least 1"),
        (["--folds", "1"], "at least 2"),
        (["--at-once", "0"], "at least 1"),
        (["--criterion", "best"], "worst or average"),
        (["--tune-by", "best"], "--tune-by best: must be aim, worst or average"),
        (["--against", "term"], "one of --methods"),
        (["--states", "MA"], "--states does nothing with these --datasets"),
        (["--q", "2"], "--q does nothing with these --methods"),
        (["--setting", "ESG"], "use --settings"),
        (["--tuned", "x"], "it tunes by itself"),
        (["--rounds", "0"], "at least 1"),
        (["--client", "g", "--settings"], "expected at least one argument"),
    ],
)
def test_a_slip_is_one_line_and_nothing_is_written(options, arguments, hint, tmp_path):
    with pytest.raises(UserError) as caught:
        run(*options, "--output", tmp_path / "out", *arguments)
    assert re.search(hint, str(caught.value)) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
