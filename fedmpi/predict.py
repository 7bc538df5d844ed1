"""Score raw rows with the model of a run: a predicted class and a probability for each class.

    python -m fedmpi.predict runs/csv-loans-ESG-fedminmax-s0 new.csv --output scored.csv
    zcat new.csv.gz | python -m fedmpi.predict RUN - > scored.csv

A row keeps its own columns, and `predicted` and `probability/<class>` come after them. The columns
of the file may be in any order, and others may be among them. Files may be larger than memory.

Images, as an array of bytes (rows × channels × height × width), and the run's own test rows:

    python -m fedmpi.predict RUN images.npy --output scored.csv
    python -m fedmpi.predict RUN test --output scored.csv

The model for other programs, with the encoding inside:

    python -m fedmpi.predict RUN --export onnx --output model.onnx

It needs no MPI, and runs no code from the model's file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fedmpi.errors import UserError
from fedmpi.run.folder import RunFolder

if TYPE_CHECKING:  # torch is imported once the command line is known to be good
    from fedmpi.scoring.model import Model

WEIGHTS = ("averaged", "last")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fedmpi.predict",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(parser)
    parser.add_argument(
        "rows", nargs="?", metavar="FILE", help="a .csv, .npy or .npz file, - or test"
    )
    parser.add_argument("--output", default="-", metavar="FILE", help="(- is the screen)")
    parser.add_argument("--force", action="store_true", help="replace the output file")
    parser.add_argument("--export", choices=("onnx",), help="write the model for other programs")
    return parser


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the run and the options that say which model it means."""
    parser.add_argument("run", metavar="RUN", help="the folder of a finished run, or its model.pt")
    parser.add_argument("--weights", choices=WEIGHTS, help="(those that the run's method reports)")
    parser.add_argument(
        "--model", metavar="package.module:function", help="code of a model of your own"
    )
    parser.add_argument("--data-dir", default="data", metavar="DIR", help="of test rows (data)")


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        if bool(args.export) == bool(args.rows):
            raise UserError("give a FILE of rows to score, or --export onnx.")
        check_output(args.output, args.force, args.rows)
        from fedmpi.scoring.model import Model

        model = Model.load(args.run, args.weights, args.model)
        if args.export:
            return export(model, args)
        predict(model, args)
    except UserError as error:
        print(f"fedmpi: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return 0


def predict(model: Model, args: argparse.Namespace) -> None:
    """Score the rows, and say on the error stream what was odd in them."""
    from fedmpi.scoring.inputs import Tally
    from fedmpi.scoring.prediction import write_predictions
    from fedmpi.scoring.sources import open_source

    tally = Tally()
    source = open_source(args.rows, model, Path(args.data_dir), tally)
    if args.output == "-":
        write_predictions(model, source, sys.stdout.buffer, tally)
        sys.stdout.flush()
    else:
        write_aside(args.output, lambda file: write_predictions(model, source, file, tally))
    for line in tally.lines():
        print(f"fedmpi: {line}", file=sys.stderr)
    where = "" if args.output == "-" else f" in {args.output}"
    print(f"fedmpi: {tally.rows:,} rows scored{where}", file=sys.stderr)


def export(model: Model, args: argparse.Namespace) -> int:
    """Write the model as ONNX."""
    from fedmpi.scoring.onnx import to_onnx

    if args.output == "-":
        raise UserError("--export onnx: give the file to write, as --output model.onnx.")
    content = to_onnx(model).SerializeToString()
    write_aside(args.output, lambda file: file.write(content))
    print(f"fedmpi: {len(content):,} bytes in {args.output}", file=sys.stderr)
    return 0


def check_output(output: str, force: bool, rows: str | None = None) -> None:
    """Raise a UserError for an output that cannot be written, or would replace something."""
    path = Path(output)
    if output == "-":
        return
    if path.is_dir():
        raise UserError(f"--output {output}: that is a folder. Give the name of a file.")
    if rows and path.exists() and Path(rows).exists() and path.samefile(rows):
        raise UserError(f"--output {output} is the file of the rows: give another name.")
    if path.exists() and not force:
        raise UserError(f"--output {output} is there already: give another name, or --force.")
    if not path.parent.is_dir():
        raise UserError(f"--output {output}: there is no folder {path.parent}.")


def write_aside(output: str, fill: Callable[[BinaryIO], Any]) -> None:
    """Write a file that appears whole, or not at all."""
    path = Path(output)
    RunFolder(path.parent).write(path.name, fill)


if __name__ == "__main__":
    sys.exit(main())
