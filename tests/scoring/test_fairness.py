"""Rates by attribute, against fairlearn on the same predictions."""

import numpy as np
import pytest
import torch

from fedmpi import data as datasets
from fedmpi.data.options import DataOptions
from fedmpi.scoring.fairness import fairness_of, rates

fairlearn = pytest.importorskip("fairlearn.metrics")


@pytest.fixture
def table(tmp_path):
    """A CSV of three regions and a target, which some region gets more often."""
    rng = np.random.default_rng(2)
    region = rng.choice(["north", "south", "west"], size=400, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=400) + (region == "south")
    y = np.where(x + rng.normal(size=400) > 0.3, "yes", "no")
    path = tmp_path / "people.csv"
    rows = [f"{u},{g},{t}" for u, g, t in zip(x, region, y, strict=True)]
    path.write_text("\n".join(["u,g,y", *rows]) + "\n")
    return path


def test_a_run_agrees_with_fairlearn_on_its_predictions(train, table, tmp_path):
    """Groups are region and target together, as in Adult; the attribute is the region."""
    from fedmpi import models
    from fedmpi.data.store import Prepared

    run = train(
        *("--dataset", f"csv:{table}", "--target", "y", "--group", "g,y", "--clients", "3"),
        *("--rounds", "30", "--lr", "0.5", "--model", "logistic", "--dtype", "float64"),
    )
    told = run.result["fairness"]
    assert told["attribute"] == "g" and told["positive"] == "yes"

    prepared = Prepared.open(next((tmp_path / "data/prepared").iterdir()))
    x, y, group = (np.array(prepared.array(f"test_{part}")) for part in ("x", "y", "group"))
    region = np.array([name.split(" / ")[0] for name in prepared.groups])[group]
    model = models.build("logistic", x.shape[1:], 2, 0).double()
    model.load_state_dict(torch.load(run.folder / "model.pt", weights_only=True)["averaged"])
    predicted = model(torch.from_numpy(x).double()).argmax(1).numpy()
    frame = fairlearn.MetricFrame(
        metrics={
            "selection_rate": fairlearn.selection_rate,
            "true_positive_rate": fairlearn.true_positive_rate,
            "false_positive_rate": fairlearn.false_positive_rate,
        },
        y_true=y,
        y_pred=predicted,
        sensitive_features=region,
    )
    assert 0 < predicted.mean() < 1
    for value, row in frame.by_group.iterrows():
        assert told["values"][value]["n_test"] == (region == value).sum()
        for rate in row.index:
            assert told["values"][value][rate] == pytest.approx(row[rate])
    for name in ("demographic_parity_difference", "equalized_odds_difference"):
        expected = getattr(fairlearn, name)(y, predicted, sensitive_features=region)
        assert told[name] == pytest.approx(expected) and expected > 0


@pytest.mark.parametrize(
    ("name", "attribute", "values"),
    [
        ("adult", "sex", ["Male", "Male", "Female", "Female"]),
        ("acs-employment", "race", ["White", "Black", "Other"] * 2),
        ("synthetic", "A", ["0", "1"]),
    ],
)
def test_a_dataset_says_the_value_of_each_group(name, attribute, values):
    dataset = datasets.find(name)
    assert dataset.attribute(dataset.groups, DataOptions()) == (attribute, tuple(values))


def test_acs_race_is_its_own_attribute_and_classes_have_none():
    race = datasets.find("acs-race")
    assert race.attribute(race.groups, DataOptions()) == ("race", race.groups)
    for name in ("fashionmnist", "cifar10"):
        dataset = datasets.find(name)
        assert dataset.attribute(dataset.groups, DataOptions()) is None


@pytest.mark.parametrize(
    ("columns", "groups", "expected"),
    [
        (("sex", "y"), ("f / no", "m / yes"), ("sex", ("f", "m"))),
        (("y", "sex"), ("no / f", "yes / m"), ("sex", ("f", "m"))),
        (("sex", "age"), ("f / old", "m / young"), ("sex / age", ("f / old", "m / young"))),
        (("y",), ("no", "yes"), None),
        (("sex", "y"), ("f / or m / no", "m / yes"), None),
    ],
)
def test_a_csv_files_attribute_is_its_group_columns_but_the_target(columns, groups, expected):
    dataset = datasets.find("csv:people.csv")
    options = DataOptions(target="y", group=columns)
    assert dataset.attribute(groups, options) == expected


def test_three_classes_have_no_rates():
    adult = datasets.find("adult")
    confusion = np.ones((4, 3, 3), dtype=int)
    assert fairness_of(adult, DataOptions(), adult.groups, ("a", "b", "c"), confusion) is None


def test_a_value_without_rows_of_a_class_has_no_rate_and_no_part_in_the_differences():
    told = rates(
        {"a": np.array([[3, 1], [2, 4]]), "b": np.array([[0, 0], [1, 1]]), "c": np.zeros((2, 2))}
    )
    assert np.isnan(told["values"]["b"]["false_positive_rate"])
    assert told["demographic_parity_difference"] == pytest.approx(0.0)
    assert np.isnan(told["values"]["c"]["selection_rate"])
    assert np.isnan(told["equalized_odds_difference"])  # one false positive rate: no difference
