"""The runs of a grid: each method with options of its own, as `qfedavg,q=5`, and the others'."""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmpi import data as datasets
from fedmpi import methods
from fedmpi.data.options import options_from
from fedmpi.data.prepare import prepare
from fedmpi.data.settings import in_a_path
from fedmpi.errors import UserError
from fedmpi.methods.method import Method
from fedmpi.run.arguments import DEFAULT_CLIENTS, short_name
from fedmpi.run.arguments import parser as train_parser


@dataclass(frozen=True)
class Variant:
    """A method, and the options that it alone is run with."""

    text: str
    """As the user gives it: `qfedavg,q=5`."""
    name: str
    own: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def method(self) -> type[Method]:
        return methods.find(self.name)

    @property
    def label(self) -> str:
        """Name of the variant in the names of folders."""
        own = [f"{option}={value}" for option, value in self.own.items()]
        return "-".join([self.name.rpartition(":")[2], *own])


def read_variant(text: str) -> Variant:
    """Read a method and its options, as in `qfedavg,q=5`."""
    name, *pairs = text.split(",")
    methods.find(name)
    own: dict[str, Any] = {}
    for pair in pairs:
        option, sign, value = pair.partition("=")
        if not sign:
            raise UserError(f"--methods {text}: give options as in qfedavg,q=5.")
        given = train_parser(name).parse_args(["--dataset", "x", f"--{option}={value}"])
        key = option.replace("-", "_")
        own[key] = getattr(given, key)
    return Variant(text, name, own)


def check_options(base: argparse.Namespace, variants: list[Variant]) -> None:
    """Refuse an option that no method of the grid has a use for."""
    chosen = [variant.method for variant in variants]
    for name, option in methods.all_options().items():
        users = [m for m in chosen if (own := m.option(name)) and m.sets_by_itself(own)]
        if getattr(base, name) is not None and not users:
            raise UserError(f"{option.flag} does nothing with these --methods: leave it out.")


def run_options(
    base: argparse.Namespace,
    variant: Variant,
    setting: str | None,
    seed: int,
    clients: int | None,
    local_rounds: int | None,
) -> argparse.Namespace:
    """Options of one run: those of the grid that the method has a use for, and the variant's."""
    a = copy.deepcopy(base)
    a.method, a.setting, a.seed, a.clients = variant.name, setting, seed, clients
    method = variant.method
    for name in methods.all_options(variant.name):
        option = method.option(name)
        if not option or not method.sets_by_itself(option):
            setattr(a, name, None)
    if method.trains_locally and local_rounds is not None:
        a.rounds = local_rounds
    vars(a).update(variant.own)
    return a


def run_name(a: argparse.Namespace, variant: Variant) -> str:
    """Name of the folder of a run of these options."""
    single = variant.method.single_client
    where = "" if single or not a.setting else f"-{in_a_path(a.setting)}"
    many = f"-k{a.clients}" if a.clients not in (DEFAULT_CLIENTS, None) and not single else ""
    return f"{short_name(a.dataset)}{where}-{variant.label}-s{a.seed}{many}"


def groups_of(base: argparse.Namespace) -> tuple[str, ...]:
    """Names of the groups of a dataset, which is prepared if they are not known before."""
    dataset = datasets.find(base.dataset)
    if dataset.groups:
        return dataset.groups
    a = copy.copy(base)
    a.seed = 0 if a.seed is None else a.seed
    return prepare(dataset, Path(a.data_dir), options_from(a)).groups


def unique(values: list) -> list:
    """`values` without repetitions, in order."""
    return list(dict.fromkeys(values))
