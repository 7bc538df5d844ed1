"""The contents of result.json."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmpi.data.partition import Partition
from fedmpi.federation.metrics import Metric, Sums, figures
from fedmpi.intervals import pair, risk_interval, simultaneous, wilson
from fedmpi.methods.method import Method
from fedmpi.run.config import Config
from fedmpi.scoring.scores import PersonalScores, Scores

MANY = 100
"""Number of client weights above which they are kept in weights.npz only."""


def result_of(
    config: Config,
    method: Method,
    partition: Partition,
    scores: Scores,
    last: Scores,
    costs: dict,
    fairness: dict | None = None,
    metrics: Sequence[Metric] = (),
) -> dict:
    """Contents of result.json; `scores` are of the model that the method reports.

    Average is the mean over the groups, each group counted once. Groups without test rows have no
    risk, and no part in worst, best and average.
    """
    tested = scores.rows > 0
    z = simultaneous(int(tested.sum()))  # of the worst group, which the same rows have chosen
    risk, accuracy = scores.risk[tested], scores.accuracy[tested]
    names = np.array(partition.groups)[tested]
    losses = scores.losses, scores.squares, scores.rows
    result = {
        "method": config.method,
        "dataset": config.dataset,
        "setting": config.setting,
        "clients": config.clients,
        "rounds": config.rounds,
        "seed": config.seed,
        "model": "last" if method.average == "last" else "averaged",
        "groups": _groups(method, partition, scores, last, metrics),
        "worst_group": str(names[np.argmax(risk)]),
        "best_group": str(names[np.argmin(risk)]),
        "worst_risk": float(risk.max()),
        "worst_risk_interval": pair(risk_interval(*losses, z)[tested].max(axis=0)),
        "best_risk": float(risk.min()),
        "average_risk": float(risk.mean()),
        "least_accurate_group": str(names[np.argmin(accuracy)]),
        "most_accurate_group": str(names[np.argmax(accuracy)]),
        "worst_accuracy": float(accuracy.min()),
        "worst_accuracy_interval": pair(wilson(scores.right, scores.rows, z)[tested].min(axis=0)),
        "best_accuracy": float(accuracy.max()),
        "average_accuracy": float(accuracy.mean()),
        "fairness": fairness,
        **costs,
    }
    weights = method.client_weights()
    if weights is not None and weights.size <= MANY:
        result["client_weights"] = weights.tolist()
    return result


def personal_of(groups: Sequence[str], scores: PersonalScores) -> dict:
    """Section `personal` of result.json: the clients' own models, by group of the federation."""
    own, of_global = scores.own, scores.of_global
    scored = own.rows > 0
    risk, accuracy = own.risk[scored], own.accuracy[scored]
    return {
        "rows": scores.split,
        "groups": {
            name: {
                "rows": int(own.rows[a]),
                "risk": float(own.risk[a]),
                "accuracy": float(own.accuracy[a]),
                "global_risk": float(of_global.risk[a]),
                "global_accuracy": float(of_global.accuracy[a]),
            }
            for a, name in enumerate(groups)
        },
        "worst_group": str(np.array(groups)[scored][np.argmax(risk)]),
        "worst_risk": float(risk.max()),
        "average_risk": float(risk.mean()),
        "worst_accuracy": float(accuracy.min()),
        "average_accuracy": float(accuracy.mean()),
    }


def _groups(
    method: Method,
    partition: Partition,
    scores: Scores,
    last: Scores,
    metrics: Sequence[Metric],
) -> dict:
    weights = method.group_weights()
    risk_intervals = risk_interval(scores.losses, scores.squares, scores.rows)
    accuracy_intervals = wilson(scores.right, scores.rows)
    sums = Sums.by(scores, {name: [a] for a, name in enumerate(partition.groups)})
    return {
        name: {
            "n_train": int(partition.group_sizes[a]),
            "n_test": int(scores.rows[a]),
            "risk": float(scores.risk[a]),
            "risk_error": float(scores.risk_error[a]),
            "risk_interval": pair(risk_intervals[a]),
            "accuracy": float(scores.accuracy[a]),
            "accuracy_interval": pair(accuracy_intervals[a]),
            "weight": float(weights[a]) if weights is not None else None,
            "risk_last": float(last.risk[a]),
            "accuracy_last": float(last.accuracy[a]),
            "confusion": scores.confusion[a].tolist(),
        }
        | ({"metrics": figures(metrics, sums[name])} if metrics else {})
        for a, name in enumerate(partition.groups)
    }
