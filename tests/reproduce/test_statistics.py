"""Means over seeds, against numpy on the results themselves."""

import numpy as np
import pytest

from fedmpi import methods
from fedmpi.reproduce.statistics import (
    ORDER,
    Mean,
    Run,
    dataset_title,
    figures_of,
    figures_of_paper,
    method_order,
    method_title,
    option_facts,
    option_labels,
    over,
    rate_intervals,
    run_of,
)
from fedmpi.run.record import find_records
from fedmpi.scoring.fairness import rates

OPTIONS = (
    "--dataset synthetic --rows 90 --limit-test 100 --rounds 3 "
    "--model logistic --clients 3 --lr 0.5"
)


def test_figures_of_runs_over_seeds(train, tmp_path):
    for seed in (0, 1, 2):
        for method in ("fedminmax", "centralized"):
            options = [*OPTIONS.split(), "--seed", seed, "--method", method]
            if method == "centralized":
                options[options.index("--clients") : options.index("--clients") + 2] = []
            train(*options, output=f"all/{method}-{seed}")
    records = find_records([tmp_path / "all"])
    figures = figures_of(records, [(Run(3, "SSG", "afl", ""), "diverged")])
    assert figures.groups == ("A=0", "A=1") and figures.clients == 3
    ours, single = Run(3, "ESG", "fedminmax", ""), Run(0, "", "centralized", "")
    assert figures.runs == [ours, Run(3, "SSG", "afl", ""), single]
    mine = [r.result for r in records if r.result["method"] == "fedminmax"]
    risks = [result["groups"]["A=1"]["risk"] for result in mine]
    cell = figures.get("risk", ours, "A=1")
    assert cell[:3] == (pytest.approx(np.mean(risks)), pytest.approx(np.std(risks, ddof=1)), 3)
    errors = [result["groups"]["A=1"]["risk_error"] for result in mine]
    reach = 4.302 * np.std(risks, ddof=1) / np.sqrt(3)  # Student's t of three seeds
    both = np.hypot(reach, 1.96 * max(errors))  # had they all the same test rows
    low, high = cell.interval
    assert reach <= (high - low) / 2 <= both and (low + high) / 2 == pytest.approx(cell.mean)
    right = [[g["accuracy"] for g in result["groups"].values()] for result in mine]
    assert figures.get("accuracy", ours, "worst").mean == pytest.approx(min(np.mean(right, axis=0)))
    assert figures.get("risk", ours, "best")[:2] == min(
        figures.get("risk", ours, name)[:2] for name in figures.groups
    )
    parity = [result["fairness"]["demographic_parity_difference"] for result in mine]
    assert figures.get("demographic_parity_difference", ours, "").mean == pytest.approx(
        np.mean(parity)
    )
    rates = [result["fairness"]["values"]["0"]["true_positive_rate"] for result in mine]
    assert figures.get("true_positive_rate", ours, "0").mean == pytest.approx(np.mean(rates))
    assert sum(figures.priors.values()) == pytest.approx(1)
    weights = [figures.get("weight", single, name).mean for name in figures.groups]
    assert sum(weights) == pytest.approx(1)
    assert figures.find("centralized", "ESG") == figures.find("centralized", "") == single


@pytest.mark.parametrize("shared", [True, False])
def test_intervals_of_rates_hold_the_true_rate(shared):
    """By simulation: models of three seeds that say yes to 8% to 12%, on 300 rows."""
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(400):
        draws = rng.random(300)[None].repeat(3, 0) if shared else rng.random((3, 300))
        yes = [(u < rng.normal(0.1, 0.01)).sum() for u in draws]
        results = [{"fairness": rates({"F": np.array([[300 - n, n], [0, 0]])})} for n in yes]
        low, high = rate_intervals(results)["selection_rate", "F"]
        missed += not low <= 0.1 <= high
    assert missed <= 30  # 5% would be 20; 30 or fewer have a probability of 99%
    single = results[0]["fairness"]["values"]["F"]
    low, high = rate_intervals(results[:1])["selection_rate", "F"]
    wilson = single["selection_rate_interval"]
    assert high - low == pytest.approx(wilson[1] - wilson[0])
    assert "true_positive_rate" not in {rate for rate, _ in rate_intervals(results)}  # no rows


def test_one_seed_has_no_deviation_and_nothing_has_no_cell():
    assert over([0.5]) == Mean(0.5, None, 1)
    assert over([None, 0.25, 0.75])[:3] == (0.5, pytest.approx(np.std([0.25, 0.75], ddof=1)), 2)
    assert over([None]) is None


def test_the_parameter_is_part_of_what_was_run():
    base = {"clients": 40, "setting": "PSG"}
    q = {"method": "qfedavg", "q": 5}
    term = {"method": "term", "tilt": 1, "tilt_level": "sample"}
    assert run_of(base | q) == (40, "PSG", "qfedavg", "q=5.0")
    assert run_of(base | term) == (40, "PSG", "term", "t=1.0, rows")
    assert run_of(base | {"method": "centralized"}) == (0, "", "centralized", "")


def test_a_method_of_the_users_own_is_named_by_its_class_and_its_options():
    """They are read from config.json: the class is not imported, and here there is none."""
    config = {"method": "absent.module:Mine", "clients": 4, "setting": "ESG", "rounds": 1000}
    config |= {"lr": 0.5, "lr_mu": 0.1, "output": "runs/x", "states": ["MA", "RI"]}
    science = {"method": config["method"], "lr": 0.5, "lr_mu": 0.1, "zeta": 0.9}
    for given in (config | {"zeta": 0.9, "none": None}, config | {"science": science}):
        run = run_of(given)
        assert run == (4, "ESG", "absent.module:Mine", "zeta=0.9")
        assert run.label == "Mine (zeta=0.9)"
        said = option_labels(given)
        assert said["zeta"] == "zeta = 0.9" and said["lr_mu"] == "η_μ = 0.1"
        assert said["rounds"] == "1,000 rounds" and said["states"] == "states MA+RI"
        assert ("zeta", 0.9) in option_facts(given) and ("η_μ", 0.1) in option_facts(given)
    assert sorted(["absent.module:Mine", "centralized", "afl"], key=method_order) == [
        *("afl", "centralized", "absent.module:Mine"),
    ]
    titles = [dataset_title(name) for name in ("cifar10", "csv:data/people.csv", "my.data:People")]
    assert titles == ["CIFAR-10", "people.csv", "People"]


def test_every_method_has_a_place_and_a_title():
    assert sorted(ORDER) == sorted(methods.FILES) and ORDER[-1] == "centralized"
    assert len({method_title(name) for name in ORDER}) == len(ORDER)


def test_the_papers_figures():
    figures = figures_of_paper("fashionmnist")
    assert figures.clients == 40
    local = figures.find("localfedminmax", "ESG", 10)
    assert figures.get("risk", local, "worst").mean == 0.316
    assert figures.get("risk", figures.find("fedavg", "PSG"), "worst") == Mean(0.464, 0.011, 3)
    assert figures.get("weight", figures.find("centralized", ""), "Shirt").mean == 0.377
    assert figures_of_paper("csv:people.csv") is None
