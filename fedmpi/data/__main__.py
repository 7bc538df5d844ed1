"""Fetch, list and verify the datasets.

    python -m fedmpi.data list
    python -m fedmpi.data fetch adult
    python -m fedmpi.data fetch synthetic --rows 50000 --seed 1
    python -m fedmpi.data fetch csv:people.csv --target income --group sex,race --test 0.2
    python -m fedmpi.data verify

`fetch` downloads what is missing, checks it, and prepares it under --data-dir (default data/), so
that a cluster's nodes need no network. `verify` hashes every raw file and every prepared folder
again, and exits with 1 if one is not as it should be.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedmpi.data import FILES, NAMES, find
from fedmpi.data.dataset import Dataset
from fedmpi.data.datasets.csvfile import CsvFile, CsvFolder
from fedmpi.data.options import DataOptions, add_data_options, options_from
from fedmpi.data.prepare import prepare, verify
from fedmpi.data.store import Prepared
from fedmpi.errors import UserError, printable


def prepared_folders(data_dir: Path) -> list[Path]:
    """Finished preparations; the names of unfinished ones begin with a dot."""
    return [path for path in sorted(data_dir.glob("prepared/[!.]*")) if path.is_dir()]


def list_datasets(data_dir: Path) -> None:
    """Print a table: name, state, groups, what it is."""
    prepared = []
    for folder in prepared_folders(data_dir):
        try:
            prepared.append(Prepared.open(folder).dataset)
        except UserError:
            continue  # `verify` tells what is wrong with it
    described: list[Dataset] = [*map(find, FILES), CsvFile("FILE")]
    rows = [("name", "state", "groups", "what")]
    for dataset in described:
        own = isinstance(dataset, CsvFile)
        ready = sum(name.startswith("csv:") if own else name == dataset.name for name in prepared)
        state = "absent" if dataset.files else "your file" if own else "drawn when used"
        if dataset.has_raw(data_dir):
            state = "raw files present"
        if ready:
            state = f"prepared ({ready})"
        groups = str(len(dataset.groups)) if dataset.groups else "any"
        rows.append((dataset.name, state, groups, dataset.summary))
    rows.append(("csv:DIR/", "your files", "any", CsvFolder.summary))
    rows.append(("package.module:Class", "your code", "any", "your own dataset: docs/extend.md"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def fetch(name: str, data_dir: Path, options: DataOptions) -> None:
    """Prepare the dataset and print what it holds."""
    prepared = prepare(find(name), data_dir, options, progress=sys.stderr.isatty())
    print(f"{name}: {prepared.folder}")
    inputs = " × ".join(map(str, prepared.array("train_x").shape[1:]))
    print(f"inputs: {inputs}, classes: {len(prepared.classes)}")
    print_columns(prepared)
    width = max(map(len, [*prepared.groups, "group"]))
    print(f"{'group':{width}}  {'train':>9}  {'test':>9}")
    for group in prepared.groups:
        train, test = (prepared.counts[split][group] for split in ("train", "test"))
        print(f"{group:{width}}  {train:9,}  {test:9,}")
    print(f"{'all':{width}}  {prepared.rows('train'):9,}  {prepared.rows('test'):9,}")
    for source in prepared.sources:
        print("from", ": ".join(source[key] for key in ("file", "origin") if key in source))
    for note in prepared.notes:
        print("note:", note)


def print_columns(prepared: Prepared) -> None:
    """Print what was made of each column of a table."""
    if not prepared.columns:
        return
    rows = [("column", "kind", "missing", "categories", "inputs", "")]
    for column in prepared.columns:
        counts = [str(column.get(key) or "") for key in ("missing", "categories", "inputs")]
        rows.append((printable(column["name"]), column["kind"], *counts, column["remark"]))
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if i in (0, 1, 5) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print()


def verify_all(data_dir: Path) -> bool:
    """Hash everything again and print a line for each; return whether all of it is right."""
    checks: dict[Path, Callable] = {}  # two datasets may share a raw file
    for dataset in map(find, FILES):
        checks |= dataset.raw_checks(data_dir)
    checks |= {folder: partial(verify, folder) for folder in prepared_folders(data_dir)}
    right = True
    for path, run_check in checks.items():
        try:
            run_check()
            print(f"ok     {path}")
        except UserError as error:
            right = False
            print(f"WRONG  {error}")
    if not checks:
        print(f"nothing in {data_dir}")
    return right


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fedmpi.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("list", "what there is"), ("verify", "hash everything again")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--data-dir", default="data", metavar="DIR", help="(data)")
    command = commands.add_parser("fetch", help="download and prepare")
    command.add_argument("name", help=", ".join(NAMES))
    command.add_argument("--seed", type=int, default=0, help="(0)")
    add_data_options(command)
    args = parser.parse_args(argv)
    try:
        if args.command == "list":
            list_datasets(Path(args.data_dir))
        elif args.command == "fetch":
            fetch(args.name, Path(args.data_dir), options_from(args))
        else:
            return 0 if verify_all(Path(args.data_dir)) else 1
    except UserError as error:
        print(f"fedmpi: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
