import pytest
from statements import Trace, combine, flat, gradient, group_risks, local, rho, shares, step

LOCAL = {"local_epochs": 2, "batch_size": 16}


def sign(x: float) -> int:
    return (x > 0) - (x < 0)


def factors(f, risks, p, penalty):
    """1 + lambda r / p: what a loss is multiplied by, by the rank of its client or group."""
    d = len(risks)
    scale = penalty * min(p) / (d - 1)
    return [
        1 + scale * sum(sign(a - b) for b in risks) / share
        for a, share in zip(risks, p, strict=True)
    ]


def gifair(f, rounds, lr, spread_penalty, gifair_level, local_epochs, batch_size):
    trace = Trace(f.theta)
    for t in range(1, rounds + 1):
        theta = trace.theta
        of_clients = [float(f.risk(theta, rows)) for rows in f.clients]
        of_groups = group_risks(f, theta)
        by_client = factors(f, of_clients, shares(f), spread_penalty)
        by_group = factors(f, of_groups, rho(f), spread_penalty)
        models = []
        for k in range(len(f.clients)):

            def objective(p, batch, k=k, by_client=by_client, by_group=by_group):
                if gifair_level == "client":
                    return by_client[k] * f.risk(p, batch)
                return sum(by_group[f.group[i]] * f.losses(p, [i])[0] for i in batch) / len(batch)

            models.append(local(f, theta, k, t, lr, local_epochs, batch_size, objective))
        new = combine(shares(f), models)
        if gifair_level == "client":
            weights = [p * factor for p, factor in zip(shares(f), by_client, strict=True)]
            trace.add(new, of_groups, client_weights=weights)
        else:
            weights = [p * factor for p, factor in zip(rho(f), by_group, strict=True)]
            trace.add(new, of_groups, weights)
    return trace


@pytest.mark.parametrize(("level", "penalty"), [("client", 0.9), ("group", 0.5)])
def test_statement(agree, case, level, penalty):
    setting, clients, options = case
    given = {"spread_penalty": penalty, "gifair_level": level, "lr": 0.2}
    agree("gifair", setting, clients, gifair, rounds=2, **given, **LOCAL, **options)


@pytest.mark.parametrize("level", ["client", "group"])
@pytest.mark.parametrize("setting", ["ESG", "SSG"])
def test_at_0_it_is_fedavg(run, same, level, setting):
    found = run("gifair", setting, 7, spread_penalty=0, gifair_level=level, **LOCAL)
    same(found.theta(), run("fedavg", setting, 7, **LOCAL).theta())


@pytest.mark.parametrize("level", ["client", "group"])
def test_one_full_batch_is_a_gradient_step_on_the_penalised_risk(people, run, same, level):
    """By autograd, on the objective as the paper writes it: no ranks, no factors."""
    f, theta = people.federation("PSG", 7), None

    def objective(p):
        if level == "client":
            L, share = [f.risk(p, rows) for rows in f.clients], shares(f)
        else:
            L, share = [f.risk(p, f.of_group(range(f.n), a)) for a in range(f.groups)], rho(f)
        d = len(L)
        spread = sum(abs(L[i] - L[j]) for i in range(d) for j in range(i))
        penalty = 0.8 * min(share) / (d - 1)
        return sum(s * r for s, r in zip(share, L, strict=True)) + penalty * spread

    theta = f.theta
    for _ in range(3):
        theta = step(theta, 0.5, gradient(theta, objective))
    one = {"local_epochs": 1, "batch_size": 1000, "spread_penalty": 0.8, "gifair_level": level}
    same(run("gifair", "PSG", 7, **one).theta(), flat(theta))


def test_one_client_has_nobody_to_be_compared_with(run, same):
    found = run("gifair", "ESG", 1, spread_penalty=0.9, gifair_level="client", **LOCAL)
    same(found.theta(), run("fedavg", "ESG", 1, **LOCAL).theta())
