import numpy as np
import pytest
from statements import combine, flat, local, shares

LOCAL = {"local_epochs": 2, "batch_size": 16}
LARGE = 1e6


@pytest.mark.parametrize("level", ["client", "sample"])
@pytest.mark.parametrize("tilt", [0.1, 3.0])
def test_statement(agree, case, level, tilt):
    setting, clients, options = case
    agree("term", setting, clients, tilt=tilt, tilt_level=level, **LOCAL, **options)


@pytest.mark.parametrize("level", ["client", "sample"])
@pytest.mark.parametrize("setting", ["ESG", "PSG", "SSG"])
def test_at_0_it_is_fedavg(run, same, level, setting):
    term = run("term", setting, 7, tilt=0, tilt_level=level, **LOCAL)
    same(term.theta(), run("fedavg", setting, 7, **LOCAL).theta())


@pytest.mark.parametrize("setting", ["ESG", "PSG", "SSG"])
def test_a_large_tilt_follows_the_worst_client(people, run, same, setting):
    f = people.federation(setting, 7)
    theta = f.theta
    for t in range(1, 4):
        risks = [float(f.risk(theta, rows)) for rows in f.clients]
        theta = local(f, theta, int(np.argmax(risks)), t, 0.5, 2, 16, f.risk)
    found = run("term", setting, 7, tilt=LARGE, tilt_level="client", **LOCAL)
    same(found.theta(), flat(theta))


def test_a_large_tilt_over_rows_follows_the_worst_row_of_a_batch(people, run, same):
    f = people.federation("PSG", 7)
    theta = f.theta
    for t in range(1, 4):
        trained = [
            local(f, theta, k, t, 0.05, 1, 16, lambda p, batch: f.losses(p, batch).max())
            for k in range(7)
        ]
        theta = combine(shares(f), trained)
    options = {"lr": 0.05, "local_epochs": 1, "batch_size": 16}
    found = run("term", "PSG", 7, tilt=LARGE, tilt_level="sample", **options)
    same(found.theta(), flat(theta))


def test_one_client_has_all_the_weight(agree):
    agree("term", "ESG", 1, tilt=3.0, tilt_level="client", **LOCAL)
