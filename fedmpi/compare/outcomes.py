"""What each method left in each block: figures over seeds, paired tests, costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedmpi.bench.curve import Cost, cost_of
from fedmpi.compare.plan import Block, Cell, Request
from fedmpi.compare.ranks import Ranks, rank_methods
from fedmpi.compare.variants import Variant
from fedmpi.errors import UserError
from fedmpi.reproduce.gridfile import KeptRecord, runs_of
from fedmpi.reproduce.statistics import Means, means_of
from fedmpi.run.record import Record
from fedmpi.scoring.comparison import Difference, decide, difference
from fedmpi.scoring.replicates import Replicates, read_replicates
from fedmpi.significance import holm


@dataclass
class Outcome:
    """The runs of a method in a block, by seed."""

    block: Block
    variant: Variant
    cells: list[Cell]
    records: dict[int, Record]

    @property
    def failures(self) -> list[str]:
        """Why runs, or the folds of tuning, failed."""
        runs = [plan.failure for cell in self.cells for plan in cell.runs.values() if plan.failure]
        return runs + [cell.failure for cell in self.cells if cell.failure]

    @property
    def complete(self) -> bool:
        return len(self.records) == sum(len(cell.seeds) for cell in self.cells)

    @cached_property
    def replicates(self) -> dict[int, Replicates]:
        """Figures on replicates of the test rows, of the runs that have them."""
        found = {seed: read_replicates(r.folder) for seed, r in self.records.items()}
        return {seed: replicates for seed, replicates in found.items() if replicates}

    @cached_property
    def means(self) -> Means:
        """Means over the seeds, with intervals where they are known."""
        return means_of(list(self.records.values())) if self.records else {}

    @property
    def cost(self) -> Cost | None:
        """Mean over the seeds of what the runs have cost."""
        costs = [cost_of(record) for record in self.records.values()]
        return Cost(*np.mean(costs, axis=0).tolist()) if costs else None


@dataclass(frozen=True)
class Tested:
    """A method against the control: their difference, its p-value over all methods, the verdict."""

    difference: Difference
    p: float
    verdict: str


@dataclass
class Comparison:
    """Outcomes of all methods in all blocks."""

    criterion: str
    against: str
    blocks: list[Block]
    variants: list[Variant]
    outcomes: dict[tuple[Block, str], Outcome]
    tests: dict[tuple[Block, str], Tested] = field(default_factory=dict)
    untested: list[str] = field(default_factory=list)
    """Why methods with replicates have no test."""

    def of(self, block: Block) -> list[Outcome]:
        """Outcomes in a block, in the order of the methods; a method may not be there."""
        found = [self.outcomes.get((block, variant.text)) for variant in self.variants]
        return [outcome for outcome in found if outcome]

    def ranked(self) -> tuple[list[Variant], list[Block], Ranks]:
        """Federated methods, the blocks in which all of them are done, and the ranks there.

        A method that failed has the last rank of the block.
        """
        variants = [v for v in self.variants if not v.method.single_client]
        blocks, scores = [], []
        for block in self.blocks:
            row = [self.score(block, variant) for variant in variants]
            if None not in row:
                blocks.append(block)
                scores.append(row)
        table = np.array(scores, dtype=float).reshape(len(blocks), len(variants))
        return variants, blocks, rank_methods(tuple(v.text for v in variants), table)

    def score(self, block: Block, variant: Variant) -> float | None:
        """Mean risk of a method in a block; infinity if a run failed, None if it is not done."""
        outcome = self.outcomes.get((block, variant.text))
        if outcome and outcome.failures:
            return math.inf
        known = outcome.means if outcome and outcome.complete else {}
        mean = known.get(("risk", self.criterion))
        return mean.mean if mean else None


def compare(request: Request, cells: Sequence[Cell]) -> Comparison:
    """What is known by now of all cells."""
    found_runs = [r for dataset in request.bases for r in runs_of(request.folder(dataset))]
    kept = {record.folder: record for record in found_runs if isinstance(record, KeptRecord)}
    federated = [cell.block for cell in cells if not cell.variant.method.single_client]
    blocks = list(dict.fromkeys(federated or [cell.block for cell in cells]))
    outcomes: dict[tuple[Block, str], Outcome] = {}
    for block in blocks:
        for variant in request.variants:
            where = Block(block.dataset, "") if variant.method.single_client else block
            mine = [c for c in cells if c.variant == variant and c.block == where]
            records = {
                seed: record
                for cell in mine
                for seed, plan in sorted(cell.runs.items())
                if (record := plan.record() or kept.get(plan.folder))
            }
            if mine:
                outcomes[block, variant.text] = Outcome(block, variant, mine, records)
    found = Comparison(request.criterion, request.against, blocks, request.variants, outcomes)
    for block in blocks:
        found.tests |= {(block, name): test for name, test in tests_in(found, block).items()}
    return found


def tests_in(comparison: Comparison, block: Block) -> dict[str, Tested]:
    """Each method against the control in one block, Holm-corrected over the methods."""
    control = comparison.outcomes.get((block, comparison.against))
    if not control or not control.replicates:
        return {}
    differences: dict[str, Difference] = {}
    for outcome in comparison.of(block):
        name = outcome.variant.text
        if outcome is control or not outcome.replicates.keys() & control.replicates.keys():
            continue
        try:
            seeds = outcome.replicates, control.replicates
            differences[name] = difference(*seeds, comparison.criterion)
        except UserError as error:  # the rows of by:COLUMN are prepared by themselves
            comparison.untested.append(f"No test of {name} on {block.title}: {error}")
    verdicts = decide(differences)
    adjusted: Any = holm([d.p_different for d in differences.values()])
    return {
        name: Tested(d, float(p), verdicts[name])
        for (name, d), p in zip(differences.items(), adjusted, strict=True)
    }
