"""A table in three forms: CSV for programs, Markdown and LaTeX for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fedmpi.run.folder import RunFolder

GREEK = {"α": "alpha", "γ": "gamma", "η": "eta", "λ": "lambda", "μ": "mu", "τ": "tau"}
"""Letters in the labels of options."""


@dataclass
class Table:
    """Rows of cells under a head; a cell is a list of lines, of which the first is our figure."""

    name: str
    caption: str
    head: list[str]
    rows: list[list[list[str]]]
    rules: list[int]
    """Rows before which a rule is drawn."""
    data: list[dict]
    """The figures as numbers, a dict for each row of the CSV file."""


def write_table(
    folder: RunFolder, table: Table, notes: list[str], marks: Mapping[str, str] | None = None
) -> None:
    """Write one table in three forms; `marks` are further columns of the CSV file."""
    write_rows(folder, f"{table.name}.csv", table.data, marks)
    write_text(folder, f"{table.name}.md", markdown(table, notes))
    write_text(folder, f"{table.name}.tex", latex(table, notes))


def write_rows(
    folder: RunFolder, name: str, rows: list[dict], marks: Mapping[str, str] | None = None
) -> None:
    """Write rows as CSV, each with `marks` before it: CSV has no caption that could say them."""
    folder.write_csv(name, [{**(marks or {}), **row} for row in rows])


def write_text(folder: RunFolder, name: str, text: str) -> None:
    folder.write(name, lambda file: file.write(text.encode()))


def markdown(table: Table, notes: list[str]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    lines = [f"**{table.caption}**", "", line(table.head), line(["---"] * len(table.head))]
    lines += [line("<br>".join(cell) for cell in row) for row in table.rows]
    return "\n".join([*lines, "", *(f"{note}  " for note in notes)]) + "\n"


def latex(table: Table, notes: list[str]) -> str:
    """LaTeX of a table: a table environment with booktabs' rules."""
    columns = "l" * 2 + "c" * (len(table.head) - 2)
    lines = ["\\begin{table}", "\\centering", f"\\caption{{{tex(table.caption)}.}}"]
    lines += [f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
    lines.append(" & ".join(f"\\textbf{{{tex(name)}}}" for name in table.head) + " \\\\")
    for i, row in enumerate(table.rows):
        if i in table.rules:
            lines.append("\\midrule")
        cells = (
            tex(cell[0])
            if len(cell) == 1
            else "\\shortstack{" + " \\\\ \\footnotesize ".join(map(tex, cell)) + "}"
            for cell in row
        )
        lines.append(" & ".join(cells) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}", ""]
    lines += [f"\\smallskip\\par\\footnotesize {tex(note)}" for note in notes]
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def tex(text: str) -> str:
    """`text` with LaTeX's special characters escaped."""
    for special in "\\&%$#_{}":
        text = text.replace(special, "\\textbackslash " if special == "\\" else f"\\{special}")
    marks = {"±": "$\\pm$", "<=": "$\\le$", "<": "$<$", ">": "$>$", "^": "\\^{}", "~": "\\~{}"}
    marks |= {"χ²": "$\\chi^2$", "↓": "$\\downarrow$", "↑": "$\\uparrow$"}
    marks |= {sign: f"$\\{name}$" for sign, name in GREEK.items()}
    for mark, replacement in marks.items():
        text = text.replace(mark, replacement)
    return text
