"""Every method where only some clients take part: plain loops, limits, and a resume."""

from pathlib import Path

import numpy as np
import pytest
from cohort_statements import METHODS
from runs import cut_off_after, groups_for

from fedmpi import methods
from fedmpi.errors import UserError
from fedmpi.federation.cohorts import Cohorts
from fedmpi.run.arguments import resolve

CLIENTS, ROUNDS = 7, 4
LOCAL = {"local_epochs": 2, "batch_size": 16}
OPTIONS = {
    "fedminmax": {"lr_mu": 0.5, "epsilon": 0.01},
    "afl": {"lr_mu": 0.3},
    "fedavg": LOCAL,
    "qfedavg": LOCAL | {"q": 0.5},
    "term": LOCAL | {"tilt": 2.0},
}
P = (0.2, 0.8, 0.5, 1.0, 0.35, 0.6, 0.15)
DEFINED = [name for name in methods.FILES if methods.find(name).under_cohorts]


@pytest.fixture(scope="module")
def available(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("availability") / "clients.csv"
    lines = [f"{k},{p}" for k, p in enumerate(P)]
    path.write_text("\n".join(["client,probability", *lines]) + "\n")
    return path


def drawn(f, rounds: int, **options) -> list[dict[int, float]]:
    """The clients of each round, from the program; and how often each is there, from here."""
    words = ["--dataset", "synthetic", "--clients", str(CLIENTS), "--seed", str(f.seed)]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    config = resolve(words, 1, one_process=True)
    p = config.available and np.array(P)
    cohorts = Cohorts(methods.find("fedminmax")(config), config, p)
    cohorts.sizes = np.array([len(rows) for rows in f.clients])
    pi = dict(enumerate(P)) if config.available else dict.fromkeys(range(CLIENTS), 3 / CLIENTS)
    return [{k: pi[k] for k in cohorts.of_round(t).clients.tolist()} for t in range(1, rounds + 1)]


@pytest.mark.parametrize("kind", ["cohort", "availability"])
@pytest.mark.parametrize("method", OPTIONS)
def test_statement(people, run, same, available, method, kind):
    who = {"cohort": 3} if kind == "cohort" else {"availability": available}
    rows = {"seed": 4, "skew": 2.0}
    found = run(method, "PSG", CLIENTS, rounds=ROUNDS, **who, **rows, **OPTIONS[method])
    f = people.federation("PSG", CLIENTS, **rows)
    cohorts = drawn(f, ROUNDS, **who)
    stated = METHODS[method](f, cohorts, lr=0.5, **OPTIONS[method])
    same(found.theta("last"), stated.thetas[-1], **rows)
    same(found.theta("averaged"), np.mean(stated.thetas, axis=0), **rows)
    assert [int(row["clients"]) for row in found.history] == [len(cohort) for cohort in cohorts]
    for row, of_groups, of_clients in zip(
        found.history, stated.group_weights, stated.client_weights, strict=True
    ):
        names = [name for name in row if name.startswith("weight/")]
        weights = [float(row[name]) for name in names if "client" not in name]
        if of_groups:
            np.testing.assert_allclose(weights, of_groups, rtol=1e-9)
        weights = [float(row[name]) for name in names if "client" in name]
        np.testing.assert_allclose(weights, of_clients, rtol=1e-9, atol=1e-15)


def options_of(method: str) -> dict:
    local = methods.find(method).trains_locally
    options = LOCAL if local else {"lr_mu": 0.3} if methods.find(method).option("lr_mu") else {}
    return options | rows_of(method)


def rows_of(method: str) -> dict:
    """Target and groups, for a method that goes by an attribute."""
    needs_attribute = methods.find(method).needs_attribute
    return {"target": "rich", "group": "sex,rich"} if needs_attribute else {}


@pytest.mark.parametrize("method", DEFINED)
@pytest.mark.parametrize("everybody", [{"participation": 1.0}, {"cohort": CLIENTS}])
def test_all_clients_are_no_cohort(run, method, everybody):
    runs = [run(method, "PSG", CLIENTS, **o, **options_of(method)) for o in ({}, everybody)]
    for which in ("last", "averaged"):
        np.testing.assert_array_equal(*(each.theta(which) for each in runs))
    assert runs[0].config["science"] == runs[1].config["science"]
    assert "clients" not in runs[1].history[0]


@pytest.mark.parametrize("method", DEFINED)
def test_clients_that_are_always_available_are_all_clients(run, same, tmp_path, method):
    lines = "".join(f"{k},1\n" for k in range(CLIENTS))
    (tmp_path / "always.csv").write_text("client,probability\n" + lines)
    always = {"availability": tmp_path / "always.csv"}
    found, whole = (run(method, "PSG", CLIENTS, **o, **options_of(method)) for o in (always, {}))
    same(found.theta(), whole.theta(), **rows_of(method))


@pytest.fixture(scope="module")
def copies(tmp_path_factory) -> list[object]:
    """Six clients that all have the same twenty rows."""
    folder, rng = tmp_path_factory.mktemp("copies"), np.random.default_rng(5)
    rows = [
        f"{u:.4f},{v:.4f},{'ab'[i % 3 == 0]}" for i, (u, v) in enumerate(rng.normal(size=(20, 2)))
    ]
    rows = [f"{row},{'no' if i % 2 else 'yes'}" for i, row in enumerate(rows)]
    of_clients = [f"{row},{who}" for who in "klmnop" for row in rows]
    (folder / "train.csv").write_text("\n".join(["u,v,g,y,who", *of_clients]) + "\n")
    (folder / "test.csv").write_text(
        "\n".join(["u,v,g,y,who", *(f"{row},k" for row in rows)]) + "\n"
    )
    data = ["--dataset", f"csv:{folder / 'train.csv'}", "--test", folder / "test.csv"]
    data += ["--target", "y", "--group", "g", "--client", "who", "--data-dir", folder / "data"]
    return [*data, "--rounds", 1, "--lr", 0.5, "--dtype", "float64", "--model", "logistic"]


@pytest.mark.parametrize("method", DEFINED)
def test_of_clients_that_are_alike_some_are_as_good_as_all(train, copies, method):
    """In the first round: an adversary of clients then knows the ones that took part better."""
    options = ["--local-epochs", 2] if methods.find(method).trains_locally else []
    options += groups_for(method)
    whole = train(*copies, "--method", method, *options, output="whole")
    some = train(*copies, "--method", method, *options, "--cohort", 2, output="some")
    np.testing.assert_allclose(some.theta(), whole.theta(), rtol=1e-12)
    # And as many as there are is no cohort, if only the data say how many there are.
    most = train(*copies, "--method", method, *options, "--cohort", 6, output="most")
    np.testing.assert_array_equal(most.theta(), whole.theta())


def test_owners_are_available_by_their_names(train, copies, tmp_path):
    path = tmp_path / "owners.csv"
    path.write_text("client,probability\n" + "".join(f"{who},.5\n" for who in "klmnop"))
    run = train(*copies, "--availability", path, "--rounds", 8)
    assert len({row["clients"] for row in run.history}) > 1
    path.write_text("client,probability\n" + "".join(f"{who},.5\n" for who in "klmno"))
    with pytest.raises(UserError, match="no line for client p: give one line for each of the 6"):
        train(*copies, "--availability", path, output="missing")
    with pytest.raises(UserError, match="--cohort 7: there are 6 clients"):
        train(*copies, "--cohort", 7, output="many")


@pytest.mark.parametrize("method", DEFINED)
def test_resumed_it_is_the_same_bits(people, train, available, method):
    rows = {"target": "job"} | rows_of(method)
    words = [*people.arguments(**rows), "--method", method, "--setting", "PSG", "--skew", 2]
    words += ["--clients", CLIENTS, "--rounds", 6, "--checkpoint-every", 1, "--model", "logistic"]
    words += ["--availability", available, "--cohort", 3, "--lr", 0.5]
    words += ["--local-epochs", 2] if methods.find(method).trains_locally else []
    whole = train(*words, output="whole")
    with cut_off_after(3):
        train(*words, output="cut")
    resumed = train(*words, "--resume", output="cut")
    for which in ("last", "averaged"):
        np.testing.assert_array_equal(resumed.theta(which), whole.theta(which))
    assert [row["clients"] for row in resumed.history] == [row["clients"] for row in whole.history]


def test_a_round_without_clients_does_nothing(people, train, tmp_path):
    path = tmp_path / "seldom.csv"
    path.write_text("client,probability\n" + "".join(f"{k},.1\n" for k in range(3)))
    words = [*people.arguments("job"), "--clients", 3, "--availability", path, "--seed", 1]
    words += ["--optimizer", "nesterov", "--weight-decay", 0.1, "--lr", 0.5, "--lr-mu", 0.5]
    words += ["--model", "logistic", "--dtype", "float64", "--eval-every", 1]
    runs = [train(*words, "--rounds", rounds, output=f"run{rounds}") for rounds in range(1, 9)]
    history, thetas = runs[-1].history, [run.theta() for run in runs]
    weights = [[row[name] for name in row if "weight/" in name] for row in history]
    there = [int(row["clients"]) > 0 for row in history]
    assert True in there and False in there
    for t in range(1, len(runs)):
        stayed = np.array_equal(thetas[t], thetas[t - 1])
        assert stayed == (weights[t] == weights[t - 1]) == (not there[t])
    assert all((row["worst"] == "nan") != here for row, here in zip(history, there, strict=True))
