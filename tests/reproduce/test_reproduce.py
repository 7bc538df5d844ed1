"""fedmpi.reproduce as a user starts it, and the tables that it leaves."""

import csv
import json
import re
import shutil
import sys

import numpy as np
import pytest
from runs import Run, write_people

from fedmpi.errors import UserError
from fedmpi.report.__main__ import main as report
from fedmpi.report.collect import collect
from fedmpi.reproduce import __main__ as reproduce
from fedmpi.reproduce.gridfile import find_runs
from fedmpi.run.record import find_records

SMALL = "--model logistic --rounds 4 --local-rounds 2 --dtype float64 --no-tune --progress none"


@pytest.fixture
def people(tmp_path):
    """A small CSV of three groups; the groups' labels differ."""
    return write_people(tmp_path / "people.csv", {"a": 90, "b": 60, "c": 60}, lifted="a")


@pytest.fixture
def options(people, tmp_path):
    data = ["--target", "y", "--group", "g", "--data-dir", tmp_path / "data"]
    return [f"csv:{people}", *data, "--output", tmp_path / "results", *SMALL.split()]


def run(monkeypatch, *arguments: object) -> int:
    """fedmpi.reproduce in this process."""
    monkeypatch.setattr(sys, "argv", ["reproduce", *map(str, arguments)])
    return reproduce.main()


def rows_of(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.launch
@pytest.mark.once
def test_a_grid_in_one_launch_with_a_run_that_fails(mpirun, options, monkeypatch, tmp_path):
    """4 ranks, 8 clients and 2: sub-communicators of 4 and 2 ranks, and one run that diverges."""
    grid = ["--methods", "fedminmax", "centralized", "fedavg,model=mlp,lr=1e200"]
    grid += ["--clients", "8", "2", "--seeds", "0", "1", "--settings", "ESG", "SSG"]
    given = [*options[:-1], "lines", *grid]
    done = mpirun(4, "-m", "fedmpi.reproduce", *given)
    assert done.returncode == 1, done.stderr
    folder = tmp_path / "results/csv-people"
    names = {path.name for path in (folder / "runs").iterdir()}
    assert "csv-people-SSG-fedminmax-s1-k8" in names and "csv-people-centralized-s0" in names
    # 8 clients: FedMinMax in 2 settings with 2 seeds, centralized twice, and FedAvg fails 4 times.
    # With 2 clients SSG is impossible: there are three groups.
    assert "8 of 14 runs finished, 6 failed" in done.stdout, done.stdout[-3000:]
    assert "about" in done.stdout and "[14/14]" in done.stdout
    ranks = {
        name: Run(folder / "runs" / name).config["layout"]["ranks"]
        for name in names
        if (folder / "runs" / name / "result.json").exists()
    }
    assert ranks["csv-people-ESG-fedminmax-s0-k8"] == 4
    assert ranks["csv-people-ESG-fedminmax-s0-k2"] == 3
    assert ranks["csv-people-centralized-s0"] == 2

    risks = rows_of(folder / "risks.csv")
    for setting in ("ESG", "SSG"):
        fedavg = [r for r in risks if (r["setting"], r["method"]) == (setting, "fedavg")]
        assert len(fedavg) == 6 and all(r["mean"] == "" for r in fedavg)
        mine = [Run(folder / f"runs/csv-people-{setting}-fedminmax-s{s}-k8").result for s in (0, 1)]
        cell = next(
            r
            for r in risks
            if (r["setting"], r["method"], r["group"]) == (setting, "fedminmax", "b")
        )
        expected = [result["groups"]["b"]["risk"] for result in mine]
        assert float(cell["mean"]) == pytest.approx(np.mean(expected))
        assert float(cell["std"]) == pytest.approx(np.std(expected, ddof=1))
    table = (folder / "risks.md").read_text()
    assert (
        table.count("| failed |") >= 2
        and "Failed: csv-people ESG fedavg,model=mlp,lr=1e200 s0" in table
    )
    states = {row["run"]: row["state"] for row in rows_of(folder / "runs.csv")}
    assert states["csv-people-SSG-fedminmax-s0-k2"] == "failed"
    claims = {c["number"]: c for c in json.loads((folder / "claims.json").read_text())["claims"]}
    (section,) = collect(find_records([folder]), [folder])["sections"]
    shown = {c["number"]: c for c in section["claims"]}
    assert {n: c["verdict"] for n, c in shown.items()} == {
        n: c["verdict"] for n, c in claims.items()
    }
    assert all(len(shown[n]["checks"]) == len(claims[n]["checks"]) for n in claims)
    # Lemma 2 holds at any number of rounds, but PSG was not run.
    checks = claims[1]["checks"] + claims[5]["checks"]
    decided = [c["verdict"] for c in checks if "PSG" not in c["figures"]]
    assert len(decided) == 11 and set(decided) == {"pass"}
    assert {claim["verdict"] for claim in claims.values()} == {"not decided here"}

    # In one process it is the same grid: what is finished stays, what failed is tried again.
    made = {p: p.stat().st_mtime_ns for p in folder.glob("runs/*/*.json")}
    assert run(monkeypatch, *given) == 1
    changed = {p.parent.name for p, time in made.items() if p.stat().st_mtime_ns != time}
    assert len(changed) == 6 and all("fedavg" in name or "SSG" in name for name in changed)


def test_every_method_and_table_in_one_process(monkeypatch, options, tmp_path, capsys):
    assert run(monkeypatch, *options, "--clients", 6, 3, "--seeds", 0, "--rounds", 2) == 0
    folder = tmp_path / "results/csv-people"
    told = capsys.readouterr().out
    assert "28 of 28 runs finished, 0 failed" in told and "The paper's claims" in told
    for name in ("risks", "accuracies", "weights", "fairness", "local_global"):
        for ending in ("csv", "md", "tex"):
            assert (folder / f"{name}.{ending}").stat().st_size > 0
    table = (folder / "accuracies.md").read_text()
    assert [line.split("|")[2].strip() for line in table.splitlines() if "| PSG" in line] == [
        *("AFL", "FedAvg", "q-FedAvg (q=0.2)", "TERM (t=1.0)", "TERM (t=1.0, rows)"),
        *("FedMinMax", "LocalFedMinMax"),
    ]
    heads = (folder / "local_global.md").read_text().splitlines()[2]
    assert heads.count("3 clients") == heads.count("6 clients") == 3
    counts = rows_of(folder / "confusion.csv")
    of_run = [int(r["rows"]) for r in counts if r["run"] == "csv-people-ESG-afl-s0-k6"]
    told = json.loads((folder / "runs/csv-people-ESG-afl-s0-k6/result.json").read_text())
    cells = [n for g in told["groups"].values() for row in g["confusion"] for n in row]
    assert len(cells) == 3 * 2 * 2 and sum(of_run) == 42
    assert of_run == [n for n in cells if n]
    latex = (folder / "fairness.tex").read_text()
    assert latex.count("\\begin{tabular}") == latex.count("\\end{tabular}") == 1
    heads = next(line for line in latex.splitlines() if "textbf{Setting}" in line)
    lines = [line for line in latex.splitlines() if line.startswith(("ESG", "PSG", "SSG", "- &"))]
    assert len(lines) == 22 and {line.count(" & ") for line in lines} == {heads.count(" & ")}

    # Nothing runs again, and a method that is added joins the tables of what is there.
    made = {p: p.stat().st_mtime_ns for p in folder.glob("runs/*/result.json")}
    more = ["--methods", "qfedavg,q=5", "--clients", 6, "--seeds", 0, "--rounds", 2]
    assert run(monkeypatch, *options, *more, "--settings", "esg") == 0
    assert "| ESG | q-FedAvg (q=5.0) |" in (folder / "risks.md").read_text()
    assert "| ESG | q-FedAvg (q=0.2) |" in (folder / "risks.md").read_text()
    assert made == {p: p.stat().st_mtime_ns for p in made}


def test_methods_that_the_paper_has_not(monkeypatch, options, tmp_path):
    """With their labels and, of Ditto, the clients' own models; FedMinMax comes after them."""
    chosen = ["fedminmax", "scaffold", "ditto", "fedmgda", "propfair,baseline=3", "fedprox"]
    more = ["--clients", 6, "--seeds", 0, "--settings", "PSG", "--rounds", 2]
    assert run(monkeypatch, *options, "--methods", *chosen, *more) == 0
    folder = tmp_path / "results/csv-people"
    table = (folder / "risks.md").read_text()
    assert [line.split("|")[2].strip() for line in table.splitlines() if "| PSG" in line] == [
        *("Ditto (λ=1.0)", "FedMGDA+ (ε=0.1)", "PropFair (M=3.0)", "SCAFFOLD"),
        *("FedProx (μ=0.1)", "FedMinMax"),
    ]
    assert (folder / "personal.md").read_text().count("| PSG | Ditto") == 1
    told = {(row["kind"], row["group"]): row["mean"] for row in rows_of(folder / "personal.csv")}
    result = json.loads((folder / "runs/csv-people-PSG-ditto-s0-k6/result.json").read_text())
    for name, figures in result["personal"]["groups"].items():
        for kind in ("risk", "global_risk", "accuracy", "global_accuracy"):
            assert float(told[f"personal {kind}", name]) == pytest.approx(figures[kind])


def test_quick_is_apart_and_says_so_in_every_file(monkeypatch, options, tmp_path, capsys):
    few = ["--methods", "fedminmax", "centralized", "--settings", "ESG", "--clients", 4]
    assert run(monkeypatch, *options, *few, "--quick") == 0
    folder = tmp_path / "results/csv-people-quick"
    assert not (tmp_path / "results/csv-people").exists()
    for path in [*folder.glob("*.md"), *folder.glob("*.tex")]:
        assert "quick look" in path.read_text(), path
    for path in folder.glob("*.csv"):
        assert all(row["quick"] == "yes" for row in rows_of(path)), path
    claims = json.loads((folder / "claims.json").read_text())
    assert claims["quick"] and {c["verdict"] for c in claims["claims"]} == {"not decided here"}


def test_tables_only_runs_nothing(monkeypatch, options, tmp_path):
    few = ["--methods", "fedminmax", "afl", "--clients", 4, "--seeds", 0]
    assert run(monkeypatch, *options, *few, "--tables-only") == 0
    folder = tmp_path / "results/csv-people"
    assert not (folder / "runs").exists()
    assert {row["state"] for row in rows_of(folder / "runs.csv")} == {"not run"}


def test_runs_that_are_not_alike_are_named(monkeypatch, options, tmp_path):
    few = ["--methods", "fedminmax", "--settings", "ESG", "--clients", 4]
    assert run(monkeypatch, *options, *few, "--seeds", 0) == 0
    assert run(monkeypatch, *options, *few, "--seeds", 1, "--rounds", 5) == 0
    note = "runs of FedMinMax are not all alike: rounds 4 or 5"
    assert note in (tmp_path / "results/csv-people/risks.md").read_text()


def test_what_has_fewer_seeds_is_named(monkeypatch, options, tmp_path):
    few = ["--settings", "ESG", "SSG", "--clients", 4, "--rounds", 2]
    assert run(monkeypatch, *options, *few, "--methods", "fedminmax", "--seeds", 0, 1) == 0
    assert run(monkeypatch, *options, *few, "--methods", "afl", "centralized", "--seeds", 1) == 0
    text = (tmp_path / "results/csv-people/risks.md").read_text()
    assert "over seeds 0, 1;" in text
    alone = [line.strip() for line in text.splitlines() if "alone" in line]
    assert alone == ["Note: seed 1 alone: AFL in ESG, SSG.", "Note: seed 1 alone: Centralized."]


def test_the_papers_value_and_the_difference_are_beside_ours(monkeypatch, tmp_path):
    options = [
        "synthetic",
        "--rows",
        200,
        "--limit-test",
        200,
        "--data-dir",
        tmp_path / "data",
        *SMALL.split(),
    ]
    options += ["--output", tmp_path / "results", "--seeds", 0, "--methods", "fedminmax", "term"]
    assert run(monkeypatch, *options) == 0  # 40 clients; PSG is left out
    folder = tmp_path / "results/synthetic"
    risks = {(r["setting"], r["method"], r["group"]): r for r in rows_of(folder / "risks.csv")}
    assert {setting for setting, _, _ in risks} == {"ESG", "SSG"}
    for method, value in (("fedminmax", 0.451), ("term", 0.469)):
        cell = risks["ESG", method, "worst"]
        assert float(cell["paper_mean"]) == value
        assert float(cell["difference"]) == pytest.approx(float(cell["mean"]) - value, abs=1e-6)
        beside = f"<br>paper {value:.3f} ({float(cell['difference']):+.3f})"
        text = rf"{float(cell['mean']):.3f} \[0\.\d+, 0\.\d+\]{re.escape(beside)}"
        assert re.search(text, (folder / "risks.md").read_text())
    weights = {r["group"]: r for r in rows_of(folder / "weights.csv") if r["setting"] == "ESG"}
    result = Run(folder / "runs/synthetic-ESG-fedminmax-s0").result
    assert float(weights[result["worst_group"]]["paper_mean"]) == 0.999


def assert_alike(kept, whole) -> None:
    """Assert that two trees of numbers and texts are the same, but for the sixth digit."""
    assert type(kept) is type(whole)
    if isinstance(whole, dict):
        assert kept.keys() == whole.keys()
        for key in whole:
            assert_alike(kept[key], whole[key])
    elif isinstance(whole, list | tuple):
        for ours, theirs in zip(kept, whole, strict=True):
            assert_alike(ours, theirs)
    else:
        assert kept == (pytest.approx(whole, rel=1e-4) if isinstance(whole, float) else whole)


def test_the_report_of_a_quick_look(monkeypatch, tmp_path):
    """From the run folders, and from grid.json alone; its checks are shown, and decide nothing."""
    options = f"--quick --rows 90 --limit-test 90 --clients 3 {SMALL}".split()
    options += ["--data-dir", tmp_path / "data", "--output", tmp_path / "results"]
    methods = ["--methods", "fedminmax", "fedavg", "centralized"]
    assert run(monkeypatch, "synthetic", *options, *methods) == 0
    folder = tmp_path / "results/synthetic-quick"
    claims = json.loads((folder / "claims.json").read_text())["claims"]
    pages = []
    for _ in range(2):
        assert report([str(folder)]) == 0
        (section,) = collect(find_runs([folder]), [folder])["sections"]
        assert section["notes"][0].startswith("A quick look")
        assert not any("cannot be read" in note for note in section["notes"])
        for shown, told in zip(section["claims"], claims, strict=True):
            assert shown["verdict"] == "not decided here"
            assert shown["checks"] == [(None, check["figures"]) for check in told["checks"]]
        pages.append(section)
        shutil.rmtree(folder / "runs", ignore_errors=True)
    # The curves of so few rounds are not thinned, so both ways show the same.
    for whole, kept in zip(*(page["cells"] for page in pages), strict=True):
        assert kept == whole
    for whole, kept in zip(*(page["runs"] for page in pages), strict=True):
        assert whole["card"]  # a card is made of the run's folder
        assert_alike(kept, whole | {"card": None})
    assert pages[1]["notes"][1:] == [
        f"The folders of these runs are not here: this is from {folder / 'grid.json'}."
    ]


def test_options_go_to_the_methods_that_have_them(monkeypatch, options, tmp_path):
    few = ["--methods", "fedminmax", "fedavg", "term", "--settings", "ESG", "--clients", 4]
    more = ["--seeds", 0, "--local-epochs", 2, "--tilt", 3, "--lr-mu", 0.2]
    assert run(monkeypatch, *options, *few, *more) == 0
    runs = tmp_path / "results/csv-people/runs"
    ours, fedavg, term = (
        Run(runs / f"csv-people-ESG-{m}-s0-k4").config for m in ("fedminmax", "fedavg", "term")
    )
    assert (ours["lr_mu"], ours["local_epochs"], ours["rounds"]) == (0.2, None, 4)
    assert (fedavg.get("lr_mu"), fedavg["local_epochs"], fedavg["rounds"]) == (None, 2, 2)
    assert (term["tilt"], term["local_epochs"]) == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--methods", "fedminimax"], "'fedminmax'"),
        (["--methods", "qfedavg,q"], "qfedavg,q=5"),
        (["--methods", "qfedavg,z=1"], "--z=1"),
        (["--methods", "afl", "--q", "2"], "--q does nothing with these --methods"),
        (["--settings", "PSSG"], "'SSG'"),
        (["--setting", "PSG"], "use --settings"),
        (["--method", "afl"], "use --methods"),
        (["--resume"], "by itself"),
        (["--clients", "0"], "at least 1"),
        (["--seeds", "-1"], "at least 0"),
        (["--at-once", "0"], "at least 1"),
        (["--tuned", "absent.json"], "it tunes by itself"),
        (["--budget", "0"], "at least 1"),
    ],
)
def test_a_slip_is_one_line_and_nothing_is_written(monkeypatch, options, arguments, hint, tmp_path):
    with pytest.raises(UserError) as caught:
        run(monkeypatch, *options, *arguments)
    assert hint in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "results").exists()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Results of a small grid on synthetic data: with the paper's steps, and solved and tuned."""
    folder = tmp_path_factory.mktemp("both")
    given = "synthetic --rows 80 --limit-test 60 --model mlp --clients 4 3 --dtype float64"
    given += " --methods fedminmax localfedminmax qfedavg term term,tilt-level=sample centralized"
    given += " --settings ESG --seeds 0 1 --local-rounds 1 --progress none"
    paths = ["--data-dir", folder / "data", "--output", folder / "results"]
    with pytest.MonkeyPatch.context() as patch:
        assert run(patch, *given.split(), *paths, "--rounds", 3, "--solver", "paper") == 0
        tuning = ["--rounds", 4, "--budget", 2, "--folds", 2]
        assert run(patch, *given.split(), *paths, *tuning) == 0
    return folder / "results"


def test_the_papers_steps_stand_beside_what_is_solved(both):
    fixed, solved = both / "paper-steps/synthetic", both / "synthetic"
    assert not (fixed / "tuned.json").exists() and not (fixed / "tuning").exists()
    ours, theirs = (
        {(r["method"], r["parameter"], r["group"]): r for r in rows_of(folder / "risks.csv")}
        for folder in (solved, fixed)
    )
    assert {(m, p) for m, p, _ in ours} == {
        *(("fedminmax", ""), ("localfedminmax", ""), ("centralized", "")),
        *(("qfedavg", ""), ("term", ""), ("term", "rows")),
    }
    named = {"qfedavg": "q=0.2", "term": "t=1.0"}
    for (method, parameter, group), cell in ours.items():
        told = ", ".join(filter(None, (named.get(method, ""), parameter)))
        same = theirs[method, told, group]
        assert cell["paper_steps_mean"] == same["mean"] != cell["mean"]
        assert same["paper_steps_mean"] == ""
    assert "<br>paper's steps " in (solved / "risks.md").read_text()
    claims = [json.loads((f / "claims.json").read_text())["claims"] for f in (solved, fixed)]
    for mine, yours in zip(*claims, strict=True):
        assert mine["paper_steps"] == yours["verdict"] and yours["paper_steps"] is None


def test_every_method_is_tuned_alike_and_few_clients_take_the_choice_over(both):
    solved = both / "synthetic"
    cells = json.loads((solved / "tuned.json").read_text())["cells"]
    assert len(cells) == 6 and {len(cell["tried"]) for cell in cells} == {2}
    for cell in cells:
        setting = f"-{cell['setting']}" if cell["setting"] else ""
        variant = cell["method"].replace(",tilt-level=", "-tilt_level=")
        ends = ("-k4", "-k3") if "fedminmax" in variant else ("-k4",) if setting else ("",)
        for end in ends:
            config = Run(solved / f"runs/synthetic{setting}-{variant}-s1{end}").config
            assert {name: config[name] for name in cell["options"]} == cell["options"]
            assert config["tuned_options"] == list(cell["options"])
    assert not list(solved.glob("runs/*qfedavg*k3"))
    assert (solved / "choices.md").exists() and (solved / "comparison.md").exists()
    heads = (solved / "local_global.md").read_text().splitlines()[2]
    assert "ESG, 3 clients" in heads and "ESG, 4 clients" in heads
