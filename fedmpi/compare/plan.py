"""What is compared: cells of dataset, setting and method, and the runs of each."""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmpi import data as datasets
from fedmpi.compare.options import AIM
from fedmpi.compare.variants import Variant, check_options, groups_of, run_name, run_options
from fedmpi.data.options import DataOptions
from fedmpi.data.partition import SETTINGS
from fedmpi.data.settings import column_of
from fedmpi.errors import UserError
from fedmpi.federation.grid import Plan, look
from fedmpi.reproduce.gridfile import without_folder
from fedmpi.run.arguments import DATA_OPTIONS, DEFAULT_CLIENTS, resolve_options, short_name
from fedmpi.run.display import say

if TYPE_CHECKING:
    from fedmpi.tune import Choice

TUNED = "tuned.json"
"""File of what tuning has chosen: see tuning.py."""


@dataclass(frozen=True)
class Block:
    """A dataset in a setting: what the methods are compared on."""

    dataset: str
    setting: str
    """Nothing where the data say who holds which row."""

    @property
    def data(self) -> str:
        """The dataset in files, which name no folder."""
        return without_folder(self.dataset)

    @property
    def title(self) -> str:
        return f"{short_name(self.dataset)} {self.setting}".strip()


@dataclass
class Cell:
    """A method in a block, and the seeds that share a choice of its options."""

    block: Block
    """Without a setting for a method of one client, which stands in all blocks of its dataset."""
    variant: Variant
    seeds: list[int]
    clients: int | None = None
    """K, where the settings split the rows and no column names the clients."""
    follows: Cell | None = None
    """The cell, of another K, whose choice this one takes over."""
    candidates: list[Choice] = field(default_factory=list)
    """Options to try, with a run for each fold; one candidate needs no folds."""
    chosen: dict[str, Any] | None = None
    """The best candidate; None until tuning is done, and if nothing can be chosen."""
    failure: str | None = None
    """Why nothing can be chosen."""
    entry: dict[str, Any] | None = None
    """What tuned.json says of the cell."""
    runs: dict[int, Plan] = field(default_factory=dict)
    """Runs with the chosen options, by seed."""

    @property
    def title(self) -> str:
        clients = f" k{self.clients}" if self.follows else ""
        return f"{self.block.title} {self.variant.text}{clients}"

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What the cell is known by in tuned.json."""
        return self.block.data, self.block.setting, self.variant.text, self.seeds[0]


@dataclass
class Request:
    """The command line."""

    bases: dict[str, argparse.Namespace]
    """Options of fedmpi.train for all runs on a dataset."""
    variants: list[Variant]
    named: bool
    """Whether the user names the methods; otherwise they are all."""
    settings: list[str]
    """As the user names them; nothing for the paper's three."""
    seeds: list[int]
    clients: int | None
    local_rounds: int | None
    criterion: str
    tune_by: str
    budget: int
    """Candidates of each cell; 1 takes the defaults."""
    folds: int
    every_seed: bool
    against: str
    """Method that the others are tested against, as one of the variants."""
    output: Path
    progress: str
    force: bool
    tables_only: bool
    at_once: int

    def criterion_of(self, cell: Cell) -> str:
        """The validation risk that a cell's options are chosen by."""
        return cell.variant.method.aim if self.tune_by == AIM else self.tune_by

    def folder(self, dataset: str) -> Path:
        """Folder of a dataset's runs, and of the grid file that keeps them."""
        return self.output / short_name(dataset)

    def adapt(self, a: argparse.Namespace, variant: Variant) -> None:
        """Change the options of a run in place: a command that is not for all runs alike does."""

    @property
    def tuning(self) -> str:
        """How the options were chosen, in words."""
        if self.budget == 1:
            return "every method has its defaults"
        whose = {
            AIM: "the worst group's (methods with an adversary) or the groups' average (others)",
            "worst": "the worst group's",
            "average": "the groups' average",
        }[self.tune_by]
        seeds = "each seed" if self.every_seed else f"seed {self.seeds[0]}"
        return (
            f"every method tries up to {self.budget} configurations, its defaults among them, on "
            f"{self.folds} folds of the training rows of {seeds}; the lowest mean of {whose} "
            "validation risk is chosen"
        )


def bases_of(a: argparse.Namespace, names: list[str]) -> dict[str, argparse.Namespace]:
    """Options for each dataset: an option of the data goes to the datasets that it is for."""
    found = {name: datasets.find(name) for name in names}
    short = {short_name(name) for name in found}
    if len(short) < len(found):
        raise UserError(f"--datasets: two of {', '.join(found)} have one name; rename a file.")
    for option in DATA_OPTIONS:
        if getattr(a, option) is not None and not any(option in d.uses for d in found.values()):
            flag = option.replace("_", "-")
            raise UserError(f"--{flag} does nothing with these --datasets: leave it out.")
    bases = {}
    for dataset in found.values():
        base = bases[dataset.name] = copy.deepcopy(a)
        base.dataset = dataset.name
        for option in DATA_OPTIONS:
            if option not in dataset.uses:
                setattr(base, option, None)
    return bases


def plan_cells(request: Request) -> list[Cell]:
    """All cells; with `every_seed`, one for each seed.

    A method that cannot be run on some data is left out there. Raise a UserError for a method that
    the user names and that is left out everywhere, and if no federated method is left.
    """
    cells: list[Cell] = []
    why: dict[Variant, UserError] = {}
    left_out: dict[tuple[str, str, str], list[str]] = {}
    for name, base in request.bases.items():
        check_options(base, request.variants)
        blocks = blocks_of(base, request.settings)
        together = [[seed] for seed in request.seeds] if request.every_seed else [request.seeds]
        for variant in request.variants:
            single = variant.method.single_client
            for block in [Block(name, "")] if single else blocks:
                clients = clients_of(request, block, single)
                found = [Cell(block, variant, seeds, clients) for seeds in together]
                if error := refusal(request, found[0]):
                    why.setdefault(variant, error)
                    left_out.setdefault((name, variant.text, str(error)), []).append(block.setting)
                else:
                    cells += found
    there = {cell.variant for cell in cells}
    missing = [error for variant, error in why.items() if variant not in there]
    if missing and (request.named or all(variant.method.single_client for variant in there)):
        raise missing[0]
    for (name, text, because), settings in left_out.items():
        where = " ".join(filter(None, (short_name(name), ", ".join(settings))))
        say(f"{where}: {text} is left out: {because}")
    return cells


def refusal(request: Request, cell: Cell) -> UserError | None:
    """Why the runs of a cell cannot be; None if they can."""
    try:
        for seed in request.seeds:
            resolve_options(options_of(request, cell, seed), 1, one_process=False)
    except UserError as error:
        return error
    return None


def blocks_of(base: argparse.Namespace, settings: list[str]) -> list[Block]:
    """Blocks of a dataset; PSG is left out where it is the same as SSG."""
    if owned(base):
        if settings:
            say(f"{base.dataset} says who holds which rows: it has no settings")
        return [Block(base.dataset, "")]
    blocks = [Block(base.dataset, setting) for setting in settings or SETTINGS]
    if any(block.setting == "PSG" for block in blocks) and len(groups_of(base)) < 3:
        if settings:
            say(f"{base.dataset} PSG is left out: on two groups it is the same as SSG")
        blocks = [block for block in blocks if block.setting != "PSG"]
    if not blocks:
        raise UserError(f"no setting is left for {base.dataset}: add --settings ESG or SSG.")
    return blocks


def owned(base: argparse.Namespace) -> bool:
    """Whether the data say who holds which row, so that no setting does."""
    return datasets.find(base.dataset).owned(DataOptions(client=base.client))


def clients_of(request: Request, block: Block, single: bool) -> int | None:
    """K of the runs in a block; None where the data, or the values of a column, say it."""
    if owned(request.bases[block.dataset]):
        return None
    if request.clients is None and not single and column_of(block.setting):
        return None
    return DEFAULT_CLIENTS if request.clients is None else request.clients


def options_of(request: Request, cell: Cell, seed: int) -> argparse.Namespace:
    """Options of a run of a cell, before anything is tuned."""
    base, single = request.bases[cell.block.dataset], cell.variant.method.single_client
    setting = None if owned(base) else "ESG" if single else cell.block.setting
    a = run_options(base, cell.variant, setting, seed, cell.clients, request.local_rounds)
    a.skew = a.skew if setting in SETTINGS else None
    request.adapt(a, cell.variant)
    return a


def plan_runs(request: Request, cell: Cell) -> None:
    """Plan a run for each seed of a cell with the chosen options, and look for it on the disk."""
    for seed in cell.seeds:
        a = options_of(request, cell, seed)
        name = run_name(a, cell.variant)
        vars(a).update(cell.chosen or {})
        a.output = str(request.folder(cell.block.dataset) / "runs" / name)
        config = resolve_options(a, 1, one_process=False)
        if cell.entry:
            tuned = str(request.output / TUNED)
            config = config.replace(tuned=tuned, tuned_options=tuple(cell.chosen or ()))
        plan = cell.runs[seed] = Plan(config, f"{cell.title} s{seed}")
        look_up(plan, request.force)


def look_up(plan: Plan, force: bool) -> None:
    """Look for a run on the disk; with `force`, a run of another configuration is replaced."""
    try:
        look(plan)
    except UserError:
        if not force:
            raise
        plan.config = plan.config.replace(force=True)
