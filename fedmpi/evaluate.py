"""Evaluate the model of a run on other labelled rows: the groups' figures, rates, and intervals.

    python -m fedmpi.evaluate runs/csv-loans-ESG-fedminmax-s0 labelled.csv
    python -m fedmpi.evaluate RUN test                # the run's own test rows
    python -m fedmpi.evaluate RUN labelled.csv --output figures.json

The file has the columns of the training data: those of the inputs, the target and the groups.
Files that stay with their owners, each DIR/<owner>.csv read by a rank on the host that has it, and
only sums leave that rank:

    mpirun -n 4 python -m fedmpi.evaluate RUN csv:DIR/

Intervals are of 95%: Wilson's of rates, the normal one of risks. --metrics auc,odds adds figures of
groups, as in training.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedmpi.data.options import names_of_list
from fedmpi.errors import UserError
from fedmpi.mpi.launcher import process_number
from fedmpi.predict import add_model_options, check_output

if TYPE_CHECKING:
    from fedmpi.federation.metrics import Metric
    from fedmpi.mpi.ranks import Ranks
    from fedmpi.scoring.inputs import Tally
    from fedmpi.scoring.model import Model
    from fedmpi.scoring.scores import Scores


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fedmpi.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(parser)
    parser.add_argument(
        "rows", metavar="FILE", help="a .csv or .npz file, -, test, or csv:DIR/ of owners"
    )
    parser.add_argument("--output", default="-", metavar="FILE", help="the figures as JSON, too")
    text = "auc, calibration, odds, opportunity, parity, or your own, as in training"
    parser.add_argument("--metrics", type=names_of_list, default=(), metavar="NAMES", help=text)
    parser.add_argument("--force", action="store_true", help="replace the output file")
    return parser


def main(argv: list[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    if any(word.startswith("csv:") for word in given):
        from fedmpi.mpi.start import start

        return over_ranks(start(), given)
    try:
        if process_number() > 0:
            return 0  # the first process speaks
        args = read_command_line(given)
        model, scores, tally = evaluate_here(args)
        tell(model, scores, tally, args)
    except UserError as error:
        print(f"fedmpi: {error}", file=sys.stderr)
        return 2
    return 0


def read_command_line(given: list[str]) -> argparse.Namespace:
    """Return the options; UserError for an output that cannot be written."""
    args = parser().parse_args(given)
    check_output(args.output, args.force)
    return args


def wanted_metrics(args: argparse.Namespace, model: Model) -> list[Metric]:
    """The metrics that the user names; UserError for what is none, or not for this model."""
    from fedmpi.federation import metrics

    found = metrics.find(args.metrics)
    metrics.check(found, args.metrics, len(model.groups), len(model.classes))
    return found


def evaluate_here(args: argparse.Namespace) -> tuple[Model, Scores, Tally]:
    """Return the model, and the sums and counts of rows that this process reads."""
    from fedmpi.scoring.evaluation import add_scores
    from fedmpi.scoring.inputs import Tally
    from fedmpi.scoring.model import Model
    from fedmpi.scoring.scores import Scores
    from fedmpi.scoring.sources import open_source

    model, tally = Model.load(args.run, args.weights, args.model), Tally()
    histograms = any(metric.histograms for metric in wanted_metrics(args, model))
    scores = Scores(len(model.groups), len(model.classes), histograms)
    source = open_source(args.rows, model, Path(args.data_dir), tally, labelled=True)
    add_scores(model, source, scores, tally)
    return model, scores, tally


def over_ranks(ranks: Ranks, given: list[str]) -> int:
    """Evaluate owners' files on the ranks of a job; the server prints."""
    args = ranks.on_server(lambda: read_command_line(given))
    import torch

    from fedmpi.data.datasets.csvfile import path_of
    from fedmpi.scoring.owned import evaluate_owned, load_on_every_rank

    torch.set_num_threads(ranks.threads)
    model = load_on_every_rank(ranks, args.run, args.weights, args.model)
    histograms = ranks.on_server(
        lambda: any(metric.histograms for metric in wanted_metrics(args, model))
    )
    folder = path_of(args.rows.removeprefix("csv:"))
    scores, tally = evaluate_owned(ranks, model, folder, histograms)
    ranks.on_server(lambda: tell(model, scores, tally, args))
    return 0


def tell(model: Model, scores: Scores, tally: Tally, args: argparse.Namespace) -> None:
    """Print the figures, write them if asked to, and say what was odd in the rows."""
    from fedmpi.run.display import metric_lines, say
    from fedmpi.run.folder import RunFolder
    from fedmpi.scoring.evaluation import figures, table

    if not scores.rows.any():
        raise UserError(f"{args.rows} has no row of a class and a group that were trained on.")
    found = figures(model, scores) | {"rows": args.rows, "odd": tally.lines()}
    if args.metrics:
        from fedmpi.federation.metrics import section

        told, of = wanted_metrics(args, model), model.description["attribute"]
        attribute = (of["name"], of["values"]) if of else None
        found["metrics"] = section(told, scores, model.groups, attribute)
    if args.output != "-":
        path = Path(args.output)
        RunFolder(path.parent).write_json(path.name, found)
    for line in tally.lines():
        print(f"fedmpi: {line}", file=sys.stderr)
    say(table(found))
    if args.metrics:
        say()
        for line in metric_lines(found["metrics"], by_value=True):
            say(line)


if __name__ == "__main__":
    if any(word.startswith("csv:") for word in sys.argv[1:]):
        from fedmpi.mpi.start import run

        run(main)
    sys.exit(main())
