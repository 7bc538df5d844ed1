"""Write a model card of a finished run: what it is, its data and groups, who is worst off, limits.

    python -m fedmpi.card runs/adult-PSG-fedminmax-s0                 # card.md in the run's folder
    python -m fedmpi.card runs/adult-PSG-fedminmax-s0 --output adult.md
    mpirun -n 3 python -m fedmpi.card runs/adult-PSG-fedminmax-s0 --baseline

With --baseline the same model is trained without weights of groups, beside the run (RUN-baseline),
and the card says what each group gains or pays. Start it where the run was started, if the paths of
its data are relative. The report of a run has the same card.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from fedmpi.card.baseline import find_baseline, train_baseline
from fedmpi.card.contents import card_of, title_of
from fedmpi.errors import UserError
from fedmpi.run.folder import RunFolder
from fedmpi.run.record import read_record


class _Parser(argparse.ArgumentParser):
    """ArgumentParser that raises its complaints as UserErrors."""

    def error(self, message: str):  # type: ignore[override]
        raise UserError(f"{message}. See python -m fedmpi.card --help.")


def parser() -> argparse.ArgumentParser:
    p = _Parser(
        prog="python -m fedmpi.card",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("run", metavar="RUN", type=Path, help="folder of a finished run")
    p.add_argument("--output", metavar="FILE", type=Path, help="(RUN/card.md)")
    p.add_argument(
        "--baseline", action="store_true", help="train the same model without weights, and compare"
    )
    return p


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    record = read_record(args.run)
    output = args.output or args.run / "card.md"
    if output.suffix.lower() != ".md":
        raise UserError(f"--output {output}: a card is one file whose name ends in .md.")
    if output.is_dir() or not output.resolve().parent.is_dir():
        raise UserError(f"--output {output}: give the name of a file in a folder that is there.")
    if args.baseline and not train_baseline(record):
        return 0
    text = markdown(title_of(record), card_of(record, find_baseline(record)))
    RunFolder(output.resolve().parent).write(output.name, lambda file: file.write(text.encode()))
    print(f"fedmpi: model card in {output}")
    return 0


def markdown(title: str, parts: list[dict]) -> str:
    """Text of the card, whose names are escaped: they come from the user's data."""
    lines = [f"# {_plain(title)}", ""]
    for part in parts:
        lines += [f"## {_plain(part['title'])}", ""]
        for paragraph in part["text"]:
            lines += [_plain(paragraph), ""]
        if part["items"]:
            lines += [*(f"- {_plain(item)}" for item in part["items"]), ""]
        for table in part["tables"]:
            head, *rest = table["columns"]
            lines.append(_row([head, *rest]))
            lines.append("|" + "|".join(["---", *("---:" for _ in rest)]) + "|")
            lines += [*(_row(row) for row in table["rows"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(map(_plain, cells)) + " |"


def _plain(text: str) -> str:
    """`text` without a meaning in Markdown or HTML, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", " ".join(str(text).split()))


def command() -> None:
    """Run `main`; with --baseline as a job, whose ranks all end if one does."""
    if "--baseline" in sys.argv[1:]:
        from fedmpi.mpi.start import run

        run(_agreed)
    try:
        sys.exit(main())
    except UserError as error:
        print(f"fedmpi: {error}", file=sys.stderr)
        sys.exit(2)


def _agreed() -> int:
    """Run `main` on every rank; a complaint of the command line is the same on all of them."""
    from fedmpi.mpi.ranks import AgreedError

    try:
        return main()
    except UserError as error:
        raise error if isinstance(error, AgreedError) else AgreedError(str(error)) from None


if __name__ == "__main__":
    command()
