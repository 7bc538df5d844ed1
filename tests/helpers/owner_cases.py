"""Cases of owners' bad files, and what each rank gives to MPI when it reads such a file.

mpirun -n 4 python tests/helpers/owner_cases.py OUT

trains on each of CASES, through the entry that users have, with MPI.COMM_WORLD replaced by a
Recorder. OUT/<case>/given-<rank>.pickle has what the rank gave away, OUT/<case>/run is the run's
folder, and OUT/<case>/owners/ has the files. The output of a case follows the line <<case>>.

Cells that nobody else may see have a MARK in them, or are the NUMBER.
"""

import pickle
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from recorder import Log, Recorder

import fedmpi.data.agreement
from fedmpi import train
from fedmpi.mpi.ranks import AgreedError, Ranks

MARK = "zq7"
NUMBER = "918273.25"
OWNERS = ("ash", "birch", "elm")
HEADER = ["age", "job", "sex", "ill"]
Table = list[list[str]]


def rows(owner: str, count: int = 30) -> Table:
    """Rows whose cells the others may see: categories, classes, groups."""
    rng = random.Random(owner)
    return [
        [f"{rng.gauss(40, 9):.2f}", rng.choice(["cook", "nurse"]), "fm"[i % 2], str(i // 2 % 2)]
        for i in range(count)
    ]


def csv(table: Table, header: list[str] | None = HEADER) -> bytes:
    lines = [",".join(row) for row in ([header] if header else []) + table]
    return ("\n".join(lines) + "\n").encode()


@dataclass
class Case:
    """Birch's file (and test file), and what the other owners then see.

    `says` is a pattern of the line that is printed. With `aside`, the file <owner>.fedmpi.txt
    quotes a cell; with `told`, a marked cell is a category or a class that the owners agree on, so
    that ranks may know it.
    """

    file: Callable[[str], bytes]
    says: str
    aside: bool = False
    told: bool = False
    options: str = ""
    test: Callable[[str], bytes] | None = None
    everybody: bool = False
    """Whether all owners have such a file, not birch alone."""
    break_at: str = ""
    """Name of the function of agreement.py that fails, quoting its arguments."""


def changed(column: int, value: str, places: slice | int = 3) -> Callable[[str], bytes]:
    """Table in which some cells of a column are `value`; {} in `value` is the row's number."""

    def make(owner: str) -> bytes:
        table = rows(owner)
        chosen = range(len(table))[places] if isinstance(places, slice) else [places]
        for i in chosen:
            table[i][column] = value.format(i)
        return csv(table)

    return make


def with_column(name: str, value: str, count: int = 30) -> Callable[[str], bytes]:
    """Table with a further column; {} in `value` is the owner and the row's number."""
    return lambda owner: csv(
        [[value.format(f"{owner}-{i}"), *row] for i, row in enumerate(rows(owner, count))],
        [name, *HEADER],
    )


def fine(owner: str) -> bytes:
    return csv(rows(owner))


def raw(text: str | bytes) -> Callable[[str], bytes]:
    return lambda owner: text if isinstance(text, bytes) else text.encode()


ALL = slice(None)
SOME = slice(0, 6)
"""Rows of which at least one is to train on."""
NAMES = "zq7 person {}"
VISITS = ("1", "zq7")
CASES = {
    # Refusals.
    "names": Case(with_column("name", NAMES), "'name' is text with", True, everybody=True),
    "names of few": Case(
        with_column("name", NAMES, 15), "'name' is text with 36 different", everybody=True
    ),
    "a long cell": Case(changed(1, "zq7 diagnosis" + "x" * 1000), r"\(row 4\); at most", True),
    "no header": Case(
        lambda owner: csv([["zq7", "zq7 cook", "zq7 f", "zq7 0"], *rows(owner)], None),
        r"birch.csv has no column 'ill', 'sex'\. Is its first line .* The same with the cell",
        True,
    ),
    "a long name": Case(
        lambda owner: csv(rows(owner), ["zq7" * 400, *HEADER[1:]]), "1,200 char", True
    ),
    "a name twice": Case(
        lambda owner: csv([[*r, "1", "2"] for r in rows(owner)], [*HEADER, "zq7", "zq7"]),
        "1 names stand above more than one column",
        True,
    ),
    "another name": Case(
        lambda owner: csv(rows(owner), ["zq7", *HEADER[1:]]),
        "birch lacks 1 of the 4 columns that ash has, and has 1",
        True,
    ),
    "a column less": Case(
        lambda owner: csv([row[1:] for row in rows(owner)], HEADER[1:]), "birch lacks 1 of the 4"
    ),
    "semicolons": Case(
        lambda owner: fine(owner).replace(b"age", b"zq7").replace(b",", b";"), "birch lacks 1", True
    ),
    "an Excel workbook": Case(raw(b"PK\x03\x04 zq7 xl/workbook.xml"), "is an Excel workbook"),
    "an archive": Case(raw(b"PK\x03\x04 zq7"), "is a zip archive"),
    "gzip cut short": Case(raw(b"\x1f\x8b zq7"), "gzip, but damaged"),
    "Parquet cut short": Case(raw(b"PAR1 zq7"), "cannot be read as Parquet"),
    "damaged UTF-8": Case(
        lambda owner: fine(owner).replace(b"cook", "zq7 é".encode()) + b"\xe9", "or damaged: byte"
    ),
    "bytes of number 0": Case(lambda owner: fine(owner) + b"zq7\0\0,", "not text"),
    "labels of other letters": Case(
        lambda owner: csv([[*r[:3], "zq7" if r[3] == "1" else "ZQ7"] for r in rows(owner)]),
        r"the target 'ill' has \d different labels, but \d meanings: some \(of .*birch",
        everybody=True,
    ),
    "words for yes": Case(
        lambda owner: csv([[*r[:3], "yes" if r[3] == "1" else "no"] for r in rows(owner)]),
        "the target 'ill' has 4 different labels, but 2 meanings: some .of ash, birch, elm.",
    ),
    "words for a sex": Case(
        lambda owner: csv(
            [[*r[:2], "female" if r[2] == "f" else "male", r[3]] for r in rows(owner)]
        ),
        "--group 'sex' has 4 different labels, but 2 meanings",
    ),
    "bands of a text": Case(
        changed(0, "zq7", SOME),
        "birch: column 'age' has 1 values that are no",
        True,
        options="--group sex,age:40",
    ),
    "two columns of names": Case(
        lambda owner: csv(
            [[f"zq7 {i}", f"zq7@{i}", *row] for i, row in enumerate(rows(owner))],
            ["name", "mail", *HEADER],
        ),
        "2 columns cannot be inputs: 'name' is text .*; 'mail' is .* --drop name,mail",
        True,
        everybody=True,
    ),
    "the same file": Case(
        lambda owner: csv([["zq7", *row[1:]] for row in rows("ash")]),
        "ash and birch have the same file",
        everybody=True,
    ),
    "bins apart": Case(fine, "--bins does nothing with", options="--bins 3"),
    "a cell too many": Case(
        lambda owner: fine(owner) + b"zq7,zq7,f,1,zq7\n", "5 fields|line 32, saw 5"
    ),
    "an open quote": Case(lambda owner: fine(owner) + b'zq7,"zq7,f,1\n', "is not a table"),
    "nothing": Case(raw(""), "is empty"),
    "a header alone": Case(raw("age,job,sex,ill,zq7\n"), "header but no rows"),
    "no labels": Case(changed(3, "", ALL), "no row with a value in each of ill, sex"),
    "amounts as target": Case(changed(3, NUMBER), "the target 'ill' has numbers that are", True),
    "names as target": Case(changed(3, NAMES, ALL), "the target 'ill' has 30 different", True),
    "names as group": Case(changed(2, NAMES, ALL), "--group 'sex' has 30 different", True),
    "ids as target of few": Case(
        lambda owner: csv(
            [[*row[:3], f"zq7 {owner} {i}"] for i, row in enumerate(rows(owner, 15))]
        ),
        "makes .* classes of .* rows",
        everybody=True,
    ),
    "one class": Case(
        changed(3, "zq7", ALL), "the target 'ill' has one value only", told=True, everybody=True
    ),
    "a word among many numbers": Case(
        changed(0, "zq7", SOME),
        "column 'age' is numbers, but not for birch: correct it",
        True,
    ),
    "infinite numbers": Case(changed(0, "inf", SOME), r"'age' has \d infinite values"),
    "numbers too large": Case(changed(0, "9.1827e300", SOME), "'age' has values too large"),
    "constants": Case(
        lambda owner: csv(
            [[NUMBER, *row[2:]] for row in rows(owner, 30 + 2 * OWNERS.index(owner))],
            ["age", "sex", "ill"],
        ),
        "no column is left",
        told=True,
        options="--drop sex",
        everybody=True,
    ),
    "a test target that is new": Case(
        fine, "1 rows with a target value that no training row has", True, test=changed(3, "zq7")
    ),
    "a test file of other columns": Case(
        fine, "has no column 'age'", True, test=lambda owner: csv(rows(owner), ["zq7", *HEADER[1:]])
    ),
    "an infinite test value": Case(fine, "'age' has test values", test=changed(0, "inf")),
    "a long test cell": Case(fine, "a cell of 1,200", True, test=changed(1, "zq7" * 400)),
    "an error in the code": Case(
        changed(1, "zq7", ALL), "ValueError .* when the rows of", True, break_at="survey"
    ),
    "an error in the join": Case(
        changed(1, "zq7", ALL), "ValueError .*joined", told=True, break_at="fit_encoding"
    ),
    # Notes.
    "Latin-1": Case(
        lambda owner: fine(owner).replace(b"cook", b"zq7 \xe9"),
        "birch.csv is not UTF-8: read as Windows-1252",
        told=True,
    ),
    "UTF-16": Case(
        lambda owner: fine(owner).decode().replace("cook", "zq7").encode("utf-16"),
        "classes and their training rows",
        told=True,
    ),
    "amounts of money": Case(
        with_column("paid", '"$918,273.25"'),
        "constant columns left out: paid",
        told=True,
        everybody=True,
    ),
    "dates": Case(
        lambda owner: csv(
            [[f"2024-02-{1 + i % 28:02}", *row] for i, row in enumerate(rows(owner))],
            ["day", *HEADER],
        ),
        "column 'day' is dates, read as year-month-day",
        everybody=True,
    ),
    "a column that is the target": Case(
        lambda owner: csv(
            [[("zq7 " if owner == "birch" else "") + r[3], *r] for r in rows(owner)],
            ["copy", *HEADER],
        ),
        "column 'copy' alone tells the class of .* --drop copy",
        told=True,
        everybody=True,
    ),
    "ids that are numbers": Case(
        lambda owner: csv(
            [[f"9182{i:02}", *row] for i, row in enumerate(rows(owner))], ["id", *HEADER]
        ),
        "as of an id: 'id'.*--drop id",
        everybody=True,
    ),
    "rows marked as missing": Case(
        changed(2, "NA"),
        r"1 rows without a target or a group left out \(sex 1\)",
        options="--missing NA",
    ),
    "a small group": Case(
        changed(2, "x", slice(0, 5)),
        r"--min-group-rows 6 leaves out \(training rows\): x",
        options="--min-group-rows 6",
    ),
    "a column more": Case(
        with_column("zq7", "{}"), "birch: 1 columns left out that ash does not have", True
    ),
    "words among numbers": Case(
        lambda owner: csv(
            [[VISITS[owner == "birch" and i < 6], *row] for i, row in enumerate(rows(owner))],
            ["visits", *HEADER],
        ),
        r"'visits' is taken for text: \d training values are not numbers$",
        aside=True,
        told=True,
        everybody=True,
    ),
    "words kept by their owner": Case(
        changed(1, "zq7", SOME),
        r"'job': \d training rows have a value that fewer rows",
        options="--min-value-rows 7",
    ),
    "names kept by their owner": Case(
        with_column("name", NAMES),
        "constant columns left out: name",
        options="--min-value-rows 2",
        everybody=True,
    ),
    "missing numbers": Case(changed(0, ""), "'age': . training and . test values missing"),
    "missing text": Case(changed(1, "", slice(0, 9)), "missing, a category of their own"),
    "short rows": Case(lambda owner: fine(owner) + b"1,cook\n", "1 rows have fewer cells"),
    "no name": Case(with_column("", NAMES), "1 columns without a name left out"),
    "rows without labels": Case(changed(3, "?"), "1 rows without a target or a group"),
    "a constant": Case(
        with_column("unit", "zq7"), "constant columns left out: unit", told=True, everybody=True
    ),
    "no value at all": Case(with_column("unit", ""), "left out: unit", everybody=True),
    "a test group that is new": Case(
        fine, "1 test rows of groups without training rows left out$", True, test=changed(2, "zq7")
    ),
    "a test column that is new": Case(
        fine, "1 columns only in birch.csv ignored$", True, test=with_column("zq7", NAMES)
    ),
    "a test value that is new": Case(fine, "'job': 1 test values not seen", test=changed(1, "zq7")),
    "a test value that is no number": Case(
        fine, "'age': 0 training and 1 test values missing or no numbers", test=changed(0, "zq7")
    ),
}


def fails_on_rows(row_shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    """Build a model that fails, and quotes the rows of a client in the error."""

    class Fails(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 3:  # the check at the start has three rows of its own
                raise ValueError(f"{MARK} {x.tolist()}")
            return super().forward(x)

    return Fails(row_shape[0], classes)


class Given(Log):
    """Log of all that this rank gives away, as bytes."""

    given: list[bytes]

    def begin(self) -> None:
        super().begin()
        self.given = []

    def note(self, name: str, arguments: tuple) -> None:
        for value in arguments:
            if isinstance(value, np.ndarray):
                self.given.append(value.tobytes())
            elif value is not MPI.IN_PLACE:
                self.given.append(pickle.dumps(value))


def prepare(case: Case, folder: Path) -> list[str]:
    """Write the owners' files; return the options of fedmpi.train."""
    options = ["--dataset", f"csv:{folder / 'owners'}/", "--target", "ill", "--group", "sex"]
    for kind, make in (("owners", case.file), ("tests", case.test)):
        if make is None:
            continue
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for owner in OWNERS:
            bad = case.everybody or owner == "birch"
            (folder / kind / f"{owner}.csv").write_bytes(make(owner) if bad else csv(rows(owner)))
    if case.test:
        options += ["--test", str(folder / "tests")]
    options += ["--model", "logistic", "--rounds", "2", "--progress", "none", *case.options.split()]
    return [*options, "--reduce", "flat", "--output", str(folder / "run")]


def quoting(*arguments: Any, **named: Any) -> None:
    """Raise an error that quotes the arguments, in place of a function of agreement.py."""
    raise ValueError(repr([getattr(a, "to_dict", lambda a=a: a)() for a in arguments]))


def main() -> None:
    out, world, log = Path(sys.argv[1]), MPI.COMM_WORLD, Given()
    ranks = Ranks(world)
    for name, case in CASES.items():
        folder = out / name
        if world.rank == 0:
            print(f"<<{name}>>", flush=True)
        arguments = ranks.on_server(lambda c=case, f=folder: prepare(c, f))
        log.begin()
        MPI.COMM_WORLD = Recorder(world, log)
        sys.argv = ["fedmpi.train", *arguments]
        whole = getattr(fedmpi.data.agreement, case.break_at, None)
        if case.break_at:
            setattr(fedmpi.data.agreement, case.break_at, quoting)
        try:
            train.main()
        except AgreedError as error:
            if world.rank == 0:
                print(f"fedmpi: {error}", flush=True)
        if case.break_at:
            setattr(fedmpi.data.agreement, case.break_at, whole)
        MPI.COMM_WORLD = world
        (folder / f"given-{world.rank}.pickle").write_bytes(pickle.dumps(log.given))
        ranks.meet()


if __name__ == "__main__":
    main()
