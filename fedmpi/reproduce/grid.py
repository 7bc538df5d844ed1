"""The grid of the paper: its methods, settings and numbers of clients, as a comparison."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from fedmpi import data as datasets
from fedmpi.compare.plan import Cell, plan_cells
from fedmpi.compare.plan import Request as Comparison
from fedmpi.compare.variants import Variant
from fedmpi.reproduce.statistics import PAPER
from fedmpi.run.arguments import short_name

VARIANTS = {"term": ("term", "term,tilt-level=sample")}
"""Methods that are run more than once: what TERM's t tilts the paper does not say."""
EXTRA = {"synthetic": ("qfedavg,q=5",)}
"""Variants that the paper's table of a dataset has beside the methods; tuning chooses q itself."""
LOCAL_GLOBAL = ("fedminmax", "localfedminmax")
PAPER_STEPS = "paper-steps"
"""Folder, beside those of the datasets, of the results with the paper's fixed steps."""
QUICK_STEPS = 150
"""Rounds of --solver fast on images in a quick look: a tenth."""
QUICK_ROWS = 4000
"""Images to train and to test on in a quick look: an image costs as much as a thousand people."""


@dataclass
class Request(Comparison):
    """The command line: a comparison on one dataset."""

    fewer_clients: list[int] = field(default_factory=list)
    """K beside the K of the tables, for local against global groups."""
    quick: bool = False

    @property
    def dataset(self) -> str:
        (name,) = self.bases
        return name

    @property
    def paper_steps(self) -> Path | None:
        """Folder of the same results with the paper's fixed steps; None if these are they."""
        parent = self.output.parent
        return None if parent.name == PAPER_STEPS else parent / PAPER_STEPS / self.output.name

    def folder(self, dataset: str) -> Path:
        return self.output

    def adapt(self, a: argparse.Namespace, variant: Variant) -> None:
        if self.quick:
            make_quick(a, variant.method.trains_locally)


def folder_name(dataset: str, solver: str, quick: bool) -> Path:
    """Folder of the results, below that of all results."""
    name = short_name(dataset) + ("-quick" if quick else "")
    return Path(PAPER_STEPS, name) if solver == "paper" else Path(name)


def methods_of(dataset: str, solver: str) -> list[str]:
    """Methods of the paper's tables, in their order, and what the dataset's table adds."""
    found = [variant for name in PAPER for variant in VARIANTS.get(name, (name,))]
    return [*found, *(EXTRA.get(dataset, ()) if solver == "paper" else ())]


def control(variants: list[Variant]) -> str:
    """The method that the others are tested against: FedMinMax, or the first."""
    names = [variant.text for variant in variants]
    return "fedminmax" if "fedminmax" in names else names[0]


def plan_grid(request: Request) -> list[Cell]:
    """All cells; with fewer clients, those of local against global groups, tuned with the most."""
    cells = plan_cells(request)
    followed = [c for c in cells if c.variant.text in LOCAL_GLOBAL]
    for clients in request.fewer_clients:
        cells += [Cell(c.block, c.variant, c.seeds, clients, follows=c) for c in followed]
    return cells


def make_quick(a: argparse.Namespace, local: bool) -> None:
    """Shorten a run from minutes to seconds, in place: fewer rounds, epochs and images."""
    preset = datasets.find(a.dataset).preset
    images = (a.model or preset.model) in ("cnn", "resnet18", "resnet18-cifar")
    if local:
        a.rounds = a.rounds or max(3, preset.local_rounds // 10)
        a.local_epochs = a.local_epochs or min(3, preset.local_epochs)
    elif a.solver == "paper":
        a.rounds = a.rounds or max(20, preset.rounds // 30)
    elif images:
        a.rounds = a.rounds or QUICK_STEPS
    if images:
        a.limit_train = a.limit_train or QUICK_ROWS
        a.limit_test = a.limit_test or QUICK_ROWS
