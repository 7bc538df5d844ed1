"""Candidates of a budget, and the choice among them: against a plain loop over the folds."""

import json
import sys

import numpy as np
import pytest

from fedmpi.compare.__main__ import main, parser, read_request
from fedmpi.compare.plan import options_of, plan_cells
from fedmpi.compare.tuning import candidates, far_first, plan_tuning
from fedmpi.run.arguments import resolve_options

SMALL = "--rows 90 --model logistic --rounds 3 --local-rounds 2 --clients 4 --dtype float64"


def request_of(*arguments: object):
    return read_request(parser().parse_args([*SMALL.split(), *map(str, arguments)]))


def points(budget: int, *arguments: str) -> list[dict]:
    request = request_of("--datasets", "synthetic", "--settings", "ESG", *arguments)
    (cell,) = plan_cells(request)
    return candidates(options_of(request, cell, 0), budget)


def test_a_budget_is_the_defaults_and_a_sample_that_grows():
    method = ["--methods", "qfedavg", "--solver", "paper"]
    request = request_of("--datasets", "synthetic", "--settings", "ESG", *method)
    defaults = resolve_options(options_of(request, plan_cells(request)[0], 0), 1, False)
    whole = points(1000, *method)
    assert len(whole) == 5 * 5 * 3  # eta, q and E, of which the defaults are one
    assert whole[0] == {name: getattr(defaults, name) for name in ("lr", "q", "local_epochs")}
    assert len({tuple(sorted(p.items())) for p in whole}) == 75
    few, more = points(4, *method), points(9, *method)
    assert (len(few), len(more)) == (4, 9) and few[0] == more[0] == whole[0]
    assert all(p in more for p in few) and all(p in whole for p in more)
    assert points(9, *method) == more
    # Far from the default first; five points more have every value.
    assert [p["lr"] for p in points(6, *method)] == [0.1, 0.001, 0.01, 0.05, 0.005, 0.1]
    for name in ("lr", "q", "local_epochs"):
        assert {p[name] for p in points(6, *method)} == {p[name] for p in whole}


def test_what_is_tuned_by_need_not_be_what_is_compared():
    given = ["--datasets", "synthetic"]
    request = request_of(*given)
    assert (request.criterion, request.tune_by) == ("worst", "aim")
    of_methods = {c.variant.name: request.criterion_of(c) for c in plan_cells(request)}
    assert {name for name, by in of_methods.items() if by == "worst"} == {
        *("fedminmax", "centralized", "localfedminmax", "afl", "drfa", "scaffpd", "bgl")
    }
    assert {of_methods[name] for name in ("fedavg", "qfedavg", "term")} == {"average"}
    request = request_of(*given, "--criterion", "average", "--tune-by", "worst")
    assert (request.criterion, request.tune_by) == ("average", "worst")
    assert {request.criterion_of(c) for c in plan_cells(request)} == {"worst"}
    assert "the worst group's validation risk" in request.tuning


def test_the_next_value_is_far_from_those_before():
    assert far_first((1, 2, 3, 4, 5), 3) == [5, 1, 4, 2, 3]
    assert far_first((1, 2, 3), 1) == [3, 2, 1]
    assert far_first((1, 2), 9) == [1, 2]


def test_an_option_that_is_given_is_not_tuned():
    of_q = points(5, "--methods", "qfedavg,q=5")
    assert len(of_q) == 5 and all(set(p) == {"lr", "local_epochs"} for p in of_q)
    assert all(set(p) == {"lr_mu"} for p in points(5, "--methods", "afl", "--lr", ".1"))
    steps = ["--lr", ".1", "--lr-mu", ".2"]
    assert points(5, "--methods", "afl", *steps) == [{}]  # nothing to try, so no folds
    newton = ["--methods", "fedminmax", "--loss", "cross-entropy"]
    assert points(5, *newton) == [{}]


def test_an_option_of_a_method_may_have_the_name_of_one_of_the_comparison():
    request = request_of("--datasets", "synthetic", "--methods", "bgl,budget=5", "--budget", 3)
    cell = plan_cells(request)[0]
    assert request.budget == 3 and options_of(request, cell, 0).budget == 5


def test_each_seed_can_be_tuned_by_itself():
    given = ["--datasets", "synthetic", "--settings", "ESG", "--methods", "afl", "--seeds", 5, 7]
    (together,) = plan_cells(request_of(*given))
    assert together.seeds == [5, 7]
    request = request_of(*given, "--tune-every-seed", "--output", "nowhere")
    cells = plan_cells(request)
    assert [cell.seeds for cell in cells] == [[5], [7]] and cells[0].key != cells[1].key
    folds = [plan.config for cell in cells for plan in plan_tuning(request, cell, {})]
    assert {config.seed for config in folds} == {5, 7} and len(folds) == 2 * 8 * 3
    assert len({config.output for config in folds}) == len(folds)


@pytest.mark.parametrize(("criterion", "of_groups"), [("average", np.mean), ("worst", max)])
def test_the_choice_is_that_of_a_plain_loop_over_the_folds(
    monkeypatch, tmp_path, train, criterion, of_groups
):
    where = ["--data-dir", tmp_path / "data", "--progress", "none"]
    steps = (0.001, 0.005, 0.01, 0.05, 0.1)
    given = ["--datasets", "synthetic", "--settings", "SSG", "--seeds", 3, 4]
    given += ["--methods", "fedavg", "--local-epochs", 2, "--tune-by", criterion]
    given += ["--folds", 2, "--budget", 99, "--output", tmp_path / "out", *where, *SMALL.split()]
    monkeypatch.setattr(sys, "argv", ["compare", *map(str, given)])
    assert main() == 0
    means = {}
    fixed = "--dataset synthetic --rows 90 --model logistic --rounds 2 --clients 4 --dtype float64"
    fixed += " --method fedavg --local-epochs 2 --setting SSG --seed 3"
    for lr in steps:
        risks = []
        for fold in ("1/2", "2/2"):
            options = [*fixed.split(), "--fold", fold, "--lr", lr, *where[:2]]
            groups = train(*options, output=f"plain-{lr}-{fold[0]}").result["groups"]
            risks.append(of_groups([group["risk"] for group in groups.values()]))
        means[lr] = np.mean(risks)
    (cell,) = json.loads((tmp_path / "out/tuned.json").read_text())["cells"]
    assert (cell["seed"], cell["for_seeds"], cell["criterion"]) == (3, [3, 4], criterion)
    tried = {row["options"]["lr"]: row["risk"] for row in cell["tried"]}
    assert tried == pytest.approx(means, abs=1e-12)
    best = min(means, key=means.get)
    assert cell["options"] == {"lr": best}
    for seed in (3, 4):
        folder = tmp_path / f"out/synthetic/runs/synthetic-SSG-fedavg-s{seed}-k4"
        config = json.loads((folder / "config.json").read_text())
        assert (config["lr"], config["local_epochs"], config["fold"]) == (best, 2, None)
