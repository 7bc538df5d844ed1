import numpy as np
import pytest
from statements import project
from weighted import weighted_rounds

from fedmpi.errors import UserError

LOCAL = {"local_epochs": 2, "batch_size": 16}
ROWS = {"target": "rich", "group": "sex,rich"}
CASES = [("ESG", 4, ROWS), ("PSG", 5, ROWS), ("SSG", 9, ROWS | {"group": "place,rich"})]
"""Two sexes, or four places, each with two classes, in this order."""


def fedfb(f, rounds, lr, lr_mu, fairness, local_epochs, batch_size):
    values = range(f.groups // 2)
    n = [[f.n_a(2 * z + y) for z in values] for y in (0, 1)]
    of_value = [n[0][z] + n[1][z] for z in values]
    w = [[1.0] * len(values), [1.0] * len(values)]

    def parity(r):
        q = [(n[0][z] * r[0][z] - n[1][z] * r[1][z] + n[1][z]) / of_value[z] for z in values]
        for z in values:
            gap = q[z] - q[0] if z else -sum(other - q[0] for other in q[1:])
            w[0][z] = min(2.0, max(0.0, w[0][z] + lr_mu * f.n / of_value[z] * gap))
            w[1][z] = 2 - w[0][z]

    def within(y, r):
        share = sum(n[y]) / f.n
        masses = [n[y][z] / f.n * w[y][z] for z in values]
        moved = [(m + lr_mu * risk) / share for m, risk in zip(masses, r[y], strict=True)]
        masses = [share * m for m in project(moved, 0.0)]
        w[y][:] = [f.n * m / n[y][z] for z, m in enumerate(masses)]

    def weigh(risks):
        r = [risks[0::2], risks[1::2]]
        if fairness == "parity":
            parity(r)
        else:
            for y in (0, 1) if fairness == "odds" else (1,):
                within(y, r)
        return [w[a % 2][a // 2] for a in range(f.groups)]

    return weighted_rounds(f, rounds, lr, weigh, local_epochs, batch_size)


# The second step takes weights of parity to their limits, and groups to 0.
@pytest.mark.parametrize("lr_mu", [0.05, 1.0])
@pytest.mark.parametrize("fairness", ["parity", "opportunity", "odds"])
@pytest.mark.parametrize(("setting", "clients", "rows"), CASES)
def test_statement(agree, setting, clients, rows, fairness, lr_mu):
    agree("fedfb", setting, clients, fedfb, lr_mu=lr_mu, fairness=fairness, **LOCAL, **rows)


def test_with_brier(agree):
    agree("fedfb", "PSG", 5, fedfb, lr_mu=0.3, fairness="parity", loss="brier", **LOCAL, **ROWS)


@pytest.mark.parametrize("fairness", ["parity", "opportunity", "odds"])
def test_without_steps_it_is_fedavg(run, same, fairness):
    found = run("fedfb", "PSG", 5, lr_mu=0, fairness=fairness, **LOCAL, **ROWS)
    same(found.theta(), run("fedavg", "PSG", 5, **LOCAL, **ROWS).theta(), **ROWS)


def test_rates_come_closer(run):
    """The demographic parity difference on the test rows, which FedAvg leaves as it is."""
    long = {"rounds": 60, "lr": 0.5, "local_epochs": 1, "batch_size": 100}

    def gap(method: str, **options) -> float:
        fairness = run(method, "ESG", 3, **long, **options, **ROWS).result["fairness"]
        return fairness["demographic_parity_difference"]

    assert gap("fedfb", lr_mu=0.05, fairness="parity") < 0.7 * gap("fedavg")


def test_groups_without_the_class_are_refused(run):
    with pytest.raises(UserError, match="needs groups that are an attribute and one of two") as e:
        run("fedfb", "ESG", 3, target="rich")
    assert "--group sex,paid" in str(e.value)
    with pytest.raises(UserError, match="needs groups that are"):
        run("fedfb", "ESG", 3, group="place,job")  # three classes
    with pytest.raises(UserError, match="needs groups that are"):
        run("fedfb", "ESG", 3, target="rich", group="rich")  # no attribute


def test_masses(run):
    """Opportunity and odds keep the share of each class."""
    for fairness in ("opportunity", "odds"):
        last = run("fedfb", "PSG", 5, lr_mu=0.3, fairness=fairness, **LOCAL, **ROWS).history[-1]
        weights = np.array([float(v) for k, v in last.items() if k.startswith("weight/")])
        first = run("fedavg", "PSG", 5, **LOCAL, **ROWS).result["groups"]
        rows = np.array([group["n_train"] for group in first.values()])
        for y in (0, 1):
            assert weights[y::2].sum() == pytest.approx(rows[y::2].sum() / rows.sum(), rel=1e-12)
