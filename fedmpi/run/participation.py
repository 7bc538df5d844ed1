"""Options of cohorts, and what is refused: --participation, --cohort, --availability.

How a cohort is drawn, and what its clients count for, is in federation/cohorts.py.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedmpi.errors import UserError
from fedmpi.methods.method import Method
from fedmpi.methods.option import COHORTS

NAMES = tuple(option.name for option in COHORTS)
COLUMNS = ["client", "probability"]
EXCLUDED = {
    "batch_rows": "its batches are of the rows of all clients",
    "until": "its bounds are of the rows of all clients",
    "dp_epsilon": "its accounting is of rounds that all clients take part in",
}
"""Options that cannot be with cohorts, and why."""


def settle_participation(a: argparse.Namespace, method: type[Method]) -> None:
    """Settle who takes part in a round, before other defaults are filled in; refuse mistakes.

    What asks for all clients is None, so that it is the run without cohorts. `a.clients` is None
    where only the data say how many there are: then the job checks the rest.
    """
    a.available = None
    for name in NAMES:
        vars(a).setdefault(name, None)
    given = [name for name in NAMES if getattr(a, name) is not None]
    if not given:
        return
    for option in COHORTS:
        if getattr(a, option.name) is not None:
            option.check(getattr(a, option.name))
    _refuse_method(a, method, given[0])
    if a.participation is not None and a.cohort is not None:
        raise UserError(
            f"--participation {a.participation:g} is a share of the clients, --cohort {a.cohort} "
            "their number: give one of them."
        )
    if a.availability is not None:
        a.available = read_availability(a.availability)
        a.availability_correction = a.availability_correction or "yes"
    elif a.availability_correction is not None:
        raise UserError("--availability-correction is for --availability FILE: give both.")
    vars(a).update(among_clients({name: getattr(a, name) for name in NAMES}, a.clients))
    given = [name for name in NAMES if getattr(a, name) is not None]
    if given:
        _refuse_options(a, given[0])
    if a.clients is not None and a.available:
        probabilities(a.available, numbered(a.clients))


def _refuse_method(a: argparse.Namespace, method: type[Method], given: str) -> None:
    """Raise a UserError for a method that is not defined with cohorts."""
    if method.option(given):
        return
    why = "is not defined where only some clients take part"
    if method.has_cohorts():
        why = "draws the clients of a round itself"
    elif method.single_client:
        why = "has one client, which takes part always"
    raise UserError(f"{_flag(given)}: --method {a.method} {why}: leave it out.")


def _refuse_options(a: argparse.Namespace, given: str) -> None:
    """Raise a UserError for options that would not be right with cohorts."""
    flag = _flag(given)
    for name, why in EXCLUDED.items():
        if getattr(a, name, None) is not None:
            raise UserError(f"{flag} and {_flag(name)}: {why}. Give one of them.")
    if getattr(a, "optimizer", None) == "newton":
        raise UserError(
            f"{flag} and --optimizer newton: its Hessian is of the rows of all clients. Use "
            "nesterov, adam or sgd."
        )
    if a.secure:
        raise UserError(
            f"{flag} and --secure: the differences of sums over cohorts tell of single clients. "
            "Give one of them."
        )


def among_clients(options: dict[str, Any], clients: int | None) -> dict[str, Any]:
    """Options without those that ask for all `clients`; a UserError for more than there are."""
    cohort = options.get("cohort")
    if cohort is not None and clients is not None and cohort > clients:
        raise UserError(f"--cohort {cohort}: there are {clients} clients; give at most that many.")
    everybody = {"participation": 1, "cohort": clients}
    return {
        name: None if value is not None and value == everybody.get(name) else value
        for name, value in options.items()
    }


def read_availability(path: str) -> dict[str, float]:
    """Read how often each client can take part: a CSV file with the columns client,probability."""
    available: dict[str, float] = {}
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file, skipinitialspace=True)
            if not set(COLUMNS) <= set(lines.fieldnames or ()):
                raise UserError(
                    f"--availability {path}: its first line must be {','.join(COLUMNS)}."
                )
            for line in lines:
                client, probability = ((line[name] or "").strip() for name in COLUMNS)
                if client in available:
                    raise UserError(f"--availability {path}: client {client} is there twice.")
                available[client] = _probability(path, client, probability)
            if not available:
                raise UserError(f"--availability {path} has no clients: give a line for each.")
    except OSError as error:
        raise UserError(f"--availability {path}: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"--availability {path} is not a CSV file ({error}).") from None
    return available


def _probability(path: str, client: str, text: str) -> float:
    try:
        p = float(text)
    except ValueError:
        p = math.nan
    if not 0 < p <= 1:
        raise UserError(
            f"--availability {path}: the probability of client {client} is {text!r}; it must be "
            "above 0 and at most 1."
        )
    return p


def numbered(clients: int) -> list[str]:
    """Names of clients that have none, as --availability has them."""
    return [str(k) for k in range(clients)]


def probabilities(available: dict[str, float], names: Sequence[str]) -> np.ndarray:
    """Probability of each client to be available; `names` are of all clients, in order."""
    missing = [name for name in names if name not in available]
    unknown = [name for name in available if name not in set(names)]
    if missing or unknown:
        wrong = f"has no line for client {missing[0]}" if missing else f"has client {unknown[0]!r}"
        known = f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        raise UserError(
            f"--availability {wrong}: give one line for each of the {len(names)} clients, {known}."
        )
    return np.array([available[name] for name in names])


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
