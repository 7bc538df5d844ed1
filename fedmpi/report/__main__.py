"""Show finished runs: one HTML file that needs no network, or figures for papers.

    python -m fedmpi.report runs/adult-PSG-fedminmax-s0            # one run
    python -m fedmpi.report runs --output all.html --open          # every run below runs/
    python -m fedmpi.report results/paper-steps/adult --format pdf # figures, one file each

RUN is the folder of a run, or one with runs below it, or with the grid.json that fedmpi.reproduce
leaves of its runs. The report goes into it as report.html, and figures into its folder figures/;
with several RUNs, into the current folder.
"""

import argparse
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from fedmpi.errors import UserError
from fedmpi.report.collect import collect
from fedmpi.reproduce.gridfile import find_runs
from fedmpi.run.folder import RunFolder

FORMATS = ("html", "png", "pdf", "svg")


class _Parser(argparse.ArgumentParser):
    """ArgumentParser that raises its complaints as UserErrors."""

    def error(self, message: str):  # type: ignore[override]
        raise UserError(f"{message}. See python -m fedmpi.report --help.")


def parser() -> argparse.ArgumentParser:
    p = _Parser(
        prog="python -m fedmpi.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("runs", nargs="+", metavar="RUN", type=Path, help="folder of a run, or of runs")
    p.add_argument("--output", metavar="FILE", type=Path, help="the .html file; figures: a folder")
    p.add_argument("--title", metavar="TEXT", help="of the report (its datasets)")
    p.add_argument("--format", default="html", choices=FORMATS, help="(html)")
    p.add_argument("--open", action="store_true", help="show the report in the browser")
    return p


def main(argv: list[str] | None = None) -> int:
    try:
        args = parser().parse_args(argv)
        output = _output(args)
        data = collect(find_runs(args.runs), args.runs)
        data["title"] = args.title or data["title"]
        if args.format == "html":
            from fedmpi.report.page import page

            text = page(data)
            _write(output, lambda file: file.write(text.encode()))
            print(f"fedmpi: {data['title']} in {output} ({len(text.encode()) / 1e6:.1f} MB)")
        else:
            from fedmpi.report.drawings import draw_all

            named = {folder.resolve() for folder in args.runs}
            count = 0
            for name, save in draw_all(data, named, args.format):
                _write(output / name, save)
                count += 1
            print(f"fedmpi: {count} figures in {output}")
    except UserError as error:
        print(f"fedmpi: {error}", file=sys.stderr)
        return 2
    if args.open and not webbrowser.open(output.resolve().as_uri()):
        print(f"fedmpi: no browser to open {output} with.", file=sys.stderr)
        return 1
    return 0


def _output(args: argparse.Namespace) -> Path:
    """Path of the report, or folder of the figures. A report replaces nothing but a report."""
    beside = args.runs[0] if len(args.runs) == 1 else Path()
    if args.format == "html":
        output = args.output or beside / "report.html"
        if output.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"--output {output}: a report is one file whose name ends in .html.")
        if output.is_dir():
            raise UserError(f"--output {output}: that is a folder. Give the name of a file.")
        return output
    if args.open:
        raise UserError(f"--open shows the HTML report: leave --format {args.format} out.")
    output = args.output or beside / "figures"
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output}: with --format {args.format}, give a folder.")
    return output


def _write(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path.parent}: {error.strerror}.") from None
    RunFolder(path.parent).write(path.name, fill)


if __name__ == "__main__":
    sys.exit(main())
