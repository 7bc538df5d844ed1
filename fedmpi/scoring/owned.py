"""A model evaluated on files that stay with their owners: csv:DIR/, a file for each owner.

A rank reads the files of the owners on its host, scores their rows, and adds the sums to those of
the other ranks: losses, squares and confusion by group (for some --metrics, histograms of scores),
and counts of what was odd. Nothing else of a row leaves the rank, and no cell is in a message, as
in training (data/owners.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedmpi.data.agreement import Owner
from fedmpi.data.files import owners_files
from fedmpi.data.owners import Aside, OverRanks, find_owners, my_owners, told_in_training
from fedmpi.mpi import start
from fedmpi.mpi.ranks import Ranks
from fedmpi.scoring.chunks import open_table
from fedmpi.scoring.evaluation import add_scores
from fedmpi.scoring.inputs import Tally
from fedmpi.scoring.model import Model, file_of
from fedmpi.scoring.scores import Scores
from fedmpi.scoring.sources import TableRows, labels_of, wanted_columns


def load_on_every_rank(
    ranks: Ranks, path: str, weights: str | None, architecture: str | None
) -> Model:
    """Return the server's model on every rank: a host of an owner need not have the run."""

    def content() -> bytes:
        model = Model.load(path, weights, architecture)
        labels_of(model)
        return file_of(path).read_bytes()

    return Model.load(path, weights, architecture, ranks.on_server(content))


def evaluate_owned(
    ranks: Ranks, model: Model, folder: Path, histograms: bool = False
) -> tuple[Scores, Tally]:
    """Return the sums over the rows of all owners, on the server; call on every rank."""
    names, hosted = find_owners(ranks, folder)
    mine = my_owners(ranks, names, hosted)
    owners = [Owner(name, keep=Aside(folder, name).keep) for name in mine]
    start.tell_instead = lambda error: told_in_training(error, owners, ranks.host)
    scores, total = Scores(len(model.groups), len(model.classes), histograms), Tally()
    wanted = wanted_columns(model, labelled=True)

    files = owners_files(folder) if mine else {}

    def score(owner: Owner) -> None:
        tally = Tally()
        source = TableRows(open_table(str(files[owner.name])), wanted, tally)
        add_scores(model, source, scores, tally)
        for line in tally.lines():
            owner.keep(line)
        total.add(tally)

    OverRanks(ranks, owners)(score, len)
    assert model.encoding
    columns = list(model.encoding.columns)
    vector = total.to_vector(columns)
    sums = np.concatenate([scores.sums, vector])
    ranks.wait(ranks.Ireduce(sums))
    scores.sums[:] = sums[: len(scores.sums)]
    return scores, Tally.from_vector(sums[len(scores.sums) :], columns)
