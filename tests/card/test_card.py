"""Model cards: what they say is what the run's files say, and the baseline is plain training."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from runs import launcher, limit, write_people

from fedmpi.card.__main__ import main, markdown
from fedmpi.card.baseline import find_baseline, folder_of, without_weights
from fedmpi.card.contents import card_of
from fedmpi.errors import UserError
from fedmpi.run.record import read_record

FAST = ("--rounds", "6", "--model", "logistic", "--dtype", "float64", "--clients", "3", "--lr", "1")


@pytest.fixture
def people(tmp_path) -> list:
    path = write_people(tmp_path / "people.csv", {"a|<b>": 60, "c_d": 40})
    return ["--dataset", f"csv:{path}", "--target", "y", "--group", "g", *FAST]


def parts_of(record, baseline=None) -> dict[str, dict]:
    return {part["title"]: part for part in card_of(record, baseline)}


def test_it_says_what_the_run_left(train, people):
    run = train(*people)
    parts = parts_of(read_record(run.folder))
    rows = {row[0]: row for row in parts["Groups"]["tables"][0]["rows"]}
    for name, group in run.result["groups"].items():
        low, high = group["risk_interval"]
        assert rows[name][1:3] == [str(group["n_train"]), str(group["n_test"])]
        assert rows[name][3] == f"{group['risk']:.4f} ({low:.3f} to {high:.3f})"
    worst, low = run.result["worst_group"], run.result["worst_risk_interval"][0]
    told = parts["Who is worst off"]["text"]
    assert worst in told[0] and f"{low:.3f}" in told[0] and "too few" in told[1]
    data = parts["Data"]["items"]
    assert "target: y" in data and "rows to train on: 80" in data
    manifest = Path(run.config["prepared"]) / "manifest.json"
    (source,) = json.loads(manifest.read_text())["sources"]
    assert any(source["sha256"] in item for item in data)
    (Path(run.config["prepared"]) / "manifest.json").unlink()  # the prepared rows may be gone
    assert "target: y" in parts_of(read_record(run.folder))["Data"]["items"]


def test_the_card_is_written_and_names_mean_nothing_in_markdown(train, people, capsys):
    run = train(*people)
    assert main([str(run.folder)]) == 0
    text = (run.folder / "card.md").read_text(encoding="utf-8")
    assert r"| a\|\<b\> |" in text and r"| c\_d |" in text and "<b>" not in text
    assert markdown("t", []) == "# t\n"


def test_the_baseline_is_plain_gradient_descent(train, people):
    """Which a loop in numpy does on the prepared rows: all have one weight."""
    from fedmpi.data.store import Prepared

    run = train(*people, "--lr-mu", "1")
    done = subprocess.run(
        [sys.executable, "-m", "fedmpi.card", str(run.folder), "--baseline"],
        env=launcher(),
        capture_output=True,
        text=True,
        timeout=limit(),
    )
    assert done.returncode == 0, done.stderr
    record = read_record(run.folder)
    plain = find_baseline(record)
    assert plain and plain.folder == folder_of(run.folder)

    prepared = Prepared.open(Path(run.config["prepared"]))
    x, y = (np.array(prepared.array(f"train_{part}"), dtype=float) for part in ("x", "y"))
    test = [np.array(prepared.array(f"test_{part}")) for part in ("x", "y", "group")]
    from fedmpi import models

    module = models.build("logistic", x.shape[1:], 2, 0).double()
    weight, bias = (p.detach().numpy().copy() for p in module.parameters())
    means = [np.zeros_like(weight), np.zeros_like(bias)]
    for _ in range(6):
        p = softmax(x @ weight.T + bias)
        p[np.arange(len(y)), y.astype(int)] -= 1
        weight, bias = weight - p.T @ x / len(y), bias - p.mean(axis=0)
        means = [m + v / 6 for m, v in zip(means, (weight, bias), strict=True)]
    p = softmax(test[0] @ means[0].T + means[1])
    losses = -np.log(p[np.arange(len(p)), test[1].astype(int)])
    for a, name in enumerate(prepared.groups):
        expected = losses[test[2] == a].mean()
        assert plain.result["groups"][name]["risk"] == pytest.approx(expected)
    rows = parts_of(record, plain)["What it costs the others"]["tables"][0]["rows"]
    for row in rows:
        mine = run.result["groups"][row[0]]["risk"]
        assert float(row[3]) == pytest.approx(
            mine - plain.result["groups"][row[0]]["risk"], abs=5e-5
        )
    assert any(float(row[3]) for row in rows)


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_what_is_no_baseline_of_the_run_is_not_taken_for_it(train, people):
    run = train(*people)
    train(*people, "--lr-mu", "0", "--seed", "7", output="run-baseline")
    assert find_baseline(read_record(run.folder)) is None


def test_methods_without_weights_and_folders_without_runs_are_refused(train, people, tmp_path):
    run = train(*people, "--method", "fedavg", "--local-epochs", "1")
    with pytest.raises(UserError, match="fedavg has no weights to leave out"):
        without_weights(read_record(run.folder))
    for arguments, message in (
        ([str(tmp_path)], "no finished run"),
        ([str(run.folder), "--output", str(tmp_path / "card.txt")], r"ends in \.md"),
        ([str(run.folder), "--output", str(tmp_path / "no/card.md")], "a folder that is there"),
    ):
        with pytest.raises(UserError, match=message):
            main(arguments)
