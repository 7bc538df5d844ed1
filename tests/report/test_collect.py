"""What the report shows, before it is drawn."""

import json
import shutil
from statistics import mean, stdev

import numpy as np
import pytest
from reports import FAST

from fedmpi.errors import UserError
from fedmpi.report.collect import POINTS, collect
from fedmpi.reproduce.claims import QUICK
from fedmpi.run.record import find_records


def section_of(folder) -> dict:
    (section,) = collect(find_records([folder]), [folder])["sections"]
    return section


def cell_of(section: dict, label: str, setting: str) -> dict:
    (cell,) = [
        cell
        for cell in section["cells"]
        if cell["setting"] == setting and section["methods"][cell["method"]]["label"] == label
    ]
    return cell


def test_means_and_deviations_are_over_the_seeds(runs):
    section = section_of(runs)
    assert [m["label"] for m in section["methods"]] == ["FedAvg", "FedMinMax", "Centralized"]
    assert section["settings"] == ["ESG", "SSG"]
    assert len(section["cells"]) == 5 and len(section["runs"]) == 10
    results = [
        json.loads((runs / f"SSG-fedminmax-s{seed}/result.json").read_text()) for seed in (0, 1)
    ]
    cell = cell_of(section, "FedMinMax", "SSG")
    assert cell["seeds"] == [0, 1]
    for key in ("worst_risk", "average_risk", "best_risk", "worst_accuracy"):
        values = [result[key] for result in results]
        assert cell["stats"][key] == pytest.approx([mean(values), stdev(values)])
    for a, name in enumerate(section["groups"]):
        values = [result["groups"][name]["weight"] for result in results]
        assert cell["groups"]["weight"][a] == pytest.approx([mean(values), stdev(values)])
    assert sum(section["priors"]) == pytest.approx(1, abs=1e-4)
    # The baseline ignores --setting, FedAvg weighs no groups.
    assert cell_of(section, "Centralized", "")["seeds"] == [0, 1]
    assert cell_of(section, "FedAvg", "ESG")["groups"]["weight"] == [None, None]


def test_the_trend_is_the_worst_group_over_the_passes(runs):
    """A round of FedAvg is as many passes as it has local epochs; seeds are averaged."""
    for seed in (0, 1):
        folder = runs / f"SSG-fedavg-s{seed}"
        lines = ["round,risk/A=0,risk/A=1"]
        lines += [f"{t},{10 * t + seed},{100 if t == 3 else 0}" for t in (1, 2, 3, 4)]
        (folder / "history.csv").write_text("\n".join(lines) + "\n")
    section = section_of(runs)
    epochs = next(r["epochs"] for r in section["runs"] if r["path"].endswith("SSG-fedavg-s0"))
    assert epochs == 15
    passes, trend = section["passes"], cell_of(section, "FedAvg", "SSG")["trend"]
    assert (passes[0], passes[-1]) == (0, 45)  # before the fourth round
    known = [(0, 10.5), (15, 20.5), (30, 100), (45, 40.5)]
    expected = np.interp(passes, *zip(*known, strict=True))
    assert trend == pytest.approx(expected.tolist(), rel=1e-3)
    short = cell_of(section, "FedMinMax", "SSG")["trend"]  # ends before the fourth pass
    assert [value is None for value in short] == [p > 3 for p in passes]


def test_a_round_of_a_batch_is_a_part_of_a_pass(run, edit):
    edit(run / "config.json", batch_rows=20)
    section = section_of(run)
    assert section["runs"][0]["epochs"] == 20 / 80 and section["passes"][-1] == 0.75


def test_without_a_history_there_is_no_trend(run):
    (run / "history.csv").unlink()
    assert section_of(run)["cells"][0]["trend"] is None


def test_one_seed_has_no_deviation(run):
    section = section_of(run)
    assert section["cells"][0]["stats"]["worst_risk"][1] is None


def test_runs_of_one_method_are_told_apart_by_what_differs(train, edit, tmp_path):
    for q, setting in ((0.5, "ESG"), (2, "ESG"), (2, "SSG")):
        options = f"{FAST} --method qfedavg --q {q} --setting {setting}"
        train(*options.split(), output=f"all/{q}-{setting}")
    for epochs, setting in ((1, "ESG"), (2, "SSG")):
        options = f"{FAST} --method fedavg --local-epochs {epochs} --setting {setting}"
        train(*options.split(), output=f"all/fedavg-{setting}")
    section = section_of(tmp_path / "all")
    labels = [m["label"] for m in section["methods"]]
    assert labels == ["FedAvg", "q-FedAvg (q = 0.5)", "q-FedAvg (q = 2)"]
    assert section["notes"] == [
        "FedAvg is not the same in all settings: E = 1 in ESG, E = 2 in SSG."
    ]
    for config in (tmp_path / "all").glob("*/config.json"):
        edit(config, tuned_options=["local_epochs", "q"])
    section = section_of(tmp_path / "all")
    assert section["notes"][0].startswith("Options were tuned in each setting")
    assert not any("not the same" in note for note in section["notes"])


def test_what_all_runs_note_is_said_of_the_dataset(runs, edit):
    configs = list(runs.glob("*/config.json"))
    for path in configs:
        edit(path, notes=["people of MA only"])
    edit(configs[0], notes=["people of MA only", "sums are flat"])
    assert section_of(runs)["notes"] == ["people of MA only."]
    edit(configs[1], notes=[])
    assert section_of(runs)["notes"] == []


def test_a_run_that_is_there_twice_counts_once(runs):
    shutil.copytree(runs / "ESG-fedavg-s0", runs / "copy")
    section = section_of(runs)
    assert cell_of(section, "FedAvg", "ESG")["seeds"] == [0, 1]
    assert any("repeats a run" in note for note in section["notes"])


def test_a_long_history_is_thinned_evenly_and_keeps_its_ends(run):
    head = (run / "history.csv").read_text().splitlines()[0]
    names = head.split(",")
    rows = [",".join(str(t if n == "round" else t / 7) for n in names) for t in range(1, 3001)]
    (run / "history.csv").write_text("\n".join([head, *rows]))
    (shown,) = section_of(run)["runs"]
    rounds = shown["history"]["round"]
    assert len(rounds) == POINTS and (rounds[0], rounds[-1]) == (1, 3000)
    assert {int(step) for step in np.diff(rounds)} == {7, 8}
    assert shown["history"]["risk"][1] == pytest.approx([t / 7 for t in rounds], rel=1e-4)
    assert any("400 of 3,000 rows" in note for note in shown["notes"])


def test_what_is_missing_or_damaged_is_said_and_the_rest_is_shown(run):
    keys = {"history.csv": "history", "partition.npz": "partition", "model.pt": "h"}
    for name in keys:
        whole = (run / name).read_bytes()
        for damage in (None, b"", b"a,b\n1,2,3\n", whole[: len(whole) // 2]):
            (run / name).unlink()
            if damage is not None:
                (run / name).write_bytes(damage)
            (shown,) = section_of(run)["runs"]
            if name != "history.csv" or damage is None or len(damage) < 20:  # half of it is rows
                lost = [file for file, key in keys.items() if shown[key] is None]
                assert lost == [name]
                assert [name in note for note in shown["notes"]] == [True]
            (run / name).write_bytes(whole)


def test_groups_without_test_rows_have_no_risk(run, edit):
    groups = json.loads((run / "result.json").read_text())["groups"]
    groups["A=1"] |= {"n_test": 0, "risk": None, "accuracy": None}
    edit(run / "result.json", groups=groups)
    (cell,) = section_of(run)["cells"]
    assert cell["groups"]["risk"][0] and cell["groups"]["risk"][1] is None


def test_claims_go_to_the_runs_beside_them(runs, nasty):
    checks = [{"verdict": "pass", "figures": "a"}, {"verdict": "fail", "figures": "b"}]
    claims = [
        {"number": 1, "claim": "it holds", "verdict": "pass", "checks": checks[:1], "more": [1]},
        {"number": 2, "claim": "no", "verdict": "fail", "checks": checks, "paper_tables": "pass"},
    ]
    (runs / "claims.json").write_text(json.dumps({"claims": claims}))
    data = collect(find_records([runs, nasty]), [runs, nasty])
    synthetic, own = data["sections"]
    assert [(c["verdict"], c["paper"]) for c in synthetic["claims"]] == [
        ("pass", ""),
        ("fail", "pass"),
    ]
    assert synthetic["claims"][1]["checks"] == [("pass", "a"), ("fail", "b")]
    assert own["claims"] == data["claims"] == []
    for text in ("{", "[]", '{"claims": [{"number": 1}]}'):
        (runs / "claims.json").write_text(text)
        assert any("claims.json" in note for note in section_of(runs)["notes"])


def test_grids_of_one_dataset_stay_apart(runs, tmp_path):
    """A quick look in the next folder has the same methods and seeds, and is not one of them."""
    other = shutil.copytree(runs, runs.parent / "grid")
    for folder, quick in ((runs, False), (other, True)):
        (folder / "claims.json").write_text(json.dumps({"claims": [], "quick": quick}))
    data = collect(find_records([tmp_path]), [tmp_path])
    assert [section["title"] for section in data["sections"]] == [
        "Synthetic (grid)",
        "Synthetic (runs)",
    ]
    quick, whole = data["sections"]
    assert len(quick["runs"]) == len(whole["runs"]) == 10
    assert whole["notes"] == [] and quick["notes"] == [QUICK]


def test_the_clients_own_models_are_shown(train, tmp_path):
    options = f"{FAST} --method ditto --local-epochs 1 --setting SSG"
    found = train(*options.split()).result["personal"]["groups"]
    (shown,) = section_of(tmp_path / "run")["runs"]
    (table,) = [table for table in shown["personal"] if table["title"] == "groups"]
    kinds = ["rows", "risk", "accuracy", "global_risk", "global_accuracy"]
    assert table["columns"] == ["", *kinds]
    assert table["rows"] == [[name, *(g[kind] for kind in kinds)] for name, g in found.items()]


def test_fairness_is_shown_whatever_it_holds(run, edit):
    rates = {"rate": {"m": 0.5, "f": 0.25}, "tpr": {"f": 1}, "difference": 0.25}
    edit(
        run / "result.json",
        fairness={"sex": rates, "note": "x", "by": {"age": {"old": {"n": 3}}}},
    )
    (shown,) = section_of(run)["runs"]
    assert shown["fairness"] == [
        {"title": "", "columns": ["", "value"], "rows": [["note", "x"]]},
        {
            "title": "sex",
            "columns": ["", "m", "f", "value"],
            "rows": [
                ["rate", 0.5, 0.25, None],
                ["tpr", None, 1, None],
                ["difference", None, None, 0.25],
            ],
        },
        {"title": "by / age", "columns": ["", "n"], "rows": [["old", 3]]},
    ]


def test_it_says_what_the_rows_are_and_what_a_setting_means(runs, owned):
    told = dict(section_of(runs)["data"])
    result = json.loads((runs / "SSG-fedavg-s0/result.json").read_text())
    assert told["training rows"] == str(sum(g["n_train"] for g in result["groups"].values()))
    assert "every group" in told["ESG"] and "one group" in told["SSG"] and "PSG" not in told
    told = dict(section_of(owned)["data"])
    assert (told["target"], told["groups by"]) == ("y", "who") and "owners" in told


def test_files_of_one_name_have_titles_of_their_own(nasty, edit, tmp_path):
    """By the folder where that differs, by the columns of the groups where these do."""
    for name, file, columns in (("1", "a", ["who"]), ("2", "b", ["who"]), ("3", "b", ["y", "x"])):
        copy = shutil.copytree(nasty, tmp_path / name)
        dataset = f"csv:data/{file}/all.csv"
        edit(copy / "config.json", group=columns, dataset=dataset)
        groups = json.loads((copy / "result.json").read_text())["groups"]
        if name == "3":
            groups = {f"{group}!": values for group, values in groups.items()}
        edit(copy / "result.json", dataset=dataset, groups=groups)
    shutil.rmtree(nasty)
    sections = collect(find_records([tmp_path]), [tmp_path])["sections"]
    titles = {section["title"] for section in sections}
    assert titles == {"all.csv (a)", "all.csv (b, who)", "all.csv (b, y × x)"}


def test_a_note_of_all_runs_is_said_once(run, edit):
    edit(run / "config.json", notes=["people of MA only"])
    section = section_of(run)
    assert section["notes"] == ["people of MA only."] and section["runs"][0]["notes"] == []


def test_a_method_of_ones_own_has_the_title_that_its_run_wrote(run, edit):
    edit(run / "config.json", method="mine:Gentle", title="Gentle descent")
    edit(run / "result.json", method="mine:Gentle")
    assert section_of(run)["methods"][0]["label"] == "Gentle descent"


def test_one_run_has_its_intervals_and_several_have_those_of_their_replicates(runs, run, edit):
    result = json.loads((run / "result.json").read_text())
    (cell,) = section_of(run)["cells"]
    expected = [group["risk_interval"] for group in result["groups"].values()]
    for ends, whole in zip(cell["intervals"]["risk"], expected, strict=True):
        assert ends == pytest.approx(whole, rel=1e-4)
    assert cell["intervals"]["worst_risk"] == pytest.approx(result["worst_risk_interval"], rel=1e-4)
    several = cell_of(section_of(runs), "FedAvg", "ESG")
    low, high = several["intervals"]["worst_risk"]
    mean, std = several["stats"]["worst_risk"]
    assert low < mean - std and mean + std < high and len(several["seeds"]) > 1
    assert all(ends[0] < ends[1] for ends in several["intervals"]["accuracy"])
    for path in runs.rglob("bootstrap.npz"):
        path.unlink()
    assert cell_of(section_of(runs), "FedAvg", "ESG")["intervals"] is None
    for group in result["groups"].values():  # as runs of before have none
        del group["risk_interval"]
    edit(run / "result.json", groups=result["groups"], worst_risk_interval=None)
    (cell,) = section_of(run)["cells"]
    assert cell["intervals"]["risk"] == [None, None] and cell["intervals"]["worst_risk"] is None


def test_intervals_of_rates_stand_beside_them(run):
    (shown,) = section_of(run)["runs"]
    table = next(t for t in shown["fairness"] if "selection_rate" in t["columns"])
    at = table["columns"].index("selection_rate")
    assert table["columns"][at + 1] == "selection_rate, 95% interval"
    for row in table["rows"]:
        low, high = map(float, row[at + 1].split("–"))
        assert low <= row[at] + 0.0005 and row[at] <= high + 0.0005


@pytest.mark.parametrize("change", [{"groups": None}, {"groups": {"a": 1}}, {"method": None}])
def test_a_result_of_something_else_is_refused(run, edit, change):
    edit(run / "result.json", **change)
    with pytest.raises(UserError, match=r"result\.json"):
        section_of(run)
