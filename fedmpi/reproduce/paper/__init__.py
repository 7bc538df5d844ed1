"""The paper's tables as data: the printed numbers, to three digits, and nothing derived.

risks.csv has the test risks (mean and standard deviation over three runs), weights.csv the final
group weights. A dataset's name with "(local vs global)" is of the tables that compare FedMinMax
with LocalFedMinMax; a setting that is blank is the centralized baseline's. The paper heads
FashionMNIST's columns there with CIFAR-10's classes; here FashionMNIST's own stand, in order.

    python -m fedmpi.reproduce.paper     # do the tables agree with themselves, and with the claims?
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

LOCAL_GLOBAL = " (local vs global)"
CLIENTS = 40


@dataclass(frozen=True)
class Printed:
    """One number of a table."""

    dataset: str
    clients: int
    setting: str
    method: str
    parameter: str
    group: str
    mean: float
    std: float | None
    """None in the tables of weights, which print no deviations."""


@cache
def printed(kind: str) -> tuple[Printed, ...]:
    """All numbers of a kind, "risk" or "weight"."""
    name, value = {"risk": ("risks.csv", "mean"), "weight": ("weights.csv", "weight")}[kind]
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    return tuple(
        Printed(
            row["dataset"],
            int(row["clients"]),
            row["setting"],
            row["method"],
            row["parameter"],
            row["group"],
            float(row[value]),
            float(row["std"]) if "std" in row else None,
        )
        for row in csv.DictReader(text.splitlines())
    )


def lookup(
    kind: str, dataset: str, clients: int, setting: str, method: str, parameter: str, group: str
) -> Printed | None:
    """The number that the paper prints for this, or None.

    Where the paper names no parameter (a tuned one), any value of ours is compared; where the paper
    names one, the same value, or a tuned one of ours: with the first that the paper prints. (The
    paper does not say what TERM's t tilts: both of our variants are compared.) The tables of
    LocalFedMinMax are asked where the main tables have no answer.
    """
    own = [word for word in parameter.split(", ") if "=" in word]
    names = own or _parameters(dataset, method)
    for name in (dataset, dataset + LOCAL_GLOBAL):
        for named in ("", *names[:1]):
            number = _index(kind).get((name, clients, setting, method, named, group))
            if number:
                return number
    return None


@cache
def _parameters(dataset: str, method: str) -> list[str]:
    """Parameters that the paper names for a method on a dataset, in its order."""
    found = [p.parameter for p in printed("risk") if (p.dataset, p.method) == (dataset, method)]
    return list(dict.fromkeys(filter(None, found)))


@cache
def _index(kind: str) -> dict[tuple, Printed]:
    return {
        (p.dataset, p.clients, p.setting, p.method, p.parameter, p.group): p for p in printed(kind)
    }
