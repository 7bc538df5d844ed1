"""ACS Employment (American Community Survey 2018, 1-Year): predict who has a job.

The definition is folktables' ACSEmployment (Ding et al. 2021): sixteen features, the label
ESR == 1, and everybody in the chosen states. Two datasets, which differ in their groups alone.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedmpi.data.dataset import Arrays, Dataset, Encoded, Preset
from fedmpi.data.datasets import census
from fedmpi.data.datasets.census import STATES, People, chosen_states
from fedmpi.data.options import DataOptions
from fedmpi.data.partition import spread_clients
from fedmpi.errors import UserError

if TYPE_CHECKING:
    from fedmpi.data.encoding import Encoding
    from fedmpi.data.labels import LabelEncoding

TEST_SHARE = 0.2
NUMBER = "AGEP"
"""Age, the one feature that is not a code."""

RACES = (
    *("White", "Black", "American Indian", "Alaska Native", "A.I. &/or A.N. Tribes", "Asian"),
    *("N. Hawaiian & other P.I.", "Other", "Multiple"),
)
"""RAC1P 1 to 9, by the paper's names."""
CLASSES = ("not employed", "employed")


class Acs(Dataset):
    """The people of both ACS datasets, with their inputs and labels."""

    uses = ("seed", "states", "min_group_rows")
    groups: tuple[str, ...]
    files = census.MIRROR_FILES
    raw_folder = census.FOLDER
    psg_first: tuple[str, ...]
    """The groups of the first half of the clients in PSG."""
    ssg_of_40: dict[str, int]
    """Number of the clients, of 40, that hold each group in SSG."""

    def group_of(self, race: np.ndarray, employed: np.ndarray) -> np.ndarray:
        """The group of every row, from RAC1P and the label."""
        raise NotImplementedError

    def attribute(
        self, groups: tuple[str, ...], options: DataOptions
    ) -> tuple[str, tuple[str, ...]]:
        jobs = ("Employed ", "Unemployed ")
        return "race", tuple(
            name.partition(" ")[2] if name.startswith(jobs) else name for name in groups
        )

    def class_of_group(
        self, groups: tuple[str, ...], classes: tuple[str, ...], options: DataOptions
    ) -> tuple[int, ...] | None:
        if not all(name.startswith(("Employed ", "Unemployed ")) for name in groups):
            return None
        return tuple(int(name.startswith("Employed ")) for name in groups)

    # Groups can be fewer than `self.groups`, by --min-group-rows; their names tell which.

    def psg_blocks(self, groups: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        first = tuple(a for a, name in enumerate(groups) if name in self.psg_first)
        second = tuple(a for a, name in enumerate(groups) if name not in self.psg_first)
        if not (first and second):
            raise UserError(
                f"{self.name}: the groups {', '.join(groups)} are all of one half of PSG: use a "
                "smaller --min-group-rows, or --setting SSG."
            )
        return first, second

    def ssg_clients(self, groups: tuple[str, ...], clients: int) -> list[int]:
        return spread_clients([self.ssg_of_40[name] for name in groups], clients)

    def used(self, options: DataOptions) -> dict:
        return super().used(options) | {"states": chosen_states(options.states)}

    def key(self, options: DataOptions) -> str:
        states = chosen_states(options.states)
        where = "all" if len(states) == len(STATES) else "+".join(states)
        least = f"-min{options.min_group_rows}" if options.min_group_rows else ""
        return f"{self.name}-{where}-seed{options.seed}{least}"

    def has_raw(self, data_dir: Path) -> bool:
        return bool(self.raw_checks(data_dir))

    def raw_checks(self, data_dir: Path) -> dict[Path, Callable[[], None]]:
        # The Census publishes no hashes: the first preparation from a file notes its own.
        noted: dict[str, str] = {}
        for manifest in data_dir.glob("prepared/acs-*/manifest.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):  # `verify` tells of the folder
                sources = json.loads(manifest.read_text(encoding="utf-8"))["sources"]
                noted |= {source["file"]: source["sha256"] for source in sources}
        paths = [path for state in STATES if (path := census.census_file(state, data_dir))]
        return super().raw_checks(data_dir) | {
            path: partial(census.check_census_file, path, noted.get(path.name)) for path in paths
        }

    def read(self, data_dir: Path, options: DataOptions, progress: bool = False) -> Arrays:
        from fedmpi.data.splits import hold_out

        states = chosen_states(options.states)
        people, sources = census.read_people(self.name, states, data_dir, progress)
        group = self.group_of(people.column("RAC1P"), people.employed)
        # By label as well as by group: in acs-race a group has both.
        in_test = hold_out(2 * group + people.employed, people.employed, TEST_SHARE, options.seed)
        notes = []
        if len(states) < len(STATES):
            notes.append(
                f"{len(people):,} people of {', '.join(states)} only; the paper has all states and "
                "Puerto Rico, about 3.2 million"
            )
        keep, group, groups = self._large_groups(group, in_test, options.min_group_rows, notes)
        people, in_test = people[keep], in_test[keep]
        encoding = fit(people[~in_test], notes)
        encoding.labels = self.labels(groups)
        note_unseen(people[in_test], encoding, notes)
        make = partial(encode, features=people.features, encoding=encoding)

        def part(rows: np.ndarray) -> tuple[Encoded, np.ndarray, np.ndarray]:
            mine = people[rows]
            return Encoded(mine.codes, make, len(encoding.features)), mine.employed, group[rows]

        return Arrays(
            *part(~in_test),
            *part(in_test),
            groups=groups,
            classes=CLASSES,
            features=encoding.features,
            encoding=encoding.to_json(),
            notes=notes,
            sources=sources,
            by=people[~in_test].columns(),
        )

    def labels(self, groups: tuple[str, ...]) -> "LabelEncoding":
        """Return how the Census' columns tell the class and the group of a row."""
        from fedmpi.data.labels import LabelColumn, LabelEncoding

        number = {name: code for code, name in enumerate(groups)}
        race, employed = (cells.ravel() for cells in np.mgrid[1:10, 0:2])
        names = [self.groups[a] for a in self.group_of(race, employed)]
        return LabelEncoding(
            LabelColumn("ESR", whole=True),
            CLASSES,
            {"1": 1},
            (LabelColumn("RAC1P", whole=True), LabelColumn("ESR", whole=True)),
            groups,
            {
                (str(r), CLASSES[e]): number[name]
                for r, e, name in zip(race, employed, names, strict=True)
                if name in number
            },
            otherwise=0,
        )

    def _large_groups(
        self, group: np.ndarray, in_test: np.ndarray, least: int, notes: list[str]
    ) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
        """Return the rows that stay, their groups, and the names of groups with `least` rows."""
        sizes = np.bincount(group[~in_test], minlength=len(self.groups))
        counts = ", ".join(f"{name} {n:,}" for name, n in zip(self.groups, sizes, strict=True))
        stay = sizes >= max(1, least)
        if not (least or stay.all()):
            raise UserError(
                f"{self.name}: group {self.groups[stay.argmin()]!r} has no rows to train on in "
                f"these states (rows: {counts}): use more --states, or --min-group-rows 1 to leave "
                "it out."
            )
        if stay.sum() < 2:
            raise UserError(
                f"{self.name}: --min-group-rows {least} leaves fewer than two groups (rows: "
                f"{counts}): use a smaller number."
            )
        if not stay.all():
            left_out = ", ".join(f"{self.groups[a]} ({sizes[a]:,})" for a in np.flatnonzero(~stay))
            notes.append(f"--min-group-rows {least} leaves out (rows to train on): {left_out}")
        keep = stay[group]
        number = np.cumsum(stay) - 1
        return keep, number[group[keep]], tuple(np.array(self.groups)[stay].tolist())


class AcsEmployment(Acs):
    """Six groups: the label, and race in three."""

    name = "acs-employment"
    title = "ACS Employment"
    summary = "census 2018, who has a job; groups of job and race"
    preset = Preset(
        "mlp", "cross-entropy", 0.01, 0.01, local_epochs=10, rounds=3000, local_rounds=40
    )
    groups = (
        *("Employed White", "Employed Black", "Employed Other"),
        *("Unemployed White", "Unemployed Black", "Unemployed Other"),
    )
    psg_first = ("Unemployed White", "Employed Black", "Employed White")
    ssg_of_40 = dict.fromkeys(groups, 6) | {"Employed White": 10}

    def group_of(self, race: np.ndarray, employed: np.ndarray) -> np.ndarray:
        # "Unemployed", in the paper's word, is everybody else: children and pensioners too.
        return np.minimum(race, 3).astype(int) - 1 + 3 * (1 - employed.astype(int))


class AcsRace(Acs):
    """Nine groups: RAC1P. It stays among the inputs, as sex does in Adult."""

    name = "acs-race"
    title = "ACS Employment by race"
    summary = "census 2018, who has a job; groups of race"
    preset = Preset(
        "logistic", "cross-entropy", 0.01, 0.01, local_epochs=10, rounds=3000, local_rounds=40
    )
    groups = RACES
    psg_first = RACES[:5]
    ssg_of_40 = dict.fromkeys(RACES, 4) | {"White": 8}

    def group_of(self, race: np.ndarray, employed: np.ndarray) -> np.ndarray:
        return race.astype(int) - 1


def fit(train: People, notes: list[str]) -> "Encoding":
    """Return the rules of the inputs: one for every code among the training rows, and the age."""
    from fedmpi.data.encoding import Coded, Encoding, Numbers, Numeric, Rule

    ages = train.column(NUMBER).astype(float)
    known = Numbers.of(NUMBER, ages, in_test=np.zeros(len(ages), dtype=bool))
    columns: dict[str, Rule] = {NUMBER: Numeric.fit(NUMBER, known)}
    for feature in train.features:
        if feature != NUMBER:
            found = np.flatnonzero(np.bincount(train.column(feature), minlength=256))
            columns[feature] = Coded(found.tolist(), blank=0)
    constant = [name for name, rule in columns.items() if not rule.features(name)]
    if constant:
        notes.append(f"constant columns left out: {', '.join(constant)}")
    return Encoding({name: rule for name, rule in columns.items() if name not in constant})


def encode(codes: np.ndarray, features: tuple[str, ...], encoding: "Encoding") -> np.ndarray:
    """A row of inputs for every row of codes."""
    columns = {name: codes[:, j] for j, name in enumerate(features)}
    columns[NUMBER] = columns[NUMBER].astype(float)
    return encoding.encode_columns(columns, len(codes))


def note_unseen(test: People, encoding: "Encoding", notes: list[str]) -> None:
    from fedmpi.data.encoding import Coded

    for name, rule in encoding.columns.items():
        if isinstance(rule, Coded):
            unseen = np.count_nonzero(rule.codes(test.column(name)) < 0)
            if unseen:
                notes.append(
                    f"column {name!r}: {unseen} test values not seen in training, all zero"
                )
