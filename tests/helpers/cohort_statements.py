"""Methods again, as the papers state them, where only some clients take part in a round.

As in statements.py: loops over clients, groups and batches. `drawn` has the clients of each round,
from the program, and their probabilities pi_k of inclusion, which are computed here.
"""

import math

from statements import (
    Federation,
    Trace,
    combine,
    gradient,
    local,
    project,
    rho,
    shares,
    step,
)

Drawn = list[dict[int, float]]
"""Of each round, pi_k of each client that takes part."""


def moved(theta, coefficients, models):
    """Theta + sum of coefficient times (model - theta)."""
    differences = [[m - p for m, p in zip(model, theta, strict=True)] for model in models]
    return (
        [p + d for p, d in zip(theta, combine(coefficients, differences), strict=True)]
        if models
        else theta
    )


def fedminmax(f: Federation, drawn: Drawn, lr: float, lr_mu: float, epsilon: float) -> Trace:
    mu, trace = rho(f), Trace(f.theta)
    for cohort in drawn:
        theta, w = trace.theta, [m / r for m, r in zip(mu, rho(f), strict=True)]
        models, risks = [], [0.0] * f.groups
        for k, pi in cohort.items():

            def r_k(theta, k=k, w=w):
                rows = f.clients[k]
                return sum(w[f.group[i]] * f.risk(theta, [i]) for i in rows) / len(rows)

            models.append(step(theta, lr, gradient(theta, r_k)))
            for i in f.clients[k]:
                a = f.group[i]
                risks[a] += float(f.risk(theta, [i])) / f.n_a(a) / pi
        if cohort:
            mu = project([m + lr_mu * r for m, r in zip(mu, risks, strict=True)], epsilon)
        inverse = [len(f.clients[k]) / f.n / pi for k, pi in cohort.items()]
        trace.add(moved(theta, inverse, models), risks, mu)
    return trace


def afl(f: Federation, drawn: Drawn, lr: float, lr_mu: float) -> Trace:
    lambda_, trace = shares(f), Trace(f.theta)
    for cohort in drawn:
        theta = trace.theta
        models = [
            step(theta, lr, gradient(theta, lambda theta, k=k: f.risk(theta, f.clients[k])))
            for k in cohort
        ]
        new = moved(theta, [lambda_[k] / pi for k, pi in cohort.items()], models)
        v = [0.0] * len(f.clients)
        for k, pi in cohort.items():
            v[k] = float(f.risk(theta, f.clients[k])) / pi
        lambda_ = project([x + lr_mu * r for x, r in zip(lambda_, v, strict=True)], 0.0)
        trace.add(new, [], (), lambda_)
    return trace


def fedavg(f: Federation, drawn: Drawn, lr: float, local_epochs: int, batch_size: int) -> Trace:
    """McMahan's mean over the cohort; n_k / pi_k in place of n_k, if the pi_k differ."""
    trace = Trace(f.theta)
    for t, cohort in enumerate(drawn, 1):
        theta = trace.theta
        models = [local(f, theta, k, t, lr, local_epochs, batch_size, f.risk) for k in cohort]
        weights = [len(f.clients[k]) / pi for k, pi in cohort.items()]
        trace.add(moved(theta, [w / sum(weights) for w in weights], models), [])
    return trace


def term(
    f: Federation, drawn: Drawn, lr: float, local_epochs: int, batch_size: int, tilt: float
) -> Trace:
    trace = Trace(f.theta)
    for t, cohort in enumerate(drawn, 1):
        theta, models, tilted = trace.theta, [], {}
        for k, pi in cohort.items():
            loss = float(f.risk(theta, f.clients[k]))
            tilted[k] = len(f.clients[k]) / pi * math.exp(tilt * loss)
            models.append(local(f, theta, k, t, lr, local_epochs, batch_size, f.risk))
        v = {k: tilted[k] / sum(tilted.values()) for k in cohort}
        of_clients = [v.get(k, 0.0) for k in range(len(f.clients))]
        trace.add(moved(theta, list(v.values()), models), [], (), of_clients)
    return trace


def qfedavg(
    f: Federation, drawn: Drawn, lr: float, local_epochs: int, batch_size: int, q: float
) -> Trace:
    trace = Trace(f.theta)
    for t, cohort in enumerate(drawn, 1):
        theta, deltas, h = trace.theta, [], 0.0
        for k, pi in cohort.items():
            loss = float(f.risk(theta, f.clients[k]))
            theta_k = local(f, theta, k, t, lr, local_epochs, batch_size, f.risk)
            g = [(p - p_k) / lr for p, p_k in zip(theta, theta_k, strict=True)]
            deltas.append([loss**q / pi * p for p in g])
            squared_norm = sum(float((p * p).sum()) for p in g)
            h += (q * loss ** (q - 1) * squared_norm + loss**q / lr) / pi
        new = step(theta, 1 / h, combine([1.0] * len(deltas), deltas)) if deltas else theta
        trace.add(new, [])
    return trace


METHODS = {method.__name__: method for method in (fedminmax, afl, fedavg, term, qfedavg)}
