"""Any CSV file: --target names the column to predict, --group the columns that make the groups."""

import hashlib
import json
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.datasets.dataset import Arrays, Dataset, Preset
from fedmpi.datasets.options import DataOptions
from fedmpi.errors import UserError, shortened, unknown_name

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_TEST = "0.2"
MOST_LABELS = 1000
READING = 2
"""Raise it when the same file would be read to other rows or inputs: it is part of the key."""


class CsvFile(Dataset):
    """Columns of numbers are standardised, columns of text become one input for each value."""

    summary = "your own table, with --target and --group"
    preset = Preset(
        "mlp", "cross-entropy", 0.01, 0.01, local_epochs=15, rounds=1000, local_rounds=100
    )
    uses = ("seed", "target", "group", "test", "drop")

    def __init__(self, file: str):
        self.name = f"csv:{file}"
        self.path = path_of(file)

    def used(self, options: DataOptions) -> dict:
        used = super().used(options) | {"test": options.test or DEFAULT_TEST}
        if held_out_share(used["test"]) is None:
            del used["seed"]  # which only chooses the rows held out
        return used

    def key(self, options: DataOptions) -> str:
        """From the contents, not the place or the date, of the files; and the options."""
        used = self.used(options)
        contents = [self.path]
        if held_out_share(used["test"]) is None:
            contents.append(path_of(used.pop("test")))
        digest = hashlib.sha256(json.dumps(used | {"reading": READING}, sort_keys=True).encode())
        for path in contents:
            digest.update(hashlib.sha256(content_of(path)).digest())
        stem = re.sub(r"[^\w.-]+", "-", self.path.stem)[:40]
        return f"csv-{stem}-{digest.hexdigest()[:12]}"

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        from fedmpi.datasets.table import encode

        if not options.target or not options.group:
            raise UserError(
                f"{self.name} needs --target COL and --group COL[,COL...]; its columns "
                f"are {', '.join(read_table(self.path, [], []).columns)}."
            )
        notes: list[str] = []
        sources: list[dict] = []
        frame, in_test = read_rows(self.path, options, notes, sources)
        y, classes = target_of(frame, options.target, self.path)
        group, groups = groups_of(frame, options.group)
        if in_test is None:
            share = float(options.test or DEFAULT_TEST)
            in_test = hold_out(group, y, share, options.seed)
        check_classes(y, classes, in_test, options)
        keep, group, groups = trained_groups(group, groups, in_test, notes)
        left_out = {options.target, *options.drop}
        inputs = frame[[name for name in frame.columns if name not in left_out]]
        inputs, y, in_test = inputs[keep].reset_index(drop=True), y[keep], in_test[keep]
        if not in_test.any():
            raise UserError(
                f"{self.name}: no test rows are left, with {len(groups)} groups and {len(classes)} "
                "classes that need rows to train on. Use a larger --test, or other columns."
            )
        x, features = encode(inputs, in_test, notes)
        if not features:
            raise UserError(f"{self.name}: no column is left to learn from.")
        return Arrays.split(
            x,
            y,
            group,
            in_test,
            groups=tuple(groups),
            classes=tuple(classes),
            features=features,
            notes=notes,
            sources=sources,
        )


def held_out_share(test: str) -> float | None:
    """`--test` as a share of the rows, or None if it names a file."""
    try:
        share = float(test)
    except ValueError:
        return None
    if not 0 < share < 1:
        raise UserError(
            f"--test {test}: a share of the rows is between 0 and 1; or name a CSV file."
        )
    return share


def path_of(given: str) -> Path:
    """The path that the user means, ~ being a home folder if there is such a one."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        return Path(given)


def content_of(path: Path) -> bytes:
    try:
        if stat.S_ISREG(path.stat().st_mode) or path.is_dir():  # of which reading tells
            return path.read_bytes()
    except FileNotFoundError as error:
        # A newcomer's first slip: the name is right, and the folder another.
        raise UserError(f"cannot read {path}: {error.strerror}, seen from {Path.cwd()}.") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {why}.") from error
    raise UserError(f"cannot read {path}: it is a pipe or a device; save it as a file first.")


def read_rows(
    path: Path, options: DataOptions, notes: list[str], sources: list[dict]
) -> tuple["pd.DataFrame", np.ndarray | None]:
    """The usable rows, and which are of the test file; None if they are yet to be chosen."""
    import pandas as pd

    labels = [name for name in (options.target, *options.group) if name]
    frame = read_table(path, notes, sources)
    require([*labels, *options.drop], frame, path)
    frame = frame.drop(columns=[name for name in options.drop if name not in labels])
    frame = with_labels(frame, options, path, notes)
    test = options.test or DEFAULT_TEST
    if held_out_share(test) is not None:
        return frame, None
    test_path = path_of(test)
    other = read_table(test_path, notes, sources)
    require(frame.columns, other, test_path)
    if extra := [name for name in other.columns if name not in {*frame.columns, *options.drop}]:
        notes.append(f"columns only in {test_path.name} ignored: {', '.join(extra)}")
    other = with_labels(other[frame.columns], options, test_path, notes)
    if path.samefile(test_path):
        notes.append(f"the test rows are the training rows: --test is {test_path.name} as well")
    in_test = np.arange(len(frame) + len(other)) >= len(frame)
    return pd.concat([frame, other], ignore_index=True), in_test


def read_table(path: Path, notes: list[str], sources: list[dict]) -> "pd.DataFrame":
    from fedmpi.datasets.table import read_text

    content = content_of(path)
    origin = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
    sources.append(origin | {"origin": str(path)})
    return read_text(content, path, notes)


def with_labels(
    frame: "pd.DataFrame", options: DataOptions, path: Path, notes: list[str]
) -> "pd.DataFrame":
    """The rows that have a target and every column of the group; '?' is no target."""
    from fedmpi.datasets.table import check_cells

    check_cells(frame, path)
    assert options.target
    labels = list(dict.fromkeys([options.target, *options.group]))
    whole = frame[labels].notna().all(axis=1) & (frame[options.target] != "?")
    if not whole.any():
        raise UserError(f"{path} has no row with a value in each of {', '.join(labels)}.")
    if not whole.all():
        notes.append(f"{path.name}: {(~whole).sum()} rows without a target or a group left out")
    return frame[whole].reset_index(drop=True)


def require(names: Iterable[str], frame: "pd.DataFrame", path: Path) -> None:
    """UserError for the first of `names` that is not a column."""
    for name in names:
        if name not in frame.columns:
            only = frame.columns[0]
            if len(frame.columns) == 1 and re.search(r"[;\t|]", only):
                raise UserError(
                    f"{path} has one column, {shortened(only)}: separate its cells by commas."
                )
            raise unknown_name(f"column in {path}", name, frame.columns)


def target_of(frame: "pd.DataFrame", target: str, path: Path) -> tuple[np.ndarray, list[str]]:
    from fedmpi.datasets.table import labels, numbers

    values = numbers(frame[target])
    if values is not None and not np.array_equal(values, np.trunc(values)):
        raise UserError(
            f"{path}: the target {target!r} has values such as {values[values % 1 != 0][0]}; "
            "it must be classes (text or whole numbers)."
        )
    y, classes = labels(frame[target])
    if len(classes) == 1:
        raise UserError(
            f"{path}: the target {target!r} has one value only, {shortened(classes[0])}, in "
            f"{len(y):,} rows; two classes or more are needed."
        )
    if len(classes) > MOST_LABELS:
        raise UserError(
            f"{path}: the target {target!r} has {len(classes)} different values, such as "
            f"{classes[0]!r}; 2 to {MOST_LABELS} classes are possible."
        )
    return y, classes


def groups_of(frame: "pd.DataFrame", columns: tuple[str, ...]) -> tuple[np.ndarray, list[str]]:
    """The group of every row, groups being the combinations of the columns' values that occur."""
    from fedmpi.datasets.table import labels

    parts = [labels(frame[name]) for name in columns]
    codes = np.stack([code for code, _ in parts], axis=1)
    observed, group = np.unique(codes, axis=0, return_inverse=True)
    if len(observed) > MOST_LABELS:
        raise UserError(
            f"--group {' '.join(columns)} makes {len(observed)} groups; at most {MOST_LABELS} are "
            "possible."
        )
    names = [
        " / ".join(values[code] for code, (_, values) in zip(row, parts, strict=True))
        for row in observed
    ]
    return group.reshape(-1), names


def hold_out(group: np.ndarray, y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Which rows to test on: `share` of each group, at random, but never all of its rows."""
    rng = np.random.default_rng([int.from_bytes(b"hold", "big"), seed])
    in_test = np.zeros(len(group), dtype=bool)
    for code in range(group.max() + 1):
        rows = rng.permutation(np.flatnonzero(group == code))
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        in_test[rows[:count]] = True
    # A class of which no row is left to train on goes back to training.
    return in_test & np.isin(y, y[~in_test])


def check_classes(
    y: np.ndarray, classes: list[str], in_test: np.ndarray, options: DataOptions
) -> None:
    trained = set(y[~in_test])
    unknown = sorted(set(y[in_test]) - trained)
    if unknown:
        raise UserError(
            f"{options.test} has the target value {classes[unknown[0]]!r}, which no training row "
            f"has; they have {', '.join(repr(classes[code]) for code in sorted(trained)[:10])}."
        )
    if len(trained) < 2:
        raise UserError(f"the training rows have one class only, {classes[y[0]]!r}.")


def trained_groups(
    group: np.ndarray, groups: list[str], in_test: np.ndarray, notes: list[str]
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Leave out test rows of groups without training rows, which cannot be in the game."""
    trained = np.unique(group[~in_test])
    keep = np.isin(group, trained)
    if not keep.all():
        lost = ", ".join(groups[code] for code in np.unique(group[~keep]))
        notes.append(f"{(~keep).sum()} test rows of groups without training rows left out: {lost}")
    if len(trained) == 1:
        notes.append("there is one group only, and nothing to be fair between")
    return keep, np.searchsorted(trained, group[keep]), [groups[code] for code in trained]
