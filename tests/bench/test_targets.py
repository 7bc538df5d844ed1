"""Rounds to a target: the curve of a run, what a target cost, and when minimax gives nothing."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from runs import launcher, limit, write_people

from fedmpi.bench.__main__ import PARTS, read_command_line
from fedmpi.bench.curve import Curve, curve_of, trailing_mean
from fedmpi.bench.target_results import Run, cell, sanity_lines, size, verdict
from fedmpi.bench.targets import CONTESTANTS, DEFAULT, STUDIES, Targets
from fedmpi.errors import UserError
from fedmpi.run.checkpoint import NEWEST
from fedmpi.run.record import read_record

SMALL = ["--rows", "200", "--limit-test", "200", "--model", "mlp", "--rounds", "4"]


def a_run(contestant="fast", seed=0, worst=(0.9, 0.6, 0.5), test=0.5, targets=(0.6,)) -> Run:
    """A run with a row for each tenth round, and bytes and passes that are easy to tell apart."""
    n = 10 * np.arange(1, len(worst) + 1)
    curve = Curve(n, n / 100, np.array(worst), passes_per_round=2, bytes_per_round=1000)
    return Run("adult", contestant, contestant, "ESG", seed, targets, curve, test)


def unequal_groups(tmp_path: Path) -> list[str]:
    """Options of a run on 40 rows of one group and 8 of another."""
    data = write_people(tmp_path / "people.csv", {"a": 50, "b": 10}, lifted="b")
    options = ["--dataset", f"csv:{data}", "--target", "y", "--group", "g"]
    return [*options, "--model", "logistic", "--clients", "4"]


def study(tmp_path: Path, *arguments: str) -> Targets:
    words = ["--parts", "targets", "--output", str(tmp_path), "--pythons", sys.executable]
    a = read_command_line([*words, *arguments])
    return Targets(a, a.given)


def test_trailing_mean_is_of_the_last_rounds():
    rounds = np.array([1, 2, 3, 5, 8, 9])
    values = np.random.default_rng(0).normal(size=6)
    for window in (1, 2, 4, 20):
        by_hand = [values[(rounds > t - window) & (rounds <= t)].mean() for t in rounds]
        np.testing.assert_allclose(trailing_mean(values, rounds, window), by_hand, rtol=1e-12)


def test_a_pass_of_batches_has_the_risk_of_all_rows(train, tmp_path):
    """With a step of next to nothing theta stays, so the mean over a pass must be exact.

    The batches have 8 of 40 rows of one group and 4 of 8 of the other: passes of 5 and 2 rounds.
    """
    options = [*unequal_groups(tmp_path), "--dtype", "float64", "--lr", "1e-13"]
    options += ["--rounds", "20", "--eval-every", "1", "--solver", "paper"]
    whole = curve_of(read_record(train(*options, output="whole").folder))
    batches = curve_of(read_record(train(*options, "--batch-rows", 12, output="batch").folder))
    history = read_record(tmp_path / "batch").history
    assert np.ptp(history["worst"]) > 0.01  # batches differ
    full = np.arange(20) % 10 == 9
    np.testing.assert_allclose(batches.worst[full], whole.worst[full], rtol=1e-9)
    assert batches.passes_per_round == 12 / 48 and whole.passes_per_round == 1


def test_a_target_costs_what_its_round_did(train, tmp_path):
    fedavg = ["--method", "fedavg", "--rounds", "8", "--local-epochs", "3"]
    run = train(*unequal_groups(tmp_path), *fedavg)
    curve, history = curve_of(read_record(run.folder)), run.history
    target = float(history[4]["worst"])
    reached = curve.reach(target + 1e-12)
    first = next(row for row in history if float(row["worst"]) <= target + 1e-12)
    assert reached
    assert reached.rounds == int(first["round"]) and reached.seconds == float(first["seconds"])
    assert reached.passes == 3 * reached.rounds
    assert reached.bytes == reached.rounds * run.result["bytes_per_round"]
    assert curve.reach(0.0) is None


def test_the_median_seed_speaks_for_all():
    """A seed that does not get there counts as slower than any that does."""
    early, late, never = a_run(worst=(0.5, 0.5, 0.5)), a_run(), a_run(worst=(0.9, 0.8, 0.7))
    assert cell([late, early], 0.6).startswith("20 (10–20); 40 passes; 20 kB; 0.2 s")
    assert cell([never, late, early], 0.6).startswith("20 (10–not)")
    assert cell([never, never, early], 0.6) == "not in 30 (1 of 3 seeds did)"
    assert cell([never], 0.6) == "not in 30"
    assert cell([a_run(worst=(0.5, 0.7, 0.9))], 0.6).startswith("10, does not stay; ")
    assert cell([a_run(worst=(0.5, 0.7, 0.6))], 0.6).startswith("10, stays from 30; ")
    diverged = Run("adult", "fast", "fast", "ESG", 0, (0.6,), note="diverged")
    assert cell([diverged], 0.6) == "diverged"


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (999, "999 B"), (51200, "51.2 kB"), (3e12, "3e+03 GB")]
)
def test_bytes_have_a_unit(count, words):
    assert size(count) == words


@pytest.mark.parametrize(
    ("minimax", "plain", "words"),
    [
        ((0.42, 0.43, 0.44), (0.52, 0.53, 0.55), "minimax helps"),
        # Seeds differ by more than the methods do, and all in the same direction.
        ((0.40, 0.50, 0.60), (0.41, 0.51, 0.611), "minimax helps"),
        ((0.42, 0.43, 0.44), (0.43, 0.42, 0.45), "gives nothing over plain training here"),
        ((0.52, 0.53, 0.55), (0.42, 0.43, 0.44), "minimax harms"),
        ((0.42, 0.43), (0.52, 0.53), "not decided"),
        ((0.42, None, None), (0.52, 0.5, 0.5), "not decided"),
    ],
)
def test_minimax_has_to_gain_two_deviations(minimax, plain, words):
    assert words in verdict(dict(enumerate(minimax)), dict(enumerate(plain)))


def test_minimax_is_compared_with_both_kinds_of_plain_training():
    runs = [a_run(name, seed, test=0.5) for name in CONTESTANTS for seed in range(3)]
    lines = sanity_lines(runs)
    assert [line.partition(": ")[0] for line in lines] == [
        "adult, over FedAvg",
        "adult, over the same steps without adversary",
    ]
    assert all("gives nothing over plain training here" in line for line in lines)


def test_the_whole_study_is_asked_for_by_name(tmp_path):
    assert "targets" not in PARTS and read_command_line([]).parts == list(PARTS)
    jobs = study(tmp_path).jobs
    assert {job.dataset for job in jobs} == set(DEFAULT) and "cifar10" not in DEFAULT
    assert len(jobs) == len(DEFAULT) * len(CONTESTANTS) * 3
    for job in jobs:
        assert job.config.solver == CONTESTANTS[job.contestant].solver
        rounds, every = job.config.rounds, job.config.eval_every
        least = rounds if job.config.options.get("batch_rows") else min(rounds, 300)
        assert rounds / every >= least
    paper = next(j for j in jobs if (j.dataset, j.contestant) == ("fashionmnist", "paper"))
    assert paper.config.rounds == STUDIES["fashionmnist"].rounds["paper"]


def test_plain_training_by_the_fast_steps_has_no_adversary(tmp_path):
    jobs = study(tmp_path, "--datasets", "adult", "--seeds", "0").jobs
    fast, plain = (next(j.config for j in jobs if j.contestant == n) for n in ("fast", "plain"))
    differ = {name for name in fast.identity() if fast.identity()[name] != plain.identity()[name]}
    assert differ == {"lr_mu", "epsilon"} and plain.lr_mu == plain.epsilon == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--", "--dataset", "adult"], "--parts targets sets it by itself"),
        (["--", "--seed=5"], "--parts targets sets it by itself"),
        (["--", "--solver", "fast"], "--parts targets sets it by itself"),
        (["--", "--rounds", "0"], "--rounds"),
    ],
)
def test_options_are_refused_before_the_first_run(tmp_path, arguments, words):
    with pytest.raises(UserError, match=words):
        study(tmp_path, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.launch
@pytest.mark.once
def test_a_run_that_diverged_is_a_finding(tmp_path):
    """Steps of 1e30 leave no finite theta; the study goes on."""
    given = ["--", *SMALL, "--data-dir", str(tmp_path / "data"), "--lr", "1e30"]
    targets = study(tmp_path, "--datasets", "synthetic", "--seeds", "0", "--ranks", "1", *given)
    del targets.jobs[1:]
    (run,) = targets.runs()
    assert run.note == "diverged" and run.reach(1e9) is None and "diverged" in run.line()
    assert all(line["rounds"] is None for line in run.records())


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.once
def test_a_study_is_measured_once(tmp_path):
    """What is there is not trained again, and one that is missing is."""
    output = tmp_path / "bench"
    command = [sys.executable, "-m", "fedmpi.bench", "--parts", "targets", "--ranks", "1"]
    command += ["--datasets", "synthetic", "--seeds", "0", "--pythons", sys.executable]
    command += ["--output", str(output), "--", *SMALL, "--data-dir", str(tmp_path / "data")]

    def measure() -> dict[str, bytes]:
        done = subprocess.run(
            command, env=launcher(), capture_output=True, text=True, timeout=limit()
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "not decided" in done.stdout  # with one seed
        return {p.parent.name: p.read_bytes() for p in output.glob("targets/*/result.json")}

    first = measure()
    assert set(first) == {f"synthetic-{name}-s0" for name in CONTESTANTS}
    (output / "targets/synthetic-fast-s0/result.json").unlink()
    again = measure()
    assert {name for name in first if first[name] != again[name]} == {"synthetic-fast-s0"}
    with open(output / "targets.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(CONTESTANTS) * len(STUDIES["synthetic"].targets)
    assert all(float(row["worst_test"]) > 0 and row["rounds_of_run"] == "4" for row in rows)
    page = (output / "targets.md").read_text()
    assert all(contestant.title in page for contestant in CONTESTANTS.values())
    pytest.importorskip("matplotlib")
    assert "<svg" in (output / "targets.svg").read_text()


def test_an_interrupted_run_is_resumed(tmp_path):
    (job, *_) = study(tmp_path, "--datasets", "adult", "--seeds", "0").jobs
    assert not job.interrupted and not job.finished
    folder = tmp_path / "targets" / "adult-paper-s0"
    folder.mkdir(parents=True)
    (folder / NEWEST).touch()
    assert job.interrupted
