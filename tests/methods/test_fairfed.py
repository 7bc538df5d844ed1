import numpy as np
import pytest
import torch
from statements import Trace, combine, group_risks, local, shares
from weighted import weighted_mean

from fedmpi.errors import UserError
from fedmpi.methods.attribute import Attribute
from fedmpi.methods.fairfed import independence

LOCAL = {"local_epochs": 2, "batch_size": 16}
ROWS = {"target": "rich", "group": "sex,rich"}
PLACES = ROWS | {"group": "place,rich"}
"""Two sexes, or four places, each with two classes, in this order."""


def predicted(f, theta, i: int) -> int:
    """The class that the model takes row i for."""
    h = f.x[i]
    for layer in range(0, len(theta), 2):
        h = (h if layer == 0 else torch.clamp(h, min=0)) @ theta[layer].T + theta[layer + 1]
    return int(h[1] > h[0])


def rate(told: dict[int, int], rows: list[int]) -> float | None:
    return sum(told[i] for i in rows) / len(rows) if rows else None


def gap(f, told, rows, wanted: str) -> float | None:
    """F of some rows; None if they have too few values of the attribute."""
    values = range(f.groups // 2)
    y = f.y.tolist()

    def difference(classes: tuple[int, ...]) -> float | None:
        of = [[i for i in rows if f.group[i] // 2 == z and y[i] in classes] for z in values]
        rates = [rate(told, mine) for mine in of]
        if len(rates) == 2:
            return None if None in rates else rates[0] - rates[1]
        known = [r for r in rates if r is not None]
        return max(known) - min(known) if len(known) > 1 else None

    if wanted == "odds":
        both = [difference((y,)) for y in (0, 1)]
        return None if None in both else sum(both) / 2
    return difference((1,) if wanted == "opportunity" else (0, 1))


def reweighed(f, k: int) -> list[float]:
    """Weight of each group's rows at client k: rows expected of value and class alone, by rows."""
    mine = [int(f.group[i]) for i in f.clients[k]]
    weights = [0.0] * f.groups
    for a in set(mine):
        value = sum(b // 2 == a // 2 for b in mine)
        of_class = sum(b % 2 == a % 2 for b in mine)
        weights[a] = value * of_class / len(mine) / mine.count(a)
    mean = sum(weights[b] for b in mine) / len(mine)
    return [w / mean for w in weights]


def fairfed(f, rounds, lr, beta, fairness, local_epochs, batch_size, debias="none"):
    omega, trace, everybody = shares(f), Trace(f.theta), range(f.n)
    clients, y = range(len(f.clients)), f.y.tolist()
    for t in range(1, rounds + 1):
        theta = trace.theta
        told = {i: predicted(f, theta, i) for i in everybody}

        def accuracy(rows, told=told):
            return sum(told[i] == y[i] for i in rows) / len(rows)

        deltas, of_all = [], gap(f, told, everybody, fairness)
        for rows in f.clients:
            own = gap(f, told, rows, fairness)
            known = own is not None and of_all is not None
            deltas.append(abs(of_all - own) if known else abs(accuracy(everybody) - accuracy(rows)))
        mean = sum(deltas) / len(deltas)
        omega = [max(0.0, w - beta * (d - mean)) for w, d in zip(omega, deltas, strict=True)]
        omega = [w / sum(omega) for w in omega]
        models = []
        for k in clients:
            w = reweighed(f, k)

            def objective(p, rows, w=w):
                return weighted_mean(f, p, rows, w)

            of = objective if debias == "reweigh" else f.risk
            models.append(local(f, theta, k, t, lr, local_epochs, batch_size, of))
        trace.add(combine(omega, models), group_risks(f, theta), client_weights=omega)
    return trace


# In PSG and SSG clients have no rows of some values, so that accuracies take their place.
@pytest.mark.parametrize("fairness", ["opportunity", "parity", "odds"])
@pytest.mark.parametrize(
    ("setting", "clients", "rows"), [("ESG", 4, ROWS), ("PSG", 5, ROWS), ("SSG", 9, PLACES)]
)
def test_algorithm_1(agree, setting, clients, rows, fairness):
    given = {"beta": 0.3, "fairness": fairness, "rounds": 4}
    agree("fairfed", setting, clients, fairfed, **given, **LOCAL, **rows)


@pytest.mark.parametrize("fairness", ["opportunity", "parity", "odds"])
def test_many_values_that_clients_share(agree, fairness):
    given = {"beta": 0.3, "fairness": fairness}
    agree("fairfed", "PSG", 3, fairfed, **given, **LOCAL, **PLACES)


# In PSG with places some clients have no rows of a value and a class; in SSG all have one cell.
@pytest.mark.parametrize(
    ("setting", "clients", "rows"), [("ESG", 4, ROWS), ("PSG", 3, PLACES), ("SSG", 9, PLACES)]
)
def test_reweighed_rows(agree, setting, clients, rows):
    given = {"beta": 0.3, "fairness": "opportunity", "debias": "reweigh"}
    agree("fairfed", setting, clients, fairfed, **given, **LOCAL, **rows)


def test_reweighed_cells_are_as_if_value_and_class_were_independent():
    counts = np.array([[30, 10, 5, 15], [4, 0, 2, 6], [0, 0, 0, 0]])  # value × class
    attribute = Attribute(np.array([0, 0, 1, 1]), np.array([False, True, False, True]))
    table = (counts * independence(attribute, counts)).reshape(3, 2, 2)
    np.testing.assert_allclose(table[0], np.outer([40, 20], [35, 25]) / 60)
    # of the second client no weight can fill the empty cell: the others are as they should be
    np.testing.assert_allclose(table[1], np.array([[4 * 6, 0], [8 * 6, 8 * 6]]) / 10)
    assert not table[2].any()


def test_a_weight_that_would_be_negative_is_0(run):
    history = run("fairfed", "PSG", 5, beta=5, **LOCAL, **ROWS).history
    weights = [[float(row[f"weight/client {k}"]) for k in range(5)] for row in history]
    assert min(map(min, weights)) == 0
    np.testing.assert_allclose(np.sum(weights, axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("setting", ["ESG", "SSG"])
def test_at_0_it_is_fedavg(run, same, setting):
    found = run("fairfed", setting, 5, beta=0, **LOCAL, **ROWS)
    same(found.theta(), run("fedavg", setting, 5, **LOCAL, **ROWS).theta(), **ROWS)


def test_clients_that_are_alike_keep_their_weights(train, tmp_path):
    """All have the fairness of the whole, whatever it is."""
    rng = np.random.default_rng(2)
    rows = [
        f"{u:.3f},{'ab'[i % 2]},{int(u + i % 2 > 0)}" for i, u in enumerate(rng.normal(size=40))
    ]
    copies = [f"{row},{who}" for who in "klm" for row in rows]
    (tmp_path / "copies.csv").write_text("\n".join(["u,g,y,who", *copies]) + "\n")
    (tmp_path / "test.csv").write_text("\n".join(["u,g,y,who", *copies[:40]]) + "\n")
    data = ["--dataset", f"csv:{tmp_path / 'copies.csv'}", "--test", tmp_path / "test.csv"]
    data += ["--target", "y", "--group", "g,y", "--client", "who", "--model", "logistic"]
    run = train(*data, "--method", "fairfed", "--beta", 1, "--rounds", 3, "--local-epochs", 1)
    np.testing.assert_allclose(run.result["client_weights"], 1 / 3, rtol=1e-12)


def test_groups_without_the_class_are_refused(run):
    with pytest.raises(UserError, match="needs groups that are an attribute and one of two"):
        run("fairfed", "ESG", 3, target="rich")
